"""Files that are whole or not there: written beside their place, synced, then renamed into it.

Whoever looks at any moment, also after a kill or a power cut, finds the old file or the new one. A save that is
killed leaves its unfinished file behind; the next save of that name removes it.
"""

import os
import re
import secrets
import shutil
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, Callable, Iterator, Union

from ._job import checkpoint_dir, rank, said

PathLike = Union[str, "os.PathLike[str]"]
Savable = Union[bytes, bytearray, memoryview, str, Callable[[Path], Any]]

_BEGAN = time.time()


def save(path_or_name: PathLike, data_or_callable: Savable) -> Path:
    """Saves bytes, text, or what a callable writes to the path it is given; returns where.

    A relative name lands in the checkpoint directory. The path that the callable is given has the ending of the
    final one: `windfall.save("model.pt", lambda path: torch.save(state, path))`. It may also make a directory
    there, whose final name must then be a new one each time (`step-1200`): a directory cannot be replaced at once.
    """
    target = place_of(path_or_name)
    beside = _beside(target)
    try:
        if callable(data_or_callable):
            data_or_callable(beside)
            if not beside.exists():
                raise FileNotFoundError(
                    f"nothing to save: the callable wrote no file at the path that it was given, for: {target}"
                )
        else:
            _write(beside, data_or_callable)
        publish(beside, target)
    except BaseException:
        _remove(beside)
        raise
    return target


@contextmanager
def atomic(path: PathLike, mode: str = "wb", **options: Any) -> Iterator[IO[Any]]:
    """A file to write to that takes its place when the block ends well, and vanishes when it does not.

    `with windfall.atomic("state.json", "w") as file: json.dump(state, file)`
    """
    if "w" not in mode or "+" in mode:
        raise ValueError(f"an atomic file is written anew, with mode 'w' or 'wb', not: {mode!r}")
    target = place_of(path)
    beside = _beside(target)
    try:
        with open(beside, mode, **options) as file:
            yield file
        publish(beside, target)
    except BaseException:
        _remove(beside)
        raise


def saved() -> None:
    """Tells Windfall that everything in the checkpoint directory is whole at this moment.

    Without it Windfall takes a checkpoint when nothing has changed for a while (`checkpoint.settle`). To be called
    after the last file of a save, before the next one begins, and on several ranks by rank 0 when all have saved.
    Does nothing outside Windfall, and on other ranks.
    """
    mark = said("WINDFALL_SAVED")
    if mark is None or rank() != 0:
        return
    beside = f"{mark}.{os.getpid()}"
    # A mark that cannot be left only means that the checkpoint is taken later.
    with suppress(OSError):
        with open(beside, "w", encoding="ascii") as file:
            file.write(str(time.time_ns()))
        os.replace(beside, mark)


def place_of(path_or_name: PathLike) -> Path:
    """The final path, with its directory made."""
    target = checkpoint_dir() / path_or_name
    target.parent.mkdir(parents=True, exist_ok=True)
    return target


def publish(beside: Path, target: Path) -> None:
    """Makes what was written durable, then visible under its name, then the name durable."""
    _sync_tree(beside)
    if beside.is_dir() and target.is_dir() and any(target.iterdir()):
        raise FileExistsError(f"a directory cannot be replaced at once: save under a new name each time, not: {target}")
    os.replace(beside, target)
    _sync(target.parent)


def _beside(target: Path) -> Path:
    """A new name in the same directory, with the same ending: NumPy, for one, appends the ending it misses."""
    unfinished = re.compile(r"\.windfall-[0-9a-f]{8}-" + re.escape(target.name))
    for path in target.parent.iterdir():
        # Only those of earlier runs: another process may be saving right now.
        with suppress(OSError):
            if unfinished.fullmatch(path.name) and path.stat().st_mtime < _BEGAN:
                _remove(path)
    return target.with_name(f".windfall-{secrets.token_hex(4)}-{target.name}")


def _write(path: Path, data: Any) -> None:
    if isinstance(data, str):
        data = data.encode("utf-8")
    elif not isinstance(data, (bytes, bytearray, memoryview)):
        raise TypeError(
            f"bytes, text or a callable can be saved, not: {type(data).__name__}\n"
            "hint: pass a callable that writes it: windfall.save(name, lambda path: torch.save(state, path))"
        )
    with open(path, "wb") as file:
        file.write(data)


def _sync_tree(path: Path) -> None:
    if path.is_dir():
        for entry in path.iterdir():
            if not entry.is_symlink():
                _sync_tree(entry)
    _sync(path)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _remove(path: Path) -> None:
    with suppress(OSError):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
