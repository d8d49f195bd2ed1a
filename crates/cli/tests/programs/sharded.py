"""Trains a small model with PyTorch over several ranks, of which each holds and saves its own part of weights and optimizer.

The same steps give the same bits, whoever interrupts them: `sharded.py STEPS PAUSE_SECONDS`.
"""
import hashlib
import os
import socket
import sys
import time

import torch
import torch.distributed as dist

WIDTH, SAVE_EVERY, SAMPLES = 32, 20, 16
steps, pause = int(sys.argv[1]), float(sys.argv[2])
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
saves, resume = os.environ["WINDFALL_CHECKPOINT_DIR"], os.environ.get("WINDFALL_RESUME", "")
torch.set_num_threads(1)
torch.set_default_dtype(torch.float64)


def shard_of(folder, of_rank):
    return torch.load(f"{folder}/shard-{of_rank}.pt")


def fingerprint(state):
    text = repr([state["step"]] + [[value.hex() for value in state[name].tolist()] for name in ("weights", "mean", "square")])
    return hashlib.sha256(text.encode()).hexdigest()


def save(state):
    new = f"{saves}/shard-{rank}.new"
    torch.save(state, new)
    os.rename(new, f"{saves}/shard-{rank}.pt")


def batch(step):
    """What this rank learns from at a step: a function of nothing but the two."""
    dice = torch.Generator().manual_seed(step * 1000 + rank)
    inputs = torch.randn(SAMPLES, WIDTH, generator=dice)
    return inputs, torch.sin(inputs.sum(dim=1))


part = WIDTH // size
state = {"step": 0, "weights": torch.full((part,), 0.1 * (rank + 1)), "mean": torch.zeros(part), "square": torch.zeros(part)}
if resume:
    shards = [shard_of(resume, of_rank) for of_rank in range(size)]
    assert len({shard["step"] for shard in shards}) == 1, f"torn: {[shard['step'] for shard in shards]}"
    state = shards[rank]
print(f"rank {rank} from {state['step']}", flush=True)
dist.init_process_group("gloo")
try:
    # What the others reach this rank by: the wrong one of several interfaces would keep the gang from meeting.
    print(f"rank {rank} of {dist.get_world_size()} on {socket.gethostname()}", flush=True)
    while state["step"] < steps:
        parts = [torch.empty(part) for _ in range(size)]
        dist.all_gather(parts, state["weights"])
        weights = torch.cat(parts).requires_grad_()
        inputs, wanted = batch(state["step"])
        loss = ((inputs @ weights - wanted) ** 2).mean()
        loss.backward()
        gradient = weights.grad
        dist.all_reduce(gradient)
        own = gradient[rank * part : (rank + 1) * part] / size
        state["step"] += 1
        state["mean"] = 0.9 * state["mean"] + 0.1 * own
        state["square"] = 0.99 * state["square"] + 0.01 * own * own
        state["weights"] = state["weights"] - 0.01 * state["mean"] / (state["square"].sqrt() + 1e-8)
        if state["step"] % SAVE_EVERY == 0 or state["step"] == steps:
            save(state)
            time.sleep(pause)
finally:
    if state["step"] == steps:
        print(f"rank {rank} ends at {steps} as {fingerprint(state)}", flush=True)
