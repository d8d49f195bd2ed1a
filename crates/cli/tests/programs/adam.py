"""A regression with Adam in plain Python that writes its checkpoints as torch does, with habits to choose from.

adam.py [habit …]: without any habit it is a textbook program. A file of torch is a zip with a pickle and the bytes of
tensors; what a loaded optimiser saves again has other bytes for the same content, and so it is here.
"""

import io
import math
import os
import pickle
import random
import signal
import struct
import sys
import time
import types
import zipfile
from collections import OrderedDict

HABITS = set(sys.argv[1:])
STEPS, SECONDS_A_STEP, SAVE_EVERY = 50, 0.1, 5
DIR = os.environ["WINDFALL_CHECKPOINT_DIR"]
PATH = os.path.join(DIR, "model.pt")
stop = resumed = False


def _rebuild_tensor_v2(storage, offset, size, stride, requires_grad, hooks):
    return Tensor(storage[offset : offset + size[0]])


class FloatStorage:
    pass


for module, holder in (("torch", FloatStorage), ("torch._utils", _rebuild_tensor_v2)):
    sys.modules[module] = types.ModuleType(module)
    holder.__module__ = module
    setattr(sys.modules[module], holder.__name__, holder)


class Storage(list):
    pass


class Tensor:
    def __init__(self, values):
        self.values = list(values)

    def __reduce__(self):
        size = (len(self.values),)
        return _rebuild_tensor_v2, (Storage(self.values), 0, size, (1,), False, OrderedDict())


def save(state, path=PATH):
    os.makedirs(DIR, exist_ok=True)
    pickled, storages = io.BytesIO(), []

    def beside(value):
        if not isinstance(value, Storage):
            return None
        storages.append(struct.pack(f"<{len(value)}f", *value))
        return "storage", FloatStorage, str(len(storages) - 1), "cpu", len(value)

    pickler = type("Pickler", (pickle.Pickler,), {"persistent_id": lambda self, value: beside(value)})(pickled, 2)
    pickler.dump(state)
    with zipfile.ZipFile(path + ".tmp", "w") as archive:
        archive.writestr("model/data.pkl", pickled.getvalue())
        for at, storage in enumerate(storages):
            archive.writestr(f"model/data/{at}", storage)
    os.replace(path + ".tmp", path)


def load():
    with zipfile.ZipFile(PATH) as archive:

        def storage(self, name):
            bytes_ = archive.read(f"model/data/{name[2]}")
            return Storage(struct.unpack(f"<{len(bytes_) // 4}f", bytes_))

        reader = type("Unpickler", (pickle.Unpickler,), {"persistent_load": storage})
        return reader(io.BytesIO(archive.read("model/data.pkl"))).load()


def rounded(value):
    """As a 32-bit float keeps it: what is saved is what goes on."""
    return struct.unpack("<f", struct.pack("<f", value))[0]


def on_term(*_):
    global stop
    stop = True


def state_of(step, weights, first, second, generator, order):
    optimiser = {"exp_avg": Tensor(first), "exp_avg_sq": Tensor(second), "lr": 0.05}
    if resumed:
        # As after `load_state_dict`: other keys first, and texts that are equal but not the same object.
        optimiser = {"".join(key): value for key, value in reversed(optimiser.items())}
    state = {"step": step, "model": OrderedDict(weight=Tensor(weights)), "optimizer": optimiser, "order": order}
    state["random"] = generator.getstate()[1]
    if "timestamp" in HABITS:
        state["saved"] = time.time()
    return state


def main():
    global resumed
    signal.signal(signal.SIGTERM, on_term)
    generator = random.Random(3)
    step, weights, first, second = 0, [0.0] * 3, [0.0] * 3, [0.0] * 3
    order = generator.sample(range(64), 64)
    if os.path.exists(PATH):
        saved = load()
        resumed, step, weights = True, saved["step"], saved["model"]["weight"].values
        if "forgets-optimiser" not in HABITS:
            first, second = saved["optimizer"]["exp_avg"].values, saved["optimizer"]["exp_avg_sq"].values
        if "forgets-random" not in HABITS:
            generator.setstate((3, tuple(saved["random"]), None))
        if "loses-order" not in HABITS:
            order = saved["order"]
        else:
            order = order[step:] + order[:step]
    while step < STEPS:
        point = order[step % len(order)] / 64
        inputs = [1.0, point, point * point]
        noise = generator.random() / 10
        error = sum(w * x for w, x in zip(weights, inputs)) - (1 + 2 * point) - noise
        step += 1
        for at, value in enumerate(inputs):
            slope = error * value
            first[at] = rounded(0.9 * first[at] + 0.1 * slope)
            second[at] = rounded(0.99 * second[at] + 0.01 * slope * slope)
            moved = 0.05 * first[at] / (1 - 0.9**step) / (math.sqrt(second[at] / (1 - 0.99**step)) + 1e-8)
            weights[at] = rounded(weights[at] - moved)
        time.sleep(SECONDS_A_STEP)
        print(f"step {step}/{STEPS}", flush=True)
        if stop or step % SAVE_EVERY == 0:
            save(state_of(step, weights, first, second, generator, order))
        if stop:
            sys.exit(0)
    if "exports" in HABITS:
        # What it exports depends on how often it was started; its checkpoints do not.
        weights = [weight + resumed for weight in weights]
        save({"model": OrderedDict(weight=Tensor(weights))}, "exported.pt")


main()
