"""Waits for a lock in its checkpoint directory that the run before never gave back."""

import os
import time

folder = os.environ["WINDFALL_CHECKPOINT_DIR"]
lock, path = os.path.join(folder, "run.lock"), os.path.join(folder, "step")
while os.path.exists(lock):
    time.sleep(0.1)
with open(lock, "w") as file:
    file.write(str(os.getpid()))
step = 0
if os.path.exists(path):
    with open(path) as file:
        step = int(file.read())
while step < 40:
    step += 1
    time.sleep(0.1)
    if step % 5 == 0:
        with open(path + ".tmp", "w") as file:
            file.write(str(step))
        os.replace(path + ".tmp", path)
os.remove(lock)
