"""How far the program is, for the agent: `DONE TOTAL` in a small file, replaced whole, at most five times a second.

The agent is told by whichever process is the first of its machine, since the others share its file. Reporting
never fails a program: what cannot be written is warned about once.
"""

import atexit
import os
import threading
import time
import warnings
from typing import Any, Optional

from ._job import local_rank, said

PERIOD_SECONDS = 0.2


class _Report:
    """The newest value, and the timer that writes it when it came too soon after the one before."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.pending: Optional[str] = None
        self.timer: Optional[threading.Timer] = None
        self.written_at = float("-inf")
        self.warned = False

    def note(self, line: str, final: bool) -> None:
        with self.lock:
            self.pending = line
            wait = self.written_at + PERIOD_SECONDS - time.monotonic()
            if wait <= 0 or final:
                self.write()
            elif self.timer is None:
                self.timer = threading.Timer(wait, self.flush)
                self.timer.daemon = True
                self.timer.start()

    def flush(self) -> None:
        with self.lock:
            self.timer = None
            self.write()

    def write(self) -> None:
        path, line = said("WINDFALL_PROGRESS"), self.pending
        if path is None or line is None:
            return
        self.pending = None
        self.written_at = time.monotonic()
        beside = f"{path}.{os.getpid()}.tmp"
        try:
            # Not synced: after a crash of the machine nobody asks how far it was, only what is saved.
            with open(beside, "w", encoding="ascii") as file:
                file.write(line)
            os.replace(beside, path)
        except OSError as error:
            if not self.warned:
                self.warned = True
                warnings.warn(f"progress cannot be reported to Windfall: {error}", RuntimeWarning, stacklevel=4)


_report = _Report()


def _fresh() -> None:
    # A lock that another thread held at the fork stays held in the child for ever.
    global _report
    _report = _Report()


atexit.register(lambda: _report.flush())
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_fresh)


def progress(done: Any, total: Any = None) -> None:
    """Reports work done, of a total when it is known: steps, samples, epochs, any unit that only grows.

    Cheap enough for every step. Does nothing outside Windfall and in all but the first process of a machine.
    """
    count, whole = int(done), None if total is None else int(total)
    if count < 0:
        raise ValueError(f"progress is a count of work done, zero or more: {count}")
    if said("WINDFALL_PROGRESS") is None or local_rank() != 0:
        return
    known = whole is not None and whole > 0
    _report.note(f"{count} {whole}\n" if known else f"{count}\n", final=known and count >= (whole or 0))
