//! What is to be predicted: how a model is stored, and what it is asked.

use candlescope_work::devices::{Device, DeviceKind, Format, Multiply};
use candlescope_work::input::{Input, Widths};
use candlescope_work::shape::ModelShape;
use candlescope_work::slo::Slo;
use serde::Serialize;

/// No more sequences, tokens or devices are looked at: beyond this no figure means anything.
pub const MOST: u64 = 10_000_000;

/// Share of a device's memory that a model can have: vLLM's default of `gpu_memory_utilization`. The rest goes to the
/// driver's context, libraries' workspaces and fragmentation.
pub const USABLE_MEMORY: f64 = 0.9;

/// Latencies to keep, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct Goal {
    /// Time to first token at most.
    pub ttft_ns: Option<f64>,
    /// Time per output token at most.
    pub tpot_ns: Option<f64>,
}

/// A goal cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{given}` is no goal for latency: write ttft=TIME, tpot=TIME or both with a comma, as in ttft=200ms,tpot=50ms"
)]
pub struct GoalError {
    /// The whole text that could not be read.
    pub given: String,
}

impl std::str::FromStr for Goal {
    type Err = GoalError;

    fn from_str(text: &str) -> Result<Self, GoalError> {
        let wrong = || GoalError { given: text.to_string() };
        let slo: Slo = text.parse().map_err(|_| wrong())?;
        // A step that is predicted has one time, and requests of other lengths are not looked at.
        if slo.e2e_ns.is_some() || slo.limits_percentiles() {
            return Err(wrong());
        }
        Ok(Self { ttft_ns: slo.ttft_ns.map(|ns| ns as f64), tpot_ns: slo.tpot_ns.map(|ns| ns as f64) })
    }
}

/// How values are stored and multiplied.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Storage {
    /// The type in which weights are multiplied.
    pub multiply: Multiply,
    /// Bytes of a weight, an activation, a cached value and an element in attention's products.
    pub widths: Widths,
}

/// How a model is stored, and what it is asked.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Scenario {
    /// Format of the weights.
    pub weights: Format,
    /// Format of cached keys and values; that of the activations if not given.
    pub cached: Option<Format>,
    /// Sequences processed at once, each with a prompt of its own; 1 unless set.
    pub batch: u64,
    /// Tokens of a prompt.
    pub prompt: u64,
    /// Tokens to generate for each sequence; the cache has to hold them as well. 128 unless set.
    pub output: u64,
    /// Context at which the time of a token is told; the prompt and half of the output if not given. With an
    /// encoder, which has the prompt, it is the decoder's own: half of the output.
    pub context: Option<u64>,
    /// Devices that share every matrix.
    pub devices: u64,
    /// Goal that a batch is recommended for.
    pub goal: Goal,
    /// Bytes of memory where the device does not say, or other than it says.
    pub memory: Option<f64>,
    /// Share of the memory that the model can have.
    pub memory_share: f64,
}

impl Scenario {
    /// One sequence of 512 tokens and 128 more, on one device.
    pub fn new(weights: Format) -> Self {
        Self {
            weights,
            cached: None,
            batch: 1,
            prompt: 512,
            output: 128,
            context: None,
            devices: 1,
            goal: Goal::default(),
            memory: None,
            memory_share: USABLE_MEMORY,
        }
    }

    /// Format of cached keys and values.
    #[must_use]
    pub fn cached(self, cached: Option<Format>) -> Self {
        Self { cached, ..self }
    }

    /// Sequences at once, from one to [`MOST`].
    #[must_use]
    pub fn batch(self, batch: u64) -> Self {
        Self { batch: batch.clamp(1, MOST), ..self }
    }

    /// Tokens of a prompt and tokens to generate, from one to [`MOST`] each.
    #[must_use]
    pub fn tokens(self, prompt: u64, output: u64) -> Self {
        Self { prompt: prompt.clamp(1, MOST), output: output.clamp(1, MOST), ..self }
    }

    /// Context at which the time of a token is told.
    #[must_use]
    pub fn context(self, context: Option<u64>) -> Self {
        Self { context: context.map(|context| context.clamp(1, MOST)), ..self }
    }

    /// Devices that share every matrix, at least one.
    #[must_use]
    pub fn devices(self, devices: u64) -> Self {
        Self { devices: devices.clamp(1, MOST), ..self }
    }

    /// Goal that a batch is recommended for.
    #[must_use]
    pub fn goal(self, goal: Goal) -> Self {
        Self { goal, ..self }
    }

    /// Bytes of memory of a device.
    #[must_use]
    pub fn memory(self, memory: Option<f64>) -> Self {
        Self { memory, ..self }
    }

    /// Share of a device's memory that the model can have, above 0 and up to 1.
    #[must_use]
    pub fn memory_share(self, memory_share: f64) -> Self {
        Self { memory_share: if memory_share > 0.0 { memory_share.min(1.0) } else { USABLE_MEMORY }, ..self }
    }

    /// The same in another format.
    #[must_use]
    pub fn in_format(self, weights: Format) -> Self {
        Self { weights, ..self }
    }

    /// Context at which the time of a token is told; the decoder's own where the prompt is an encoder's.
    pub fn told_context(&self, shape: &ModelShape) -> u64 {
        self.context.unwrap_or(self.own_prompt(shape) + self.output / 2).max(1)
    }

    /// What the decoder gets in both steps: the prompts, or after an encoder the first token, and a later token.
    pub(super) fn inputs(&self, shape: &ModelShape) -> [Input; 2] {
        let context = self.told_context(shape);
        match shape.encoder_layers {
            0 => [Input::prompt(self.batch, self.prompt), Input::token(self.batch, context)],
            _ => [Input::token(self.batch, 1), Input::token(self.batch, context)]
                .map(|input| input.after_encoding(self.prompt)),
        }
    }

    /// Tokens of a sequence at its end; those of the decoder where the prompt is an encoder's.
    pub fn longest(&self, shape: &ModelShape) -> u64 {
        (self.own_prompt(shape) + self.output).max(self.context.unwrap_or(0))
    }

    /// Tokens of the prompt that the decoder itself has.
    fn own_prompt(&self, shape: &ModelShape) -> u64 {
        if shape.encoder_layers > 0 { 0 } else { self.prompt }
    }

    /// How its values are stored on a device.
    pub fn storage(&self, device: &Device) -> Storage {
        // On a CPU candle holds what it quantised or what is f32 in f32, and 16-bit floats as they are.
        let activations = self.weights.activation_bits / 8.0;
        let widens = device.kind == DeviceKind::Cpu && device.multiplies(Multiply::F16) == Multiply::F32;
        let widths = Widths {
            weights: self.weights.bits / 8.0,
            activations,
            cached: self.cached.map_or(activations, |format| format.bits / 8.0),
            products: if widens { 4.0 } else { activations },
            in_blocks: self.weights.in_blocks,
        };
        Storage { multiply: self.weights.multiply, widths }
    }
}
