"""Data-loading workers live through the SIGTERM that asks their program to stop.

The agent signals the whole process group, since it cannot know which of its processes trains. A DataLoader worker
would die of that, and the main process would fail on the missing batch before it could save. So a worker hears
SIGTERM from its parent only, which is how `Process.terminate()` ends it; simply ignoring the signal would leave a
program that cannot end its workers.
"""

import os
import signal
import threading
from multiprocessing import parent_process, util
from typing import Any, Callable, Optional

_shielded_pid = 0

# Set by a worker that itself listens, a rank that was forked for one: it hears SIGTERM from everybody.
listener: Optional[Callable[[int, None], None]] = None


def shield(_worker: Any = None) -> None:
    """Makes this process deaf to SIGTERM from any process but its parent.

    Workers that are forked after `listen()` have it already. For those that are spawned, pass it on:
    `DataLoader(..., multiprocessing_context="spawn", worker_init_fn=windfall.shield)`.
    """
    global _shielded_pid
    if _shielded_pid == os.getpid() or not hasattr(signal, "sigwaitinfo"):
        return
    _shielded_pid = os.getpid()
    # A blocked signal waits for sigwaitinfo, which alone in Python says who sent it. Threads inherit the mask.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    threading.Thread(target=_heed_parent, name="windfall-shield", daemon=True).start()


def _heed_parent() -> None:
    starter = parent_process()
    while True:
        sender = signal.sigwaitinfo({signal.SIGTERM}).si_pid
        if listener is not None:
            listener(signal.SIGTERM, None)
        elif sender == os.getppid() or (starter is not None and sender == starter.pid):
            os._exit(128 + signal.SIGTERM)


def shield_later_ones() -> None:
    """Shields the workers that multiprocessing forks from now on; other children (subprocesses) stay as they are."""
    util.register_after_fork(_LATER_ONES, _LaterOnes.shield)


class _LaterOnes:
    def shield(self) -> None:
        global listener
        listener = None
        shield()


_LATER_ONES = _LaterOnes()
