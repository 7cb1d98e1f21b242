//! Chooses the next token of every sequence, on the device that its logits are on.
//!
//! A draw depends on the options, the seed and the token's position in its text, and on nothing else: the same request
//! gives the same text alone and in a batch, on a processor and on a GPU (as far as their logits are the same), and as
//! a CUDA graph.

mod choose;
#[cfg(feature = "cuda")]
mod cuda;
mod rule;

use candle_core::{Device, Result, Tensor, bail};
use candle_transformers::utils::apply_repeat_penalty;
use candlescope_core::llm;
pub(crate) use choose::{chosen, read};
pub(crate) use rule::{Rule, WORDS};

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
    /// The rule of a sequence with this seed, but for the penalty.
    fn rule(&self, seed: u64) -> Rule {
        match self.temperature {
            Some(temperature) if temperature >= 1e-7 => Rule {
                temperature: temperature as f32,
                top_k: self.top_k.and_then(|k| u32::try_from(k.max(1)).ok()).unwrap_or(u32::MAX),
                top_p: self.top_p.unwrap_or(1.) as f32,
                seed,
            },
            _ => Rule::GREEDY,
        }
    }

    /// Whether the most likely token is taken, whatever was said before.
    pub(crate) fn is_greedy(&self) -> bool {
        self.rule(0) == Rule::GREEDY && self.repeat_penalty == 1.
    }

    /// Checks that the options are valid.
    ///
    /// # Errors
    /// If they are not; the text says why.
    pub fn check(&self) -> std::result::Result<(), String> {
        if let Some(temperature) = self.temperature.filter(|t| !(*t as f32).is_finite() || *t < 0.) {
            return Err(format!("temperature is {temperature}; it must be 0 or more, and a number"));
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

/// Chooses tokens, for each sequence by its own seed.
#[derive(Debug, Clone)]
pub struct Sampler {
    options: SamplingOptions,
    rules: Vec<Rule>,
}

impl Sampler {
    /// For a batch of so many sequences, whose seeds count up from `seed`.
    pub fn new(options: &SamplingOptions, seed: u64, batch: usize) -> Self {
        let rules = (0..batch).map(|i| options.rule(seed.wrapping_add(i as u64))).collect();
        Self { options: options.clone(), rules }
    }

    /// The rules of the sequences, if they are all that it does: a penalty depends on the text so far.
    pub(crate) fn rules(&self) -> Option<&[Rule]> {
        (self.options.repeat_penalty == 1.).then_some(&self.rules)
    }

    /// The next token of each sequence from `logits` (batch, vocabulary) in f32 and the tokens so far; `None` where
    /// logits are no numbers. Waits for the device once.
    ///
    /// # Errors
    /// If there are more or fewer rows than sequences, or an operation fails.
    pub fn next(&self, logits: &Tensor, before: &[Vec<u32>]) -> Result<Vec<Option<u32>>> {
        if logits.dim(0)? != before.len() || before.len() != self.rules.len() {
            bail!("{} rows of logits for {} sequences of {}", logits.dim(0)?, before.len(), self.rules.len())
        }
        let logits = self.penalised(logits, before)?;
        let positions: Vec<u32> = before.iter().map(|text| (text.len() as u32).saturating_sub(1)).collect();
        choose::choose(&logits, &self.rules, &positions)
    }

    /// Logits with the penalty, which is worked out on the host.
    fn penalised(&self, logits: &Tensor, before: &[Vec<u32>]) -> Result<Tensor> {
        if self.rules().is_some() {
            return Ok(logits.clone());
        }
        let logits = logits.to_device(&Device::Cpu)?;
        let of_row = |(row, before): (usize, &Vec<u32>)| {
            let recent = &before[before.len().saturating_sub(self.options.repeat_last_n)..];
            apply_repeat_penalty(&logits.get(row)?, self.options.repeat_penalty, recent)
        };
        let rows: Result<Vec<Tensor>> = before.iter().enumerate().map(of_row).collect();
        Tensor::stack(&rows?, 0)
    }
}

/// The most likely token of each row of `logits` (rows, vocabulary) in f32.
///
/// # Errors
/// If the logits of a row are no numbers, or an operation fails.
pub(crate) fn most_likely(logits: &Tensor) -> Result<Vec<u32>> {
    let rows = logits.dim(0)?;
    all_chosen(choose::choose(logits, &vec![Rule::GREEDY; rows], &vec![0; rows])?)
}

/// All of them, or an error that says which sequence has none.
pub(crate) fn all_chosen(chosen: Vec<Option<u32>>) -> Result<Vec<u32>> {
    let of = |(sequence, token): (usize, Option<u32>)| match token {
        Some(token) => Ok(token),
        None => bail!("no token can be chosen for sequence {sequence}: {NO_NUMBERS}"),
    };
    chosen.into_iter().enumerate().map(of).collect()
}

/// Makes the choice of tokens ready on a device, so that the first one does not wait for it.
///
/// # Errors
/// If the kernel for it cannot be compiled or loaded.
pub(crate) fn prepare(device: &Device) -> Result<()> {
    #[cfg(feature = "cuda")]
    if let Device::Cuda(device) = device {
        cuda::load(device)?;
    }
    let _ = device;
    Ok(())
}

/// One forward pass over the tokens of `texts` from `position` on, equally many of each, and the choice of the next tokens.
pub(crate) fn pass(
    forward: impl FnOnce(&Tensor) -> Result<Tensor>,
    device: &Device,
    sampler: &Sampler,
    texts: &[Vec<u32>],
    position: usize,
) -> Result<Vec<u32>> {
    let new = texts.first().map_or(0, |text| text.len() - position);
    let flat: Vec<u32> = texts.iter().flat_map(|text| &text[position..]).copied().collect();
    let tokens = Tensor::from_vec(flat, (texts.len(), new), device)?;
    let logits = forward(&tokens)?;
    let _sampling = llm::sample();
    all_chosen(sampler.next(&logits, texts)?)
}

/// Why no token can be chosen.
pub(crate) const NO_NUMBERS: &str = "its logits are no numbers, as where an activation exceeds what its type holds";

#[cfg(test)]
mod tests {
    use super::*;

    fn logits() -> Tensor {
        Tensor::new(&[[0f32, 5., 4., -1.], [3., 0., 0., 0.]], &Device::Cpu).unwrap()
    }

    #[test]
    fn greedy_takes_the_maximum_of_each_sequence() {
        let sampler = Sampler::new(&SamplingOptions::default(), 0, 2);
        assert_eq!(sampler.next(&logits(), &[vec![], vec![]]).unwrap(), [Some(1), Some(0)]);
    }

    #[test]
    fn penalty_moves_greedy_away_from_repeats() {
        let options = SamplingOptions { repeat_penalty: 2., ..Default::default() };
        let sampler = Sampler::new(&options, 0, 2);
        assert_eq!(sampler.next(&logits(), &[vec![1], vec![]]).unwrap(), [Some(2), Some(0)]);
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
            assert_eq!(Sampler::new(&options, seed, 2).next(&logits(), &[vec![], vec![]]).unwrap(), [Some(1), Some(0)]);
        }
    }

    #[test]
    fn a_draw_does_not_depend_on_the_sequences_beside_it() {
        let options = SamplingOptions { temperature: Some(1.), top_p: Some(0.9), ..Default::default() };
        let row = || Tensor::rand(-3f32, 3., (1, 50), &Device::Cpu).unwrap();
        let (a, b) = (row(), row());
        let both = Tensor::cat(&[&a, &b], 0).unwrap();
        for length in 1..40 {
            let text = vec![0u32; length];
            let next = |seed, logits: &Tensor, count| {
                Sampler::new(&options, seed, count).next(logits, &vec![text.clone(); count]).unwrap()
            };
            assert_eq!(next(5, &both, 2), [next(5, &a, 1)[0], next(6, &b, 1)[0]]);
        }
    }

    #[test]
    fn a_row_that_is_no_numbers_has_no_token() {
        let logits = Tensor::new(&[[0f32, 1.], [0., f32::NAN]], &Device::Cpu).unwrap();
        let chosen = Sampler::new(&SamplingOptions::default(), 0, 2).next(&logits, &[vec![], vec![]]).unwrap();
        assert_eq!(chosen, [Some(1), None]);
        assert!(all_chosen(chosen).unwrap_err().to_string().contains("sequence 1: its logits are no numbers"));
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

    /// Both sides of one rule: rows that are spread, flat, coarse (with many ties) and partly masked, by every kind of rule.
    #[cfg(feature = "cuda")]
    #[test]
    #[ignore = "needs a CUDA device"]
    fn a_device_chooses_what_the_host_does() {
        let device = Device::new_cuda(0).expect("a CUDA device");
        let (mut same, mut all) = (0, 0);
        for vocabulary in [3usize, 1000, 1024, 32_003, 151_936] {
            for n in 0..24 {
                let rows = 1 + n % 5;
                let spread = [0.01, 3., 12., 0.5][n % 4];
                let mut logits = Tensor::randn(0f32, spread, (rows, vocabulary), &Device::Cpu).unwrap();
                if n % 3 == 0 {
                    logits = (logits * 4.).unwrap().round().unwrap();
                }
                let options = SamplingOptions {
                    temperature: [Some(1.), Some(0.3), None, Some(2.)][n / 2 % 4],
                    top_k: [None, Some(1), Some(40), Some(5000)][n / 3 % 4],
                    top_p: [None, Some(0.95), Some(0.3)][n % 3],
                    ..Default::default()
                };
                let sampler = Sampler::new(&options, n as u64, rows);
                let texts: Vec<Vec<u32>> = (0..rows).map(|row| vec![0; 1 + row * 3 + n]).collect();
                let here = sampler.next(&logits, &texts).unwrap();
                let there = sampler.next(&logits.to_device(&device).unwrap(), &texts).unwrap();
                all += rows;
                same += here.iter().zip(&there).filter(|(a, b)| a == b).count();
                assert!(there.iter().all(Option::is_some), "{options:?} of {vocabulary}: {there:?}");
            }
        }
        // Logarithms differ in their last bit, which decides between two tokens that arrive together: once in many
        // thousands.
        assert!(same + 1 >= all, "{same} of {all}");
        let wrong = Tensor::new(&[[0f32, f32::NAN], [f32::NEG_INFINITY; 2], [f32::INFINITY, 0.], [1., 2.]], &device);
        let sampler = Sampler::new(&SamplingOptions::default(), 0, 4);
        assert_eq!(sampler.next(&wrong.unwrap(), &vec![vec![0]; 4]).unwrap(), [None, None, None, Some(1)]);
    }
}
