//! MFU and MBU of the last seconds, by phase, against the peaks that the run names. Pure.

use candlescope_core::run::RunManifest;
use candlescope_core::{DType, HostNs, Phase, StepRecord};
use serde_json::Value;
use std::collections::{BTreeMap, HashMap, VecDeque};

/// Seconds that a ratio is over: a few scrapes, so that none of the work goes unseen between them.
pub(crate) const WINDOW_S: i64 = 15;

/// Which of the two ratios.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Ratio {
    /// FLOPs against peak FLOP/s.
    Mfu,
    /// Bytes against peak bandwidth.
    Mbu,
}

#[derive(Debug, Clone, PartialEq)]
struct Peak {
    ratio: Ratio,
    value: f64,
    label: String,
    dtype: Option<String>,
}

/// Work of one kind and the time of the steps that tell it.
#[derive(Debug, Default, Clone, Copy)]
struct Work {
    amount: f64,
    seconds: f64,
}

/// Sums of the steps that ended in one second.
#[derive(Debug, Default)]
struct Second {
    at: i64,
    work: BTreeMap<(Phase, Ratio), Work>,
}

/// Work of the last seconds.
#[derive(Debug, Default)]
pub(crate) struct Utilisation {
    peaks: Vec<Peak>,
    model_dtype: Option<String>,
    flops_by_dtype: HashMap<DType, u64>,
    seconds: VecDeque<Second>,
}

impl Utilisation {
    /// Takes the peaks and the model's element type from what the run says.
    pub(crate) fn learn(&mut self, run: &RunManifest) {
        let list = run.environment.get("peaks").and_then(Value::as_array).into_iter().flatten();
        self.peaks = list
            .filter_map(|peak| {
                let ratio = match peak.get("kind")?.as_str()? {
                    "flops" => Ratio::Mfu,
                    "bandwidth" => Ratio::Mbu,
                    _ => return None,
                };
                let value = peak.get("value")?.as_f64().filter(|v| v.is_finite() && *v > 0.0)?;
                // A label of our own making, so that its values stay the two that are defined.
                let label = peak.get("label")?.as_str().filter(|l| ["datasheet", "measured"].contains(l))?.to_string();
                let dtype = peak.get("dtype").and_then(Value::as_str).map(str::to_string);
                Some(Peak { ratio, value, label, dtype })
            })
            .collect();
        self.model_dtype = run.model.get("dtype").and_then(Value::as_str).map(str::to_string);
    }

    /// Notes the element type that FLOPs were done in.
    pub(crate) fn flops(&mut self, dtype: DType, flops: u64) {
        let sum = self.flops_by_dtype.entry(dtype).or_default();
        *sum = sum.saturating_add(flops);
    }

    /// Takes a step.
    pub(crate) fn step(&mut self, step: &StepRecord) {
        let Some(phase) = step.phase else { return };
        let told = [(Ratio::Mfu, step.flops), (Ratio::Mbu, step.bytes)];
        if told.iter().all(|(_, amount)| amount.is_none()) {
            return;
        }
        let at = step.host_start.plus_ns(step.host_dur_ns).0.div_euclid(1_000_000_000);
        // Steps of several threads come nearly in order; what comes late belongs to the latest second well enough.
        if self.seconds.back().is_none_or(|last| last.at < at) {
            self.seconds.push_back(Second { at, ..Second::default() });
        }
        let Some(second) = self.seconds.back_mut() else { return };
        for (ratio, amount) in told {
            if let Some(amount) = amount {
                let work = second.work.entry((phase, ratio)).or_default();
                work.amount += amount as f64;
                work.seconds += step.host_dur_ns as f64 / 1e9;
            }
        }
        self.expire(HostNs(at * 1_000_000_000));
    }

    /// Forgets what is older than the window.
    pub(crate) fn expire(&mut self, now: HostNs) {
        let now = now.0.div_euclid(1_000_000_000);
        while self.seconds.front().is_some_and(|first| first.at <= now - WINDOW_S) {
            self.seconds.pop_front();
        }
    }

    /// Every ratio that is known: which, phase, the peak's label, value.
    pub(crate) fn ratios(&self) -> Vec<(Ratio, Phase, &str, f64)> {
        let mut sums: BTreeMap<(Phase, Ratio), Work> = BTreeMap::new();
        for (&key, work) in self.seconds.iter().flat_map(|second| &second.work) {
            let sum = sums.entry(key).or_default();
            sum.amount += work.amount;
            sum.seconds += work.seconds;
        }
        let mut all: Vec<(Ratio, Phase, &str, f64)> = Vec::new();
        for peak in self.applicable() {
            for (&(phase, ratio), work) in
                sums.iter().filter(|((_, ratio), work)| *ratio == peak.ratio && work.seconds > 0.0)
            {
                // Of several peaks with the same name the first counts.
                if !all.iter().any(|&(r, p, label, _)| (r, p, label) == (ratio, phase, &peak.label)) {
                    all.push((ratio, phase, &peak.label, work.amount / work.seconds / peak.value));
                }
            }
        }
        all
    }

    /// As in the analysis: of FLOPs the peaks of the element type that most were done in, or else the model's.
    fn applicable(&self) -> impl Iterator<Item = &Peak> {
        let most = self.flops_by_dtype.iter().max_by_key(|(_, flops)| **flops).map(|(dtype, _)| dtype.as_str());
        let named = |dtype: &&str| self.peaks.iter().any(|peak| peak.dtype.as_deref() == Some(*dtype));
        let used = [most, self.model_dtype.as_deref()].into_iter().flatten().find(named);
        self.peaks
            .iter()
            .filter(move |peak| peak.ratio == Ratio::Mbu || peak.dtype.is_none() || peak.dtype.as_deref() == used)
    }
}
