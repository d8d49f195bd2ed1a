"""The quickstart's training loop in PyTorch: it survives interruptions, and ends with the very same weights.

A two-layer network learns to tell the points inside a ring from those outside. A checkpoint holds all that the next
step depends on: weights, the optimizer's moments, the step and the state of the random numbers. So an interrupted
run and an undisturbed one agree to the last bit.
"""

import os
import signal
import sys
import time
from pathlib import Path

try:
    import torch
except ImportError:
    print(
        "this example needs PyTorch\n"
        "hint: pip install torch, or on Debian: apt-get install python3-torch (for /usr/bin/python3)",
        file=sys.stderr,
    )
    sys.exit(127)

# The package lies in this repository; a program elsewhere installs it.
sys.path.append(str(Path(__file__).resolve().parents[2] / "python"))
try:
    import windfall
except ImportError:
    windfall = None

STEPS = 308
# A tiny network is quick: pace it, as a large one would be by its accelerator.
SECONDS_A_STEP = float(os.environ.get("SECONDS_A_STEP", "0.25"))
SAVE_EVERY = 4
HIDDEN = 16
BATCH = 64
DIRECTORY = Path(os.environ.get("WINDFALL_CHECKPOINT_DIR") or "checkpoints")
NAME = "model.pt"

stop = False


class Ring(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.hidden = torch.nn.Linear(2, HIDDEN)
        self.out = torch.nn.Linear(HIDDEN, 1)

    def forward(self, points):
        return self.out(torch.tanh(self.hidden(points))).squeeze(1)


def sample():
    """A batch from torch's random numbers, whose state is part of the checkpoint."""
    points = torch.rand(BATCH, 2) * 2 - 1
    distance = points.norm(dim=1)
    return points, ((0.3 < distance) & (distance < 0.8)).float()


def train_step(model, optimizer):
    points, labels = sample()
    loss = torch.nn.functional.binary_cross_entropy_with_logits(model(points), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()


def ask_to_stop(*_):
    global stop
    stop = True


def should_stop():
    return windfall.should_stop() if windfall else stop


def save(state):
    """Whoever looks sees the old file or the new one, never half of one."""
    if windfall:
        # A file, not a path: torch.save writes the name of a path, here a passing one, into the checkpoint.
        with windfall.atomic(NAME) as file:
            torch.save(state, file)
        return
    DIRECTORY.mkdir(parents=True, exist_ok=True)
    beside = DIRECTORY / (NAME + ".tmp")
    with open(beside, "wb") as file:
        torch.save(state, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(beside, DIRECTORY / NAME)


def main():
    windfall.listen() if windfall else signal.signal(signal.SIGTERM, ask_to_stop)
    # Sums depend on how many threads share them.
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    torch.manual_seed(0)
    model = Ring()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    step = 0
    if (DIRECTORY / NAME).exists():
        saved = torch.load(DIRECTORY / NAME, map_location="cpu")
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        torch.set_rng_state(saved["random"])
        step = saved["step"]
        print(f"resuming at step {step}/{STEPS}", flush=True)
    due = time.monotonic()
    while step < STEPS:
        loss = train_step(model, optimizer)
        step += 1
        print(f"step {step}/{STEPS} loss {loss:.4f}", flush=True)
        if windfall:
            windfall.progress(step, STEPS)
        stopping = should_stop()
        if stopping or step % SAVE_EVERY == 0 or step == STEPS:
            save(
                {
                    "step": step,
                    "model": model.state_dict(),
                    "optimizer": optimizer.state_dict(),
                    "random": torch.get_rng_state(),
                }
            )
        if stopping:
            print(f"told to stop: saved at step {step}", flush=True)
            sys.exit(0)
        due += SECONDS_A_STEP
        time.sleep(max(0.0, due - time.monotonic()))
    print("done", flush=True)


main()
