"""Records the traces of JAX that the tests of `crates/insight` read: six programs whose limit is known from how they are made.
Argument: the folder to write to. Prints the time of a step as the program itself measures it. `slim_trace.py` makes fixtures."""

import glob
import shutil
import sys
import tempfile
import time

import jax
import jax.numpy as jnp
import numpy as np

WIDTH = 4096 if jax.default_backend() != "cpu" else 256


def record(name, step, steps=4, python=0):
    for number in range(3):
        step(number)
    folder = tempfile.mkdtemp()
    options = jax.profiler.ProfileOptions()
    options.python_tracer_level, options.host_tracer_level = python, 2
    jax.profiler.start_trace(folder, profiler_options=options)
    began = time.time()
    for number in range(steps):
        with jax.profiler.StepTraceAnnotation("train", step_num=number):
            step(number)
    took = (time.time() - began) / steps
    jax.profiler.stop_trace()
    print(name, f"{took * 1e3:.2f} ms a step", flush=True)
    shutil.copy(glob.glob(folder + "/**/*trace.json.gz", recursive=True)[0], f"{sys.argv[1]}/jax_{name}.json.gz")


def loss(layers, batch):
    for layer in layers:
        batch = jax.nn.gelu(batch @ layer)
    return (batch.astype(jnp.float32) ** 2).mean()


@jax.jit
def train(layers, batch):
    value, gradients = jax.value_and_grad(loss)(layers, batch)
    return [layer - 1e-3 * gradient for layer, gradient in zip(layers, gradients)], value


def model(kind):
    layers = [jax.random.normal(jax.random.key(number), (WIDTH, WIDTH), kind) * 0.01 for number in range(6)]
    return [layers, jax.random.normal(jax.random.key(9), (WIDTH * 2, WIDTH), kind)]


def busy(kind):
    state = model(kind)

    def step(_):
        state[0], value = train(state[0], state[1])
        value.block_until_ready()

    return step


record("bf16", busy(jnp.bfloat16))
record("bf16_python_tracer", busy(jnp.bfloat16), steps=2, python=1)
with jax.default_matmul_precision("highest"):
    record("fp32", busy(jnp.float32))

small = jnp.ones((64, 64))


def eager(_):
    value = small
    for _ in range(200):
        value = jnp.tanh(value + 0.1) * 0.5
    value.block_until_ready()


record("launch", eager)
product = jax.jit(lambda value: jnp.tanh(value @ value))


def reading(_):
    value = small
    for _ in range(60):
        value = product(value)
        float(value[0, 0])


record("sync", reading)
state = model(jnp.bfloat16)


def loading(_):
    time.sleep(0.03)
    batch = np.random.randn(WIDTH * 2, WIDTH // 8).repeat(8, 1).astype(np.float32)
    state[0], value = train(state[0], jnp.asarray(batch, jnp.bfloat16))
    value.block_until_ready()


record("input", loading)
