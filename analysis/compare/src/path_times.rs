//! Self time of each path in a typical step.
//!
//! Of a path, the median over the steps of its kind is taken where it occurs in most of them, else the mean. Paths keep
//! their ordinals here, because a change in one layer of many is to be named by that layer.

use super::sampled::{RunFigure, medians};
use super::step_times::Kind;
use candlescope_figures::figures::NOT_OF_SPANS;
use candlescope_figures::reading::Pass;
use candlescope_schema::{Batch, PathInfo, RecordKind};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// Steps of a run that are looked at, evenly spread, at most: their medians are no more certain with more of them.
const MOST_STEPS: usize = 2_000;

/// Time of one path within the steps of one kind.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct PathFacts {
    /// Phase of the steps that it is in, or their name where no phases are marked.
    pub kind: String,
    /// The path with its ordinals.
    pub path: String,
    /// The path that it is summed up by, without ordinals or by module.
    pub rollup: String,
    /// The module that it stands for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub module: Option<String>,
    /// Time on the host less that of its children, in nanoseconds for each step of its kind.
    pub host_ns: RunFigure,
    /// The same on the device, between marks or as the sum of kernels, where most of its steps have it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu_ns: Option<RunFigure>,
}

/// Self time on the host, and on the device where it is known, by step.
type OfSteps = BTreeMap<u64, (f64, Option<f64>)>;

/// An interval, as far as it is needed here.
#[derive(Debug)]
struct Interval {
    step: u64,
    seq: u64,
    path: Arc<PathInfo>,
    host_ns: u64,
    gpu_ns: Option<u64>,
}

/// The intervals of some steps of each kind.
#[derive(Debug)]
pub(super) struct PathTimes {
    kinds: Vec<String>,
    /// By number of a step that is looked at: the place of its kind.
    chosen: HashMap<u64, usize>,
    intervals: Vec<Interval>,
    /// Time of the children of an interval, by its number.
    inside: HashMap<u64, (u64, Option<u64>)>,
}

impl Pass for PathTimes {
    fn tables(&self) -> &'static [RecordKind] {
        &[RecordKind::Span]
    }

    fn unread(&self, _table: RecordKind) -> &'static [&'static str] {
        NOT_OF_SPANS
    }

    fn rows(&mut self, batch: &Batch) {
        for span in &batch.spans {
            let Some(step) = span.step.filter(|step| self.chosen.contains_key(step)) else { continue };
            let gpu_ns = span.gpu.map(|gpu| gpu.dur_ns);
            if let Some(parent) = span.parent_seq {
                let sum = self.inside.entry(parent).or_insert((0, Some(0)));
                sum.0 = sum.0.saturating_add(span.host_dur_ns);
                // Unknown as soon as one child's is.
                sum.1 = sum.1.zip(gpu_ns).map(|(sum, ns)| sum.saturating_add(ns));
            }
            let path = span.path.clone();
            self.intervals.push(Interval { step, seq: span.seq, path, host_ns: span.host_dur_ns, gpu_ns });
        }
    }
}

impl PathTimes {
    /// Steps of these are looked at.
    pub(super) fn of(kinds: &BTreeMap<String, Kind<'_>>) -> Self {
        let mut chosen = HashMap::new();
        for (at, kind) in kinds.values().enumerate() {
            let n = kind.steps.len();
            let take = n.min(MOST_STEPS);
            chosen.extend((0..take).map(|i| (kind.steps[i * n / take].step, at)));
        }
        Self { kinds: kinds.keys().cloned().collect(), chosen, intervals: Vec::new(), inside: HashMap::new() }
    }

    /// Times of all paths of the steps of those kinds that are wanted.
    pub(super) fn finish(&self, wanted: impl Fn(&str) -> bool, parts: &HashMap<u64, usize>) -> Vec<PathFacts> {
        let kind = |step: u64| self.kinds[self.chosen[&step]].as_str();
        let seen = self.intervals.iter().filter(|interval| wanted(kind(interval.step)));
        // Steps that are inside another step, such as a program's `main`, are paths of their own kind only.
        let known: HashMap<(&str, u32), &Arc<PathInfo>> =
            seen.clone().map(|one| ((kind(one.step), one.path.id), &one.path)).collect();
        let mut times: HashMap<(&str, u32), OfSteps> = HashMap::new();
        for one in seen {
            let (host, gpu) = self.inside.get(&one.seq).copied().unwrap_or((0, Some(0)));
            let own = one.host_ns.saturating_sub(host) as f64;
            let on_gpu = one.gpu_ns.zip(gpu).map(|(whole, inside)| whole.saturating_sub(inside) as f64);
            let steps = times.entry((kind(one.step), one.path.id)).or_default();
            let sum = steps.entry(one.step).or_insert((0.0, Some(0.0)));
            sum.0 += own;
            sum.1 = sum.1.zip(on_gpu).map(|(sum, ns)| sum + ns);
        }
        let mut steps_of: HashMap<&str, usize> = HashMap::new();
        self.chosen.values().for_each(|at| *steps_of.entry(&self.kinds[*at]).or_default() += 1);
        let mut facts: Vec<PathFacts> = times
            .into_iter()
            .map(|((kind, id), steps)| {
                let path = known[&(kind, id)];
                let host: Vec<(u64, f64)> = steps.iter().map(|(step, (ns, _))| (*step, *ns)).collect();
                let gpu: Vec<(u64, f64)> = steps.iter().filter_map(|(step, (_, ns))| Some((*step, (*ns)?))).collect();
                PathFacts {
                    kind: kind.to_string(),
                    path: path.path.clone(),
                    rollup: path.rollup.clone(),
                    module: path.module.as_deref().map(str::to_string),
                    host_ns: typical(&host, parts, steps_of[kind]),
                    // In the adaptive tier only some steps have it on every interval: these stand for the others.
                    gpu_ns: (!gpu.is_empty()).then(|| typical(&gpu, parts, gpu.len())),
                }
            })
            .collect();
        facts.sort_by(|a, b| (&a.kind, &a.path).cmp(&(&b.kind, &b.path)));
        facts
    }
}

/// The time of a path that occurs in `known` of `all` steps, for each step.
fn typical(known: &[(u64, f64)], parts: &HashMap<u64, usize>, all: usize) -> RunFigure {
    if known.len() * 2 > all {
        return medians(known, parts);
    }
    RunFigure::whole(known.iter().map(|(_, ns)| ns).sum::<f64>() / all.max(1) as f64)
}
