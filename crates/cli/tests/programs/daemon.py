"""Puts itself into the background (double fork, setsid) and works there: nobody who started it can see it."""

import os
import time

if os.fork():
    os._exit(0)
os.setsid()
if os.fork():
    os._exit(0)
path = os.path.join(os.environ["WINDFALL_CHECKPOINT_DIR"], "step")
for step in range(60):
    with open(path + ".tmp", "w") as file:
        file.write(str(step))
    os.replace(path + ".tmp", path)
    time.sleep(0.3)
