//! What is measured: a case with its parameters, and what one repetition of it gives.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// The value of a parameter of a case.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum ParamValue {
    /// A switch, written as `true` or `false` in names and tables.
    Bool(bool),
    /// A whole number, such as a batch; one that 64 bits with a sign cannot hold becomes a [`Float`](Self::Float).
    Int(i64),
    /// A number with a fraction, or a whole one that is too large for [`Int`](Self::Int).
    Float(f64),
    /// A word, such as an element type.
    Text(String),
}

impl fmt::Display for ParamValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bool(value) => value.fmt(f),
            Self::Int(value) => value.fmt(f),
            Self::Float(value) => value.fmt(f),
            Self::Text(value) => value.fmt(f),
        }
    }
}

macro_rules! from_number {
    ($($type:ty),*) => {$(
        impl From<$type> for ParamValue {
            fn from(value: $type) -> Self {
                i64::try_from(value).map_or_else(|_| Self::Float(value as f64), Self::Int)
            }
        }
    )*};
}
from_number!(i32, i64, u32, u64, usize);

impl From<bool> for ParamValue {
    fn from(value: bool) -> Self {
        Self::Bool(value)
    }
}

impl From<f64> for ParamValue {
    fn from(value: f64) -> Self {
        Self::Float(value)
    }
}

impl From<&str> for ParamValue {
    fn from(value: &str) -> Self {
        Self::Text(value.to_string())
    }
}

impl From<String> for ParamValue {
    fn from(value: String) -> Self {
        Self::Text(value)
    }
}

/// A case's name: the suite that it belongs to and its parameters in order. Two cases of a study have different names.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CaseId {
    suite: String,
    params: Vec<(String, ParamValue)>,
}

impl CaseId {
    /// A case of `suite` without parameters.
    pub fn new(suite: impl Into<String>) -> Self {
        Self { suite: suite.into(), params: Vec::new() }
    }

    /// Adds a parameter, or replaces the one of this name. Parameters are columns of `results.parquet`, so their names
    /// are those of columns: lower case, `_` between words, the unit at the end.
    #[must_use]
    pub fn param(mut self, name: impl Into<String>, value: impl Into<ParamValue>) -> Self {
        let (name, value) = (name.into(), value.into());
        match self.params.iter_mut().find(|(known, _)| *known == name) {
            Some((_, old)) => *old = value,
            None => self.params.push((name, value)),
        }
        self
    }

    /// Name of the suite that it belongs to: the column `suite`, and the beginning of [`key`](Self::key).
    pub fn suite(&self) -> &str {
        &self.suite
    }

    /// The parameters, in order.
    pub fn params(&self) -> &[(String, ParamValue)] {
        &self.params
    }

    /// The value of the parameter `name`; `None` if the case has none of this name.
    pub fn get(&self, name: &str) -> Option<&ParamValue> {
        self.params.iter().find(|(known, _)| known == name).map(|(_, value)| value)
    }

    /// The whole number that is the parameter `name`.
    pub fn int(&self, name: &str) -> Option<i64> {
        match self.get(name) {
            Some(ParamValue::Int(value)) => Some(*value),
            _ => None,
        }
    }

    /// The name as text: `throughput/batch=4,prompt_tokens=32`. The column `case`.
    pub fn key(&self) -> String {
        let params: Vec<String> = self.params.iter().map(|(name, value)| format!("{name}={value}")).collect();
        match params.is_empty() {
            true => self.suite.clone(),
            false => format!("{}/{}", self.suite, params.join(",")),
        }
    }

    /// The name as that of a directory, `throughput-batch-4-prompt_tokens-32`: where the case's run is kept.
    pub fn slug(&self) -> String {
        let keep = |c: char| if c.is_ascii_alphanumeric() || c == '_' || c == '.' { c } else { '-' };
        self.key().chars().map(keep).collect()
    }
}

/// How a repetition is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// Before the measured ones; in no figure.
    WarmUp,
    /// Nothing observes it: figures of capacity come from these.
    Plain,
    /// Recorded by candlescope: layers come from these.
    Profiled,
}

/// What one repetition gave. What is not known stays `None`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Measurement {
    /// Time on the host's clock in nanoseconds.
    pub host_ns: u64,
    /// Time on the device's clock in nanoseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device_ns: Option<u64>,
    /// Cycles of the device, where a clock on the device was read. Without them the engine multiplies
    /// [`device_ns`](Self::device_ns) by the clock rate read beside the sample.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cycles: Option<u64>,
    /// Energy in millijoules: the case's own figure, else what was read beside the repetition, if it was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub energy_mj: Option<f64>,
    /// Most memory in use, in bytes, of the device that the case runs on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    /// Directory of the recorded run, relative to the study's; profiled repetitions have one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run: Option<String>,
    /// Further figures, with their units in their names: columns of `results.parquet`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub figures: BTreeMap<String, f64>,
}

impl Measurement {
    /// A repetition that took `host_ns` nanoseconds on the host's clock.
    pub fn new(host_ns: u64) -> Self {
        Self { host_ns, ..Self::default() }
    }

    /// Sets the time on the device's clock, in nanoseconds.
    #[must_use]
    pub fn device_ns(mut self, ns: impl Into<Option<u64>>) -> Self {
        self.device_ns = ns.into();
        self
    }

    /// Sets the cycles of the device.
    #[must_use]
    pub fn cycles(mut self, cycles: impl Into<Option<u64>>) -> Self {
        self.cycles = cycles.into();
        self
    }

    /// Sets the energy in millijoules.
    #[must_use]
    pub fn energy_mj(mut self, energy: impl Into<Option<f64>>) -> Self {
        self.energy_mj = energy.into();
        self
    }

    /// Sets the most memory in use, in bytes.
    #[must_use]
    pub fn memory_bytes(mut self, bytes: impl Into<Option<u64>>) -> Self {
        self.memory_bytes = bytes.into();
        self
    }

    /// Adds a figure. One that is not finite is left out: it is no measurement.
    #[must_use]
    pub fn figure(mut self, name: impl Into<String>, value: impl Into<Option<f64>>) -> Self {
        if let Some(value) = value.into().filter(|value| value.is_finite()) {
            self.figures.insert(name.into(), value);
        }
        self
    }

    /// The time that decides when a case has been repeated often enough: that of the device if it is known, else that
    /// of the host, in nanoseconds.
    pub fn decisive_ns(&self) -> u64 {
        self.device_ns.unwrap_or(self.host_ns)
    }
}

/// Why a repetition gave nothing. The case ends, the others go on.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum CaseError {
    /// There was not enough memory. That is a result: the case gets a row that says so.
    #[error("out of memory: {0}")]
    OutOfMemory(String),
    /// It was not tried, because what it needs is more than there is. That is a result as well. The message has the
    /// figures.
    #[error("not tried: {0}")]
    Refused(String),
    /// It was cut short because the measurement was cancelled; it is no sample.
    #[error("cancelled")]
    Cancelled,
    /// Anything else went wrong, in these words; whoever goes on with the study tries the case again.
    #[error("{0}")]
    Failed(String),
}

/// One configuration of what is measured.
pub trait Case {
    /// The name of the case.
    fn id(&self) -> &CaseId;

    /// How much work a repetition is beside those of other cases, in a unit of their suite: in the first round of a study
    /// the smallest are measured first. 0 where nobody knows: the order is random then.
    fn size(&self) -> u64 {
        0
    }

    /// Prepares the case: called once, before its first repetition.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    fn prepare(&mut self) -> Result<(), CaseError> {
        Ok(())
    }

    /// Begins to record: called once, before the first of `repetitions` repetitions with [`Mode::Profiled`].
    ///
    /// # Errors
    /// As [`run`](Self::run).
    fn begin_recording(&mut self, repetitions: u32) -> Result<(), CaseError> {
        let _ = repetitions;
        Ok(())
    }

    /// Ends what [`begin_recording`](Self::begin_recording) began, whether or not the repetitions failed.
    ///
    /// # Errors
    /// When the run could not be written.
    fn end_recording(&mut self) -> Result<(), CaseError> {
        Ok(())
    }

    /// One repetition.
    ///
    /// # Errors
    /// When the repetition gave nothing; the case is not run again then.
    fn run(&mut self, mode: Mode) -> Result<Measurement, CaseError>;

    /// Gives back what [`prepare`](Self::prepare) took: called once, when the case has ended, however it ended.
    fn release(&mut self) {}
}
