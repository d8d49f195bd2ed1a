"""A Hugging Face Trainer callback that saves when Windfall asks the program to stop, and reports progress.

    args = TrainingArguments(output_dir=windfall.checkpoint_dir(), save_steps=500, ...)
    trainer = Trainer(..., args=args, callbacks=[windfall.transformers.Callback()])
    trainer.train(resume_from_checkpoint=windfall.transformers.last_checkpoint())

It stops the training only; a program that goes on after `train` (evaluation, export) asks `windfall.should_stop()`
first.
"""

import re
import warnings
from pathlib import Path
from typing import Any, Optional

from . import _ask, _job, _stop
from ._progress import progress
from ._save import saved

try:
    from transformers import TrainerCallback
except ImportError as error:
    if error.name not in (None, "transformers"):
        raise
    raise ImportError(
        "windfall.transformers needs Hugging Face Transformers\nhint: pip install transformers", name="transformers"
    ) from error

_NAME = re.compile(r"checkpoint-(\d+)")
# The Trainer writes it last: a checkpoint without it was interrupted.
_WRITTEN_LAST = "trainer_state.json"


def last_checkpoint(directory: Optional[Path] = None) -> Optional[str]:
    """The newest whole checkpoint, for `trainer.train(resume_from_checkpoint=...)`; none at the beginning."""
    where = Path(directory) if directory else _job.resume_dir()
    if where is None or not where.is_dir():
        return None
    found = [(int(match[1]), path) for path in where.iterdir() if (match := _NAME.fullmatch(path.name))]
    whole = [path for _, path in sorted(found) if (path / _WRITTEN_LAST).is_file()]
    return str(whole[-1]) if whole else None


class Callback(TrainerCallback):  # type: ignore[misc]
    """Reports every step; when asked to stop, has all ranks save after the same step and end the training."""

    def __init__(self) -> None:
        self.stopping = False
        _stop.listen()

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.stopping = False
        self._report(state)
        if _job.inside() and state.is_world_process_zero:
            kept, given = _job.checkpoint_dir().resolve(), Path(args.output_dir).resolve()
            if kept != given:
                warnings.warn(
                    f"checkpoints are lost with the machine: output_dir is {given}, Windfall keeps: {kept}\n"
                    "hint: TrainingArguments(output_dir=windfall.checkpoint_dir())",
                    RuntimeWarning,
                    stacklevel=2,
                )

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> Any:
        self._report(state)
        # Each rank's Trainer saves its part, so all are told to.
        if _stop.should_stop(together=True):
            self.stopping = True
            control.should_save = True
            control.should_evaluate = False
            control.should_training_stop = True
        elif _ask.should_save(together=True):
            control.should_save = True
        return control

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        # With several ranks, another one may still be writing its part.
        if getattr(args, "world_size", 1) <= 1:
            saved()

    def on_epoch_end(self, args: Any, state: Any, control: Any, **_: Any) -> Any:
        if self.stopping:
            # The Trainer ends the epoch that it leaves halfway: it is saved, and there is no time to evaluate.
            control.should_save = False
            control.should_evaluate = False
        return control

    def _report(self, state: Any) -> None:
        if state.is_world_process_zero:
            progress(state.global_step, state.max_steps)
