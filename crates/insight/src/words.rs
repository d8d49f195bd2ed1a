//! The same fix in the words of what a program is written with.

use crate::trace::Program;

/// How things are called and done in one framework.
#[derive(Clone, Copy, Debug)]
pub struct Words {
    pub launch_less: &'static str,
    /// Calls that wait for the accelerator.
    pub waits: &'static str,
    pub load_beside: &'static str,
    /// What to do about copies from pageable memory.
    pub pinned: &'static str,
    pub overlap: &'static str,
    pub number_format: &'static str,
    pub layout: &'static str,
    pub fuse: &'static str,
}

const TORCH: Words = Words {
    launch_less: "CUDA graphs or torch.compile(mode=\"reduce-overhead\"), or a larger batch",
    waits: ".item(), .cpu(), print of a tensor, nonzero",
    load_beside: "more DataLoader workers, prefetching",
    pinned: ", pin_memory=True and non_blocking=True (copies come from pageable memory)",
    overlap: "bucket size, FSDP prefetch, gradient accumulation",
    number_format: "torch.autocast(\"cuda\", torch.bfloat16), or torch.set_float32_matmul_precision(\"high\")",
    layout: "model.to(memory_format=torch.channels_last), inputs too: layouts are converted all the time",
    fuse: "torch.compile: fuse elementwise kernels",
};

const JAX: Words = Words {
    launch_less: "one jax.jit around the whole step, jax.lax.scan over several steps, or a larger batch",
    waits: "float() or np.asarray of an array, .item(), block_until_ready",
    load_beside: "fetch the next batch on another thread, jax.device_put it ahead of the step",
    pinned: "",
    overlap: "XLA's latency-hiding scheduler, gradient accumulation",
    number_format: "arrays in jnp.bfloat16, or jax.default_matmul_precision(\"tensorfloat32\")",
    layout: "keep arrays in one layout: layouts are converted all the time",
    fuse: "elementwise kernels inside one jax.jit, so that XLA fuses them",
};

const CUDA: Words = Words {
    launch_less: "CUDA graphs, fused kernels, or a larger batch",
    waits: "cudaStreamSynchronize, cudaMemcpy to the host",
    load_beside: "more loading threads, prefetching",
    pinned: ", pinned memory and asynchronous copies (copies come from pageable memory)",
    overlap: "smaller pieces that start earlier",
    number_format: "tensor cores instead of fp32 units",
    layout: "one memory layout for all kernels: layouts are converted all the time",
    fuse: "fuse elementwise kernels",
};

/// The words for a program.
pub fn words(program: Program) -> &'static Words {
    match program {
        Program::Torch => &TORCH,
        Program::Jax => &JAX,
        Program::Cuda => &CUDA,
    }
}
