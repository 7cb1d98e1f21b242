//! The headline figures in one list, so that every renderer shows the same ones under the same names.

use crate::definitions::{Definition, definition};
use crate::passes::memory::RESIDENT;
use crate::passes::{Analysis, Distribution};

/// One headline figure.
#[derive(Debug, Clone)]
pub struct Figure<'a> {
    /// What it means.
    pub definition: &'static Definition,
    /// Its value, in the definition's unit.
    pub value: FigureValue<'a>,
}

/// A figure is either a set of measurements or a single number.
#[derive(Debug, Clone)]
pub enum FigureValue<'a> {
    /// Statistics over samples.
    Spread(&'a Distribution),
    /// One number for the whole run, and how many things it is over.
    Single(f64, usize),
}

impl Figure<'_> {
    /// Median or the single value.
    pub fn central(&self) -> f64 {
        match self.value {
            FigureValue::Spread(distribution) => distribution.median,
            FigureValue::Single(value, _) => value,
        }
    }
}

/// The figures of a run that are known, in the order of the definitions.
pub fn figures(analysis: &Analysis) -> Vec<Figure<'_>> {
    let latency = &analysis.latency;
    let measured = latency.requests.iter().filter(|r| !r.warmup).count();
    let samples = analysis.memory.host(RESIDENT).map_or(1, |series| series.n as usize);
    let single = |value: Option<f64>, n: usize| value.map(|value| FigureValue::Single(value, n));
    [
        ("ttft", spread(&latency.ttft)),
        ("tpot", spread(&latency.tpot)),
        ("itl", spread(&latency.itl)),
        ("e2e", spread(&latency.e2e)),
        ("prefill_tps", spread(&latency.prefill_tps)),
        ("decode_tps", spread(&latency.decode_tps)),
        ("output_tps", single(latency.output_tps, measured)),
        ("peak_memory", single(analysis.memory.peak_resident(), samples)),
    ]
    .into_iter()
    .filter_map(|(key, value)| Some(Figure { definition: definition(key), value: value? }))
    .collect()
}

fn spread(distribution: &Option<Distribution>) -> Option<FigureValue<'_>> {
    distribution.as_ref().map(FigureValue::Spread)
}
