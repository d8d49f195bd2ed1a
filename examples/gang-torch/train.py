"""A small language model, trained by several ranks that share the optimizer's state between them.

Every rank has all weights, and the moments of its own slice of them. After each step the ranks add up their gradients,
each moves its own slice, and they exchange the slices. A checkpoint is a folder for a step with one shard for each rank;
it counts when all shards of the step are there. All that a step depends on is in it or follows from the step's number, so
an interrupted run and an undisturbed one agree to the last bit.
"""

import hashlib
import os
import shutil
import signal
import sys
import time
from pathlib import Path

# Sums on an accelerator are only the same each time when the library may not choose how to add.
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
try:
    import torch
    import torch.distributed as ranks
except ImportError:
    print(
        "this example needs PyTorch\n"
        "hint: pip install torch, or on Debian: apt-get install python3-torch (for /usr/bin/python3)",
        file=sys.stderr,
    )
    sys.exit(127)

STEPS = int(os.environ.get("STEPS", "300"))
SAVE_EVERY = int(os.environ.get("SAVE_EVERY", "25"))
WIDTH = int(os.environ.get("WIDTH", "64"))
LAYERS = int(os.environ.get("LAYERS", "2"))
# A tiny network is quick: pace it, as a large one would be by its accelerator.
SECONDS_A_STEP = float(os.environ.get("SECONDS_A_STEP", "0.2"))
TOKENS, CONTEXT, BATCH = 256, 64, 8
RANK, SIZE = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
SAVES = Path(os.environ.get("WINDFALL_CHECKPOINT_DIR") or "checkpoints")
RESUME = Path(os.environ.get("WINDFALL_RESUME") or SAVES)

stop = False


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens = torch.nn.Embedding(TOKENS, WIDTH)
        self.places = torch.nn.Parameter(torch.zeros(CONTEXT, WIDTH))
        layer = lambda: torch.nn.TransformerEncoderLayer(WIDTH, 4, 4 * WIDTH, dropout=0.0, batch_first=True)
        self.layers = torch.nn.ModuleList([layer() for _ in range(LAYERS)])
        self.out = torch.nn.Linear(WIDTH, TOKENS)

    def forward(self, text):
        mask = torch.full((CONTEXT, CONTEXT), float("-inf"), device=text.device).triu(1)
        state = self.tokens(text) + self.places
        for layer in self.layers:
            state = layer(state, src_mask=mask)
        return self.out(state)


def batch(step, device):
    """Lines whose next token follows from the last two, drawn for this step and rank."""
    random = torch.Generator().manual_seed(step * 1_000 + RANK)
    text = torch.randint(TOKENS, (BATCH, CONTEXT + 1), generator=random)
    for at in range(2, CONTEXT + 1):
        text[:, at] = (text[:, at - 1] * 3 + text[:, at - 2]) % TOKENS
    text = text.to(device)
    return text[:, :-1], text[:, 1:]


class Shard:
    """This rank's slice of all weights, with the moments of Adam for it."""

    def __init__(self, model):
        self.weights = list(model.parameters())
        count = sum(weight.numel() for weight in self.weights)
        self.each = -(-count // SIZE)
        flat = self.gathered(weight.data for weight in self.weights)
        self.own = flat[RANK * self.each : (RANK + 1) * self.each].clone()
        self.mean, self.square = torch.zeros_like(self.own), torch.zeros_like(self.own)

    def gathered(self, parts):
        flat = torch.cat([part.reshape(-1) for part in parts])
        return torch.nn.functional.pad(flat, (0, self.each * SIZE - flat.numel()))

    def move(self, step):
        """One step of Adam on the own slice, by what all ranks found."""
        gradient = self.gathered(weight.grad for weight in self.weights).cpu()
        if SIZE > 1:
            ranks.all_reduce(gradient)
        gradient = gradient[RANK * self.each : (RANK + 1) * self.each].to(self.own.device) / SIZE
        self.mean.mul_(0.9).add_(gradient, alpha=0.1)
        self.square.mul_(0.999).addcmul_(gradient, gradient, value=0.001)
        mean, square = self.mean / (1 - 0.9**step), self.square / (1 - 0.999**step)
        self.own.addcdiv_(mean, square.sqrt() + 1e-8, value=-1e-3)
        self.exchange()

    def exchange(self):
        """Gives every rank all weights."""
        slices = [torch.empty(self.each) for _ in range(SIZE)]
        own = self.own.cpu()
        if SIZE > 1:
            ranks.all_gather(slices, own)
        else:
            slices = [own]
        flat, at = torch.cat(slices).to(self.own.device), 0
        for weight in self.weights:
            weight.data.copy_(flat[at : at + weight.numel()].view_as(weight))
            at += weight.numel()

    def digest(self):
        parts = [self.own, self.mean, self.square]
        return hashlib.sha256(b"".join(part.cpu().numpy().tobytes() for part in parts)).hexdigest()[:16]


def save(step, shard):
    """Writes this rank's shard of a step; whoever looks sees a whole one or none. Older steps go once all have this one."""
    folder = SAVES / f"step-{step:08}"
    folder.mkdir(parents=True, exist_ok=True)
    beside = folder / f"shard-{RANK}.new"
    with open(beside, "wb") as file:
        torch.save({"step": step, "own": shard.own, "mean": shard.mean, "square": shard.square}, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(beside, folder / f"shard-{RANK}.pt")
    if SIZE > 1:
        ranks.barrier()
    for older in sorted(SAVES.glob("step-*"))[:-2]:
        # Each removes its own shard: the others' may lie on machines of theirs.
        (older / f"shard-{RANK}.pt").unlink(missing_ok=True)
        try:
            older.rmdir()
        except OSError:
            pass


def restore(shard):
    """The newest step of which all shards are there."""
    whole = [f for f in RESUME.glob("step-*") if all((f / f"shard-{rank}.pt").exists() for rank in range(SIZE))]
    step = max((int(folder.name.removeprefix("step-")) for folder in whole), default=0)
    if SIZE > 1:
        # Ranks that found different steps must not go on.
        found = [None] * SIZE
        ranks.all_gather_object(found, step)
        assert len(set(found)) == 1, f"ranks found different steps: {found}"
    if step:
        saved = torch.load(RESUME / f"step-{step:08}" / f"shard-{RANK}.pt", map_location=shard.own.device)
        shard.own, shard.mean, shard.square = saved["own"], saved["mean"], saved["square"]
        shard.exchange()
    return step


def ask_to_stop(*_):
    global stop
    stop = True


def all_stop():
    """Whether any rank was told to stop: then all save the same step."""
    if SIZE == 1:
        return stop
    told = torch.tensor([float(stop)])
    ranks.all_reduce(told)
    return told.item() > 0


def main():
    signal.signal(signal.SIGTERM, ask_to_stop)
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    torch.manual_seed(0)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if SIZE > 1:
        ranks.init_process_group("gloo")
    what = torch.cuda.get_device_name() if device.type == "cuda" else "processors"
    model = Model().to(device)
    shard = Shard(model)
    print(f"rank {RANK} of {SIZE} on {what}: {SIZE * shard.each} weights", flush=True)
    step = restore(shard)
    print(f"rank {RANK} from {step}", flush=True)
    due = time.monotonic()
    while step < STEPS:
        text, following = batch(step, device)
        loss = torch.nn.functional.cross_entropy(model(text).flatten(0, 1), following.flatten())
        model.zero_grad()
        loss.backward()
        step += 1
        shard.move(step)
        if RANK == 0:
            print(f"step {step}/{STEPS} loss {loss.item():.4f}", flush=True)
        stopping = all_stop()
        if stopping or step % SAVE_EVERY == 0 or step == STEPS:
            save(step, shard)
        if stopping:
            print(f"rank {RANK} was told to stop, and saved {step}", flush=True)
            return
        due += SECONDS_A_STEP
        time.sleep(max(0.0, due - time.monotonic()))
    print(f"rank {RANK} ends at {step} with {shard.digest()}", flush=True)


main()
