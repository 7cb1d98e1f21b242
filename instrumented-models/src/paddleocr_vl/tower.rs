//! What looks at an image: patches, a stack of layers, and the projector, which makes one token of four patches.

use super::patch_attention::{Angles, Attention};
use crate::blocks::Block;
use crate::config::AttentionDims;
use crate::layers::{Activation, Conv2d, LayerNorm, Mlp, Projection, join, layer_span, record};
use crate::weights::{WeightError, WeightSource, layer_norm, projection, tensor_error};
use candle_core::{DType, Device, Result, Tensor};
use candle_nn::{Conv2dConfig, Module};
use candle_transformers::models::paddleocr_vl::VisionConfig;
use candlescope_core::Annotation;
use candlescope_work::operation::pointwise;
use std::collections::HashMap;
use tracing::Span;

/// Base of the rotary frequencies.
const THETA: f32 = 10_000.0;
/// Patches on a side of those that become one token.
const MERGE: usize = 2;
/// Sizes of images whose positions are kept.
const KEPT: usize = 16;

#[derive(Debug)]
pub(super) struct Tower {
    patch_embedding: Conv2d,
    /// Positions of the square that the model was trained with, (side, side, features), on the host.
    positions: Vec<f32>,
    side: usize,
    /// The same for other sizes, by rows and columns.
    known: HashMap<(usize, usize), Tensor>,
    blocks: Vec<Block<LayerNorm, Attention>>,
    post_layernorm: LayerNorm,
    projector: Projector,
    features: usize,
    head_dim: usize,
    device: Device,
    position_span: Span,
    span: Span,
}

#[derive(Debug)]
struct Projector {
    pre_norm: LayerNorm,
    linear_1: Projection,
    linear_2: Projection,
    merge: Span,
    act: Span,
    span: Span,
}

impl Tower {
    pub(super) fn load(
        source: &mut dyn WeightSource,
        config: &VisionConfig,
        activation: &Activation,
        text_features: usize,
        device: &Device,
    ) -> std::result::Result<Self, WeightError> {
        let path = "visual.vision_model";
        let d = config.hidden_size;
        let patch = format!("{path}.embeddings.patch_embedding");
        let kernel = [d, config.num_channels, config.patch_size, config.patch_size];
        let weight = source.dense(&format!("{patch}.weight"), &kernel)?;
        let bias = source.dense(&format!("{patch}.bias"), &[d])?;
        let stride = Conv2dConfig { stride: config.patch_size, ..Conv2dConfig::default() };
        let patch_embedding = Conv2d::new(&patch, weight, Some(bias), stride);
        let side = config.image_size / config.patch_size;
        let table = format!("{path}.embeddings.position_embedding.weight");
        let positions = source.dense(&table, &[side * side, d])?;
        let on_host = |table: &Tensor| table.to_dtype(DType::F32)?.flatten_all()?.to_vec1::<f32>();
        let positions = on_host(&positions).map_err(tensor_error(&table))?;
        let heads = config.num_attention_heads;
        let dims = AttentionDims { heads, kv_heads: heads, head_dim: config.head_dim() };
        let block = |layer: usize| -> std::result::Result<_, WeightError> {
            let path = format!("{path}.encoder.layers.{layer}");
            let (attention, mlp) = (format!("{path}.self_attn"), format!("{path}.mlp"));
            let (i, eps) = (config.intermediate_size, config.layer_norm_eps);
            let norm = layer_norm(source, &format!("{path}.layer_norm1"), d, eps)?;
            let attention = Attention::load(source, &attention, (d, dims, true), "out_proj", None)?;
            let mlp_norm = layer_norm(source, &format!("{path}.layer_norm2"), d, eps)?;
            let up = projection(source, &format!("{mlp}.fc1"), (i, d), true)?;
            let down = projection(source, &format!("{mlp}.fc2"), (d, i), true)?;
            Ok(Block::new(&path, norm, attention, mlp_norm, Mlp::new(&mlp, activation.clone(), up, down)))
        };
        let blocks = (0..config.num_hidden_layers).map(block).collect::<std::result::Result<_, WeightError>>()?;
        let post_layernorm = layer_norm(source, &format!("{path}.post_layernorm"), d, config.layer_norm_eps)?;
        Ok(Self {
            patch_embedding,
            positions,
            side,
            known: HashMap::new(),
            blocks,
            post_layernorm,
            projector: Projector::load(source, d, text_features)?,
            features: d,
            head_dim: dims.head_dim,
            device: device.clone(),
            position_span: layer_span!("positions", &format!("{path}.embeddings.position_embedding")),
            span: tracing::trace_span!(target: "candlescope_models", parent: None, "tower", weight = path),
        })
    }

    /// From pixels (batch, 3, height, width) to tokens (batch · tokens, features of the decoder).
    pub(super) fn forward(&mut self, pixels: &Tensor) -> Result<Tensor> {
        let span = self.span.clone();
        let _entered = span.enter();
        let patches = self.patch_embedding.forward(pixels)?;
        let (_, _, rows, columns) = patches.dims4()?;
        let mut xs = self.with_positions(&patches.flatten_from(2)?.transpose(1, 2)?, rows, columns)?;
        let angles = self.angles(rows, columns)?;
        for block in &mut self.blocks {
            xs = block.around(&xs, |attention, xs| attention.forward(xs, &angles, None, 0))?;
        }
        self.projector.forward(&self.post_layernorm.forward(&xs)?, rows, columns)
    }

    fn with_positions(&mut self, xs: &Tensor, rows: usize, columns: usize) -> Result<Tensor> {
        let span = self.position_span.clone();
        let _entered = span.enter();
        if !self.known.contains_key(&(rows, columns)) {
            if self.known.len() >= KEPT {
                self.known.clear();
            }
            let table = self.interpolated(rows, columns);
            let table = Tensor::from_vec(table, (1, rows * columns, self.features), &self.device)?;
            self.known.insert((rows, columns), table.to_dtype(xs.dtype())?);
        }
        record(|| Annotation::from(pointwise(xs.elem_count(), 3, xs.dtype().size_in_bytes())));
        xs.broadcast_add(&self.known[&(rows, columns)])?.contiguous()
    }

    /// Positions of a grid of another size, between those of the square (bilinear, centres on centres, as PyTorch's
    /// `interpolate` with `align_corners=False`).
    fn interpolated(&self, rows: usize, columns: usize) -> Vec<f32> {
        let last = self.side - 1;
        // The two neighbours, and the weight of the second.
        let between = |at: usize, of: usize| {
            let place = ((at as f64 + 0.5) * self.side as f64 / of as f64 - 0.5).clamp(0.0, last as f64);
            let first = place.floor() as usize;
            (first, (first + 1).min(last), (place - first as f64) as f32)
        };
        let mut out = Vec::with_capacity(rows * columns * self.features);
        let of = |row: usize, column: usize| {
            let from = (row * self.side + column) * self.features;
            &self.positions[from..from + self.features]
        };
        for row in 0..rows {
            let (y0, y1, fy) = between(row, rows);
            for column in 0..columns {
                let (x0, x1, fx) = between(column, columns);
                let (a, b, c, d) = (of(y0, x0), of(y0, x1), of(y1, x0), of(y1, x1));
                let weights = [(1.0 - fy) * (1.0 - fx), (1.0 - fy) * fx, fy * (1.0 - fx), fy * fx];
                out.extend(
                    (0..self.features)
                        .map(|i| weights[0] * a[i] + weights[1] * b[i] + weights[2] * c[i] + weights[3] * d[i]),
                );
            }
        }
        out
    }

    /// The first half of the frequencies turns with the row, the second with the column.
    fn angles(&self, rows: usize, columns: usize) -> Result<Angles> {
        let half = self.head_dim / 2;
        let frequencies: Vec<f32> = (0..half).step_by(2).map(|i| 1.0 / THETA.powf(i as f32 / half as f32)).collect();
        let of = |angle: fn(f32) -> f32| {
            let mut values = Vec::with_capacity(rows * columns * half);
            for row in 0..rows {
                for column in 0..columns {
                    for place in [row, column] {
                        values.extend(frequencies.iter().map(|frequency| angle(place as f32 * frequency)));
                    }
                }
            }
            Tensor::from_vec(values, (rows * columns, half), &self.device)
        };
        Ok(Angles { cos: of(f32::cos)?, sin: of(f32::sin)? })
    }
}

impl Projector {
    fn load(
        source: &mut dyn WeightSource,
        features: usize,
        text_features: usize,
    ) -> std::result::Result<Self, WeightError> {
        let path = "mlp_AR";
        let merged = features * MERGE * MERGE;
        Ok(Self {
            pre_norm: layer_norm(source, &join(path, "pre_norm"), features, 1e-5)?,
            linear_1: projection(source, &join(path, "linear_1"), (merged, merged), true)?,
            linear_2: projection(source, &join(path, "linear_2"), (text_features, merged), true)?,
            merge: layer_span!("merge", "mlp_AR.merge"),
            act: layer_span!("act_fn", "mlp_AR.act_fn"),
            span: tracing::trace_span!(target: "candlescope_models", parent: None, "projector", weight = path),
        })
    }

    fn forward(&self, xs: &Tensor, rows: usize, columns: usize) -> Result<Tensor> {
        let _entered = self.span.enter();
        let normed = self.pre_norm.forward(xs)?;
        let (batch, _, features) = normed.dims3()?;
        let merged = {
            let _entered = self.merge.enter();
            let (height, width) = (rows / MERGE, columns / MERGE);
            let merged = normed
                .reshape(&[batch * height, MERGE, width, MERGE, features])?
                .transpose(1, 2)?
                .contiguous()?
                .reshape((batch * height * width, MERGE * MERGE * features))?;
            record(|| Annotation::from(pointwise(merged.elem_count(), 2, merged.dtype().size_in_bytes())));
            merged
        };
        let xs = self.linear_1.forward(&merged)?;
        let xs = {
            let _entered = self.act.enter();
            record(|| Annotation::from(pointwise(xs.elem_count(), 2, xs.dtype().size_in_bytes())));
            xs.gelu()?
        };
        self.linear_2.forward(&xs)
    }
}
