//! PaddleOCR-VL made of the wrapped layers: a tower that looks at an image, and a decoder that writes about it.
//!
//! It computes what candle's model does. Intervals under the step: `tower` with `patch_embedding`, `positions`, `block[i]`,
//! `post_layernorm` and `projector`; `embed_tokens`, `block[i]`, `norm`, `lm_head`.

mod patch_attention;
mod tower;

use crate::blocks::{Block, last_position};
use crate::config::{AttentionDims, ConfigError};
use crate::layers::{Activation, CausalMask, Embedding, Mlp, Projection, RmsNorm};
use crate::weights::{WeightError, WeightSource, embedding, norm, projection};
use candle_core::{DType, Device, Result, Tensor};
use candle_nn::Module;
use candle_transformers::models::paddleocr_vl::{Config, TextConfig, compute_mrope_position_ids};
use patch_attention::{Angles, Attention};
use std::collections::HashSet;
use tower::Tower;

#[derive(Debug)]
pub(crate) struct PaddleOcrVl {
    tower: Tower,
    embed_tokens: Embedding,
    blocks: Vec<Block<RmsNorm, Attention>>,
    norm: RmsNorm,
    lm_head: Projection,
    mask: CausalMask,
    text: TextConfig,
    image_token: u32,
    /// How far positions are ahead of the number of tokens after the prompt: an image takes fewer than it has tokens.
    ahead: i64,
    dtype: DType,
    device: Device,
}

/// Counts what is read.
struct CountingSource<'a> {
    source: &'a mut dyn WeightSource,
    read: HashSet<String>,
    size: Read,
}

/// How much a model read, each tensor counted once.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Read {
    /// Elements of all tensors.
    pub(crate) parameters: u64,
    /// Their bytes in memory.
    pub(crate) bytes: u64,
}

impl WeightSource for CountingSource<'_> {
    fn dense(&mut self, name: &str, shape: &[usize]) -> std::result::Result<Tensor, WeightError> {
        let tensor = self.source.dense(name, shape)?;
        if self.read.insert(name.to_string()) {
            self.size.parameters += tensor.elem_count() as u64;
            self.size.bytes += (tensor.elem_count() * tensor.dtype().size_in_bytes()) as u64;
        }
        Ok(tensor)
    }
}

/// The activations in the form of the wrapped layers.
fn gelu(config: &Config) -> std::result::Result<Activation, ConfigError> {
    use candle_nn::Activation as Known;
    let lacks = |what: String| ConfigError::Unsupported { what, remedy: "choose the engine `candle`" };
    if !matches!(config.hidden_act, Known::Silu) {
        return Err(lacks(format!("`hidden_act` {:?}", config.hidden_act)));
    }
    match config.vision_config.hidden_act {
        Known::GeluPytorchTanh | Known::NewGelu => Ok(Activation::GeluTanh),
        Known::Gelu => Ok(Activation::Gelu),
        other => Err(lacks(format!("`hidden_act` {other:?} of the tower"))),
    }
}

impl PaddleOcrVl {
    /// Whether the wrapped layers have all that `config` says.
    pub(crate) fn supports(config: &Config) -> std::result::Result<(), ConfigError> {
        gelu(config).map(drop)
    }

    /// Takes the weights of `config`, which was checked, from `source`; `name` stands for it in errors.
    pub(crate) fn load(
        name: &str,
        config: &Config,
        source: &mut dyn WeightSource,
        dtype: DType,
        device: &Device,
    ) -> std::result::Result<(Self, Read), WeightError> {
        let here = |cause| WeightError::Config { path: name.into(), cause };
        let activation = gelu(config).map_err(here)?;
        let mut counting = CountingSource { source, read: HashSet::new(), size: Read::default() };
        let source: &mut dyn WeightSource = &mut counting;
        let text = TextConfig::from(config);
        let tower = Tower::load(source, &config.vision_config, &activation, text.hidden_size, device)?;
        let table = (text.vocab_size, text.hidden_size);
        let tied = text.tie_word_embeddings.then_some("lm_head");
        let (embed_tokens, head) = embedding(source, "model.embed_tokens", table, tied)?;
        let dims = AttentionDims {
            heads: text.num_attention_heads,
            kv_heads: text.num_key_value_heads,
            head_dim: text.head_dim,
        };
        let block = |layer: usize| -> std::result::Result<_, WeightError> {
            let path = format!("model.layers.{layer}");
            let (d, i, eps, bias) = (text.hidden_size, text.intermediate_size, text.rms_norm_eps, text.use_bias);
            let first = norm(source, &format!("{path}.input_layernorm"), d, eps)?;
            let most = Some(text.max_position_embeddings);
            let attention = Attention::load(source, &format!("{path}.self_attn"), (d, dims, bias), "o_proj", most)?;
            let second = norm(source, &format!("{path}.post_attention_layernorm"), d, eps)?;
            let mlp = format!("{path}.mlp");
            let gate = projection(source, &format!("{mlp}.gate_proj"), (i, d), bias)?;
            let up = projection(source, &format!("{mlp}.up_proj"), (i, d), bias)?;
            let down = projection(source, &format!("{mlp}.down_proj"), (d, i), bias)?;
            Ok(Block::new(&path, first, attention, second, Mlp::new(&mlp, Activation::SwiGlu { gate }, up, down)))
        };
        let blocks = (0..text.num_hidden_layers).map(block).collect::<std::result::Result<_, WeightError>>()?;
        let last = norm(source, "model.norm", text.hidden_size, text.rms_norm_eps)?;
        let lm_head = head.map_or_else(|| projection(source, "lm_head", table, false), Ok)?;
        let size = counting.size;
        let model = Self {
            tower,
            embed_tokens,
            blocks,
            norm: last,
            lm_head,
            mask: CausalMask::default(),
            text,
            image_token: config.image_token_id,
            ahead: 0,
            dtype,
            device: device.clone(),
        };
        Ok((model, size))
    }

    /// Pixels of (batch, 3, height, width) as tokens of the decoder.
    pub(crate) fn encode_image(&mut self, pixels: &Tensor) -> Result<Tensor> {
        self.tower.forward(pixels)
    }

    /// Logits of the last of `tokens`, (batch, tokens), which begin at `position`. With `image`, pixels and the rows and
    /// columns of their patches, they are a prompt about it.
    pub(crate) fn forward(
        &mut self,
        tokens: &Tensor,
        image: Option<(&Tensor, usize, usize)>,
        position: usize,
    ) -> Result<Tensor> {
        let (batch, count) = tokens.dims2()?;
        let mut xs = self.embed_tokens.forward(tokens)?;
        let places = match image {
            Some((pixels, rows, columns)) => {
                let seen = self.tower.forward(pixels)?.to_dtype(self.dtype)?;
                xs = self.with_image(&xs, tokens, &seen)?;
                // Two patches each way are one token.
                let ids = compute_mrope_position_ids(tokens, self.image_token, rows / 2, columns / 2, &Device::Cpu)?;
                let places = ids.flatten_all()?.to_vec1::<i64>()?;
                self.ahead = places.iter().copied().max().unwrap_or(0) + 1 - count as i64;
                places
            }
            None => vec![position as i64 + self.ahead; 3 * batch * count],
        };
        let angles = self.angles(&places, batch, count)?;
        let mask = self.mask.of(count, position, &self.device)?;
        for block in &mut self.blocks {
            xs = block.around(&xs, |attention, xs| attention.forward(xs, &angles, mask.as_ref(), position))?;
        }
        self.lm_head.forward(&self.norm.forward(&last_position(&xs, count)?)?)
    }

    /// Puts the image's tokens into the places that the prompt has for them.
    fn with_image(&self, xs: &Tensor, tokens: &Tensor, seen: &Tensor) -> Result<Tensor> {
        let (batch, count, features) = xs.dims3()?;
        let (words, parts) = (batch * count, seen.dim(0)?);
        let mut next = 0;
        let index = tokens.flatten_all()?.to_vec1::<u32>()?.into_iter().enumerate().map(|(at, token)| {
            if token == self.image_token && next < parts {
                next += 1;
                (words + next - 1) as u32
            } else {
                at as u32
            }
        });
        let index = Tensor::from_vec(index.collect::<Vec<u32>>(), words, &self.device)?;
        let all = Tensor::cat(&[&xs.reshape((words, features))?, seen], 0)?;
        all.index_select(&index, 0)?.reshape((batch, count, features))
    }

    /// Cosines and sines of positions in three dimensions, (3, batch, tokens): each frequency turns with one of them.
    fn angles(&self, places: &[i64], batch: usize, count: usize) -> Result<Angles> {
        let half = self.text.head_dim / 2;
        let turns = self.text.mrope_section.iter().enumerate();
        let dimension: Vec<usize> = turns.flat_map(|(n, section)| std::iter::repeat_n(n % 3, *section)).collect();
        let base = self.text.rope_theta as f32;
        let frequencies: Vec<f32> =
            (0..half).map(|i| 1.0 / base.powf(2.0 * i as f32 / self.text.head_dim as f32)).collect();
        let of = |angle: fn(f32) -> f32| {
            let rows = (0..batch * count).flat_map(|at| {
                let (dimension, frequencies) = (&dimension, &frequencies);
                (0..half).map(move |i| angle(places[dimension[i] * batch * count + at] as f32 * frequencies[i]))
            });
            let values: Vec<f32> = rows.collect();
            Tensor::from_vec(values, (batch, count, half), &self.device)?.to_dtype(self.dtype)
        };
        Ok(Angles { cos: of(f32::cos)?, sin: of(f32::sin)? })
    }

    pub(crate) fn reset(&mut self) {
        self.blocks.iter_mut().for_each(|block| block.attention().reset());
    }
}
