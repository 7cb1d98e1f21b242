//! What is measured of a device, and for how long.

use super::matmul::ProductShape;
use crate::operands::Element;
use candle_core::Device;
use std::time::Duration;

/// How peaks are measured.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct PeakOptions {
    pub(super) device: Device,
    pub(super) elements: Vec<Element>,
    pub(super) quick: bool,
    pub(super) seed: u64,
}

impl PeakOptions {
    /// Everything about `device`: products in f32, f16 and bf16, bandwidth, launches.
    pub fn new(device: Device) -> Self {
        Self { device, elements: Element::DENSE.to_vec(), quick: false, seed: 42 }
    }

    /// Element types of products. Quantised ones have no product of their own and are left out.
    #[must_use]
    pub fn elements(mut self, elements: &[Element]) -> Self {
        self.elements = elements.iter().copied().filter(|element| element.blocks().is_none()).collect();
        self
    }

    /// Small shapes and short times: it shows that everything works, and its figures are no peaks.
    #[must_use]
    pub fn quick(mut self, quick: bool) -> Self {
        self.quick = quick;
        self
    }

    /// Seed of the inputs.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Shapes of the sweep. Large enough to fill the device, and on a GPU also few rows by large weights, which can be
    /// faster because they take less power.
    pub(super) fn shapes(&self) -> Vec<ProductShape> {
        let square = |size| ProductShape::new(size, size, size);
        match (self.quick, self.device.is_cpu()) {
            (true, _) => vec![square(64), square(96)],
            (false, true) => {
                vec![square(256), square(512), square(1024), square(2048), ProductShape::new(256, 4096, 4096)]
            }
            (false, false) => vec![
                square(2048),
                square(4096),
                square(8192),
                square(16384),
                ProductShape::new(1024, 8192, 8192),
                ProductShape::new(2048, 8192, 8192),
                ProductShape::new(4096, 8192, 8192),
                ProductShape::new(8192, 8192, 4096),
            ],
        }
    }

    /// Rest before a single product of the sweep.
    pub(super) fn pause(&self) -> Duration {
        if self.quick || self.device.is_cpu() { Duration::ZERO } else { Duration::from_millis(100) }
    }

    /// Rest before a short run, and how long that is.
    pub(super) fn boost(&self) -> (Duration, Duration) {
        match self.quick {
            true => (Duration::from_millis(1), Duration::from_millis(2)),
            false if self.device.is_cpu() => (Duration::from_secs(2), Duration::from_millis(200)),
            false => (Duration::from_secs(2), Duration::from_millis(40)),
        }
    }

    /// How long products go on without a break.
    pub(super) fn sustained(&self) -> Duration {
        if self.quick { Duration::from_millis(10) } else { Duration::from_secs(5) }
    }
}
