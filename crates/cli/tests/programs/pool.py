"""Works in a pool whose processes die of SIGTERM: the program then waits for an answer that never comes."""

import json
import multiprocessing
import os
import signal
import sys
import time

STEPS = 50
PATH = os.path.join(os.environ["WINDFALL_CHECKPOINT_DIR"], "state.json")
stop = False


def on_term(*_):
    global stop
    stop = True


def as_without_a_handler():
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


def work(step):
    time.sleep(0.1)
    return step + 1


def main():
    signal.signal(signal.SIGTERM, on_term)
    step = 0
    if os.path.exists(PATH):
        with open(PATH) as file:
            step = json.load(file)["step"]
    pool = multiprocessing.Pool(2, as_without_a_handler)
    while step < STEPS:
        step = max(pool.map(work, [step, step], 1))
        print(f"step {step}/{STEPS}", flush=True)
        if stop or step % 5 == 0:
            with open(PATH + ".tmp", "w") as file:
                json.dump({"step": step}, file)
            os.replace(PATH + ".tmp", PATH)
        if stop:
            break
    pool.terminate()
    pool.join()


main()
