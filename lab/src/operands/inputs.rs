//! Random inputs: never zeros or constants, with which a chip computes faster and with less power than with data.

use super::element::Element;
use candle_core::{DType, Device, Result, Shape, Tensor};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

/// Makes random tensors; the same seed gives the same ones on one kind of device.
#[derive(Debug)]
pub struct Inputs {
    random: StdRng,
    device: Device,
}

impl Inputs {
    /// A source for `device`.
    pub fn new(seed: u64, device: &Device) -> Self {
        Self { random: StdRng::seed_from_u64(seed), device: device.clone() }
    }

    /// The device that the tensors are made on.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Values uniform in ±1, in the type of the element's activations.
    ///
    /// # Errors
    /// candle's, for example when memory is used up.
    pub fn values(&mut self, shape: impl Into<Shape>, element: Element) -> Result<Tensor> {
        self.uniform(shape.into(), -1.0, 1.0, element.activations())
    }

    /// Values uniform in 1 ± 0.1: weights of a normalisation.
    ///
    /// # Errors
    /// candle's, for example when memory is used up.
    pub fn scales(&mut self, shape: impl Into<Shape>, element: Element) -> Result<Tensor> {
        self.uniform(shape.into(), 0.9, 1.1, element.activations())
    }

    /// Numbers below `below`.
    ///
    /// # Errors
    /// candle's, for example when memory is used up.
    pub fn ids(&mut self, count: usize, below: usize) -> Result<Tensor> {
        let most = u32::try_from(below).unwrap_or(u32::MAX).max(1);
        let ids: Vec<u32> = (0..count).map(|_| self.random.random_range(0..most)).collect();
        Tensor::from_vec(ids, count, &self.device)
    }

    /// A seed for what draws by itself.
    pub fn seed(&mut self) -> u64 {
        self.random.random()
    }

    fn uniform(&mut self, shape: Shape, low: f32, high: f32, dtype: DType) -> Result<Tensor> {
        if self.device.is_cpu() {
            let values: Vec<f32> = (0..shape.elem_count()).map(|_| self.random.random_range(low..high)).collect();
            return Tensor::from_vec(values, shape, &self.device)?.to_dtype(dtype);
        }
        // Made on the device, whose generator is seeded anew for each tensor.
        self.device.set_seed(self.random.random())?;
        Tensor::rand(low, high, shape, &self.device)?.to_dtype(dtype)
    }
}
