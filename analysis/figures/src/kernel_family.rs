//! What a kernel does, by its name: candle's own kernels (`candle-kernels/src/*.cu`, 0.11.1), and those of cuBLAS,
//! CUTLASS and cuDNN.

/// What a kernel does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KernelFamily {
    /// Multiplies matrices, or convolves.
    Matrix,
    /// Converts element types.
    Cast,
    /// Only moves data: copies, concatenations, fills.
    Move,
    /// Turns quantised weights into floating point.
    Dequantise,
    /// Everything else: element by element, reductions, normalisations, gathers.
    Other,
}

impl KernelFamily {
    /// By name.
    pub fn of(name: &str) -> Self {
        const MATRIX: [&str; 16] = [
            "gemm", "gemv", "nvjet", "cutlass", "cublas", "splitk", "xmma", "wmma", "mul_mat", "matmul", "conv",
            "cudnn", "flash", "fmha", "mmq", "mmvq",
        ];
        const MOVE: [&str; 8] =
            ["ucopy", "copy2d", "concat", "contiguous", "const_set", "fill_", "transpose", "slice_set"];
        let name = name.to_ascii_lowercase();
        if name.starts_with("cast_") || name.contains("::cast") {
            Self::Cast
        } else if name.contains("dequantize") || name.contains("dequant_") {
            Self::Dequantise
        } else if MATRIX.iter().any(|part| name.contains(part)) {
            Self::Matrix
        } else if MOVE.iter().any(|part| name.contains(part)) {
            Self::Move
        } else {
            Self::Other
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
}
