"""Whether the program was asked to stop: SIGTERM sets a flag, and the program saves and leaves when it suits it.

A handler that was there before still runs. A forked child is as it would be without this: `Process.terminate()`
must still end it.
"""

import os
import signal
import sys
import threading
from types import FrameType
from typing import Any, Optional

from . import _workers

_asked = False
_listening = False
_before: Any = None


def listen() -> None:
    """Starts to notice SIGTERM. Call it early, in the main thread; `should_stop()` does so on its first use."""
    global _before, _listening
    if _listening:
        return
    if threading.current_thread() is not threading.main_thread():
        raise RuntimeError(
            "SIGTERM can be listened for in the main thread only\n"
            "hint: call windfall.listen() in the main thread first; then should_stop() works in every thread"
        )
    _before = signal.signal(signal.SIGTERM, _on_sigterm)
    _workers.listener = _on_sigterm
    _listening = True
    _workers.shield_later_ones()


def should_stop(together: bool = False) -> bool:
    """Whether Windfall asked the program to stop: save, then leave.

    The ranks of a gang hear of it at slightly different steps, and one that leaves early keeps the others waiting
    in their next collective. `together=True` gives all ranks of torch.distributed the same answer, when all of
    them ask at the same step; it costs one small all-reduce.
    """
    if not _listening:
        listen()
    return agreed(_asked) if together else _asked


def take_over() -> None:
    """Puts this handler back in front of one that a framework has installed since, without calling that one."""
    listen()
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, _on_sigterm)


def _on_sigterm(number: int, frame: Optional[FrameType]) -> None:
    global _asked
    _asked = True
    if callable(_before):
        _before(number, frame)


def agreed(asked: bool) -> bool:
    # Not imported here: a program without torch has no group to agree with.
    torch = sys.modules.get("torch")
    distributed = getattr(torch, "distributed", None)
    if torch is None or distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return asked
    if distributed.get_world_size() < 2:
        return asked
    backend = str(distributed.get_backend())
    device = "cuda" if "nccl" in backend and "gloo" not in backend else "cpu"
    vote = torch.tensor([int(asked)], device=device)
    distributed.all_reduce(vote, op=distributed.ReduceOp.MAX)
    return bool(vote.item())


def _forget_in_child() -> None:
    global _asked, _listening
    if _listening and signal.getsignal(signal.SIGTERM) is _on_sigterm:
        signal.signal(signal.SIGTERM, signal.SIG_DFL if _before is None else _before)
    _asked = _listening = False


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_in_child)
