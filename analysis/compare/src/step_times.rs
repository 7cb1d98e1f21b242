//! Times and counts of a run's steps by kind.
//!
//! The time of a kind is the median of its steps, which a machine that is busy with something else now and then hardly
//! moves. Parts of a run are its requests where it has enough, else stretches of steps of the same length.

use super::sampled::{RunFigure, medians};
use candlescope_figures::StepRow;
use candlescope_figures::figures::NOT_OF_KERNELS;
use candlescope_figures::reading::Pass;
use candlescope_schema::{Batch, KernelKind, RecordKind};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

/// Parts that a run is divided into, where it has steps enough.
const PARTS: usize = 8;
/// Requests from which they are the parts.
const REQUESTS: usize = 4;

/// The steps of one kind: of a phase, or of a name where no phases are marked.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct KindFacts {
    /// How many steps were measured, those of the warm-up left out.
    pub steps: u64,
    /// Median duration on the host in nanoseconds.
    pub host_ns: RunFigure,
    /// Median duration on the device in nanoseconds, if most steps have it.
    pub gpu_ns: Option<RunFigure>,
    /// What was counted, for each step: exact figures. A figure that not all steps have is absent.
    pub counts: BTreeMap<String, f64>,
    /// Bytes of weights and KV cache for each token, if both are known.
    pub bytes_per_token: Option<f64>,
}

/// The steps of one kind, in order.
#[derive(Debug, Default)]
pub(super) struct Kind<'a> {
    pub(super) steps: Vec<&'a StepRow>,
}

/// One side's measured steps, by kind and by the part that each belongs to, and what a step takes.
pub(super) struct StepTimes<'a> {
    pub(super) step_ns: Option<RunFigure>,
    /// The part that each step belongs to, by its number.
    pub(super) parts: HashMap<u64, usize>,
    pub(super) kinds: BTreeMap<String, Kind<'a>>,
}

/// These steps by their kind.
pub(super) fn by_kind(steps: &[StepRow]) -> BTreeMap<String, Kind<'_>> {
    let mut kinds: BTreeMap<String, Kind<'_>> = BTreeMap::new();
    for step in steps {
        kinds.entry(step.group().to_string()).or_default().steps.push(step);
    }
    kinds
}

/// The time of a typical step of `steps`, which are ordered by start.
pub(super) fn step_times(steps: &[StepRow]) -> StepTimes<'_> {
    let kinds = by_kind(steps);
    let parts = parts(steps);
    let most = kinds.values().map(|kind| kind.steps.len()).max().unwrap_or(0);
    let mut whole: Option<RunFigure> = None;
    for kind in kinds.values() {
        let Some(ns) = sampled(&kind.steps, &parts, |step| Some(step.dur_ns as f64)) else { continue };
        let weight = kind.steps.len() as f64 / most as f64;
        let sum = whole.get_or_insert_with(|| RunFigure { value: 0.0, parts: vec![0.0; ns.parts.len()] });
        sum.value += weight * ns.value;
        match (sum.parts.len(), ns.parts.len()) {
            (known, new) if known == new => {
                sum.parts.iter_mut().zip(&ns.parts).for_each(|(sum, ns)| *sum += weight * ns);
            }
            // A kind that does not occur in every part, such as one long prefill, has its value in all of them.
            (_, 0) => sum.parts.iter_mut().for_each(|sum| *sum += weight * ns.value),
            (0, _) => {
                let others = sum.value - weight * ns.value;
                sum.parts = ns.parts.iter().map(|ns| others + weight * ns).collect();
            }
            _ => {}
        }
    }
    StepTimes { step_ns: whole.filter(|whole| whole.value > 0.0), parts, kinds }
}

/// The part of each step: its request, or its place in the run.
fn parts(steps: &[StepRow]) -> HashMap<u64, usize> {
    let requests: BTreeSet<u64> = steps.iter().filter_map(|step| step.request).collect();
    if requests.len() >= REQUESTS && steps.iter().all(|step| step.request.is_some()) {
        let order: HashMap<u64, usize> = requests.into_iter().enumerate().map(|(at, request)| (request, at)).collect();
        let part = |step: &StepRow| Some((step.step, *order.get(&step.request?)?));
        return steps.iter().filter_map(part).collect();
    }
    let n = steps.len().max(1);
    steps.iter().enumerate().map(|(at, step)| (step.step, at * PARTS / n)).collect()
}

/// The median of a figure of steps, over all of them and over each part; `None` if most steps lack it.
pub(super) fn sampled(
    steps: &[&StepRow],
    parts: &HashMap<u64, usize>,
    figure: impl Fn(&StepRow) -> Option<f64>,
) -> Option<RunFigure> {
    let known: Vec<(u64, f64)> = steps.iter().filter_map(|step| Some((step.step, figure(step)?))).collect();
    if known.is_empty() || known.len() * 2 < steps.len() {
        return None;
    }
    Some(medians(&known, parts))
}

/// Times and counts of each kind. What ran on the device is counted over the steps whose kernels were recorded.
pub(super) fn kind_facts(
    device: &DeviceCounts,
    kinds: &BTreeMap<String, Kind<'_>>,
    parts: &HashMap<u64, usize>,
) -> BTreeMap<String, KindFacts> {
    let facts = kinds.iter().map(|(name, kind)| {
        let steps = &kind.steps;
        let n = steps.len() as f64;
        let mut counts: BTreeMap<String, f64> = device.each(name);
        let sum = |of: &dyn Fn(&StepRow) -> Option<f64>| steps.iter().map(|step| of(step)).sum::<Option<f64>>();
        let tokens = sum(&|step| step.counted_tokens().map(f64::from));
        let bytes = sum(&|step| step.work.bytes.map(|n| n as f64));
        let whole = |n: Option<u64>| n.map(|n| n as f64);
        let figures: [(&str, Option<f64>); 6] = [
            ("intervals", sum(&|step| (step.intervals_lost.unwrap_or(0) == 0).then_some(step.intervals as f64))),
            ("tokens", tokens),
            ("flops", sum(&|step| whole(step.work.flops))),
            ("flops_executed", sum(&|step| whole(step.work.flops_executed))),
            ("bytes", bytes),
            ("io_bytes", sum(&|step| whole(step.work.io_bytes))),
        ];
        counts.extend(figures.into_iter().filter_map(|(name, sum)| Some((name.to_string(), sum? / n))));
        let facts = KindFacts {
            steps: steps.len() as u64,
            host_ns: sampled(steps, parts, |step| Some(step.dur_ns as f64)).unwrap_or_default(),
            gpu_ns: sampled(steps, parts, |step| step.gpu_ns.map(|ns| ns as f64)),
            counts,
            bytes_per_token: bytes
                .zip(tokens)
                .filter(|(_, tokens)| *tokens > 0.0)
                .map(|(bytes, tokens)| bytes / tokens),
        };
        (name.clone(), facts)
    });
    facts.collect()
}

/// Kernels, copies, memsets, launches and bytes copied of each recorded step, by kind of step.
#[derive(Debug, Default)]
pub(super) struct DeviceCounts {
    kinds: Vec<String>,
    /// By number of a step: the place of its kind.
    of_step: HashMap<u64, usize>,
    counts: BTreeMap<usize, KindCounts>,
}

#[derive(Debug, Default)]
struct KindCounts {
    sums: BTreeMap<&'static str, f64>,
    recorded: HashSet<u64>,
    launches: HashSet<u32>,
}

impl DeviceCounts {
    /// None counted yet, for the device's work of these steps alone.
    pub(super) fn of(kinds: &BTreeMap<String, Kind<'_>>) -> Self {
        let steps =
            kinds.values().enumerate().flat_map(|(at, kind)| kind.steps.iter().map(move |step| (step.step, at)));
        Self { of_step: steps.collect(), kinds: kinds.keys().cloned().collect(), ..Self::default() }
    }

    /// For each recorded step.
    pub(super) fn each(&self, kind: &str) -> BTreeMap<String, f64> {
        let at = self.kinds.iter().position(|known| known == kind);
        let Some(counts) = at.and_then(|at| self.counts.get(&at)) else { return BTreeMap::new() };
        let steps = counts.recorded.len().max(1) as f64;
        let each = ["kernels", "copies", "memsets"].map(|name| (name, 0.0)).into_iter().chain(counts.sums.clone());
        // One call launches a whole graph.
        let each = each.chain([("launches", counts.launches.len() as f64)]);
        each.map(|(name, sum)| (name.to_string(), sum / steps)).collect()
    }
}

impl Pass for DeviceCounts {
    fn tables(&self) -> &'static [RecordKind] {
        &[RecordKind::Kernel]
    }

    fn unread(&self, _table: RecordKind) -> &'static [&'static str] {
        NOT_OF_KERNELS
    }

    fn rows(&mut self, batch: &Batch) {
        for kernel in &batch.kernels {
            let Some((step, kind)) = kernel.step.and_then(|step| Some((step, *self.of_step.get(&step)?))) else {
                continue;
            };
            let counts = self.counts.entry(kind).or_default();
            counts.recorded.insert(step);
            counts.launches.insert(kernel.correlation);
            let (name, bytes) = match kernel.kind {
                KernelKind::Kernel => ("kernels", None),
                KernelKind::Memcpy => ("copies", kernel.bytes),
                KernelKind::Memset => ("memsets", None),
            };
            *counts.sums.entry(name).or_default() += 1.0;
            if let Some(bytes) = bytes {
                *counts.sums.entry("copied_bytes").or_default() += bytes as f64;
            }
        }
    }
}
