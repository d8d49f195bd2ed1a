//! What a kernel's name says about it: what kind of work it does, in which number format, and whether on tensor cores.
//!
//! Names are all that a trace has. The words are those of cuBLAS, cuDNN, CUTLASS, PyTorch, NCCL, rocBLAS and RCCL; a name
//! with none of them is other computation, never guessed at.

use serde::Serialize;
use windfall_catalog::Precision;

/// Which of an accelerator's units a span keeps busy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Class {
    Compute,
    Communication,
    /// Copies and fills.
    Memory,
    /// Markers of synchronisation, which are no work.
    Sync,
}

/// What a computation does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Matrix products and convolutions.
    Matmul,
    Attention,
    Normalisation,
    /// Tensors that are written again in another layout.
    Layout,
    Elementwise,
    Reduction,
    Optimizer,
    Other,
}

impl Kind {
    /// The word for people.
    pub fn word(self) -> &'static str {
        match self {
            Kind::Matmul => "matrix products",
            Kind::Attention => "attention",
            Kind::Normalisation => "normalisation",
            Kind::Layout => "layout conversion",
            Kind::Elementwise => "elementwise",
            Kind::Reduction => "reductions",
            Kind::Optimizer => "optimizer",
            Kind::Other => "other kernels",
        }
    }
}

/// What a name says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kernel {
    pub class: Class,
    /// The class by the rules of Holistic Trace Analysis.
    pub hta_class: Class,
    pub kind: Kind,
    /// Runs on tensor or matrix cores.
    pub tensor: bool,
    /// The number format of its products, where the name says it.
    pub precision: Option<Precision>,
}

const COMMUNICATION: &[&str] = &[
    "nccl",
    "rccl",
    "msccl",
    "nvshmem",
    "cross_device_reduce",
    "hccl",
    // What XLA calls them on TPUs.
    "all-reduce",
    "all-gather",
    "reduce-scatter",
    "all-to-all",
    "collective-permute",
];
const MATMUL: &[&str] = &[
    "gemm",
    "xmma",
    "nvjet",
    "cutlass",
    "cublas",
    "fprop",
    "dgrad",
    "wgrad",
    "convolve",
    "convolution",
    "conv2d",
    "conv3d",
    "scudnn",
    "winograd",
    "cijk_",
    "gemv",
    "matmul",
    "_mm_",
    "miopen",
];
const ATTENTION: &[&str] = &["flash", "fmha", "sdpa", "attention", "attn"];
const NORMALISATION: &[&str] = &[
    "batch_norm",
    "layer_norm",
    "layernorm",
    "group_norm",
    "rms_norm",
    "rmsnorm",
    "::bn_",
    "bn_bw",
    "bn_fw",
    "gammabeta",
    "instance_norm",
];
const LAYOUT: &[&str] = &["nchwtonhwc", "nhwctonchw", "nhwc2nchw", "nchw2nhwc", "transpose", "permute"];
const ELEMENTWISE: &[&str] =
    &["elementwise", "direct_copy", "catarraybatchedcopy", "dropout", "fill", "pointwise", "triton_poi"];
const REDUCTION: &[&str] = &["reduce", "softmax", "triton_red", "triton_per", "scan", "sum_functor"];
const OPTIMIZER: &[&str] = &["multi_tensor_apply", "fused_adam", "fusedadam", "adam_kernel", "sgd_kernel"];
/// Instructions and libraries that use tensor cores whatever the number format.
const TENSOR: &[&str] = &[
    "tensorop",
    "s16816",
    "s1688",
    "h1688",
    "h16816",
    "s884",
    "h884",
    "i8816",
    "i16832",
    "hmma",
    "imma",
    "wgmma",
    "qgmma",
    "nvjet",
    "_tf32",
    "tf32f32",
    "tf32tf32",
    "f16f16_f16f16",
    "f16f16_f16f32",
    "bf16bf16",
    "e4m3",
    "e5m2",
    "fp16_s",
    "_mi16x16",
    "_mi32x32",
    "mfma",
    "flash_fwd",
    "flash_bwd",
    "tensor16816",
    // A TPU does all products in its matrix units; XLA calls them convolutions.
    "(convolution fusion)",
];
const FP32: &[&str] =
    &["sgemm", "f32f32_f32f32", "ffma", "simt", "scudnn", "<float", "cf32cf32", "_sb_", "gemmsn", "f32_f32"];

/// Reads a kernel's name.
pub fn kernel(name: &str) -> Kernel {
    // FBGEMM is a library of embeddings and much else: its name says nothing about products.
    let lower = name.to_ascii_lowercase().replace("fbgemm", "");
    let has = |words: &[&str]| words.iter().any(|word| lower.contains(word));
    let class = class(name, &lower, has(COMMUNICATION));
    let kind = match () {
        () if has(ATTENTION) => Kind::Attention,
        () if has(OPTIMIZER) => Kind::Optimizer,
        // Long names of CUTLASS kernels mention layouts and epilogues as well.
        () if has(&["cutlass", "xmma", "implicitgemm"]) => Kind::Matmul,
        () if has(NORMALISATION) => Kind::Normalisation,
        () if has(LAYOUT) => Kind::Layout,
        () if fused_by_xla(&lower) => Kind::Elementwise,
        () if has(ELEMENTWISE) => Kind::Elementwise,
        () if has(MATMUL) => Kind::Matmul,
        () if has(REDUCTION) => Kind::Reduction,
        () => Kind::Other,
    };
    let product = matches!(kind, Kind::Matmul | Kind::Attention);
    let halves = has(&["f16", "half", "bf16", "bfloat16"]);
    // Fused attention in 16 bits is written for tensor cores only.
    let tensor = product && (has(TENSOR) || kind == Kind::Attention && halves);
    let precision = match () {
        () if !product => None,
        () if has(&["e4m3", "e5m2", "fp8"]) => Some(Precision::Fp8),
        () if has(&["bf16", "bfloat16"]) => Some(Precision::Bf16),
        () if has(&["tf32"]) => Some(Precision::Tf32),
        // The 688 of `s1688` is an instruction of tf32 where no half is named.
        () if has(&["f16", "half", "fp16", "h884", "s884", "hgemm", "h1688", "h16816"]) => Some(Precision::Fp16),
        () if has(&["s1688gemm"]) => Some(Precision::Tf32),
        () if has(&["dgemm", "<double", "f64"]) => Some(Precision::Fp64),
        () if !tensor && has(FP32) => Some(Precision::Fp32),
        () => None,
    };
    Kernel { class, hta_class: hta_class(name), kind, tensor, precision }
}

/// XLA names a fused loop over elements `loop_add_fusion`, and a lone operation `wrapped_add`.
fn fused_by_xla(lower: &str) -> bool {
    lower.starts_with("loop_") && lower.contains("fusion")
        || lower.starts_with("wrapped_") && !lower.contains("reduce")
        || lower.contains("(loop fusion)")
}

fn class(name: &str, lower: &str, communicates: bool) -> Class {
    match () {
        () if communicates && !lower.starts_with("memcpy") => Class::Communication,
        () if ["Memcpy", "Memset", "dma", "CopyDeviceTo", "CopyHostTo", "FillBuffer", "CopyBuffer"]
            .iter()
            .any(|start| name.starts_with(start)) =>
        {
            Class::Memory
        }
        () if matches!(name, "Stream Sync" | "Event Sync" | "Context Sync" | "Stream Wait Event" | "Device Sync") => {
            Class::Sync
        }
        () => Class::Compute,
    }
}

/// HTA's rules, in its order: `^nccl.*Kernel`, `^Memcpy|^Memset|^dma`, and everything else is computation unless it begins
/// with `Memset` or contains `Memcpy` or `Sync`.
fn hta_class(name: &str) -> Class {
    let line = name.split('\n').next().unwrap_or_default();
    match () {
        () if line.strip_prefix("nccl").is_some_and(|rest| rest.contains("Kernel")) => Class::Communication,
        () if ["Memcpy", "Memset", "dma"].iter().any(|start| line.starts_with(start)) => Class::Memory,
        () if line.contains("Memcpy") || line.contains("Sync") => Class::Sync,
        () => Class::Compute,
    }
}

/// A name that fits on a line: without template arguments, parameters and return type.
pub fn short(name: &str) -> String {
    if name.starts_with("Memcpy") || name.starts_with("Memset") {
        return name.to_owned();
    }
    if let Some(mangled) = name.strip_prefix("_ZN") {
        return Some(identifiers(mangled)).filter(|said| !said.is_empty()).unwrap_or_else(|| name.to_owned());
    }
    let name = name.replace("(anonymous namespace)", "").replace("operator()", "operator").replace("::::", "::");
    let outer = within_none(&name);
    let word = outer.split_whitespace().last().unwrap_or(&outer).to_owned();
    // A templated kernel says what it does in its first argument: `elementwise_kernel<4, CUDAFunctor_add<float>, …>`.
    let said = first_functor(&name).filter(|functor| !word.contains(functor.as_str()));
    let plain = word.rsplit("::").next().unwrap_or(&word).to_owned();
    // CUTLASS calls every kernel `Kernel`; what it is stands in its argument.
    if plain.starts_with("Kernel")
        && let Some(argument) = name.split_once('<').and_then(|(_, rest)| rest.split([',', '<', '>', '(']).next())
    {
        return argument.trim().to_owned();
    }
    match said {
        Some(functor) if !plain.is_empty() => format!("{plain} {functor}"),
        _ if plain.is_empty() => name,
        _ => plain,
    }
}

/// The first name of a mangled symbol, and the first long one: `cutlass__5x_cudnn ImplicitGemmConvolution`.
fn identifiers(mangled: &str) -> String {
    let mut found: Vec<&str> = Vec::new();
    let mut rest = mangled;
    while let Some(at) = rest.find(|letter: char| letter.is_ascii_digit()) {
        let digits = rest[at..].find(|letter: char| !letter.is_ascii_digit()).unwrap_or(rest.len() - at);
        let from = at + digits;
        let length = rest[at..from].parse::<usize>().unwrap_or(0);
        match rest.get(from..from.saturating_add(length)).filter(|name| !name.is_empty()) {
            Some(name) => {
                found.push(name);
                rest = &rest[from + length..];
            }
            None => rest = &rest[from..],
        }
    }
    let long = found.iter().skip(1).find(|name| name.len() >= 14);
    found.first().into_iter().chain(long).copied().collect::<Vec<_>>().join(" ")
}

/// Arguments that say nothing about what a kernel does.
const EMPTY_WORDS: &[&str] =
    &["Accessor", "Metadata", "OpaqueType", "gpu_kernel_impl", "Params", "Policy", "func_wrapper_t", "operator"];

/// The text outside of all brackets.
fn within_none(name: &str) -> String {
    let mut depth = 0i32;
    let mut kept = String::new();
    for letter in name.chars() {
        match letter {
            '<' | '(' | '[' | '{' => depth += 1,
            '>' | ')' | ']' | '}' => depth -= 1,
            letter if depth <= 0 => kept.push(letter),
            _ => {}
        }
    }
    kept.trim().to_owned()
}

fn first_functor(name: &str) -> Option<String> {
    let arguments = name.split_once('<')?.1;
    let first = arguments.split(['<', ',', '(', ')', '>']).map(str::trim).find(|word| {
        word.len() > 6
            && word.contains("::")
            && !["c10::", "std::", "cudnn"].iter().any(|start| word.starts_with(start))
    })?;
    first
        .rsplit("::")
        .find(|word| word.len() > 3 && !EMPTY_WORDS.iter().any(|empty| word.contains(empty)))
        .map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_real_kernels_are_understood() {
        let of = |name: &str| {
            let kernel = kernel(name);
            (kernel.class, kernel.kind, kernel.tensor, kernel.precision)
        };
        let compute = |kind, tensor, precision| (Class::Compute, kind, tensor, precision);
        assert_eq!(of("volta_sgemm_128x64_nt"), compute(Kind::Matmul, false, Some(Precision::Fp32)));
        assert!(of("nvjet_sm90_tst_192x128_64x5_1x2_h_bz_coopB_NNT").2);
        assert_eq!(
            of(
                "sm80_xmma_fprop_implicit_gemm_f32f32_f32f32_f32_nchwkcrs_nchw_tilesize256x64x8_stage3_warpsize2x2x1_g1_ffma"
            ),
            compute(Kind::Matmul, false, Some(Precision::Fp32))
        );
        assert_eq!(
            of("sm80_xmma_fprop_implicit_gemm_tf32f32_tf32f32_f32_nhwckrsc_nhwc_tilesize128x128x16_stage4"),
            compute(Kind::Matmul, true, Some(Precision::Tf32))
        );
        assert_eq!(
            of("void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_bf16_256x128_64x3_nn_align2>(x)"),
            compute(Kind::Matmul, true, Some(Precision::Bf16))
        );
        assert_eq!(
            of("void cudnn::detail::dgrad_engine<float, 512, 6, 5, 3, 3, 3, false>(int)"),
            compute(Kind::Matmul, false, Some(Precision::Fp32))
        );
        assert_eq!(
            of("cudnn_generated_fort_native_sdpa_sm90_flash_bprop_wgmma_f16_knob_26"),
            compute(Kind::Attention, true, Some(Precision::Fp16))
        );
        assert_eq!(of("void at::native::batch_norm_backward_kernel<c10::BFloat16, float>(x)").1, Kind::Normalisation);
        assert_eq!(of("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevComm*)").0, Class::Communication);
        assert_eq!(of("Memcpy HtoD (Pageable -> Device)").0, Class::Memory);
        assert_eq!(of("Stream Wait Event").0, Class::Sync);
        assert_eq!(of("void cudnn::engines_precompiled::nchwToNhwcKernel<float>(x)").1, Kind::Layout);
    }

    #[test]
    fn the_rules_of_hta_are_kept_apart() {
        assert_eq!(kernel("ncclDevKernel_AllReduce").hta_class, Class::Communication);
        assert_eq!(kernel("Stream Wait Event").hta_class, Class::Compute);
        assert_eq!(kernel("Stream Sync").hta_class, Class::Sync);
        assert_eq!(kernel("dma_request").hta_class, Class::Memory);
    }

    #[test]
    fn long_names_are_cut_to_what_they_say() {
        assert_eq!(short("volta_sgemm_128x64_nt"), "volta_sgemm_128x64_nt");
        assert_eq!(
            short("_ZN17cutlass__5x_cudnn6KernelINS_4conv6kernel23ImplicitGemmConvolutionINS1_11threadblock"),
            "cutlass__5x_cudnn ImplicitGemmConvolution"
        );
        assert_eq!(short("_ZN99x"), "_ZN99x");
        assert_eq!(
            short(
                "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, std::array<char*, 3ul> >(int)"
            ),
            "vectorized_elementwise_kernel CUDAFunctor_add"
        );
        assert_eq!(
            short("void at::native::(anonymous namespace)::softmax_warp_forward<float, 3>(float*)"),
            "softmax_warp_forward"
        );
    }
}
