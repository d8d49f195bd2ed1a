//! Profiles of real traces, recorded on one NVIDIA H200 (torch 2.11, CUDA 13.0), slimmed by `xtask/peers/slim_trace.py`.
//! What limits each of them is known from how it was made; HTA's figures are those of HTA 0.5.0 on the same files.

#[path = "profile/bad_input.rs"]
mod bad_input;
#[path = "profile/figures.rs"]
mod figures;
#[path = "profile/jax.rs"]
mod jax;
#[path = "profile/nsight.rs"]
mod nsight;
#[path = "profile/path.rs"]
mod path;
#[path = "profile/ranks.rs"]
mod ranks;
#[path = "profile/testbed.rs"]
mod testbed;
