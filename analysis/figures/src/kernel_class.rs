//! What a kernel computes, by its name: of candle (`candle-kernels/src/*.cu`, 0.11.1), PyTorch and its compiler (2.11),
//! cuBLAS, CUTLASS, cuDNN, FlashAttention, NCCL, and vLLM (`csrc/*.cu`). One table, from which
//! [`KernelFamily`](crate::kernel_family::KernelFamily) follows.

use serde::Serialize;

/// What a kernel computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum KernelClass {
    /// Products of matrices, and convolutions.
    Gemm,
    /// Attention in one kernel.
    Attention,
    /// A softmax by itself, as where attention is not one kernel.
    Softmax,
    /// RMSNorm, LayerNorm, GroupNorm, batch norm; a kernel of `rsqrt` counts as part of one.
    Norm,
    /// Rotary positions; PyTorch's kernels of a sine or cosine count as theirs.
    Rotary,
    /// Activation functions, with the product that follows.
    Activation,
    /// Sums, products and other functions of elements.
    Elementwise,
    /// Sums, means, maxima over a dimension.
    Reduction,
    /// Rows by index: embeddings, and writes by index.
    Gather,
    /// The choice of a token: sorting, top-k, argmax, random numbers.
    Sampling,
    /// Copies, concatenations, transpositions and fills; a copy that converts is [`KernelClass::Cast`].
    Copy,
    /// Conversions of element types.
    Cast,
    /// Quantised weights to floating point.
    Dequantise,
    /// Exchange with other devices.
    Communication,
    /// No rule of [`KernelClass::of`] matches the kernel's name.
    Other,
}

use KernelClass::*;

/// Parts of names in lower case, the first that matches counts: what a kernel multiplies says more than what it converts.
const RULES: &[(KernelClass, &[&str])] = &[
    (
        Communication,
        &["nccldevkernel", "ncclkernel", "nvshmem", "allreduce", "all_reduce", "cross_device_reduce", "all_gather"],
    ),
    // PyTorch copies by a functor: from one type to another where it is "unrolled" with casts, or named after a type.
    (Cast, &["::cast", "float16_copy_kernel", "half_copy_kernel", "float8_copy_kernel", "copy_with_cast"]),
    (Dequantise, &["dequantize", "dequant_"]),
    // The step's keys and values to their places in the cache: no layout spares that.
    (Gather, &["reshape_and_cache"]),
    (Copy, &["catarraybatchedcopy", "direct_copy_kernel", "nchwtonhwc", "nhwctonchw"]),
    // cuDNN names its own functions after the library.
    (Softmax, &["cudnn::softmax", "softmax_fw", "softmax_bw"]),
    (Norm, &["cudnn::bn_", "bn_fw_", "bn_bw_"]),
    (
        Attention,
        &[
            "flash",
            "fmha",
            "sdpa",
            "paged_attention",
            "attention_kernel",
            "unified_attention",
            "reduce_segments",
            "mha_fwd",
        ],
    ),
    (
        Gemm,
        &[
            "gemm",
            "gemv",
            "nvjet",
            "cutlass",
            "cublas",
            "splitk",
            "xmma",
            "wmma",
            "mul_mat",
            "matmul",
            "cudnn",
            "mmq",
            "mmvq",
            "marlin",
            "_tem_fused_mm",
            "_tem_fused_bmm",
            "triton_mm",
            "triton_bmm",
            "triton_tem",
        ],
    ),
    (Softmax, &["softmax", "soft_max"]),
    (Rotary, &["rope", "rotary", "cos_kernel", "sin_kernel"]),
    (Norm, &["rmsnorm", "rms_norm", "layernorm", "layer_norm", "groupnorm", "group_norm", "rsqrt", "batch_norm"]),
    (Activation, &["silu", "gelu", "swiglu", "act_and_mul", "relu", "sigmoid", "tanh"]),
    (
        Sampling,
        &[
            "argmax",
            "argmin",
            "asort",
            "sort_kernel",
            "bitonicsort",
            "radixsort",
            "radix_sort",
            "topk",
            "top_k",
            "multinomial",
            "gumbel",
            "distribution_",
        ],
    ),
    (
        Copy,
        &[
            "ucopy",
            "copy2d",
            "concat",
            "contiguous",
            "const_set",
            "fill_",
            "transpose",
            "slice_set",
            "fillfunctor",
            "index_copy_kernel",
            "memcpy",
            "memset",
        ],
    ),
    (
        Gather,
        &[
            "index_select",
            "indexselect",
            "gather",
            "scatter",
            "embedding",
            "index_elementwise",
            "index_kernel",
            "index_add",
            "is_u32_",
            "is_i64_",
            "is_u8_",
        ],
    ),
    (Cast, &["convert"]),
    (Reduction, &["reduce_kernel", "reduceop", "meanops", "sum_", "_sum", "fast_max", "fast_min", "reduce_"]),
    (
        Elementwise,
        &[
            "elementwise",
            "affine",
            "badd",
            "bsub",
            "bmul",
            "bdiv",
            "bmax",
            "bmin",
            "where_",
            "usqr",
            "usqrt",
            "uexp",
            "ulog",
            "uneg",
            "urecip",
            "uabs",
            "ucos",
            "usin",
            "powf",
            "triton_poi",
            "arange",
            "vectorized",
        ],
    ),
];

impl KernelClass {
    /// By a kernel's name.
    pub fn of(name: &str) -> Self {
        let name = name.to_ascii_lowercase();
        let among = |parts: &[&str]| parts.iter().any(|part| name.contains(part));
        // By the beginning: other names have these inside.
        if name.starts_with("cast_") || (name.contains("direct_copy_kernel") && name.contains("loadwithcast")) {
            return Cast;
        }
        if name.starts_with("nccl") {
            return Communication;
        }
        if name.starts_with("triton_") {
            return compiled(&name);
        }
        let convolves = name.contains("conv") && !name.contains("convert");
        match RULES.iter().find(|(_, parts)| among(parts)).map(|(class, _)| *class) {
            Some(class @ (Communication | Dequantise | Attention | Gemm)) => class,
            _ if convolves => Gemm,
            Some(class) => class,
            None => Other,
        }
    }

    /// What people call it.
    pub fn name(self) -> &'static str {
        match self {
            Gemm => "matrix products",
            Attention => "attention",
            Softmax => "softmax",
            Norm => "norms",
            Rotary => "rotary positions",
            Activation => "activations",
            Elementwise => "element by element",
            Reduction => "reductions",
            Gather => "rows by index",
            Sampling => "choice of a token",
            Copy => "copies",
            Cast => "conversions",
            Dequantise => "dequantisation",
            Communication => "communication",
            Other => "others",
        }
    }
}

/// PyTorch's compiler names a kernel after the operations that it fused (`triton_red_fused_add_mean_mul_pow_rsqrt_0`):
/// the one that says most counts. What it multiplies itself it makes from a template; other names have products and
/// attention in them whose result they only work on.
fn compiled(name: &str) -> KernelClass {
    let among = |parts: &[&str]| parts.iter().any(|part| name.contains(part));
    let template = ["triton_tem", "triton_mm", "triton_bmm", "triton_flex"].iter().any(|start| name.starts_with(start));
    if template {
        return if among(&["attention", "sdpa", "flex"]) { Attention } else { Gemm };
    }
    let rules: [(KernelClass, &[&str]); 9] = [
        (Softmax, &["softmax"]),
        (Norm, &["rsqrt", "native_layer_norm", "rms_norm"]),
        (Rotary, &["_cos", "_sin"]),
        (Activation, &["silu", "gelu", "sigmoid", "tanh", "relu"]),
        (Sampling, &["argmax", "sort", "topk"]),
        // A row times a matrix is a sum.
        (Gemm, &["red_fused_mm", "per_fused_mm", "red_fused_bmm", "per_fused_bmm"]),
        (Gather, &["embedding", "index"]),
        (Reduction, &["triton_red", "triton_per"]),
        (Copy, &["cat", "clone", "copy"]),
    ];
    rules.iter().find(|(_, parts)| among(parts)).map_or(Elementwise, |(class, _)| *class)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_candle_launches() {
        for (name, class) in [
            ("nvjet_sm90_tst_8x64_64x16_4x1_v_bz_TNT", Gemm),
            ("void cutlass::Kernel2<cutlass_80_wmma_tensorop_bf16>(Params)", Gemm),
            ("void gemvNSP_kernel<__nv_bfloat16>", Gemm),
            ("mul_mat_vec_q4_K_q8_1_cuda1", Gemm),
            ("dequantize_block_q4_K_f16", Dequantise),
            ("cast_bf16_f32", Cast),
            ("ucopy_bf16", Copy),
            ("copy2d_bf16", Copy),
            ("rmsnorm_bf16", Norm),
            ("rope_i_bf16", Rotary),
            ("softmax_f32", Softmax),
            ("usilu_bf16", Activation),
            ("fast_argmax_f32", Sampling),
            ("is_u32_bf16", Gather),
            ("badd_bf16", Elementwise),
            ("affine_bf16", Elementwise),
            ("conv2d_bf16", Gemm),
        ] {
            assert_eq!(KernelClass::of(name), class, "{name}");
        }
    }

    /// As they were recorded of transformers' Llama (PyTorch 2.11, CUDA 13.0), shortened in their arguments.
    #[test]
    fn names_that_pytorch_launches() {
        for (name, class) in [
            (
                "cudnn_generated_fort_native_sdpa_sm80_flash_fprop_wmma_f16_knob_3_64x64x64_4x1x1_cga1x1x1_kernel0_0",
                Attention,
            ),
            (
                "void cutlass::device_kernel<FlashAttnFwd<cutlass::NumericArrayConverter<cutlass::bfloat16_t, float, 8> > >",
                Attention,
            ),
            (
                "void at::native::vectorized_elementwise_kernel<4, at::native::rsqrt_kernel_cuda(at::TensorIteratorBase&)>",
                Norm,
            ),
            (
                "void at::native::vectorized_elementwise_kernel<4, at::native::(anonymous namespace)::silu_kernel(at::TensorIteratorBase&)>",
                Activation,
            ),
            (
                "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::MeanOps<float, float, float, float> > >",
                Reduction,
            ),
            (
                "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<c10::BFloat16, at::native::ArgMaxOps<float>, unsigned int> >",
                Sampling,
            ),
            (
                "void at::native::vectorized_elementwise_kernel<8, at::native::CUDAFunctor_add<c10::BFloat16>, std::array<char*, 3> >",
                Elementwise,
            ),
            (
                "void at::native::(anonymous namespace)::indexSelectSmallIndex<c10::BFloat16, long, unsigned int, 2, 2, -2>",
                Gather,
            ),
            ("triton_red_fused__to_copy_add_embedding_mean_mul_pow_rsqrt_0", Norm),
            ("triton_poi_fused__unsafe_view_mul_silu_3", Activation),
            ("triton_poi_fused_add_cat_cos_mul_sin_2", Rotary),
            ("triton_red_fused_argmax_10", Sampling),
            ("triton_tem_fused_mm_4", Gemm),
            ("triton_tem_fused_addmm_relu_2", Gemm),
            ("triton_red_fused_mm_3", Gemm),
            ("triton_poi_fused_addmm_gelu_3", Activation),
            ("triton_poi_fused__scaled_dot_product_flash_attention_clone_2", Copy),
            ("triton_red_fused_addmm_native_layer_norm_1", Norm),
            ("triton_tem_fused_flex_attention_0", Attention),
            ("void cudnn::softmax_fw_kernel<2, float, float>", Softmax),
            ("void cudnn::bn_fw_tr_1C11_kernel_NCHW<float>", Norm),
            ("void cudnn::ops::nchwToNhwcKernel<float, float>", Copy),
            ("void at::native::bitonicSortKVInPlace<2, -1, 32, 32, float, long>", Sampling),
        ] {
            assert_eq!(KernelClass::of(name), class, "{name}");
        }
    }

    /// As vLLM 0.24 launched them on an H200, in the forms with FlashAttention 3 and with Triton.
    #[test]
    fn names_that_vllm_launched() {
        for (name, class) in [
            ("nvjet_sm90_tst_8x64_64x16_4x1_v_bz_TNN", Gemm),
            (
                "void cutlass::device_kernel<flash::enable_sm90_or_later<flash::FlashAttnFwdSm90<flash::CollectiveMainloopFwdSm90<2, cute::tuple<cute::C<1>, cute::C<1>, cute::C<1> > > > > >",
                Attention,
            ),
            ("kernel_unified_attention", Attention),
            ("reduce_segments", Attention),
            (
                "std::enable_if<(((8)>(0)))&&(vllm::_typeConvert<c10::BFloat16>::exists), void>::type vllm::fused_add_rms_norm_kernel<c10::BFloat16, 8, true>(c10::BFloat16*, long, c10::BFloat16*, c10::BFloat16 const*, float, int, int)",
                Norm,
            ),
            (
                "void vllm::reshape_and_cache_flash_kernel<__nv_bfloat16, __nv_bfloat16, (vllm::Fp8KVCacheDataType)0>(__nv_bfloat16 const*, __nv_bfloat16 const*, __nv_bfloat16*, __nv_bfloat16*, long const*)",
                Gather,
            ),
            ("reshape_and_cache_kernel_flash", Gather),
            (
                "void vllm::rotary_embedding_kernel<c10::BFloat16, c10::BFloat16, true>(long const*, c10::BFloat16*, c10::BFloat16*)",
                Rotary,
            ),
            (
                "void vllm::act_and_mul_kernel<c10::BFloat16, __nv_bfloat162, &c10::BFloat16 vllm::silu_kernel<c10::BFloat16>(c10::BFloat16 const&, float)>",
                Activation,
            ),
            ("_gumbel_sample_kernel", Sampling),
            ("_topk_topp_kernel", Sampling),
            (
                "void at::native::(anonymous namespace)::cunn_SoftMaxForward<4, float, float, float, at::native::(anonymous namespace)::SoftMaxForwardEpilogue>",
                Softmax,
            ),
            (
                "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<int>, std::array<char*, (unsigned long)1> >(int, at::native::FillFunctor<int>, std::array<char*, (unsigned long)1>)",
                Copy,
            ),
        ] {
            assert_eq!(KernelClass::of(name), class, "{name}");
        }
    }

    /// As their sources call them.
    #[test]
    fn names_of_other_libraries() {
        for (name, class) in [
            ("void vllm::rms_norm_kernel<c10::BFloat16>", Norm),
            ("void vllm::fused_add_rms_norm_kernel<c10::BFloat16, 8>", Norm),
            ("void vllm::rotary_embedding_kernel<c10::BFloat16, true>", Rotary),
            ("void vllm::act_and_mul_kernel<c10::BFloat16, &vllm::silu_kernel>", Activation),
            ("void vllm::reshape_and_cache_kernel<__nv_bfloat16>", Gather),
            ("void vllm::paged_attention_v2_kernel<unsigned short, 128>", Attention),
            ("void vllm::cross_device_reduce_1stage<__nv_bfloat16, 2>", Communication),
            ("void marlin::Marlin<256, 1, 8, 8>", Gemm),
            ("void flash::flash_fwd_splitkv_kernel<Flash_fwd_kernel_traits<128>>", Attention),
            ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", Communication),
            ("my_own_thing", Other),
        ] {
            assert_eq!(KernelClass::of(name), class, "{name}");
        }
    }
}
