//! The embedding table.

use super::{dtype_word, ggml_dtype_word, layer_span, record, tensor_bytes};
use crate::cost::Cost;
use candle_core::quantized::QTensor;
use candle_core::{Result, Tensor};
use candle_nn::Module;
use std::sync::Arc;
use tracing::Span;

#[derive(Debug, Clone)]
enum Table {
    Dense(Tensor),
    Quantized(Arc<QTensor>),
}

/// Looks rows up in a table of shape (vocabulary, features). A quantised table stays quantised: only the rows that are
/// looked up are widened, to f32.
#[derive(Debug, Clone)]
pub struct Embedding {
    table: Table,
    row_bytes: u64,
    dtype: candlescope_core::DType,
    span: Span,
}

impl Embedding {
    /// A dense table, (vocabulary, features). Fails where it is not a matrix.
    pub fn new(path: &str, table: Tensor) -> Result<Self> {
        let (vocabulary, _) = table.dims2()?;
        let row_bytes = tensor_bytes(&table) / vocabulary.max(1) as u64;
        let dtype = dtype_word(table.dtype());
        Ok(Self { table: Table::Dense(table), row_bytes, dtype, span: layer_span!("embedding", path) })
    }

    /// A quantised table, (vocabulary, features). Where the device cannot look up rows of this quantisation, the table is
    /// widened to f32 as a whole.
    pub fn quantized(path: &str, table: Arc<QTensor>) -> Result<Self> {
        let (vocabulary, _) = table.shape().dims2()?;
        let probe = Tensor::zeros(1, candle_core::DType::U32, &table.device())?;
        if table.embedding(&probe).is_err() {
            return Self::new(path, table.dequantize(&table.device())?);
        }
        let row_bytes = table.storage_size_in_bytes() as u64 / vocabulary.max(1) as u64;
        let dtype = ggml_dtype_word(table.dtype());
        Ok(Self { table: Table::Quantized(table), row_bytes, dtype, span: layer_span!("embedding", path) })
    }

    /// Cost of looking up `rows` tokens: the bytes of their rows.
    pub fn cost(&self, rows: usize) -> Cost {
        Cost { flops: 0, weight_bytes: rows as u64 * self.row_bytes, kv_bytes: 0 }
    }
}

impl Module for Embedding {
    /// From token ids (…) to vectors (…, features).
    fn forward(&self, ids: &Tensor) -> Result<Tensor> {
        let _entered = self.span.enter();
        let ys = match &self.table {
            Table::Quantized(table) => table.embedding(ids)?,
            Table::Dense(table) => {
                let mut shape = ids.dims().to_vec();
                shape.push(table.dim(1)?);
                table.index_select(&ids.flatten_all()?, 0)?.reshape(shape)?
            }
        };
        record(|| self.cost(ids.elem_count()).annotation().dtype(self.dtype).shape(ys.dims()));
        Ok(ys)
    }
}
