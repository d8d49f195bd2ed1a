"""Trains a small model with PyTorch over any number of ranks, which may be another one after each start.

The state is kept in blocks, of which each rank saves some. Sums are taken over blocks and not over ranks, so the same steps
give the same bits, however many ranks there are: `elastic.py STEPS PAUSE_SECONDS`.
"""
import hashlib
import os
import sys
import time

import torch
import torch.distributed as dist

BLOCKS, WIDTH, SAVE_EVERY, SAMPLES = 6, 4, 10, 8
steps, pause = int(sys.argv[1]), float(sys.argv[2])
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
saves, resume = os.environ["WINDFALL_CHECKPOINT_DIR"], os.environ.get("WINDFALL_RESUME", "")
own = range(rank, BLOCKS, size)
torch.set_num_threads(1)
torch.set_default_dtype(torch.float64)


def save(step, weights):
    for block in own:
        new = f"{saves}/block-{block}.new"
        torch.save({"step": step, "weights": weights[block].clone()}, new)
        os.rename(new, f"{saves}/block-{block}.pt")


def gradient_of(block, step, weights):
    """What one block of the data says: a function of nothing but the block, the step and the weights."""
    dice = torch.Generator().manual_seed(step * 1000 + block)
    inputs = torch.randn(SAMPLES, BLOCKS * WIDTH, generator=dice)
    flat = weights.reshape(-1).clone().requires_grad_()
    ((inputs @ flat - torch.sin(inputs.sum(dim=1))) ** 2).mean().backward()
    return flat.grad.reshape(BLOCKS, WIDTH)


step, weights = 0, torch.full((BLOCKS, WIDTH), 0.1)
if resume:
    blocks = [torch.load(f"{resume}/block-{block}.pt") for block in range(BLOCKS)]
    assert len({block["step"] for block in blocks}) == 1, f"torn: {[block['step'] for block in blocks]}"
    step, weights = blocks[0]["step"], torch.stack([block["weights"] for block in blocks])
print(f"rank {rank} of {size} from {step}", flush=True)
dist.init_process_group("gloo")
while step < steps:
    # Each rank fills in what it has; the sum with zeros is exact, whatever its order.
    gradients = torch.zeros(BLOCKS, BLOCKS, WIDTH)
    for block in own:
        gradients[block] = gradient_of(block, step, weights)
    dist.all_reduce(gradients)
    for block in range(BLOCKS):
        weights = weights - 0.01 * gradients[block] / BLOCKS
    step += 1
    if step % SAVE_EVERY == 0 or step == steps:
        save(step, weights)
        time.sleep(pause)
text = repr([step, [value.hex() for value in weights.reshape(-1).tolist()]])
print(f"rank {rank} ends at {steps} as {hashlib.sha256(text.encode()).hexdigest()}", flush=True)
