"""What the agent says about this run, read from the environment each time: an empty variable is an unset one."""

import os
from pathlib import Path
from typing import Optional, Union

OUTSIDE_DIRECTORY = "checkpoints"


def said(variable: str) -> Optional[str]:
    """The value of an environment variable, none when it is unset or empty."""
    return os.environ.get(variable) or None


def inside() -> bool:
    """Whether Windfall runs this program."""
    return said("WINDFALL_JOB") is not None


def stint() -> Optional[int]:
    """Which stretch of running this is: it grows with every resumption. None outside Windfall."""
    value = said("WINDFALL_STINT")
    return int(value) if value else None


def rank() -> int:
    """This process's rank in its gang: 0 for a program that is alone."""
    return int(said("RANK") or 0)


def local_rank() -> int:
    return int(said("LOCAL_RANK") or 0)


def precision(default: str = "fp32") -> str:
    """The number format that the job was placed with (`bf16`, `fp16`, ...), or the default."""
    return said("WINDFALL_PRECISION") or default


def checkpoint_dir() -> Path:
    """Where checkpoints belong; outside Windfall `./checkpoints`, which `save` makes when it is needed."""
    return Path(said("WINDFALL_CHECKPOINT_DIR") or OUTSIDE_DIRECTORY)


def resume(name: Union[str, "os.PathLike[str]", None] = None) -> Optional[Path]:
    """The directory to resume from, or the file of that name in it; none when this is the beginning.

    Outside Windfall there is no directory to resume from, but a file that an earlier run saved is found, so that
    the same program resumes on a desk: `if path := windfall.resume("model.pt"): load(path)`.
    """
    if name is None:
        restored = said("WINDFALL_RESUME")
        return Path(restored) if restored else None
    directory = resume_dir()
    return directory / name if directory and (directory / name).exists() else None


def resume_dir() -> Optional[Path]:
    """Where to look for something to resume from."""
    if not inside():
        return checkpoint_dir()
    # With nothing restored, whatever lies in the checkpoint directory is not this job's to resume from.
    return resume()
