//! The embedding table.

use super::{dtype_word, ggml_dtype_word, layer_span, record, tensor_bytes};
use candle_core::quantized::QTensor;
use candle_core::{DType, Result, Tensor};
use candle_nn::Module;
use candlescope_core::Annotation;
use candlescope_work::operation::{Cost, Count, lookup};
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
    features: usize,
    row_bytes: u64,
    /// Bytes of an output element.
    width: usize,
    dtype: candlescope_core::DType,
    span: Span,
}

impl Embedding {
    /// A dense table, (vocabulary, features). Fails if it is not a matrix.
    pub fn new(path: &str, table: Tensor) -> Result<Self> {
        let (vocabulary, features) = table.dims2()?;
        let row_bytes = tensor_bytes(&table) / vocabulary.max(1) as u64;
        let (dtype, width) = (dtype_word(table.dtype()), table.dtype().size_in_bytes());
        Ok(Self { table: Table::Dense(table), features, row_bytes, width, dtype, span: layer_span!("embedding", path) })
    }

    /// A quantised table, (vocabulary, features). If the device cannot look up rows of this quantisation, the whole
    /// table is widened to f32.
    pub fn quantized(path: &str, table: Arc<QTensor>) -> Result<Self> {
        let (vocabulary, features) = table.shape().dims2()?;
        let probe = Tensor::zeros(1, DType::U32, &table.device())?;
        if table.embedding(&probe).is_err() {
            return Self::new(path, table.dequantize(&table.device())?);
        }
        let row_bytes = table.storage_size_in_bytes() as u64 / vocabulary.max(1) as u64;
        let (dtype, width) = (ggml_dtype_word(table.dtype()), DType::F32.size_in_bytes());
        let table = Table::Quantized(table);
        Ok(Self { table, features, row_bytes, width, dtype, span: layer_span!("embedding", path) })
    }

    /// Cost of looking up `rows` tokens: the bytes of their rows, and of the vectors they become.
    #[doc(hidden)]
    pub fn cost(&self, rows: impl Count) -> Cost {
        lookup(rows, self.features, self.row_bytes, self.width)
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
        record(|| Annotation::from(self.cost(ids.elem_count())).dtype(self.dtype).shape(ys.dims()));
        Ok(ys)
    }
}
