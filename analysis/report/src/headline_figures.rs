//! The headline figures in one list, so that every renderer shows the same ones under the same names.

use super::format::range;
use candlescope_figures::definitions::{Definition, definition};
use candlescope_figures::stats::RangeOf;
use candlescope_figures::{Analysis, Distribution, usd_per_million_output_tokens};

/// One headline figure.
#[derive(Debug, Clone)]
pub(super) struct Figure<'a> {
    /// Its key, title, unit and meaning, from the one table of definitions.
    pub definition: &'static Definition,
    /// Its value, in the definition's unit.
    pub value: FigureValue<'a>,
    /// A remark on a single number: where it comes from.
    pub remark: Option<&'static str>,
}

/// A figure is either a set of measurements or a single number.
#[derive(Debug, Clone)]
pub(super) enum FigureValue<'a> {
    /// Statistics over samples of the measured requests, warm-up left out.
    Spread(&'a Distribution),
    /// One number for the whole run, and the number of measurements behind it.
    Single(f64, usize),
}

impl Figure<'_> {
    /// Name for people, with the unit if values are shown without it.
    pub(super) fn title(&self) -> String {
        let d = self.definition;
        if is_bare(d.unit) { format!("{}, {}", d.title, d.unit) } else { d.title.to_string() }
    }

    /// Median or the single value.
    pub(super) fn central(&self) -> f64 {
        match self.value {
            FigureValue::Spread(distribution) => distribution.median,
            FigureValue::Single(value, _) => value,
        }
    }
}

/// Whether [`value`](super::format::value) shows numbers of this unit without it.
pub(super) fn is_bare(unit: &str) -> bool {
    !matches!(unit, "ns" | "bytes" | "ratio" | "count" | "J" | "W")
}

/// The figures of a run that are known, in the order of the definitions.
pub(super) fn figures(analysis: &Analysis) -> Vec<Figure<'_>> {
    let latency = &analysis.latency;
    let measured = latency.requests.iter().filter(|r| !r.warmup).count();
    let (peak, kv) = (analysis.memory.peak_resident(), analysis.memory.kv());
    let kv_samples = kv.map_or(0, |kv| kv.samples as usize);
    let busy = analysis.gpu.busy.as_ref();
    let recorded = busy.map_or(0, |busy| busy.steps as usize);
    let energy = &analysis.energy;
    let requests = energy.measured_requests as usize;
    let per_token = energy.per_output_token();
    let single = |value: Option<f64>, n: usize| value.map(|value| FigureValue::Single(value, n));
    [
        ("queue", spread(&latency.queue)),
        ("ttft", spread(&latency.ttft)),
        ("tpot", spread(&latency.tpot)),
        ("itl", spread(&latency.itl)),
        ("e2e", spread(&latency.e2e)),
        ("prefill_tps", spread(&latency.prefill_tokens_per_s)),
        ("decode_tps", spread(&latency.decode_tokens_per_s)),
        ("output_tps", single(latency.output_tokens_per_s, measured)),
        ("peak_memory", single(peak.map(|peak| peak.bytes), 1)),
        ("kv_allocated", single(kv.map(|kv| kv.allocated), kv_samples)),
        ("kv_used", single(kv.map(|kv| kv.used), kv_samples)),
        ("kv_allocated_per_used", single(kv.and_then(|kv| kv.allocated_per_used()), kv_samples)),
        ("gpu_busy", single(busy.and_then(|busy| busy.busy_share()), recorded)),
        ("launch_bound", single(busy.and_then(|busy| busy.launch_bound_share()), recorded)),
        ("power", single(energy.run.as_ref().and_then(|run| run.watts()), energy.samples as usize)),
        ("energy_per_token", single(per_token.map(|(gross, _)| gross), requests)),
        ("net_energy_per_token", single(per_token.and_then(|(_, net)| net), requests)),
        ("usd_per_million_output_tokens", single(usd_per_million_output_tokens(analysis), measured)),
    ]
    .into_iter()
    .filter_map(|(key, value)| {
        let remark = peak.filter(|_| key == "peak_memory").map(|peak| peak.source());
        Some(Figure { definition: definition(key), value: value?, remark })
    })
    .collect()
}

/// The 95 % interval of a median; if there are too few units for one, the range under its own name. `short` for a
/// terminal.
pub(super) fn interval(unit: &str, d: &Distribution, short: bool) -> Option<String> {
    if let Some((low, high)) = d.median_ci95 {
        return Some(format!("95 %: {}", range(unit, low, high)));
    }
    let few = d.range?;
    let name = match (few.of, short) {
        (RangeOf::Samples, _) => "range",
        (RangeOf::UnitMedians, true) => "med.",
        (RangeOf::UnitMedians, false) => "range of requests' medians",
    };
    Some(format!("{name}: {}", range(unit, few.low, few.high)))
}

fn spread(distribution: &Option<Distribution>) -> Option<FigureValue<'_>> {
    distribution.as_ref().map(FigureValue::Spread)
}
