//! What a kernel computes, by its name: of candle (`candle-kernels/src/*.cu`, 0.11.1), PyTorch and its compiler (2.11),
//! cuBLAS, CUTLASS, cuDNN, FlashAttention, FlashInfer (`include/flashinfer/*.cuh`), NCCL, and vLLM (`csrc/*.cu`, and its
//! kernels in Triton). One table, from which [`KernelFamily`](crate::kernel_family::KernelFamily) follows; names that
//! PyTorch's compiler makes are read by `compiled`.

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
    // The step's keys and values to their places in the cache: no layout spares that. The last one is FlashInfer's.
    (Gather, &["reshape_and_cache", "concat_and_cache", "appendpagedkv"]),
    (Copy, &["catarraybatchedcopy", "direct_copy_kernel", "nchwtonhwc", "nhwctonchw"]),
    // cuDNN names its own functions after the library.
    (Softmax, &["cudnn::softmax", "softmax_fw", "softmax_bw"]),
    (Norm, &["cudnn::bn_", "bn_fw_", "bn_bw_"]),
    (
        Attention,
        &[
            "fmha",
            "sdpa",
            "paged_attention",
            // FlashInfer: `BatchDecodeWithPagedKVCacheKernel`, `BatchPrefillWithRaggedKVCacheKernel`,
            // `SinglePrefillWithKVCacheKernel`, `BatchMLAPagedAttentionKernel`, and what joins parts of a context.
            "withpagedkvcache",
            "withraggedkvcache",
            "withkvcache",
            "pagedattention",
            "mlapageattention",
            "mergestate",
            "merge_attn_states",
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
            // vLLM's experts, in Triton: their products are in this one kernel.
            "fused_moe_kernel",
        ],
    ),
    (Softmax, &["softmax", "soft_max"]),
    (Rotary, &["rotary", "cos_kernel", "sin_kernel"]),
    (Norm, &["rmsnorm", "rms_norm", "layernorm", "layer_norm", "groupnorm", "group_norm", "rsqrt", "batch_norm"]),
    (Activation, &["silu", "gelu", "swiglu", "glu_kernel", "act_and_mul", "relu", "sigmoid", "tanh"]),
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
            // FlashInfer: `TopKTopPSamplingFromProbKernel`, `SamplingFromLogitsKernel`, `TopPRenormProbKernel`.
            "samplingfrom",
            "speculativesampling",
            "renormprob",
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
    // Activations to integers for a product with quantised weights are conversions, too.
    (Cast, &["convert", "quantize_", "quant_kernel"]),
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
            "arange",
            "vectorized",
        ],
    ),
];

/// What a whole word of a name says, which inside of another word would say something else: FlashAttention has the
/// namespace `flash::`, and `flashinfer::` is that of norms, sampling and activations as well.
const WORDS: &[(KernelClass, &str)] = &[(Attention, "flash"), (Rotary, "rope"), (Rotary, "mrope")];

impl KernelClass {
    /// By a kernel's name.
    pub fn of(name: &str) -> Self {
        let words = words(name);
        if let Some(class) = compiled(&words) {
            return class;
        }
        let name = name.to_ascii_lowercase();
        let among = |parts: &[&str]| parts.iter().any(|part| name.contains(part));
        // By the beginning: other names have these inside.
        if name.starts_with("cast_") || (name.contains("direct_copy_kernel") && name.contains("loadwithcast")) {
            return Cast;
        }
        if name.starts_with("nccl") {
            return Communication;
        }
        let says = |class: KernelClass| WORDS.iter().any(|(of, word)| *of == class && is_in(&words, word));
        let convolves = name.contains("conv") && !name.contains("convert");
        match RULES.iter().find(|(class, parts)| among(parts) || says(*class)).map(|(class, _)| *class) {
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

/// The words of a name in lower case: what other signs, underscores and capitals separate. `RMSNormKernel` has three.
fn words(name: &str) -> Vec<String> {
    let mut words = Vec::new();
    for part in name.split(|c: char| !c.is_ascii_alphanumeric()) {
        let letters = part.as_bytes();
        let mut from = 0;
        for at in 1..letters.len() {
            let begins = letters[at].is_ascii_uppercase()
                && (!letters[at - 1].is_ascii_uppercase() || letters.get(at + 1).is_some_and(u8::is_ascii_lowercase));
            if begins {
                words.push(part[from..at].to_ascii_lowercase());
                from = at;
            }
        }
        if !part.is_empty() {
            words.push(part[from..].to_ascii_lowercase());
        }
    }
    words
}

fn is_in(words: &[String], word: &str) -> bool {
    words.iter().any(|of| of == word)
}

/// Words of operations (`aten`) that only move data, or say how it lies: `_to_copy`, `_unsafe_view`, `split_with_sizes`.
const MOVES: &str = "alias as cat chunk clone constant copy detach empty expand fill flip fresh full lift like nd narrow \
                     new ones pad permute repeat reshape roll select sizes slice split squeeze stack strided t tile to \
                     transpose unbind unfold unsafe unsqueeze view with zeros";

/// Words of operations by index: `index_put`, `scatter_add`.
const BY_INDEX: &str = "gather impl index put scatter";

/// Words of operations whose result such a kernel only works on: another kernel computes them.
const OF_OTHERS: &str = "attention bmm cudnn dot efficient flash mm mv product scaled";

fn is_of(list: &str, word: &str) -> bool {
    list.split(' ').any(|of| of == word)
}

/// What a kernel of PyTorch's compiler computes; `None` for another kernel's name.
///
/// The compiler (`torch/_inductor`, `get_fused_kernel_name`) names it after the operations that it fused, sorted, after
/// a word for its kind: `triton_red_fused_add_mean_mul_pow_rsqrt_0` reduces (`red`, `per`: all of a row at once), `poi`
/// goes point by point, `tem` is made from a template. What it multiplies itself is a template; other names have
/// products and attention in them whose result they only work on.
fn compiled(words: &[String]) -> Option<KernelClass> {
    let of = |at: usize| words.get(at).map_or("", String::as_str);
    if of(0) != "triton" {
        return None;
    }
    if matches!(of(1), "tem" | "mm" | "bmm" | "flex") {
        let attends = ["attention", "sdpa", "flex"].iter().any(|word| is_in(words, word));
        return Some(if attends { Attention } else { Gemm });
    }
    let reduces = matches!(of(1), "red" | "per");
    if of(2) != "fused" {
        // As it names them where descriptions are off: `triton_poi__0`.
        return (reduces || of(1) == "poi").then_some(if reduces { Reduction } else { Elementwise });
    }
    // The number at its end tells kernels of the same operations apart.
    let is_number = |word: &str| word.bytes().all(|c| c.is_ascii_digit());
    let operations: Vec<&str> = words[3..].iter().map(String::as_str).filter(|word| !is_number(word)).collect();
    let any = |list: &str| operations.iter().any(|word| is_of(list, word));
    let before = |at: usize| at.checked_sub(1).map_or("", |before| operations[before]);
    // Names are sorted: `add` that follows `index` or `scatter` is of `index_add` or `scatter_add`.
    let is_of_index = |at: usize| is_of("add reduce", operations[at]) && is_of("index scatter", before(at));
    let is_known = |word: &str| [MOVES, BY_INDEX, OF_OTHERS].iter().any(|list| is_of(list, word));
    let computes = (0..operations.len()).any(|at| !is_of_index(at) && !is_known(operations[at]));
    // `slice_scatter` and `select_scatter` write a part, by no index.
    let by_index =
        (0..operations.len()).any(|at| is_of(BY_INDEX, operations[at]) && !is_of("slice select", before(at)));
    let moves = operations.iter().filter(|word| !is_of(OF_OTHERS, word)).count();
    // The first that is so says most.
    let rules = [
        (any("softmax"), Softmax),
        (any("norm") && any("layer group batch rms"), Norm),
        (any("rsqrt") && any("mean sum pow square var"), Norm),
        (any("cos sin"), Rotary),
        (any("silu gelu sigmoid tanh relu elu mish hardswish hardsigmoid hardtanh"), Activation),
        (any("argmax argmin sort topk multinomial"), Sampling),
        (any("embedding"), Gather),
        // A row times a matrix is a sum.
        (reduces && !computes && any("mm bmm mv"), Gemm),
        (reduces, Reduction),
        (computes, Elementwise),
        (by_index, Gather),
        (moves == 2 && any("to") && any("copy"), Cast),
        (moves > 0, Copy),
    ];
    Some(rules.into_iter().find(|(is_so, _)| *is_so).map_or(Elementwise, |(_, class)| class))
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

    /// As mistral.rs 0.8.1 launched them on an H200, with weights in Q4_1.
    #[test]
    fn names_that_mistral_rs_launched() {
        for (name, class) in [
            ("mul_mat_vec_q4_1_q8_1_cuda1", Gemm),
            ("mul_mat_vec_q8_0_q8_1_cuda1", Gemm),
            (
                "std::enable_if<!(false), void>::type internal::gemvx::kernel<int, int, __nv_bfloat16, __nv_bfloat16, __nv_bfloat16, float, false, true, true, false, 6, false, cublasGemvParamsEx<int, cublasGemvTensorStridedBatched<__nv_bfloat16 const>, cublasGemvTensorStridedBatched<__nv_bfloat16 const>, cublasGemvTensorStridedBatched<__nv_bfloat16>, float> >",
                Gemm,
            ),
            (
                "void fused_glu_kernel_vec4<float, float4>(float4 const*, float4 const*, float4*, unsigned int, int)",
                Activation,
            ),
            ("ucopy_bf16", Copy),
            ("copy2d_bf16", Copy),
            ("cast_f32_bf16", Cast),
            ("quantize_q8_1", Cast),
            ("dequantize_block_q8_0_f32", Dequantise),
            ("rmsnorm_f32", Norm),
            ("rope_i_bf16", Rotary),
            ("softmax_bf16", Softmax),
            ("badd_f32", Elementwise),
            ("ucos_f32", Elementwise),
            ("is_u32_f32", Gather),
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
            ("fused_moe_kernel", Gemm),
            ("fused_moe_kernel_gptq_awq", Gemm),
            ("void vllm::merge_attn_states_kernel<float, 128u>", Attention),
            ("void vllm::concat_and_cache_mla_kernel<__nv_bfloat16>", Gather),
            ("set_properties_kernel", Other),
            ("my_own_thing", Other),
        ] {
            assert_eq!(KernelClass::of(name), class, "{name}");
        }
    }

    /// As `include/flashinfer` of FlashInfer 0.2 calls them (`norm.cuh`, `activation.cuh`, `pos_enc.cuh`,
    /// `sampling.cuh`, `page.cuh`, `attention/*.cuh`): all of them are in the namespace `flashinfer`.
    #[test]
    fn names_of_flashinfer() {
        for (name, class) in [
            ("void flashinfer::norm::RMSNormKernel<8u, __nv_bfloat16>(__nv_bfloat16*, __nv_bfloat16*)", Norm),
            ("void flashinfer::norm::FusedAddRMSNormKernel<8u, __nv_bfloat16>(__nv_bfloat16*)", Norm),
            (
                "void flashinfer::activation::act_and_mul_kernel<__nv_bfloat16, &(float silu(float const&))>(__nv_bfloat16*)",
                Activation,
            ),
            ("void flashinfer::BatchQKApplyRotaryPosIdsKernel<true, 128u, 8u, 16u, __nv_bfloat16, int>", Rotary),
            ("void flashinfer::BatchQKApplyRotaryPosIdsCosSinCacheKernel<false, 128u, 8u, 16u, half, int>", Rotary),
            (
                "void flashinfer::sampling::TopKTopPSamplingFromProbKernel<1024u, (cub::BlockScanAlgorithm)2, (cub::BlockReduceAlgorithm)2, 4u, true, float, int>",
                Sampling,
            ),
            ("void flashinfer::sampling::SamplingFromLogitsKernel<1024u, float, int>", Sampling),
            ("void flashinfer::sampling::TopPRenormProbKernel<1024u, float>", Sampling),
            ("void flashinfer::AppendPagedKVCacheKernel<128u, 16u, __nv_bfloat16, int>", Gather),
            ("void flashinfer::AppendPagedKVMlaCacheKernel<512u, 64u, 16u, __nv_bfloat16, int>", Gather),
            ("void flashinfer::sampling::ChainSpeculativeSampling<1024u, float, int>", Sampling),
            (
                "void flashinfer::PersistentKernelTemplate<flashinfer::BlockBatchPagedAttentionPersistent<flashinfer::KernelTraits<1>>>",
                Attention,
            ),
            // In Triton, of vLLM and SGLang.
            ("_triton_mrope_forward", Rotary),
            ("_triton_mrope_forward_fused", Rotary),
            // PyTorch's compiler where names do not describe.
            ("triton_poi__0", Elementwise),
            ("triton_per__1", Reduction),
            (
                "void flashinfer::BatchDecodeWithPagedKVCacheKernel<(flashinfer::PosEncodingMode)0, 2u, 4u, 8u, 16u>",
                Attention,
            ),
            ("void flashinfer::BatchPrefillWithRaggedKVCacheKernel<flashinfer::KernelTraits<1>>", Attention),
            ("void flashinfer::SinglePrefillWithKVCacheKernel<flashinfer::KernelTraits<1>>", Attention),
            ("void flashinfer::PersistentVariableLengthMergeStatesKernel<8u, 16u, 8u, 4u>", Attention),
        ] {
            assert_eq!(KernelClass::of(name), class, "{name}");
        }
    }

    /// PyTorch's compiler lists every operation: what computes is no copy, whatever else it moves.
    #[test]
    fn names_of_fused_kernels_are_read_operation_by_operation() {
        for (name, class) in [
            ("triton_poi_fused__to_copy_add_mul_1", Elementwise),
            ("triton_poi_fused_add_cat_mul_neg_2", Elementwise),
            ("triton_poi_fused_add_index_put_mul_3", Elementwise),
            ("triton_poi_fused_rsqrt_1", Elementwise),
            ("triton_poi_fused_addmm_view_5", Elementwise),
            ("triton_poi_fused_0", Elementwise),
            ("triton_red_fused__to_copy_mean_pow_rsqrt_0", Norm),
            ("triton_poi_fused__to_copy_add_mean_mul_pow_rsqrt_4", Norm),
            ("triton_per_fused_native_layer_norm_6", Norm),
            ("triton_per_fused__softmax_mul_1", Softmax),
            ("triton_poi_fused_scatter_0", Gather),
            ("triton_poi_fused_scatter_add_zeros_0", Gather),
            ("triton_poi_fused_index_put_transpose_view_2", Gather),
            ("triton_poi_fused_index_select_1", Gather),
            ("triton_poi_fused_add_embedding_0", Gather),
            ("triton_poi_fused_slice_scatter_3", Copy),
            ("triton_poi_fused_cat_1", Copy),
            ("triton_poi_fused__unsafe_view_clone_transpose_7", Copy),
            ("triton_poi_fused__to_copy_clone_7", Copy),
            ("triton_poi_fused_copy_0", Copy),
            ("triton_poi_fused__to_copy_12", Cast),
            ("triton_red_fused__to_copy_mm_t_3", Gemm),
            ("triton_red_fused_sum_2", Reduction),
            ("triton_per_fused_3", Reduction),
        ] {
            assert_eq!(KernelClass::of(name), class, "{name}");
        }
    }

    #[test]
    fn words_are_what_signs_and_capitals_separate() {
        assert_eq!(words("flashinfer::norm::RMSNormKernel<8u>"), ["flashinfer", "norm", "rms", "norm", "kernel", "8u"]);
        assert_eq!(words("triton_poi_fused__to_copy_1"), ["triton", "poi", "fused", "to", "copy", "1"]);
        assert_eq!(words("FlashAttnFwdSm90"), ["flash", "attn", "fwd", "sm90"]);
        assert!(words("").is_empty() && words("::<>").is_empty());
    }
}
