"""Built-in benchmarks in PyTorch: a fixed seed, made-up data, and a line of JSON each time some steps are done.

    python3 suite.py bert-base '{"precision": "bf16", "batch": 64, "seconds": 10, "seed": 1, "small": false}'

Lines begin with `windfall-bench `. Nothing is downloaded, and no file stays."""

import json
import math
import os
import sys
import tempfile
import time

import torch
from torch import nn
from torch.nn import functional as F

CUDA = torch.cuda.is_available()
DEVICE = torch.device("cuda" if CUDA else "cpu")


def say(event, **words):
    print("windfall-bench " + json.dumps({"event": event, **words}), flush=True)


def refuse(why):
    say("refused", why=why)
    sys.exit(3)


def sync():
    if CUDA:
        torch.cuda.synchronize()


def use_precision(name):
    """Sets number formats; the type that autocast is to use, or none."""
    tf32 = name != "fp32"
    torch.backends.cuda.matmul.allow_tf32 = tf32
    torch.backends.cudnn.allow_tf32 = tf32
    if name == "fp32":
        return None
    if name == "tf32":
        if not CUDA or torch.cuda.get_device_capability() < (8, 0):
            refuse("tf32 needs an NVIDIA GPU from Ampere on")
        return None
    if name == "bf16":
        if CUDA and not torch.cuda.is_bf16_supported():
            refuse("this GPU has no bf16")
        return torch.bfloat16
    if name == "fp16":
        if not CUDA:
            refuse("fp16 needs a GPU")
        return torch.float16
    refuse("no such precision: " + name)


class Block(nn.Module):
    def __init__(self, width, heads, causal):
        super().__init__()
        self.heads, self.causal = heads, causal
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        batch, length, width = x.shape
        parts = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, width // self.heads)
        q, k, v = (part.transpose(1, 2) for part in parts.unbind(2))
        if hasattr(F, "scaled_dot_product_attention"):
            mixed = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        else:
            scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
            if self.causal:
                later = torch.ones(length, length, dtype=torch.bool, device=x.device).triu(1)
                scores = scores.masked_fill(later, float("-inf"))
            mixed = scores.softmax(-1).to(v.dtype) @ v
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Transformer(nn.Module):
    def __init__(self, vocabulary, length, width, layers, heads, outputs, causal):
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width, heads, causal) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, outputs, bias=False)
        self.causal = causal

    def forward(self, tokens):
        x = self.tokens(tokens) + self.places.weight[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        x = self.norm(x)
        return self.head(x if self.causal else x.mean(1))


class Bottleneck(nn.Module):
    def __init__(self, inside, width, stride):
        super().__init__()
        outside = 4 * width
        self.body = nn.Sequential(
            nn.Conv2d(inside, width, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True),
            nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True),
            nn.Conv2d(width, outside, 1, bias=False), nn.BatchNorm2d(outside),
        )
        same = inside == outside and stride == 1
        self.skip = nn.Identity() if same else nn.Sequential(
            nn.Conv2d(inside, outside, 1, stride, bias=False), nn.BatchNorm2d(outside))

    def forward(self, x):
        return F.relu(self.body(x) + self.skip(x))


def resnet(blocks, classes):
    layers = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)]
    inside = 64
    for stage, count in enumerate(blocks):
        for at in range(count):
            layers.append(Bottleneck(inside, 64 << stage, 2 if stage and not at else 1))
            inside = 4 * (64 << stage)
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inside, classes))


def count_flops(model, run):
    """Arithmetic of products in one pass forward, by the shapes that really go through."""
    total = [0]

    def linear(module, _, out):
        total[0] += 2 * module.in_features * out.numel()

    def convolution(module, _, out):
        total[0] += 2 * module.in_channels // module.groups * module.kernel_size[0] * module.kernel_size[1] * out.numel()

    def attention(module, inputs, _):
        batch, length, width = inputs[0].shape
        total[0] += 4 * batch * length * length * width

    kinds = {nn.Linear: linear, nn.Conv2d: convolution, Block: attention}
    hooks = [module.register_forward_hook(kinds[type(module)]) for module in model.modules() if type(module) in kinds]
    with torch.no_grad():
        run()
    for hook in hooks:
        hook.remove()
    return total[0]


def bert(small):
    length, vocabulary = (32, 1000) if small else (128, 30522)
    width, layers, heads = (64, 2, 2) if small else (768, 12, 12)
    model = Transformer(vocabulary, length, width, layers, heads, 2, False)

    def data(batch):
        tokens = torch.randint(vocabulary, (batch, length))
        return tokens, (tokens[:, :8].float().mean(1) > vocabulary / 2).long()

    return model, data, 8 if small else 64, "sequences", lambda out, wanted: F.cross_entropy(out.float(), wanted), 3e-4


def gpt(small):
    length, vocabulary = (32, 500) if small else (1024, 50257)
    width, layers, heads = (64, 2, 2) if small else (1024, 24, 16)
    model = Transformer(vocabulary, length, width, layers, heads, vocabulary, True)

    def data(batch):
        steps = torch.randint(1, 7, (batch, 1))
        line = (torch.randint(vocabulary, (batch, 1)) + steps * torch.arange(length + 1)) % vocabulary
        return line[:, :-1].contiguous(), line[:, 1:].contiguous()

    loss = lambda out, wanted: F.cross_entropy(out.float().flatten(0, 1), wanted.flatten())
    return model, data, 2 if small else 8, "tokens", loss, 3e-4


def images(small):
    size, classes, blocks = (32, 10, (1, 1, 1, 1)) if small else (224, 1000, (3, 4, 6, 3))
    model = resnet(blocks, classes)

    def data(batch):
        wanted = torch.randint(classes, (batch,))
        return torch.randn(batch, 3, size, size) + wanted.view(-1, 1, 1, 1) / classes, wanted

    return model, data, 4 if small else 128, "images", lambda out, wanted: F.cross_entropy(out.float(), wanted), 1e-3


MODELS = {"bert-base": bert, "gpt2-medium": gpt, "resnet50": images}


def train(name, asked):
    dtype = use_precision(asked["precision"])
    torch.manual_seed(asked["seed"])
    model, data, batch, unit, loss_of, rate = MODELS[name](asked["small"])
    batch = asked["batch"] or batch
    model = model.to(DEVICE)
    pool = [[part.to(DEVICE) for part in data(batch)] for _ in range(4)]
    flops = 3 * count_flops(model, lambda: model(pool[0][0]))
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate)
    scaler = torch.cuda.amp.GradScaler(enabled=dtype == torch.float16) if CUDA else None
    items = pool[0][0].numel() // batch if unit == "tokens" else 1
    say("meta", unit=unit, items_per_step=batch * items, batch=batch, flops_per_step=flops,
        parameters=sum(p.numel() for p in model.parameters()))

    def step(at):
        inputs, wanted = pool[at % len(pool)]
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(DEVICE.type, dtype=dtype or torch.bfloat16, enabled=dtype is not None):
            loss = loss_of(model(inputs), wanted)
        if scaler:
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
        else:
            loss.backward()
            optimizer.step()
        return loss.detach()

    losses = measure(step, asked)
    say("end", metric=float(torch.stack(losses).float().mean()), peak_memory_bytes=peak())


def peak():
    return torch.cuda.max_memory_allocated() if CUDA else None


def measure(step, asked):
    """Warms up, then takes steps for as long as was asked; tells after some steps at a time, so that looking costs nothing."""
    for at in range(asked["warmup"]):
        step(at)
    sync()
    began = time.monotonic()
    at = asked["warmup"]
    step(at)
    sync()
    # As many steps at a time as take a twentieth of the whole.
    chunk = max(1, int(asked["seconds"] / 20 / max(time.monotonic() - began, 1e-6)))
    if asked["steps"]:
        chunk = max(1, min(chunk, asked["steps"] // 8))
    if CUDA:
        torch.cuda.reset_peak_memory_stats()
    began = time.monotonic()
    say("steps", done=0, at=began)
    done, kept = 0, []
    while True:
        kept = (kept + [step(at + 1 + done + one) for one in range(chunk)])[-16:]
        sync()
        done += chunk
        now = time.monotonic()
        say("steps", done=done, at=now)
        if done >= asked["steps"] if asked["steps"] else now - began >= asked["seconds"] and done >= 8 * chunk:
            return kept


def timed(step, seconds):
    """Seconds that a step takes."""
    for _ in range(3):
        step()
    sync()
    began, done = time.monotonic(), 0
    while done < 3 or time.monotonic() - began < seconds:
        step()
        sync()
        done += 1
    return (time.monotonic() - began) / done


def matmul(asked):
    say("meta", unit="products", items_per_step=1, batch=1)
    sizes = (128, 256) if asked["small"] else (2048, 4096, 8192) if CUDA else (1024, 2048)
    for precision in ("fp32", "tf32", "bf16", "fp16") if CUDA else ("fp32", "bf16"):
        if precision == "tf32" and torch.cuda.get_device_capability() < (8, 0):
            continue
        dtype = use_precision(precision) or torch.float32
        best = 0.0
        for size in sizes:
            a, b = (torch.randn(size, size, device=DEVICE).to(dtype) for _ in range(2))
            out = torch.empty(size, size, device=DEVICE, dtype=dtype)
            many = max(1, int(2e11 / (2 * size ** 3))) if CUDA else 1

            def step():
                for _ in range(many):
                    torch.mm(a, b, out=out)

            best = max(best, 2 * size ** 3 * many / timed(step, asked["seconds"] / 10) / 1e12)
        say("figure", name="matmul " + precision, value=best, unit="TFLOP/s")
    say("end", peak_memory_bytes=peak())


def bandwidth(asked):
    say("meta", unit="copies", items_per_step=1, batch=1)
    size = (16 << 20) if asked["small"] else (4 << 30) if CUDA else (512 << 20)
    here = torch.ones(size, dtype=torch.uint8, device=DEVICE)
    there = torch.empty_like(here)
    took = timed(lambda: there.copy_(here), asked["seconds"] / 5)
    # A copy reads and writes.
    say("figure", name="memory copy", value=2 * size / took / 1e9, unit="GB/s")
    if CUDA:
        host = torch.ones(size // 8, dtype=torch.uint8).pin_memory()
        part = here[: size // 8]
        for name, step in (("host to GPU, pinned", lambda: part.copy_(host, non_blocking=True)),
                           ("GPU to host, pinned", lambda: host.copy_(part, non_blocking=True))):
            say("figure", name=name, value=host.numel() / timed(step, asked["seconds"] / 5) / 1e9, unit="GB/s")
    say("end", peak_memory_bytes=peak())


def checkpoint(asked):
    size = (8 << 20) if asked["small"] else (2 << 30)
    say("meta", unit="checkpoints", items_per_step=1, batch=1)
    state = {str(part): torch.randn(size // 16 // 4, device=DEVICE) for part in range(16)}
    with tempfile.TemporaryDirectory(dir=asked["folder"]) as folder:
        path = os.path.join(folder, "checkpoint.pt")

        def save():
            torch.save(state, path + ".part")
            with open(path + ".part", "rb+") as file:
                os.fsync(file.fileno())
            os.replace(path + ".part", path)

        for name, step in (("save, on disk", save), ("load", lambda: torch.load(path, map_location=DEVICE))):
            step()
            times = []
            while len(times) < 3 or sum(times) < asked["seconds"] / 4 and len(times) < 20:
                began = time.monotonic()
                step()
                sync()
                times.append(time.monotonic() - began)
            took = sorted(times)[len(times) // 2]
            say("figure", name=name, value=took, unit="s")
            say("figure", name=name + ", speed", value=size / took / 1e9, unit="GB/s")
    say("figure", name="size", value=size / 1e9, unit="GB")
    say("end", peak_memory_bytes=peak())


class Pictures(torch.utils.data.Dataset):
    """Work on the host such as decoding and cropping are: random access, arithmetic, a copy."""

    def __init__(self, side):
        self.side = side
        self.source = torch.randint(0, 255, (side + 32, side + 32, 3), dtype=torch.uint8)

    def __len__(self):
        return 1 << 20

    def __getitem__(self, at):
        x, y = at * 7919 % 32, at * 104729 % 32
        part = self.source[x: x + self.side, y: y + self.side].permute(2, 0, 1).float()
        return (part - part.mean()) / (part.std() + 1), at % 1000


def loading(asked):
    batch = asked["batch"] or (8 if asked["small"] else 128)
    say("meta", unit="images", items_per_step=batch, batch=batch)
    torch.manual_seed(asked["seed"])
    best = 0.0
    cores = len(os.sched_getaffinity(0))
    for workers in sorted({0, max(1, cores // 2), cores}):
        loader = torch.utils.data.DataLoader(Pictures(32 if asked["small"] else 224), batch, num_workers=workers, pin_memory=CUDA)
        every = iter(loader)
        for _ in range(2):
            next(every)
        began, done = time.monotonic(), 0
        while done < 4 or time.monotonic() - began < asked["seconds"] / 4:
            pictures, _ = next(every)
            pictures.to(DEVICE, non_blocking=True)
            done += 1
        sync()
        speed = done * batch / (time.monotonic() - began)
        best = max(best, speed)
        say("figure", name="%d workers" % workers, value=speed, unit="images/s")
        del every
    say("figure", name="best", value=best, unit="images/s")
    say("end", peak_memory_bytes=peak())


def member(rank, world, port, asked, to):
    import torch.distributed as distributed
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    if not CUDA:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    distributed.init_process_group("nccl" if CUDA else "gloo", rank=rank, world_size=world)
    device = torch.device("cuda", rank) if CUDA else DEVICE
    if CUDA:
        torch.cuda.set_device(device)
    for size in (1 << 16, 1 << 20) if asked["small"] else (1 << 20, 1 << 24, 1 << 28):
        data = torch.ones(size // 4, device=device)
        times = []
        for _ in range(13):
            distributed.barrier()
            sync()
            began = time.monotonic()
            distributed.all_reduce(data)
            sync()
            times.append(time.monotonic() - began)
        if rank == 0:
            took = sorted(times[3:])[5]
            # What a ring has to move for each rank.
            to.put((size, took, 2 * (world - 1) / world * size / took / 1e9))
    distributed.destroy_process_group()


def allreduce(asked):
    import socket
    world = torch.cuda.device_count() if CUDA else 2
    if world < 2:
        refuse("an all-reduce needs two GPUs")
    say("meta", unit="reductions", items_per_step=1, batch=1)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    context = torch.multiprocessing.get_context("spawn")
    queue = context.SimpleQueue()
    torch.multiprocessing.spawn(member, (world, port, asked, queue), world)
    while not queue.empty():
        size, took, speed = queue.get()
        say("figure", name="all-reduce of %g MB over %d" % (size / 2 ** 20, world), value=took * 1e3, unit="ms")
        say("figure", name="bus speed at %g MB" % (size / 2 ** 20), value=speed, unit="GB/s")
    say("end", peak_memory_bytes=peak())


OTHERS = {"matmul": matmul, "bandwidth": bandwidth, "checkpoint": checkpoint, "data-loading": loading, "all-reduce": allreduce}


def main():
    name, asked = sys.argv[1], json.loads(sys.argv[2])
    if not asked["precision"] and name in MODELS:
        asked["precision"] = "bf16" if CUDA and torch.cuda.is_bf16_supported() else "fp32"
    say("begin", precision=asked["precision"], torch=torch.__version__, cuda=torch.version.cuda, device=torch.cuda.get_device_name() if CUDA else "cpu",
        count=torch.cuda.device_count() if CUDA and name == "all-reduce" else 1)
    if not CUDA and asked["threads"]:
        torch.set_num_threads(asked["threads"])
    try:
        train(name, asked) if name in MODELS else OTHERS[name](asked)
    except RuntimeError as error:
        if "out of memory" not in str(error) and "not enough memory" not in str(error):
            raise
        say("out-of-memory", peak_memory_bytes=peak())
        sys.exit(4)


if __name__ == "__main__":
    main()
