//! Seeded random weights, for models of a real shape without a download.

use super::{WeightError, WeightSource, threads_for};
use crate::config::{EMBEDDED, ModelConfig};
use candle_core::{DType, Device, Tensor};
use candlescope_core::splitmix::next;

/// Random weights, uniform and scaled by 1/√fan-in as at the start of a training, so that activations stay finite at
/// any depth. Never zeros, because a chip computes with zeros faster and with less power than with real weights.
///
/// The same seed gives the same weights on one kind of device. On a GPU they are made on the device, and its
/// generator is re-seeded.
#[derive(Debug)]
pub struct RandomWeights {
    seed: u64,
    index: u64,
    dtype: DType,
    device: Device,
    printable_head: bool,
    /// Whether the head is the embedding table, so that it has no weights of its own.
    tied: bool,
}

impl RandomWeights {
    /// Weights for `config` in `dtype` on `device`.
    pub fn new(config: &ModelConfig, seed: u64, dtype: DType, device: &Device) -> Self {
        let printable_head = config.name == EMBEDDED;
        Self { printable_head, ..Self::of_any_model(config.tie_embeddings, seed, dtype, device) }
    }

    /// Weights for a model that asks for what it needs; `tied` tells that `lm_head.weight` is not there.
    pub fn of_any_model(tied: bool, seed: u64, dtype: DType, device: &Device) -> Self {
        Self { seed, index: 0, dtype, device: device.clone(), printable_head: false, tied }
    }

    /// Values uniform in `mean ± half_width`.
    fn uniform(&mut self, shape: &[usize], mean: f32, half_width: f32) -> candle_core::Result<Tensor> {
        self.index += 1;
        let stream = next(self.seed ^ next(self.index));
        let (low, high) = (mean - half_width, mean + half_width);
        let tensor = if self.device.is_cpu() {
            Tensor::from_vec(drawn(stream, shape.iter().product(), low, high), shape, &self.device)?
        } else {
            self.device.set_seed(stream)?;
            Tensor::rand(low, high, shape, &self.device)?
        };
        tensor.to_dtype(self.dtype)
    }

    fn make(&mut self, name: &str, shape: &[usize]) -> candle_core::Result<Tensor> {
        match shape {
            // A matrix (out, in): variance 1/in preserves the magnitude of its input.
            [_, fan_in] => {
                let spread = (3. / *fan_in as f32).sqrt();
                if self.printable_head && name == "lm_head.weight" {
                    let weights = self.uniform(shape, 0., 2.5 * spread)?;
                    return keep_printable(&weights);
                }
                self.uniform(shape, 0., spread)
            }
            // A convolution's kernel (out, in, …): all but the first are summed over.
            [_, window @ ..] if window.len() > 1 => {
                let fan_in: usize = window.iter().product();
                self.uniform(shape, 0., (3. / fan_in as f32).sqrt())
            }
            _ if name.ends_with(".bias") => self.uniform(shape, 0., 0.1),
            _ => self.uniform(shape, 1., 0.1),
        }
    }
}

/// So many values of a stream. Each follows from its place alone, so any number of threads makes the same.
fn drawn(stream: u64, count: usize, low: f32, high: f32) -> Vec<f32> {
    let step = (high - low) / (1u32 << 24) as f32;
    let fill = |from: usize, values: &mut [f32]| {
        for (value, i) in values.iter_mut().zip(from as u64..) {
            *value = low + step * (next(stream.wrapping_add(i)) >> 40) as f32;
        }
    };
    let mut values = vec![0.0; count];
    let threads = threads_for(count);
    if threads < 2 {
        fill(0, &mut values);
        return values;
    }
    let part = count.div_ceil(threads);
    std::thread::scope(|scope| {
        for (nth, values) in values.chunks_mut(part).enumerate() {
            let fill = &fill;
            scope.spawn(move || fill(nth * part, values));
        }
    });
    values
}

/// Makes the embedded model write only printable ASCII, so that its output can be shown: all other rows of the head
/// become zero, so that a printable token has the largest logit.
fn keep_printable(weights: &Tensor) -> candle_core::Result<Tensor> {
    let (vocabulary, _) = weights.dims2()?;
    let keep: Vec<f32> = (0..vocabulary).map(|id| f32::from((0x20..0x7f).contains(&id))).collect();
    let keep = Tensor::from_vec(keep, (vocabulary, 1), weights.device())?.to_dtype(weights.dtype())?;
    weights.broadcast_mul(&keep)
}

impl WeightSource for RandomWeights {
    fn dense(&mut self, name: &str, shape: &[usize]) -> Result<Tensor, WeightError> {
        self.make(name, shape).map_err(|cause| WeightError::Tensor { tensor: name.to_string(), cause })
    }

    /// Made as it is used: the spread depends on which dimension is summed over.
    fn transposed(&mut self, name: &str, (out, input): (usize, usize)) -> Result<Tensor, WeightError> {
        self.dense(name, &[out, input])
    }

    fn contains(&self, name: &str) -> bool {
        let made = name.ends_with(".weight") || name.ends_with(".bias");
        made && !(self.tied && name == "lm_head.weight")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(seed: u64, name: &str, shape: &[usize]) -> Vec<f32> {
        let config = ModelConfig::named(EMBEDDED).unwrap();
        let mut weights = RandomWeights::new(&config, seed, DType::F32, &Device::Cpu);
        weights.dense(name, shape).unwrap().flatten_all().unwrap().to_vec1().unwrap()
    }

    #[test]
    fn seeded_scaled_and_never_all_zero() {
        let a = values(1, "x.weight", &[300, 100]);
        assert_eq!(a, values(1, "x.weight", &[300, 100]));
        assert_ne!(a, values(2, "x.weight", &[300, 100]));
        let n = a.len() as f32;
        let mean = a.iter().sum::<f32>() / n;
        let variance = a.iter().map(|x| (x - mean).powi(2)).sum::<f32>() / n;
        assert!(mean.abs() < 2e-3, "{mean}");
        assert!((variance * 100. - 1.).abs() < 0.03, "{variance}");
        let norm = values(1, "norm.weight", &[64]);
        assert!(norm.iter().all(|x| (0.9..=1.1).contains(x)));
    }

    #[test]
    fn any_number_of_threads_makes_the_same() {
        let count = (3 << 20) + 7;
        let step = 2.0 / (1u32 << 24) as f32;
        let alone = (0..count as u64).map(|i| -1.0 + step * (next(9u64.wrapping_add(i)) >> 40) as f32);
        assert!(drawn(9, count, -1.0, 1.0).into_iter().eq(alone));
        assert!(drawn(9, 0, -1.0, 1.0).is_empty());
    }

    #[test]
    fn successive_tensors_differ() {
        let config = ModelConfig::named(EMBEDDED).unwrap();
        let mut weights = RandomWeights::new(&config, 1, DType::F32, &Device::Cpu);
        let mut next = || weights.dense("x.weight", &[8, 8]).unwrap().flatten_all().unwrap().to_vec1::<f32>().unwrap();
        assert_ne!(next(), next());
    }

    #[test]
    fn embedded_head_is_printable() {
        let head = values(3, "lm_head.weight", &[259, 8]);
        assert!(head[..0x20 * 8].iter().all(|x| *x == 0.));
        assert!(head[0x20 * 8..0x7f * 8].iter().any(|x| *x != 0.));
        assert!(head[0x7f * 8..].iter().all(|x| *x == 0.));
    }
}
