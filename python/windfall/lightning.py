"""A PyTorch Lightning callback that saves when Windfall asks the program to stop, and reports progress.

    last = windfall.lightning.last_checkpoint()
    trainer = Trainer(callbacks=[windfall.lightning.Callback(every_n_steps=500)])
    trainer.fit(model, ckpt_path=last)

It stops the trainer only; a program that goes on after `fit` (tests, exports) asks `windfall.should_stop()` first.
A plain DataLoader starts an epoch that was interrupted from its first batch again: the callback warns of it when the
training starts; use one that has a state, such as torchdata's StatefulDataLoader. Gradients that were accumulated but
not yet applied are not part of a Lightning checkpoint.
"""

import math
import re
import sys
import warnings
from pathlib import Path
from typing import Any, List, Optional

from . import _ask, _job, _save, _stop
from ._progress import progress

_NAME = re.compile(r"windfall-(\d+)\.ckpt")


def _base() -> Any:
    # A Trainer of one package takes no callbacks of the other: follow the one that the program has imported.
    names = ["lightning.pytorch", "pytorch_lightning"]
    if "pytorch_lightning" in sys.modules and "lightning.pytorch" not in sys.modules:
        names.reverse()
    for name in names:
        try:
            return __import__(name, fromlist=["Callback"]).Callback
        except ImportError as error:
            # One that is there but broken says itself what is wrong with it.
            if error.name is None or error.name.split(".")[0] != name.split(".")[0]:
                raise
    raise ImportError("windfall.lightning needs PyTorch Lightning\nhint: pip install lightning", name="lightning")


def last_checkpoint(directory: Optional[Path] = None) -> Optional[str]:
    """The newest checkpoint of the callback, for `trainer.fit(..., ckpt_path=...)`; none at the beginning."""
    where = Path(directory) if directory else _job.resume_dir()
    saved = _saved(where) if where and where.is_dir() else []
    return str(saved[-1]) if saved else None


def _saved(directory: Path) -> List[Path]:
    """Those in the directory, by step. By name, since a copy may not have kept its time."""
    found = [(int(match[1]), path) for path in directory.iterdir() if (match := _NAME.fullmatch(path.name))]
    return [path for _, path in sorted(found)]


def _warn_of_a_loader_without_a_state(trainer: Any) -> None:
    """Lightning saves where it is in an epoch, and starts a plain DataLoader from its first batch all the same."""
    loader = getattr(trainer, "train_dataloader", None)
    if loader is None or hasattr(loader, "load_state_dict"):
        return
    progress_of = getattr(trainer.fit_loop.epoch_loop, "batch_progress", None)
    again = progress_of.current.ready if progress_of is not None else 0
    what = "after a stop in the middle of an epoch this DataLoader starts from its first batch again"
    if again:
        what += f": {again} batches of this epoch are seen twice, as many never"
    warnings.warn(
        f"{what}\nhint: use one that has a state, such as StatefulDataLoader of torchdata",
        RuntimeWarning,
        stacklevel=2,
    )


class Callback(_base()):  # type: ignore[misc]
    """Saves `windfall-STEP.ckpt` in the checkpoint directory when asked to stop, and every so many steps if told to.

    All ranks agree on the batch after which they stop, and all take part in the save: Lightning lets rank 0 write,
    or every rank its shard. Rank 0 puts the finished checkpoint in its place and removes the one before.
    """

    def __init__(self, every_n_steps: Optional[int] = None) -> None:
        super().__init__()
        if every_n_steps is not None and every_n_steps < 1:
            raise ValueError(f"every_n_steps is at least 1, not: {every_n_steps}")
        self.every_n_steps = every_n_steps
        self.total: Optional[int] = None
        self.last_step = -1
        _stop.listen()

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        # Lightning's own handler ends a rank after its current batch, whatever the others do.
        _stop.take_over()
        estimate = trainer.estimated_stepping_batches
        self.total = int(estimate) if math.isfinite(estimate) and estimate > 0 else None
        self.last_step = trainer.global_step
        self._report(trainer)
        if _job.inside() and trainer.is_global_zero:
            _warn_of_a_loader_without_a_state(trainer)

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        self._report(trainer)
        stepped = trainer.global_step != self.last_step
        self.last_step = trainer.global_step
        if trainer.strategy.reduce_boolean_decision(_stop.should_stop(), all=False):
            self._save(trainer)
            self._stop(trainer)
        elif trainer.strategy.reduce_boolean_decision(_ask.should_save(), all=False):
            self._save(trainer)
        elif self.every_n_steps and stepped and trainer.global_step % self.every_n_steps == 0:
            self._save(trainer)

    def _report(self, trainer: Any) -> None:
        if trainer.is_global_zero:
            progress(trainer.global_step, self.total)

    def _save(self, trainer: Any) -> None:
        # Lightning's checkpoint of a sharded model is a directory that all ranks write into: one name for all.
        target = _save.place_of(f"windfall-{trainer.global_step:09d}.ckpt")
        beside = target.with_name(".windfall-unfinished.ckpt")
        if trainer.is_global_zero:
            _save._remove(beside)
        trainer.strategy.barrier("windfall-before-save")
        trainer.save_checkpoint(beside)
        trainer.strategy.barrier("windfall-after-save")
        if trainer.is_global_zero:
            if target.is_dir():
                # The same step once more, after a resumption: the one that is there is as good.
                _save._remove(beside)
            else:
                _save.publish(beside, target)
            for old in _saved(target.parent)[:-1]:
                _save._remove(old)

    @staticmethod
    def _stop(trainer: Any) -> None:
        trainer.should_stop = True
        # A stop runs the validation first, and waits for min_epochs and min_steps: there is no time for either.
        trainer.limit_val_batches = 0
        trainer.fit_loop.min_epochs = None
        trainer.fit_loop.epoch_loop.min_steps = None
