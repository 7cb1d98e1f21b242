//! What each layer takes in a typical recorded request, without a KV cache and with one.
//!
//! A stall makes a call longer, and one of them can be more than all other calls of a small layer together. So a layer's
//! time is not the sum of its calls but their number times their median, path by path, with the interval of that median.
//! A path that is called once in all says how long it takes at most.

use crate::suites::RecordedCase;
use candlescope_core::RecordKind;
use candlescope_figures::Distribution;
use candlescope_reader::Run;
use std::collections::{BTreeMap, HashMap};
use std::path::Path;

/// Time of a layer in a request, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct LayerTime {
    /// Calls × their median.
    pub(super) ns: f64,
    /// The least and the most that the calls allow: ends of the median's 95 % interval, of fewer than six calls the
    /// shortest and the longest, of a single one nothing and itself.
    pub(super) low: f64,
    pub(super) high: f64,
}

impl LayerTime {
    /// Of the calls of one path in so many requests.
    fn of(calls: Vec<f64>, requests: f64) -> Option<Self> {
        let in_one = calls.len() as f64 / requests;
        let all = Distribution::of(calls)?;
        let (low, high) = match (all.median_ci95, all.n) {
            (Some(ends), _) => ends,
            (None, 1) => (0.0, all.max),
            (None, _) => (all.min, all.max),
        };
        Some(Self { ns: all.median * in_one, low: low * in_one, high: high * in_one })
    }

    fn plus(&mut self, other: Self) {
        self.ns += other.ns;
        self.low += other.low;
        self.high += other.high;
    }
}

/// A layer without a cache and with one.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Layer {
    /// Its path without the phase.
    pub(super) name: String,
    pub(super) without: LayerTime,
    pub(super) with: LayerTime,
}

impl Layer {
    /// Without a cache ÷ with one, and the least and the most that the calls of both allow; `None` where these do not
    /// show which of the two takes longer.
    pub(super) fn times(&self) -> Option<(f64, f64, f64)> {
        let (without, with) = (self.without, self.with);
        let apart = without.low > with.high || without.high < with.low;
        let known = [with.ns, with.low, with.high].into_iter().all(|ns| ns > 0.0);
        (apart && known).then(|| (without.ns / with.ns, without.low / with.high, without.high / with.low))
    }
}

/// The layers that both have: those whose difference is clear first, and of these the largest difference.
pub(super) fn layers(study: &Path, without: &RecordedCase<'_>, with: &RecordedCase<'_>) -> Vec<Layer> {
    let (Some(a), Some(b)) = (by_layer(study, without), by_layer(study, with)) else { return Vec::new() };
    let both = a.into_iter().filter_map(|(name, without)| {
        let with = *b.get(&name)?;
        Some(Layer { name, without, with })
    });
    let mut all: Vec<Layer> = both.collect();
    all.sort_by(|x, y| {
        let apart = |layer: &Layer| (layer.without.ns - layer.with.ns).abs();
        let clear = |layer: &Layer| layer.times().is_some();
        clear(y).cmp(&clear(x)).then(apart(y).total_cmp(&apart(x)))
    });
    all
}

/// Self time of each layer, whatever phase it is in; `None` if the run cannot be read.
fn by_layer(study: &Path, of: &RecordedCase<'_>) -> Option<BTreeMap<String, LayerTime>> {
    let run = Run::open(study.join(of.case.last_run()?)).ok()?;
    let measured = |step: Option<u64>| step.is_some() && !of.analysis.warmup.has_step(step);
    let mut inside: HashMap<u64, u64> = HashMap::new();
    let mut seen = Vec::new();
    for batch in run.table(RecordKind::Span) {
        for span in batch.spans.iter().filter(|span| measured(span.step)) {
            if let Some(parent) = span.parent_seq {
                let sum = inside.entry(parent).or_default();
                *sum = sum.saturating_add(span.host_dur_ns);
            }
            seen.push((span.seq, span.path.clone(), span.host_dur_ns));
        }
    }
    // By the path with its ordinals: what differs in number, such as one of several products, may differ in size.
    let mut calls: BTreeMap<(&str, &str), Vec<f64>> = BTreeMap::new();
    for (seq, path, ns) in &seen {
        // The phase is the first part: a model without a cache has no other phases than its prefills.
        let Some((_, layer)) = path.rollup.split_once('/') else { continue };
        let own = ns.saturating_sub(inside.get(seq).copied().unwrap_or(0));
        calls.entry((layer, path.path.as_str())).or_default().push(own as f64);
    }
    let mut layers: BTreeMap<String, LayerTime> = BTreeMap::new();
    for ((layer, _), calls) in calls {
        if let Some(time) = LayerTime::of(calls, of.requests.max(1) as f64) {
            layers.entry(layer.to_string()).or_default().plus(time);
        }
    }
    Some(layers)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layer(without: &[f64], with: &[f64]) -> Layer {
        let of = |calls: &[f64]| LayerTime::of(calls.to_vec(), 1.0).expect("calls");
        Layer { name: String::new(), without: of(without), with: of(with) }
    }

    #[test]
    fn a_stall_is_no_effect_of_the_cache() {
        let usual: Vec<f64> = (0..50).map(|n| 1_000.0 + f64::from(n % 7)).collect();
        let mut stalled = usual.clone();
        stalled[20] = 12_000_000.0;
        let found = layer(&stalled, &usual);
        assert!(found.without.ns < 1.01 * found.with.ns, "{found:?}");
        assert_eq!(found.times(), None, "{found:?}");
        // The only call of its path may have stalled, whichever side it is on.
        for (without, with) in
            [(&[12e6][..], &usual[..]), (&usual[..], &[12e6][..]), (&[9.0, 12e6][..], &[8.0, 10.0][..])]
        {
            assert_eq!(layer(without, with).times(), None);
        }
    }

    #[test]
    fn what_most_calls_show_is_told_with_its_range() {
        let calls = |ns: f64| -> Vec<f64> { (0..50).map(|n| ns + f64::from(n % 5)).collect() };
        let mut slow = calls(3_000.0);
        slow[7] = 12_000_000.0;
        let (times, low, high) = layer(&slow, &calls(1_000.0)).times().expect("clear");
        assert!(low <= times && times <= high && (times - 3.0).abs() < 0.02 && high < 3.1, "{low} {times} {high}");
    }
}
