//! One operation of a step: its FLOPs, its bytes, and what its kernels are like.

use crate::operation::Cost;
use serde::Serialize;

/// In which type an operation multiplies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Operands {
    /// Weights with activations: the format of weights decides.
    Weights,
    /// Activations with each other, as in attention.
    Activations,
}

/// One operation of a step.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Operation {
    /// Name, as the instrumented layers call it.
    pub name: &'static str,
    /// How often it is done in a step; the other figures are for one time.
    pub calls: f64,
    /// Kernels that candle launches for it on a GPU, copies included.
    pub kernels: f64,
    /// FLOPs and bytes of one call.
    #[serde(flatten)]
    pub cost: Cost,
    /// Bytes that all devices exchange: sent by each.
    pub link_bytes: f64,
    /// What is multiplied, which decides the type of the products.
    pub operands: Operands,
    /// Products of matrices among the kernels.
    pub products: f64,
    /// Kernels on strided operands, whose layout candle uploads before the launch: copies to another layout, sums with
    /// a row or a mask.
    pub strided: f64,
    /// Kernels that cuBLAS adds to a product of few rows, few columns and a long sum, which it divides among them: seen
    /// on an H200 up to 32 rows, below 132 blocks of 64 columns and above 2,048 terms. They are not among `kernels`.
    pub divided: f64,
    /// Loads that one thread of candle's CUDA kernels does one after the other, where few threads share a row: 32 in a
    /// softmax and in a norm below 1,024 features, 1,024 in wider norms and in the choice of a token.
    pub serial: f64,
    /// Steps of index arithmetic: for each element of a kernel on strided operands, each dimension of each operand's
    /// layout. candle's CUDA kernels walk the layouts for every element, which takes longer than the element's bytes
    /// (`candle-kernels/src/{binary_op_macros.cuh,unary.cu}`, 0.11).
    pub index_steps: f64,
    /// Bytes of activations that a kernel beside the product moves, the sum with a bias; a part of the activations' bytes.
    pub added_bytes: f64,
    /// Whether it is a product of several rows with a matrix of which one side's rows do not end on 16 bytes: cuBLAS
    /// then takes kernels that load a value at a time. Seen on an H200 with GPT-2's head of 50,257 rows in bf16
    /// (`cutlass_75_tensorop_bf16_s1688gemm_…_align1` in place of `nvjet_…`).
    pub unaligned: bool,
    /// Bytes of the panels into which a processor's product of several rows copies its weights first, in the type it
    /// multiplies in; 0 for one row, and for weights in blocks.
    pub panel_bytes: f64,
    /// Whether it is a product of attention from several tokens of a sequence at once: matrix by matrix, where a token
    /// alone multiplies row by matrix.
    pub from_several: bool,
}

/// Threads of candle's CUDA kernels that share a row: a softmax's, a narrow norm's; a wide norm's, a choice's
/// (`candle-core/src/cuda_backend`, `candle-nn/src/ops.rs`, `candle-kernels/src/reduce.cu`, 0.11).
pub(super) const THREADS: (f64, f64) = (32.0, 1024.0);

/// Loads of a thread in a norm over so many features: twice its part of the row.
pub(super) fn norm_loads(features: f64) -> f64 {
    2.0 * (features / if features < THREADS.1 { THREADS.0 } else { THREADS.1 }).ceil()
}

/// Operands of a sum whose layouts its kernel walks.
pub(super) const SUMMED: f64 = 2.0;

impl Operation {
    pub(super) fn new(name: &'static str, calls: u64, cost: Cost) -> Self {
        Self {
            name,
            calls: calls as f64,
            kernels: 1.0,
            cost,
            link_bytes: 0.0,
            operands: Operands::Weights,
            products: 0.0,
            strided: 0.0,
            divided: 0.0,
            serial: 0.0,
            index_steps: 0.0,
            added_bytes: 0.0,
            unaligned: false,
            panel_bytes: 0.0,
            from_several: false,
        }
    }

    pub(super) fn kernels(self, kernels: f64) -> Self {
        Self { kernels, ..self }
    }

    /// So many of its kernels are on strided operands, and walk so many dimensions of layouts for all elements
    /// together.
    pub(super) fn strided(self, strided: f64, index_steps: f64) -> Self {
        Self { strided, index_steps, ..self }
    }

    pub(super) fn serial(self, serial: f64) -> Self {
        Self { serial, ..self }
    }

    pub(super) fn on_activations(self) -> Self {
        Self { operands: Operands::Activations, ..self }
    }
}
