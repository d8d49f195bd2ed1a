"""A small real training loop that survives interruptions. Needs Python's standard library only.

A two-layer network learns to tell the points inside a ring from those outside. Nothing here knows about
Windfall: the program saves to a directory, resumes from it, and saves once more when it gets SIGTERM.
"""

import json
import math
import os
import random
import signal
import sys
import time

STEPS = 308
SECONDS_A_STEP = 0.25  # a tiny network is quick: pace it, as a large one would be by its accelerator
SAVE_EVERY = 4
HIDDEN = 16
RATE = 0.5
BATCH = 64

stop = False


def ask_to_stop(*_):
    global stop
    stop = True


def sample(step):
    """The batch of a step depends on the step alone, so a resumed run sees the same data."""
    rng = random.Random(step)
    points = [(rng.uniform(-1, 1), rng.uniform(-1, 1)) for _ in range(BATCH)]
    return [((x, y), 1.0 if 0.3 < math.hypot(x, y) < 0.8 else 0.0) for x, y in points]


def fresh_model():
    rng = random.Random(0)
    return {
        "w1": [[rng.gauss(0, 2), rng.gauss(0, 2), rng.gauss(0, 1)] for _ in range(HIDDEN)],
        "w2": [rng.gauss(0, 1) for _ in range(HIDDEN + 1)],
    }


def forward(model, x, y):
    hidden = [math.tanh(a * x + b * y + c) for a, b, c in model["w1"]]
    out = sum(w * h for w, h in zip(model["w2"], hidden)) + model["w2"][-1]
    return hidden, 1 / (1 + math.exp(-max(-30.0, min(30.0, out))))


def train_step(model, step):
    """One step of gradient descent; returns the loss."""
    g1 = [[0.0, 0.0, 0.0] for _ in range(HIDDEN)]
    g2 = [0.0] * (HIDDEN + 1)
    loss = 0.0
    for (x, y), label in sample(step):
        hidden, p = forward(model, x, y)
        loss -= math.log(max(p if label else 1 - p, 1e-9))
        d = p - label
        g2[-1] += d
        for i, h in enumerate(hidden):
            g2[i] += d * h
            back = d * model["w2"][i] * (1 - h * h)
            g1[i][0] += back * x
            g1[i][1] += back * y
            g1[i][2] += back
    for i in range(HIDDEN):
        for j in range(3):
            model["w1"][i][j] -= RATE * g1[i][j] / BATCH
        model["w2"][i] -= RATE * g2[i] / BATCH
    model["w2"][-1] -= RATE * g2[-1] / BATCH
    return loss / BATCH


def save(path, step, model):
    """Write beside it, then rename: whoever looks sees the old file or the new one, never half of one."""
    with open(path + ".tmp", "w") as file:
        json.dump({"step": step, "model": model}, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(path + ".tmp", path)


def main():
    signal.signal(signal.SIGTERM, ask_to_stop)
    directory = os.environ.get("WINDFALL_CHECKPOINT_DIR", "checkpoints")
    os.makedirs(directory, exist_ok=True)
    path = os.path.join(directory, "model.json")
    step, model = 0, fresh_model()
    if os.path.exists(path):
        with open(path) as file:
            saved = json.load(file)
        step, model = saved["step"], saved["model"]
        print(f"resuming at step {step}/{STEPS}", flush=True)
    due = time.monotonic()
    while step < STEPS:
        loss = train_step(model, step)
        step += 1
        print(f"step {step}/{STEPS} loss {loss:.4f}", flush=True)
        if stop:
            save(path, step, model)
            print(f"told to stop: saved at step {step}", flush=True)
            sys.exit(0)
        if step % SAVE_EVERY == 0 or step == STEPS:
            save(path, step, model)
        due += SECONDS_A_STEP
        time.sleep(max(0.0, due - time.monotonic()))
    print("done", flush=True)


main()
