//! Measured kernels: what `candlescope bench kernels` wrote, and the time of a shape by it.
//!
//! A shape that was measured has its time. One that was not gets a time only if it lies between two that were measured
//! and differ from it in one size and in nothing else: nanoseconds a byte (or a FLOP, where the operation is bound by
//! computing) go from one to the other along that size's logarithm. Everything else has no time: a kernel's speed
//! outside what was measured is not known.

use candlescope_work::devices::{Device, known_device};
use serde_json::Value;
use std::collections::BTreeMap;

/// A study cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KernelStudyError {
    /// It is not JSON.
    #[error("the kernels are not JSON: {0}. Give the directory that `candlescope bench kernels --out STUDY` wrote")]
    NotJson(#[from] serde_json::Error),
    /// It is something else.
    #[error(
        "this is no table of kernels: it has no `rows` with `op`, `dtype` and `shape`. Give the directory that \
         `candlescope bench kernels --out STUDY` wrote"
    )]
    NotKernels,
    /// Studies of two devices.
    #[error("the kernels were measured on `{0}`, and others on `{1}`: give studies of one device")]
    Devices(String, String),
    /// No kernel was measured.
    #[error("the study has no kernel with a time: measure some with `candlescope bench kernels --out STUDY`")]
    Empty,
}

/// A kernel at one size and type, with the median of its times.
#[derive(Debug, Clone, PartialEq)]
struct MeasuredKernel {
    op: String,
    dtype: String,
    sizes: BTreeMap<String, f64>,
    ns: f64,
    flops: Option<f64>,
    bytes: f64,
}

/// Kernels of a device.
#[derive(Debug, Clone, PartialEq)]
pub struct KernelStudy {
    kernels: Vec<MeasuredKernel>,
    /// The device's name, if the study says it.
    device: Option<String>,
}

/// A kernel at a shape.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct WantedKernel {
    pub(super) op: &'static str,
    pub(super) dtype: &'static str,
    pub(super) sizes: Vec<(&'static str, u64)>,
    /// How often it runs for the operation that wants it.
    pub(super) times: f64,
}

/// How a time was found.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum TimeBasis {
    /// This shape was measured.
    Measured(f64),
    /// It lies between two that were, along this size.
    Between(f64, String),
}

impl TimeBasis {
    /// Nanoseconds.
    pub(super) fn ns(&self) -> f64 {
        match self {
            Self::Measured(ns) | Self::Between(ns, _) => *ns,
        }
    }
}

impl WantedKernel {
    fn size(&self, name: &str) -> Option<f64> {
        self.sizes.iter().find(|(known, _)| *known == name).map(|(_, value)| *value as f64)
    }

    /// As a shape is written: `m=1 n=4096 k=4096`.
    pub(super) fn shape(&self, between: &str) -> String {
        self.sizes.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(between)
    }

    /// The command that measures it.
    pub(super) fn command(&self) -> String {
        format!("candlescope bench kernels --ops {} --dtype {} --sizes '{}'", self.op, self.dtype, self.shape(";"))
    }
}

impl KernelStudy {
    /// Reads `kernels.json` of a study, and the device's name from its `study.json`, if there is one.
    ///
    /// # Errors
    /// If one of them is not JSON, or no kernel was measured.
    pub fn read(kernels: &str, study: Option<&str>) -> Result<Self, KernelStudyError> {
        let whole: Value = serde_json::from_str(kernels)?;
        let rows = whole.get("rows").and_then(Value::as_array).ok_or(KernelStudyError::NotKernels)?;
        let described = |row: &&Value| ["op", "dtype", "shape"].iter().all(|key| row[*key].is_string());
        if rows.iter().any(|row| !described(&row)) {
            return Err(KernelStudyError::NotKernels);
        }
        // Of a kernel that was measured with warm and with flushed caches, the latter: weights come from memory.
        let mut kernels: Vec<(bool, MeasuredKernel)> = Vec::new();
        for (warm, kernel) in rows.iter().filter_map(row) {
            let same = |(_, known): &&mut (bool, MeasuredKernel)| {
                (&known.op, &known.dtype, &known.sizes) == (&kernel.op, &kernel.dtype, &kernel.sizes)
            };
            match kernels.iter_mut().find(same) {
                Some(known) if known.0 && !warm => *known = (warm, kernel),
                Some(_) => {}
                None => kernels.push((warm, kernel)),
            }
        }
        if kernels.is_empty() {
            return Err(KernelStudyError::Empty);
        }
        let study: Option<Value> = study.map(serde_json::from_str).transpose()?;
        let device = study.and_then(|study| Some(study["environment"]["device"]["name"].as_str()?.to_string()));
        Ok(Self { kernels: kernels.into_iter().map(|(_, kernel)| kernel).collect(), device })
    }

    /// This study with the kernels of `later` as well. Of a shape that both have, `later` has the time.
    ///
    /// # Errors
    /// If they are of different devices.
    pub fn joined(mut self, later: Self) -> Result<Self, KernelStudyError> {
        match (&self.device, later.device) {
            (Some(here), Some(there)) if *here != there => {
                return Err(KernelStudyError::Devices(here.clone(), there));
            }
            (None, there) => self.device = there,
            _ => {}
        }
        for kernel in later.kernels {
            let same = |known: &&mut MeasuredKernel| {
                (&known.op, &known.dtype, &known.sizes) == (&kernel.op, &kernel.dtype, &kernel.sizes)
            };
            match self.kernels.iter_mut().find(same) {
                Some(known) => *known = kernel,
                None => self.kernels.push(kernel),
            }
        }
        Ok(self)
    }

    /// The device that they were measured on, if it is one of the table.
    pub fn device(&self) -> Option<Device> {
        known_device(self.device.as_deref()?).ok()
    }

    /// What the study calls its device.
    pub fn device_name(&self) -> Option<&str> {
        self.device.as_deref()
    }

    /// Kernels with a time.
    pub fn len(&self) -> usize {
        self.kernels.len()
    }

    /// Whether there are none; a study that could be read has some.
    pub fn is_empty(&self) -> bool {
        self.kernels.is_empty()
    }

    /// The time of a kernel at a shape, or why there is none. Above `ridge` FLOPs a byte it is bound by computing.
    pub(super) fn time(&self, wanted: &WantedKernel, ridge: Option<f64>) -> Result<TimeBasis, String> {
        let own: Vec<&MeasuredKernel> =
            self.kernels.iter().filter(|kernel| kernel.op == wanted.op && kernel.dtype == wanted.dtype).collect();
        if own.is_empty() {
            return Err(format!("no `{}` in {} was measured", wanted.op, wanted.dtype));
        }
        let differs = |kernel: &MeasuredKernel| -> Vec<&str> {
            let other = |(name, _): &&(&'static str, u64)| kernel.sizes.get(*name).copied() != wanted.size(name);
            wanted.sizes.iter().filter(other).map(|(name, _)| *name).collect()
        };
        if let Some(same) = own.iter().find(|kernel| differs(kernel).is_empty()) {
            return Ok(TimeBasis::Measured(same.ns));
        }
        let along = wanted.sizes.iter().filter_map(|(name, _)| {
            let line: Vec<&MeasuredKernel> = own.iter().copied().filter(|kernel| differs(kernel) == [*name]).collect();
            Some((*name, between(&line, name, wanted.size(name)?, ridge)?))
        });
        // Between the nearest two, if there are several ways.
        let nearest = along.min_by(|a, b| a.1.1.total_cmp(&b.1.1));
        nearest.map(|(name, (ns, _))| TimeBasis::Between(ns, name.to_string())).ok_or_else(|| {
            format!(
                "`{}` in {} was not measured at {}, nor on both sides of it",
                wanted.op,
                wanted.dtype,
                wanted.shape(" ")
            )
        })
    }
}

/// A row with a time: whether caches were warm, and the kernel. The time is that of its kernels where they were
/// recorded, else the median between the marks around it, on a CPU that of the host.
fn row(row: &Value) -> Option<(bool, MeasuredKernel)> {
    let number = |key: &str| row[key].as_f64().filter(|value| value.is_finite() && *value > 0.0);
    let text = |key: &str| row[key].as_str().map(str::to_string);
    let size = |part: &str| {
        let (name, value) = part.split_once('=')?;
        Some((name.to_string(), value.parse::<f64>().ok()?))
    };
    let kernel = MeasuredKernel {
        op: text("op")?,
        dtype: text("dtype")?,
        sizes: text("shape")?.split_whitespace().map(size).collect::<Option<_>>()?,
        ns: number("kernel_ns").or_else(|| number("median_ns"))?,
        flops: number("flops"),
        bytes: number("io_bytes")?,
    };
    Some((row["cache"].as_str() == Some("warm"), kernel))
}

/// The time at `at` between the measured neighbours along one size, and how far they are apart; `None` outside them.
fn between(line: &[&MeasuredKernel], name: &str, at: f64, ridge: Option<f64>) -> Option<(f64, f64)> {
    let size = |kernel: &MeasuredKernel| kernel.sizes.get(name).copied().unwrap_or(0.0);
    let below = line.iter().filter(|kernel| size(kernel) < at).max_by(|a, b| size(a).total_cmp(&size(b)))?;
    let above = line.iter().filter(|kernel| size(kernel) > at).min_by(|a, b| size(a).total_cmp(&size(b)))?;
    let (low, high) = (size(below), size(above));
    // Work is a polynomial of one size without gaps: bytes grow with it, FLOPs with it or with its square.
    let straight = |a: f64, b: f64| a + (b - a) * (at - low) / (high - low);
    let bytes = straight(below.bytes, above.bytes);
    let flops = below.flops.zip(above.flops).map(|(a, b)| power(low, a, high, b, at));
    let computes = flops.zip(ridge).is_some_and(|(flops, ridge)| flops / bytes > ridge);
    let (work, a, b) = match (flops, below.flops, above.flops) {
        (Some(flops), Some(a), Some(b)) if computes => (flops, a, b),
        _ => (bytes, below.bytes, above.bytes),
    };
    let share = (at / low).ln() / (high / low).ln();
    let rate = (below.ns / a).ln() * (1.0 - share) + (above.ns / b).ln() * share;
    Some((rate.exp() * work, (high / low).ln()))
}

/// A quantity that grows with a power of a size, at `at` between two of its values.
fn power(low: f64, a: f64, high: f64, b: f64, at: f64) -> f64 {
    a * (at / low).powf((b / a).ln() / (high / low).ln())
}
