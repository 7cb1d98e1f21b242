//! Chooses the next token of every sequence.

use candle_core::{D, Device, Result, Tensor, bail};
use candle_transformers::generation::{LogitsProcessor, Sampling};
use candle_transformers::utils::apply_repeat_penalty;

/// How tokens are chosen.
#[derive(Debug, Clone, PartialEq)]
pub struct SamplingOptions {
    /// `None` or 0 takes the most likely token; above, logits are divided by it and a token is drawn.
    pub temperature: Option<f64>,
    /// Draw among the `k` most likely only.
    pub top_k: Option<usize>,
    /// Draw among the most likely that together reach this probability.
    pub top_p: Option<f64>,
    /// Logits of recent tokens are reduced by this factor; 1 leaves them unchanged.
    pub repeat_penalty: f32,
    /// How many recent tokens, prompt included, the penalty applies to.
    pub repeat_last_n: usize,
}

impl Default for SamplingOptions {
    fn default() -> Self {
        Self { temperature: None, top_k: None, top_p: None, repeat_penalty: 1., repeat_last_n: 64 }
    }
}

impl SamplingOptions {
    fn rule(&self) -> Sampling {
        match (self.temperature, self.top_k, self.top_p) {
            (None, _, _) => Sampling::ArgMax,
            (Some(temperature), _, _) if temperature < 1e-7 => Sampling::ArgMax,
            (Some(temperature), None, None) => Sampling::All { temperature },
            (Some(temperature), Some(k), None) => Sampling::TopK { k, temperature },
            (Some(temperature), None, Some(p)) => Sampling::TopP { p, temperature },
            (Some(temperature), Some(k), Some(p)) => Sampling::TopKThenTopP { k, p, temperature },
        }
    }

    /// Checks that the options are valid.
    ///
    /// # Errors
    /// If they are not; the text says why.
    pub fn check(&self) -> std::result::Result<(), String> {
        if let Some(temperature) = self.temperature.filter(|t| !t.is_finite() || *t < 0.) {
            return Err(format!("temperature is {temperature}; it must be 0 or more"));
        }
        if self.top_k == Some(0) {
            return Err("top-k must be at least 1".into());
        }
        if let Some(p) = self.top_p.filter(|p| !(*p > 0. && *p <= 1.)) {
            return Err(format!("top-p is {p}; it must be above 0 and at most 1"));
        }
        if !self.repeat_penalty.is_finite() || self.repeat_penalty <= 0. {
            return Err("repeat penalty must be above 0".into());
        }
        Ok(())
    }
}

/// Draws tokens, each sequence from its own seeded stream.
pub(crate) struct Sampler {
    options: SamplingOptions,
    processors: Vec<LogitsProcessor>,
}

impl Sampler {
    pub(crate) fn new(options: &SamplingOptions, seed: u64, batch: usize) -> Self {
        let stream = |i: usize| LogitsProcessor::from_sampling(seed.wrapping_add(i as u64), options.rule());
        Self { options: options.clone(), processors: (0..batch).map(stream).collect() }
    }

    /// Whether it takes the most likely token, whatever came before.
    pub(crate) fn takes_the_best(&self) -> bool {
        self.options.rule() == Sampling::ArgMax && self.options.repeat_penalty == 1.
    }

    /// The next token of each sequence from `logits` (batch, vocabulary) and the tokens so far. Waits for the device
    /// once.
    pub(crate) fn next(&mut self, logits: &Tensor, before: &[Vec<u32>]) -> Result<Vec<u32>> {
        let penalty = self.options.repeat_penalty;
        if self.takes_the_best() {
            return logits.argmax(D::Minus1)?.to_vec1::<u32>();
        }
        let logits = logits.to_device(&Device::Cpu)?;
        if logits.dim(0)? != before.len() || before.len() != self.processors.len() {
            bail!("{} rows of logits for {} sequences", logits.dim(0)?, before.len())
        }
        let mut next = Vec::with_capacity(before.len());
        for (i, (processor, before)) in self.processors.iter_mut().zip(before).enumerate() {
            let mut row = logits.get(i)?;
            if penalty != 1. {
                let recent = &before[before.len().saturating_sub(self.options.repeat_last_n)..];
                row = apply_repeat_penalty(&row, penalty, recent)?;
            }
            next.push(processor.sample(&row)?);
        }
        Ok(next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn logits() -> Tensor {
        Tensor::new(&[[0f32, 5., 4., -1.], [3., 0., 0., 0.]], &Device::Cpu).unwrap()
    }

    #[test]
    fn greedy_takes_the_maximum_of_each_sequence() {
        let mut sampler = Sampler::new(&SamplingOptions::default(), 0, 2);
        assert_eq!(sampler.next(&logits(), &[vec![], vec![]]).unwrap(), [1, 0]);
    }

    #[test]
    fn penalty_moves_greedy_away_from_repeats() {
        let options = SamplingOptions { repeat_penalty: 2., ..Default::default() };
        let mut sampler = Sampler::new(&options, 0, 2);
        assert_eq!(sampler.next(&logits(), &[vec![1], vec![]]).unwrap(), [2, 0]);
    }

    #[test]
    fn seeds_repeat_and_sequences_differ() {
        let options =
            SamplingOptions { temperature: Some(1.), top_k: Some(40), top_p: Some(0.95), ..Default::default() };
        let flat = Tensor::zeros((2, 1000), candle_core::DType::F32, &Device::Cpu).unwrap();
        let draw = |seed| Sampler::new(&options, seed, 2).next(&flat, &[vec![], vec![]]).unwrap();
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7)[0], draw(7)[1]);
    }

    #[test]
    fn top_k_of_one_is_greedy() {
        let options = SamplingOptions { temperature: Some(5.), top_k: Some(1), ..Default::default() };
        for seed in 0..20 {
            assert_eq!(Sampler::new(&options, seed, 2).next(&logits(), &[vec![], vec![]]).unwrap(), [1, 0]);
        }
    }

    #[test]
    fn nonsense_is_refused() {
        let bad = [
            SamplingOptions { temperature: Some(-1.), ..Default::default() },
            SamplingOptions { top_k: Some(0), ..Default::default() },
            SamplingOptions { top_p: Some(1.5), ..Default::default() },
            SamplingOptions { repeat_penalty: 0., ..Default::default() },
        ];
        assert!(bad.iter().all(|options| options.check().is_err()));
    }
}
