//! What a device can do at best, by its datasheet or as measured.

use super::attained::AttainedRates;
use super::formats::Multiply;
use super::peak::{Origin, Peak, PeakKind};
use super::roof::Roof;
use crate::estimate::Estimate;
use serde::Serialize;
use std::collections::BTreeMap;

/// What kind of device it is, which decides how candle runs on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum DeviceKind {
    /// A GPU that work is launched to, kernel by kernel.
    Gpu,
    /// A processor whose own threads do the work.
    Cpu,
    /// Something that runs compiled graphs, and on which candle does not run.
    Accelerator,
}

/// A connection to other devices of the same kind.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Link {
    /// What it is called.
    pub name: String,
    /// Bytes a second in one direction, all links of a device together.
    pub bytes_per_s: f64,
}

/// A device. Figures are dense: without sparsity.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Device {
    /// Name for people, such as `NVIDIA H200`.
    pub name: String,
    /// What kind of device.
    pub kind: DeviceKind,
    /// Where its peaks come from.
    pub origin: Origin,
    /// The document, or when and how it was measured.
    pub source: String,
    /// Whether others were at work while its peaks were measured: the device may reach more then.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub disturbed: bool,
    /// FLOP/s by type; what is not known is not there.
    pub flops: BTreeMap<Multiply, f64>,
    /// Bytes/s to and from memory; 0 if it is not known.
    pub bandwidth: f64,
    /// Bytes of memory, if it is a property of the device.
    pub memory: Option<f64>,
    /// Connection to others, if it has one.
    pub link: Option<Link>,
    /// Most power that it takes, in watts; `None` if it is not known.
    pub watts: Option<f64>,
    /// What launching one kernel from candle costs the host, in nanoseconds; `None` if nothing is launched, or it is
    /// not known.
    pub launch: Option<Estimate>,
    /// What a small kernel takes on the device with the gap before the next one, in nanoseconds: a mean (what a
    /// calibration fitted), which the shortest kernels stay below.
    pub kernel_floor: Option<f64>,
    /// The shortest time of a kernel that was seen, in nanoseconds: what the low end of a prediction has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kernel_least: Option<f64>,
    /// What waiting for a token costs beyond the device's work, in nanoseconds; `None` if it is within other figures.
    pub sync: Option<f64>,
    /// Steps of index arithmetic a second, which candle's kernels need for strided operands; `None` if it is not known,
    /// or within other figures.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub index_rate: Option<f64>,
    /// Bytes of panels a second at which a processor's products of several rows copy f32 and f16 weights before they
    /// multiply, as the crate `gemm` does with the transposed matrices of linear layers; a row alone is multiplied
    /// without. `None` on other devices, if it is not known, or within other figures.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub panel_rate: Option<f64>,
    /// Whether a processor's products of several rows read their weights, copy them and multiply one after the other, as
    /// its figures were fitted. Without it they take the longer of reading and multiplying: so it is of datasheets, and of
    /// files of calibrations that did not know it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub panels_in_turn: bool,
    /// Rates and costs by kind of operation, of a device that was calibrated in the finer form; they take the place of
    /// `bandwidth` and `kernel_floor` in predictions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attained: Option<AttainedRates>,
    /// Where launch, floor and sync come from.
    pub launch_source: Option<String>,
}

impl Device {
    /// A device of which nothing is known beyond this.
    pub fn without_peaks(name: impl Into<String>, kind: DeviceKind) -> Self {
        Self {
            name: name.into(),
            kind,
            origin: Origin::Measured,
            source: String::new(),
            disturbed: false,
            flops: BTreeMap::new(),
            bandwidth: 0.0,
            memory: None,
            link: None,
            watts: None,
            launch: None,
            kernel_floor: None,
            kernel_least: None,
            sync: None,
            index_rate: None,
            panel_rate: None,
            panels_in_turn: false,
            attained: None,
            launch_source: None,
        }
    }

    /// This device with the peaks of a roof, shared evenly where it is that of several; `None` if the roof has no
    /// bandwidth.
    #[must_use]
    pub fn with_peaks(self, roof: &Roof) -> Option<Self> {
        let one = roof.of_one();
        Some(Self {
            origin: one.origin(),
            source: one.source().to_string(),
            disturbed: one.is_disturbed(),
            flops: one.flops_by_type(),
            bandwidth: one.bandwidth()?.value,
            ..self
        })
    }

    /// Its peaks, as a run keeps them.
    pub fn peaks(&self) -> Vec<Peak> {
        let peak = |kind, value, dtype: Option<Multiply>| Peak {
            kind,
            value,
            label: self.origin.name().to_string(),
            source: format!("{}: {}", self.name, self.source),
            dtype: dtype.map(|dtype| dtype.dtype().to_string()),
            disturbed: self.disturbed,
        };
        let flops = Multiply::AS_LISTED.iter().filter_map(|dtype| Some((*dtype, *self.flops.get(dtype)?)));
        let flops = flops.map(|(dtype, value)| peak(PeakKind::Flops, value, Some(dtype)));
        flops.chain([peak(PeakKind::Bandwidth, self.bandwidth, None)]).collect()
    }

    /// FLOP/s for products of this type, and the type whose figure it is: its own, or a wider one's in which the
    /// numbers can be multiplied as well.
    pub fn flops_for(&self, multiply: Multiply) -> Option<(f64, Multiply)> {
        std::iter::once(&multiply)
            .chain(multiply.wider())
            .find_map(|kind| self.flops.get(kind).map(|flops| (*flops, *kind)))
    }

    /// Whether work is launched to it at a cost that is not known, which predictions leave out.
    pub fn launches_unknown(&self) -> bool {
        self.kind != DeviceKind::Cpu && self.launch.is_none()
    }

    /// FLOPs a byte from which on work of this type is bound by computing: peak FLOP/s ÷ bandwidth.
    pub fn ridge(&self, multiply: Multiply) -> Option<f64> {
        self.flops_for(multiply).map(|(flops, _)| flops / self.bandwidth)
    }

    /// The type in which candle multiplies numbers of this type on this device. On a CPU 16-bit floats are widened to
    /// f32 (crate `gemm-f16`), and GGML's weights are multiplied by the vector unit (AVX, NEON): a datasheet's int8 is
    /// that of a matrix unit, which candle does not use.
    pub fn multiplies(&self, multiply: Multiply) -> Multiply {
        match (self.kind, multiply) {
            (DeviceKind::Cpu, Multiply::Bf16 | Multiply::F16 | Multiply::Fp8) => Multiply::F32,
            (DeviceKind::Cpu, Multiply::Int8) if self.origin == Origin::Datasheet => Multiply::F32,
            (_, multiply) => multiply,
        }
    }
}
