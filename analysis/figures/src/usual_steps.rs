//! Which steps are usual, and what their intervals take: a step that a stall, a cold start or another program made far
//! longer says nothing about what an operation costs. Shares of a step come from these steps alone: the time of an
//! operation and the time of the step from the same ones.

use super::int_map::IntMap;
use super::stated_work::StatedWork;
use super::stats::percentile_of;
use super::step_rows::StepRow;
use candlescope_schema::SpanRecord;
use std::collections::BTreeMap;

/// Fewer steps show no spread: all of them are usual.
const FEWEST: usize = 20;
/// Steps of a kind whose intervals are kept one by one, for the spread over steps.
const SAMPLED: usize = 256;
/// A step with more tokens than usual, by this factor, may take longer.
const MORE_TOKENS: f64 = 1.10;
/// The place of a usual step that is not kept by itself.
const NOT_SAMPLED: u32 = u32::MAX;

/// The usual steps of one kind: all that are no longer than the median + 3 IQR, and those with more tokens than usual.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct UsualSteps {
    /// The phase, or the steps' name.
    pub name: String,
    /// Measured steps of the kind that are usual; `set_apart` counts the others.
    pub steps: u64,
    /// Sum of their durations in nanoseconds.
    pub total_ns: u64,
    /// Steps that were set apart.
    pub set_apart: u64,
    /// The longest that is usual, in nanoseconds; `None` if all are.
    pub limit_ns: Option<u64>,
    /// Steps of more tokens than this are usual however long they take; `None` if tokens are not stated.
    pub many_tokens: Option<u32>,
    /// Durations of some of them, evenly spread over the run: those of [`UsualTime::by_step`].
    pub sampled_ns: Vec<u64>,
}

/// What the intervals of a path take in usual steps, and the work that they state.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct UsualTime {
    /// Intervals of the path in usual steps, those that a CUDA graph replayed included.
    pub calls: u64,
    /// Sum of their durations in nanoseconds.
    pub total_ns: u64,
    /// Work that they state.
    pub work: StatedWork,
    /// Their time in each of the steps that are kept by themselves; shorter if the last ones have none.
    pub by_step: Vec<u64>,
}

impl UsualSteps {
    /// The duration of a step, in nanoseconds: the median of those that are kept by themselves.
    pub fn median_ns(&self) -> Option<f64> {
        let all = self.sampled_ns.iter().filter(|ns| **ns > 0).map(|ns| *ns as f64);
        percentile_of(&all.collect::<Vec<_>>(), 0.5)
    }
}

impl UsualTime {
    /// Adds an interval. `place` is that of its step.
    pub(super) fn add(&mut self, span: &SpanRecord, place: u32) {
        self.calls += 1;
        self.total_ns = self.total_ns.saturating_add(span.host_dur_ns);
        self.work.add(StatedWork::of_span(span));
        if place != NOT_SAMPLED {
            let at = place as usize;
            if self.by_step.len() <= at {
                self.by_step.resize(at + 1, 0);
            }
            self.by_step[at] = self.by_step[at].saturating_add(span.host_dur_ns);
        }
    }

    /// The share of a step's time that it takes: the median over the steps that are kept by themselves and have it, times
    /// the part of them that has it; a stall in a few leaves that as it is. And the least in nine of ten of them. `None`
    /// without steps.
    pub fn share(&self, steps: &UsualSteps) -> Option<(f64, f64)> {
        let whole = (steps.total_ns > 0).then_some(steps.total_ns as f64)?;
        let each: Vec<f64> = self.of_each(steps).map(|(own, step)| own / step).collect();
        let share = usual_of(&each).unwrap_or(self.total_ns as f64 / whole);
        Some((share, percentile_of(&each, 0.1).map_or(share, |low| low.min(share))))
    }

    /// Its time in a step, in nanoseconds, as for [`share`](Self::share). `None` without steps.
    pub fn each_ns(&self, steps: &UsualSteps) -> Option<f64> {
        let mean = (steps.steps > 0).then_some(self.total_ns as f64 / steps.steps.max(1) as f64)?;
        Some(usual_of(&self.of_each(steps).map(|(own, _)| own).collect::<Vec<_>>()).unwrap_or(mean))
    }

    /// Its time in each of the steps that are kept by themselves, and theirs.
    fn of_each<'a>(&'a self, steps: &'a UsualSteps) -> impl Iterator<Item = (f64, f64)> + 'a {
        let own = |at: usize| self.by_step.get(at).copied().unwrap_or(0) as f64;
        let all = steps.sampled_ns.iter().enumerate().filter(|(_, ns)| **ns > 0);
        all.map(move |(at, ns)| (own(at), *ns as f64))
    }
}

/// The median of those above zero, times their part of all: what is in every step has its median, and what is in few of
/// them nearly its mean.
fn usual_of(each: &[f64]) -> Option<f64> {
    let there: Vec<f64> = each.iter().copied().filter(|value| *value > 0.0).collect();
    Some(percentile_of(&there, 0.5)? * there.len() as f64 / each.len() as f64)
}

/// Which steps are usual.
#[derive(Debug, Default)]
pub struct Usual {
    /// By number of a usual step: its place among those that are kept by themselves.
    places: IntMap<u64, u32>,
    kinds: Vec<UsualSteps>,
}

impl Usual {
    /// Of the measured steps, which are in order of start.
    pub fn of<'a>(steps: impl Iterator<Item = &'a StepRow>) -> Self {
        let mut groups: BTreeMap<&str, Vec<&StepRow>> = BTreeMap::new();
        for step in steps {
            groups.entry(step.group()).or_default().push(step);
        }
        let mut usual = Self::default();
        for (name, steps) in groups {
            usual.add(name, &steps);
        }
        usual
    }

    fn add(&mut self, name: &str, steps: &[&StepRow]) {
        let durations: Vec<f64> = steps.iter().map(|step| step.dur_ns as f64).collect();
        let at = |p: f64| percentile_of(&durations, p);
        let limit = match (at(0.25), at(0.5), at(0.75)) {
            (Some(low), Some(middle), Some(high)) if steps.len() >= FEWEST => middle + 3.0 * (high - low),
            _ => f64::INFINITY,
        };
        let lengths: Vec<f64> = steps.iter().filter_map(|step| step.tokens).map(f64::from).collect();
        let many_tokens = percentile_of(&lengths, 0.5).map(|usual| (usual * MORE_TOKENS) as u32);
        let has_more = |step: &StepRow| step.tokens.zip(many_tokens).is_some_and(|(own, many)| own > many);
        let kept: Vec<&&StepRow> = steps.iter().filter(|step| step.dur_ns as f64 <= limit || has_more(step)).collect();
        let mut kind = UsualSteps {
            name: name.to_string(),
            steps: kept.len() as u64,
            set_apart: (steps.len() - kept.len()) as u64,
            limit_ns: (kept.len() < steps.len()).then_some(limit as u64),
            many_tokens,
            ..UsualSteps::default()
        };
        // Every nth, so that they come from the whole run.
        let every = kept.len().div_ceil(SAMPLED).max(1);
        for (nth, step) in kept.into_iter().enumerate() {
            kind.total_ns = kind.total_ns.saturating_add(step.dur_ns);
            let place = if nth % every == 0 {
                kind.sampled_ns.push(step.dur_ns);
                kind.sampled_ns.len() as u32 - 1
            } else {
                NOT_SAMPLED
            };
            self.places.insert(step.step, place);
        }
        self.kinds.push(kind);
    }

    /// The place of a step among those that are kept by themselves; `None` if it is not usual.
    pub fn place(&self, step: Option<u64>) -> Option<u32> {
        self.places.get(&step?).copied()
    }

    /// The kinds of steps.
    pub fn into_kinds(self) -> Vec<UsualSteps> {
        self.kinds
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A path's time in these steps, of these durations.
    fn of(own: &[u64], steps: &[u64]) -> (UsualTime, UsualSteps) {
        let time = UsualTime { total_ns: own.iter().sum(), by_step: own.to_vec(), ..UsualTime::default() };
        let (n, total_ns) = (steps.len() as u64, steps.iter().sum());
        (time, UsualSteps { steps: n, total_ns, sampled_ns: steps.to_vec(), ..UsualSteps::default() })
    }

    #[test]
    fn stalls_in_a_few_steps_are_not_what_an_operation_takes() {
        // Too few steps to set any apart: three of twelve were held up within the operation.
        let held_up = |n: u64| n % 4 == 3;
        let own: Vec<u64> = (0..12).map(|n| if held_up(n) { 2_000_030 } else { 30 }).collect();
        let steps: Vec<u64> = own.iter().map(|own| own + 970).collect();
        let (time, all) = of(&own, &steps);
        let (share, least) = time.share(&all).unwrap();
        assert!((share - 0.03).abs() < 1e-9 && (least - 0.03).abs() < 1e-9, "{share} {least}");
        assert_eq!((time.each_ns(&all), all.median_ns()), (Some(30.0), Some(1_000.0)));
    }

    #[test]
    fn what_is_not_in_every_step_has_a_part_of_its_share() {
        let own: Vec<u64> = (0..20).map(|n| if n < 11 { 500 } else { 0 }).collect();
        let (time, all) = of(&own, &[1_000; 20]);
        let (share, least) = time.share(&all).unwrap();
        assert!((share - 0.5 * 0.55).abs() < 1e-9 && least == 0.0, "{share} {least}");
        assert!((time.each_ns(&all).unwrap() - 275.0).abs() < 1e-9);
        let (never, all) = of(&[], &[1_000; 20]);
        assert_eq!((never.share(&all), never.each_ns(&all)), (Some((0.0, 0.0)), Some(0.0)));
        assert_eq!(never.share(&UsualSteps::default()), None);
    }
}
