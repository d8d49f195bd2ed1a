"""Whether Windfall wants a save now: it knows what a save costs here, and how long the machine is likely to last.

The number of the last request is in a file that the agent replaces. Looking costs one `stat` a call.
"""

import os
from typing import Optional, Tuple

from . import _job, _stop

_seen = 0
_stamp: Optional[Tuple[int, int]] = None


def should_save(together: bool = False) -> bool:
    """Whether to save now, true once for each request: `if windfall.should_save(): save(...)` after a step.

    Also true when the program is to stop. Outside Windfall it is never true. `together=True` gives all ranks of
    torch.distributed the same answer when all of them ask at the same step, as for `should_stop`.
    """
    wanted = _asked() or _stop.should_stop()
    return _stop.agreed(wanted) if together else wanted


def _asked() -> bool:
    global _seen, _stamp
    path = _job.said("WINDFALL_SAVE_REQUEST")
    if path is None:
        return False
    try:
        found = os.stat(path)
    except OSError:
        return False
    stamp = (found.st_mtime_ns, found.st_ino)
    if stamp == _stamp:
        return False
    _stamp = stamp
    try:
        with open(path, encoding="ascii") as file:
            request = int(file.read() or 0)
    except (OSError, ValueError):
        return False
    fresh, _seen = request > _seen, max(request, _seen)
    return fresh
