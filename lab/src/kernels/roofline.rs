//! Where a kernel stands under the roofline of its device.
//!
//! Arithmetic intensity is FLOPs ÷ bytes. Attainable(intensity) = min(peak FLOP/s, intensity · bandwidth)
//! [Williams, Waterman, Patterson: Roofline, CACM 52(4), 2009].

use super::kernel::Work;
use crate::peaks::Peaks;
use serde_json::Value;

/// A peak, with where it comes from.
#[derive(Debug, Clone, PartialEq)]
pub struct Ceiling {
    /// FLOP/s or B/s.
    pub value: f64,
    /// `measured` or `datasheet`.
    pub label: String,
    /// How and where.
    pub source: String,
}

/// The peaks of a device: of FLOP/s by element type, and of bandwidth.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Ceilings {
    flops: Vec<(String, Ceiling)>,
    bandwidth: Option<Ceiling>,
}

impl Ceilings {
    /// Measured peaks where there are any, else those of the datasheet, in the form of a run's `environment.peaks`. What
    /// neither has stays unknown.
    pub fn new(measured: Option<&Peaks>, datasheet: &[Value]) -> Self {
        let measured = measured.map(Peaks::environment).unwrap_or_default();
        let all = measured.as_array().into_iter().flatten().chain(datasheet);
        let mut ceilings = Self::default();
        for peak in all {
            let text = |key: &str| peak.get(key).and_then(Value::as_str).unwrap_or_default().to_string();
            let Some(value) = peak.get("value").and_then(Value::as_f64) else { continue };
            let ceiling = Ceiling { value, label: text("label"), source: text("source") };
            let dtype = text("dtype");
            match text("kind").as_str() {
                "flops" if !ceilings.flops.iter().any(|(known, _)| *known == dtype) => {
                    ceilings.flops.push((dtype, ceiling));
                }
                "bandwidth" if ceilings.bandwidth.is_none() => ceilings.bandwidth = Some(ceiling),
                _ => {}
            }
        }
        ceilings
    }

    /// Peak FLOP/s in an element type.
    pub fn flops(&self, dtype: &str) -> Option<&Ceiling> {
        self.flops.iter().find(|(known, _)| known == dtype).map(|(_, ceiling)| ceiling)
    }

    /// Peak bandwidth.
    pub fn bandwidth(&self) -> Option<&Ceiling> {
        self.bandwidth.as_ref()
    }

    /// Where a kernel stands that does `work` in `dtype` within `seconds`. Without FLOPs only bandwidth can limit it.
    /// `None` where a peak that could limit it is not known: quantised weights are multiplied in a type of their own, of
    /// which there is no peak.
    pub fn position(&self, work: &Work, dtype: &str, seconds: f64) -> Option<RoofPosition> {
        let bandwidth = self.bandwidth.as_ref()?;
        let bytes = work.io_bytes.max(1) as f64;
        let by_memory = bytes / bandwidth.value;
        let (roof, least_seconds, ceiling) = match work.flops {
            None => (Roof::Memory, by_memory, bandwidth),
            Some(flops) => {
                let peak = self.flops(dtype)?;
                let by_compute = flops as f64 / peak.value;
                if by_compute > by_memory {
                    (Roof::Compute, by_compute, peak)
                } else {
                    (Roof::Memory, by_memory, bandwidth)
                }
            }
        };
        Some(RoofPosition {
            roof,
            attainable_flops: work.flops.map(|flops| flops as f64 / least_seconds),
            utilisation: least_seconds / seconds,
            ceiling: ceiling.clone(),
        })
    }
}

/// What limits a kernel at its intensity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Roof {
    /// Arithmetic.
    Compute,
    /// Bandwidth.
    Memory,
}

impl Roof {
    /// As tables call it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Compute => "compute",
            Self::Memory => "memory",
        }
    }
}

/// A kernel under the roofline.
#[derive(Debug, Clone, PartialEq)]
pub struct RoofPosition {
    /// What limits it.
    pub roof: Roof,
    /// FLOP/s that its intensity allows.
    pub attainable_flops: Option<f64>,
    /// Achieved ÷ attainable.
    pub utilisation: f64,
    /// The peak that limits it.
    pub ceiling: Ceiling,
}
