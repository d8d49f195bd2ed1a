"""One-line helpers for programs that Windfall interrupts and resumes.

Nothing here is needed: any program that saves and resumes works. Everything here also works outside Windfall,
where `progress` does nothing and checkpoints go to `./checkpoints`. Standard library only.
"""

from ._ask import should_save
from ._job import checkpoint_dir, inside, precision, rank, resume, stint
from ._progress import progress
from ._save import atomic, save, saved
from ._stop import listen, should_stop
from ._workers import shield

__version__ = "0.1.0"
__all__ = [
    "atomic",
    "checkpoint_dir",
    "inside",
    "listen",
    "precision",
    "progress",
    "rank",
    "resume",
    "save",
    "saved",
    "shield",
    "should_save",
    "should_stop",
    "stint",
]
