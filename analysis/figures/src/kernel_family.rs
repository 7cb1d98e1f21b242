//! What a kernel does, as far as findings want to know it: from [what it computes](crate::kernel_class).

use crate::kernel_class::KernelClass;

/// What a kernel does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KernelFamily {
    /// Multiplies matrices, or convolves.
    Matrix,
    /// Only converts element types, copies that convert included.
    Cast,
    /// Only moves data: copies, concatenations, fills.
    Move,
    /// Turns quantised weights into floating point.
    Dequantise,
    /// Exchanges data with other devices.
    Communicate,
    /// Everything else: element by element, reductions, normalisations, gathers.
    Other,
}

impl KernelFamily {
    /// By the kernel's name, as [`KernelClass::of`] reads it.
    pub fn of(name: &str) -> Self {
        match KernelClass::of(name) {
            KernelClass::Gemm | KernelClass::Attention => Self::Matrix,
            KernelClass::Cast => Self::Cast,
            KernelClass::Copy => Self::Move,
            KernelClass::Dequantise => Self::Dequantise,
            KernelClass::Communication => Self::Communicate,
            _ => Self::Other,
        }
    }

    /// Whether it could be part of a kernel that does several of these at once.
    pub fn can_fuse(self) -> bool {
        matches!(self, Self::Cast | Self::Other)
    }
}

#[cfg(test)]
mod tests {
    use super::KernelFamily::{self, *};

    #[test]
    fn names_that_candle_launches() {
        let names = [
            ("nvjet_sm90_tst_8x64_64x16_4x1_v_bz_TNT", Matrix),
            ("void cutlass::Kernel2<cutlass_80_wmma_tensorop_bf16>(Params)", Matrix),
            ("mul_mat_vec_q4_K_q8_1_cuda1", Matrix),
            ("dequantize_block_q4_K_f16", Dequantise),
            ("cast_bf16_f32", Cast),
            ("ucopy_bf16", Move),
            ("copy2d_bf16", Move),
            ("rmsnorm_bf16", Other),
            ("softmax_f32", Other),
            ("fast_argmax_f32", Other),
            ("badd_bf16", Other),
        ];
        for (name, family) in names {
            assert_eq!(KernelFamily::of(name), family, "{name}");
        }
    }

    /// As they were recorded of transformers' Llama on an H200 (PyTorch 2.11, CUDA 13.0), shortened in their arguments.
    #[test]
    fn names_that_pytorch_launches() {
        let names = [
            (
                "cudnn_generated_fort_native_sdpa_sm80_flash_fprop_wmma_f16_knob_3_64x64x64_4x1x1_cga1x1x1_kernel0_0",
                Matrix,
            ),
            (
                "void cublasLt::splitKreduce_kernel<32, 16, int, float, __nv_bfloat16, float, __nv_bfloat16, false>",
                Matrix,
            ),
            ("void cutlass::Kernel2<cutlass_80_simt_sgemm_128x32_8x5_tn_align1>(Params)", Matrix),
            (
                "void cutlass::device_kernel<FlashAttnFwd<cutlass::NumericArrayConverter<cutlass::bfloat16_t, float, 8> > >",
                Matrix,
            ),
            ("convert_fp8_to_bf16_kernel", Cast),
            ("conv2d_bf16", Matrix),
            (
                "void at::native::elementwise_kernel<128, 4, void at::native::gpu_kernel_impl_nocast<at::native::direct_copy_kernel_cuda(\
                 at::TensorIteratorBase&)::{lambda()#3}>>",
                Move,
            ),
            (
                "void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)::{lambda()#3}, \
                 std::array<char*, 2>, 4, at::native::memory::LoadWithCast<1>, at::native::memory::StoreWithCast<1> >",
                Cast,
            ),
            (
                "void at::native::vectorized_elementwise_kernel<8, at::native::bfloat16_copy_kernel_cuda(at::TensorIteratorBase&)>",
                Cast,
            ),
            (
                "void at::native::(anonymous namespace)::CatArrayBatchedCopy<at::native::OpaqueType<2u>, unsigned int, 4, 64, 64>",
                Move,
            ),
            (
                "void at::native::vectorized_elementwise_kernel<8, at::native::FillFunctor<c10::BFloat16>, std::array<char*, 1> >",
                Move,
            ),
            (
                "void at::native::index_elementwise_kernel<128, 4, void at::native::index_copy_kernel_impl<at::native::OpaqueType<2> > >",
                Move,
            ),
            (
                "void at::native::vectorized_elementwise_kernel<8, at::native::CUDAFunctor_add<c10::BFloat16>, std::array<char*, 3> >",
                Other,
            ),
            (
                "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::MeanOps<float, float, float, float> > >",
                Other,
            ),
            (
                "void at::native::vectorized_elementwise_kernel<4, at::native::rsqrt_kernel_cuda(at::TensorIteratorBase&)>",
                Other,
            ),
            ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", Communicate),
        ];
        for (name, family) in names {
            assert_eq!(KernelFamily::of(name), family, "{name}");
        }
        assert!(!Communicate.can_fuse() && !Move.can_fuse());
    }
}
