//! candle's `paddleocr_vl`, and the same of the wrapped layers.

use super::hf_fields::{candles, optional_count, shared_by_heads};
use super::reading::{self, Size};
use crate::causal_lm::CausalLm;
use crate::config::{ConfigError, token_ids};
use crate::image::{Frame, Image};
use crate::info::Dimensions;
use crate::paddleocr_vl::PaddleOcrVl;
use crate::weights::{WeightError, WeightSource};
use candle_core::{DType, Device, Result, Tensor, bail};
use candle_nn::VarBuilder;
use candle_transformers::models::paddleocr_vl::{Config, PaddleOCRVLModel};
use candlescope_core::modules;
use serde_json::Value;
use std::cell::RefCell;

/// Patches on a side of those that become one token. candle's model has no other.
const MERGE: usize = 2;

/// Longest context: candle makes rotary tables for all of it.
const MAX_CONTEXT: usize = 1 << 18;

/// Fewest and most pixels of an image, as PaddleOCR's own processor has them, unless `preprocessor_config.json` says
/// otherwise.
const PIXELS: (usize, usize) = (147_384, 2_822_400);

/// `candle_transformers::models::paddleocr_vl`, of a `config.json` of `model_type` `paddleocr_vl`: a tower that looks at
/// an image, and a decoder that writes about it.
///
/// candle's pass over the prompt passes the image through the tower as well: there is no way to hand over what the tower
/// made before.
///
/// Where the engine is not candle's, the wrapped layers compute the same, with spans.
pub struct CandlePaddleOcrVl {
    model: Model,
    seen: Option<PromptImage>,
    special: Special,
    frame: Frame,
    patch: usize,
    dimensions: Dimensions,
    dtype: DType,
    device: Device,
}

impl std::fmt::Debug for CandlePaddleOcrVl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CandlePaddleOcrVl").field("dimensions", &self.dimensions).finish_non_exhaustive()
    }
}

/// Whose layers run.
enum Model {
    Candles(Box<PaddleOCRVLModel>),
    /// The tower keeps what it worked out for a size of images.
    Wrapped(Box<RefCell<PaddleOcrVl>>),
}

/// The image that the next prompts are about.
struct PromptImage {
    /// (batch, 3, height, width)
    pixels: Tensor,
    /// (batch, 3): one frame, patches of a column, patches of a row.
    grid: Tensor,
    batch: usize,
    /// Rows and columns of patches.
    size: (usize, usize),
}

/// Tokens around an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Special {
    /// Stands for a part of the image.
    pub image: u32,
    /// Stands for a part of a video.
    pub video: u32,
    /// Stands before the image: `vision_start_token_id` of `config.json`.
    pub start: u32,
    /// Stands after it: `vision_end_token_id` of `config.json`.
    pub end: u32,
}

/// Reads what is needed of a `config.json`, and refuses what candle could not run. What is absent has candle's default,
/// which is the published model's.
fn read(json: &Value) -> std::result::Result<(Config, Dimensions), ConfigError> {
    let vision = json.get("vision_config").unwrap_or(&Value::Null);
    for name in ["vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "head_dim"] {
        optional_count(json, name)?;
    }
    for name in ["num_attention_heads", "num_key_value_heads"] {
        optional_count(json, name)?;
    }
    for name in ["hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "image_size"] {
        optional_count(vision, name)?;
    }
    let config: Config = candles(json)?;
    let eye = &config.vision_config;
    let unsupported = |what: &str, remedy| {
        let what = format!("{what} in candle's paddleocr_vl");
        Err(ConfigError::Unsupported { what, remedy })
    };
    if !(1..=MAX_CONTEXT).contains(&config.max_position_embeddings) {
        let (value, limit) = (config.max_position_embeddings, MAX_CONTEXT);
        return Err(ConfigError::TooLarge { name: "max_position_embeddings", value, limit });
    }
    if eye.spatial_merge_size != MERGE || eye.num_channels != 3 {
        return unsupported("`spatial_merge_size` other than 2 or `num_channels` other than 3", "use another model");
    }
    let fail = |message: String| Err(ConfigError::Inconsistent(message));
    if eye.patch_size == 0 || eye.patch_size > eye.image_size {
        return fail(format!("patches of {} pixels are none of an image of {}", eye.patch_size, eye.image_size));
    }
    // What was given; candle's own defaults fit together.
    if vision.get("hidden_size").is_some() && vision.get("num_attention_heads").is_some() {
        shared_by_heads(vision, "hidden_size", "num_attention_heads")?;
    }
    if !eye.hidden_size.is_multiple_of(eye.num_attention_heads) || !eye.head_dim().is_multiple_of(4) {
        return fail(format!("a head of the tower has {} features, which is no multiple of 4", eye.head_dim()));
    }
    let (heads, kv_heads) = (config.num_attention_heads, config.num_key_value_heads);
    if !heads.is_multiple_of(kv_heads) {
        return fail(format!("{heads} heads are not a multiple of {kv_heads} key/value heads"));
    }
    // candle's default sections are those of heads of 128 features.
    let sections = config.rope_scaling.as_ref().map_or(64, |scaling| scaling.mrope_section.iter().sum::<usize>());
    if config.head_dim != 2 * sections {
        return fail(format!(
            "mrope_section makes up {sections} pairs of features, and head_dim is {}",
            config.head_dim
        ));
    }
    for (field, token) in [
        ("image_token_id", config.image_token_id),
        ("vision_start_token_id", config.vision_start_token_id),
        ("vision_end_token_id", config.vision_end_token_id),
    ] {
        if token as usize >= config.vocab_size {
            return Err(ConfigError::Field { field: field.into(), expected: "a token of the vocabulary" });
        }
    }
    let dimensions = Dimensions {
        architecture: "paddleocr_vl".into(),
        hidden_size: config.hidden_size,
        intermediate_size: config.intermediate_size,
        layers: config.num_hidden_layers,
        encoder_layers: Some(eye.num_hidden_layers),
        heads,
        kv_heads,
        head_dim: config.head_dim,
        vocab_size: config.vocab_size,
        source_positions: config.max_position_embeddings,
        positions: config.max_position_embeddings,
        start: Vec::new(),
        // As candle's example has it where nothing says otherwise.
        eos: Some(token_ids(json.get("eos_token_id"))).filter(|eos| !eos.is_empty()).unwrap_or_else(|| vec![2]),
        tied: config.tie_word_embeddings,
    };
    Ok((config, dimensions))
}

/// The sizes of images, by `preprocessor_config.json` where there is one.
fn frame(patch: usize, processor: &Value) -> std::result::Result<Frame, ConfigError> {
    let least = optional_count(processor, "min_pixels")?.unwrap_or(PIXELS.0);
    let most = optional_count(processor, "max_pixels")?.unwrap_or(PIXELS.1);
    let multiple = patch * MERGE;
    if most < least || most < multiple * multiple {
        return Err(ConfigError::Inconsistent(format!("no image has {least} pixels or more and {most} or fewer")));
    }
    Ok(Frame { multiple, least, most })
}

impl CandlePaddleOcrVl {
    /// Takes the weights of a `config.json` from `source`; `name` stands for it in errors. `processor` is what
    /// `preprocessor_config.json` says about sizes of images, or null.
    pub fn load(
        name: &str,
        json: &Value,
        processor: &Value,
        source: &mut dyn WeightSource,
        dtype: DType,
        device: &Device,
    ) -> std::result::Result<(Self, Size), WeightError> {
        Self::load_as(name, (json, processor), source, (dtype, device), false)
    }

    /// Whether the wrapped layers have all that a `config.json` says, as far as it can be read.
    pub(crate) fn can_be_wrapped(json: &Value) -> bool {
        read(json).is_ok_and(|(config, _)| PaddleOcrVl::supports(&config).is_ok())
    }

    /// As [`load`](Self::load), of the wrapped layers where `wrapped` says so.
    pub(crate) fn load_as(
        name: &str,
        (json, processor): (&Value, &Value),
        source: &mut dyn WeightSource,
        (dtype, device): (DType, &Device),
        wrapped: bool,
    ) -> std::result::Result<(Self, Size), WeightError> {
        let here = |cause| WeightError::Config { path: name.into(), cause };
        let (config, dimensions) = read(json).map_err(here)?;
        let patch = config.vision_config.patch_size;
        let frame = frame(patch, processor).map_err(here)?;
        let (model, size) = if wrapped {
            let (model, read) = PaddleOcrVl::load(name, &config, source, dtype, device)?;
            let size = Size { parameters: read.parameters, bytes: read.bytes };
            (Model::Wrapped(Box::new(RefCell::new(model))), size)
        } else {
            // It was read as JSON, with a `model_type`.
            let _ = modules::model(&json.to_string());
            let make = |vb: VarBuilder<'_>| PaddleOCRVLModel::new(&config, vb);
            let (model, size) = reading::build("candle's paddleocr_vl", source, dtype, device, make)?;
            (Model::Candles(Box::new(model)), size)
        };
        let special = Special {
            image: config.image_token_id,
            video: config.video_token_id,
            start: config.vision_start_token_id,
            end: config.vision_end_token_id,
        };
        let device = device.clone();
        Ok((Self { model, seen: None, special, frame, patch, dimensions, dtype, device }, size))
    }

    /// Whether a `config.json` ties the head to the embedding.
    pub(crate) fn is_tied(json: &Value) -> bool {
        json.get("tie_word_embeddings").and_then(Value::as_bool).unwrap_or(false)
    }

    /// The sizes of images that it takes.
    pub fn frame(&self) -> &Frame {
        &self.frame
    }

    /// Tokens around an image.
    pub fn special(&self) -> Special {
        self.special
    }

    /// Makes `image` what the next prompts are about, each of `batch` sequences about the same one. Returns the tokens
    /// of a prompt that stand for it.
    ///
    /// # Errors
    /// If the image's sides are no multiples of what [`frame`](Self::frame) says, or as candle's.
    pub fn show(&mut self, image: &Image, batch: usize) -> Result<usize> {
        let (height, width) = image.size();
        if !height.is_multiple_of(self.frame.multiple) || !width.is_multiple_of(self.frame.multiple) {
            bail!(
                "an image of {height} × {width} pixels is not one of whole tokens, of {} each way",
                self.frame.multiple
            )
        }
        let (rows, columns) = (height / self.patch, width / self.patch);
        let pixels = Tensor::from_slice(image.planes(), (1, 3, height, width), &self.device)?;
        let pixels = pixels.to_dtype(self.dtype)?.repeat((batch, 1, 1, 1))?.contiguous()?;
        let grid = Tensor::new(&[[1u32, rows as u32, columns as u32]], &self.device)?;
        let grid = grid.repeat((batch, 1))?.contiguous()?;
        self.seen = Some(PromptImage { pixels, grid, batch, size: (rows, columns) });
        Ok(rows * columns / (MERGE * MERGE))
    }

    /// Sequences and patches of the image that was shown, if one was.
    pub fn shown(&self) -> Option<(usize, usize)> {
        self.seen.as_ref().map(|seen| (seen.batch, seen.size.0 * seen.size.1))
    }

    /// One pass of the image through the tower, (tokens of all sequences, features of the decoder).
    ///
    /// # Errors
    /// If no image was shown, or as candle's.
    pub fn look(&self) -> Result<Tensor> {
        let Some(seen) = &self.seen else { bail!("no image has been shown: call show first") };
        match &self.model {
            Model::Candles(model) => model.encode_image(&seen.pixels, &seen.grid),
            Model::Wrapped(model) => model.borrow_mut().encode_image(&seen.pixels),
        }
    }

    /// Its dimensions; those of the tower are not among them, but for its layers.
    pub fn dimensions(&self) -> &Dimensions {
        &self.dimensions
    }
}

impl CausalLm for CandlePaddleOcrVl {
    /// Position 0 passes the image through the tower as well.
    fn forward(&mut self, tokens: &Tensor, position: usize) -> Result<Tensor> {
        let (batch, count) = tokens.dims2()?;
        let needed = position.saturating_add(count);
        if needed > self.dimensions.positions {
            bail!("{needed} tokens exceed the context of {} tokens", self.dimensions.positions)
        }
        let logits = if position == 0 {
            self.reset();
            let Some(seen) = &self.seen else { bail!("no image has been shown: call show first") };
            if seen.batch != batch {
                bail!("an image was shown to {} sequences, and {batch} are passed", seen.batch)
            }
            match &mut self.model {
                Model::Candles(model) => model.forward(tokens, Some(&seen.pixels), Some(&seen.grid), 0)?,
                Model::Wrapped(model) => {
                    model.get_mut().forward(tokens, Some((&seen.pixels, seen.size.0, seen.size.1)), 0)?
                }
            }
        } else if count == 1 {
            match &mut self.model {
                Model::Candles(model) => model.forward(tokens, None, None, position)?,
                Model::Wrapped(model) => model.get_mut().forward(tokens, None, position)?,
            }
        } else {
            // candle would put them all at one position.
            bail!("candle's paddleocr_vl continues by one token at a time, not by {count}")
        };
        logits.to_dtype(DType::F32)
    }

    fn reset(&mut self) {
        match &mut self.model {
            Model::Candles(model) => model.clear_kv_cache(),
            Model::Wrapped(model) => model.get_mut().reset(),
        }
    }

    fn max_context(&self) -> usize {
        self.dimensions.positions
    }

    fn vocab_size(&self) -> usize {
        self.dimensions.vocab_size
    }

    fn device(&self) -> &Device {
        &self.device
    }
}
