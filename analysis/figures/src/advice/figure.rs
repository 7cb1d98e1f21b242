//! The figures that a finding rests on.

use serde::Serialize;

/// One number as evidence of a finding, with its unit and where it comes from.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct AdviceFigure {
    /// Its name: what it is, in words.
    pub name: &'static str,
    /// Its value, in the unit that `unit` names.
    pub value: f64,
    /// `ns`, `ratio`, `count`, `bytes`, `B/s`, …
    pub unit: &'static str,
    /// Measurements that it is made of.
    pub n: u64,
    /// Where it comes from.
    pub source: FigureSource,
}

/// Where a figure comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FigureSource {
    /// Read off a clock, a counter or a sensor.
    Measured,
    /// Computed from measured and analytic figures.
    Derived,
    /// Taken from the maker's datasheet of the device, not measured on it.
    Datasheet,
}

impl FigureSource {
    /// As reports call it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Measured => "measured",
            Self::Derived => "derived",
            Self::Datasheet => "datasheet",
        }
    }
}

impl AdviceFigure {
    /// A figure that was read off a clock, a counter or a sensor, over `n` measurements.
    pub fn measured(name: &'static str, unit: &'static str, value: f64, n: u64) -> Self {
        Self { name, value, unit, n, source: FigureSource::Measured }
    }

    /// A figure computed from measured and analytic ones, over `n` measurements.
    pub fn derived(name: &'static str, unit: &'static str, value: f64, n: u64) -> Self {
        Self { name, value, unit, n, source: FigureSource::Derived }
    }

    /// A datasheet's figure, or a measured peak, by its label.
    pub fn peak(name: &'static str, unit: &'static str, value: f64, is_measured: bool) -> Self {
        let source = if is_measured { FigureSource::Measured } else { FigureSource::Datasheet };
        Self { name, value, unit, n: 1, source }
    }
}
