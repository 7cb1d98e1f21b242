//! Which steps are usual, and what their intervals take: a step that a stall, a cold start or another program made far
//! longer says nothing about what an operation costs. Shares of a step come from these steps alone: the time of an
//! operation and the time of the step from the same ones.

use super::int_map::IntMap;
use super::stated_work::StatedWork;
use super::stats::{percentile_of, total};
use super::step_rows::StepRow;
use candlescope_schema::SpanRecord;
use std::collections::BTreeMap;

/// Fewer steps show no spread: all of them are usual.
const FEWEST: usize = 20;
/// Steps of a kind whose intervals are kept one by one, for the spread over steps.
const SAMPLED: usize = 256;
/// A step with more tokens than usual, by this factor, may take longer.
const MORE_TOKENS: f64 = 1.10;
/// What a step takes beyond so many medians is no part of what steps usually take.
const FAR_LONGER: f64 = 2.0;
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
    /// Sum of the durations of all measured steps of the kind, in nanoseconds.
    pub all_ns: u64,
    /// The part of it that single steps, with no more tokens than usual, took beyond twice the median.
    pub held_up_ns: u64,
    /// The longest that is usual, in nanoseconds; `None` if all are.
    pub limit_ns: Option<u64>,
    /// Steps of more tokens than this are usual however long they take; `None` if tokens are not stated.
    pub many_tokens: Option<u32>,
    /// Durations of some of them, evenly spread over the run: those of [`UsualTime::by_step`].
    pub sampled_ns: Vec<u64>,
}

/// A usual step: its kind, and its place among those of the kind that are kept by themselves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UsualPlace {
    kind: u32,
    at: u32,
}

/// What the intervals of a path take in usual steps, and the work that they state.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct UsualTime {
    /// The kind of the steps: its position in [`Intervals::usual`](super::path_totals::Intervals::usual).
    pub kind: Option<u32>,
    /// Intervals of the path in usual steps, those that a CUDA graph replayed included.
    pub calls: u64,
    /// Sum of their durations in nanoseconds.
    pub total_ns: u64,
    /// Sum of the durations of the intervals directly inside them, in nanoseconds.
    pub inside_ns: u64,
    /// Work that they state.
    pub work: StatedWork,
    /// Their time in each of the steps that are kept by themselves; shorter if the last ones have none.
    pub by_step: Vec<u64>,
    /// The same of what is directly inside them.
    pub inside_by_step: Vec<u64>,
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
    pub(super) fn add(&mut self, span: &SpanRecord, place: UsualPlace) {
        self.calls += 1;
        self.kind.get_or_insert(place.kind);
        self.total_ns = self.total_ns.saturating_add(span.host_dur_ns);
        self.work.add(StatedWork::of_span(span));
        add_at(&mut self.by_step, place, span.host_dur_ns);
    }

    /// Adds the time of all intervals directly inside one of them.
    pub(super) fn add_inside(&mut self, ns: u64, place: UsualPlace) {
        self.inside_ns = self.inside_ns.saturating_add(ns);
        add_at(&mut self.inside_by_step, place, ns);
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

    /// Its own share of a step, without the intervals inside it, and its own time in one, in nanoseconds: medians as
    /// for [`share`](Self::share). `None` without steps.
    pub fn own(&self, steps: &UsualSteps) -> Option<(f64, f64)> {
        let whole = (steps.total_ns > 0).then_some(steps.total_ns as f64)?;
        let own = |(at, (all, step)): (usize, (f64, f64))| (all - self.inside(at, all), step);
        let each: Vec<(f64, f64)> = self.of_each(steps).enumerate().map(own).collect();
        let rest = self.total_ns.saturating_sub(self.inside_ns) as f64;
        let share = usual_of(&each.iter().map(|(own, step)| own / step).collect::<Vec<_>>());
        let ns = usual_of(&each.iter().map(|(own, _)| *own).collect::<Vec<_>>());
        Some((share.unwrap_or(rest / whole), ns.unwrap_or(rest / steps.steps.max(1) as f64)))
    }

    /// The part of its time that is in no interval inside it: the median over the steps that have it, so that a stall
    /// in one of them does not decide. `None` where it takes no time.
    pub fn own_part(&self) -> Option<f64> {
        let there = self.by_step.iter().enumerate().filter(|(_, ns)| **ns > 0);
        let each: Vec<f64> = there.map(|(at, ns)| 1.0 - self.inside(at, *ns as f64) / *ns as f64).collect();
        let of_all = || 1.0 - self.inside_ns.min(self.total_ns) as f64 / self.total_ns as f64;
        percentile_of(&each, 0.5).or_else(|| (self.total_ns > 0).then(of_all))
    }

    /// What the intervals inside it take in a step that is kept by itself, in which it takes `all`.
    fn inside(&self, at: usize, all: f64) -> f64 {
        self.inside_by_step.get(at).map_or(0.0, |ns| *ns as f64).min(all)
    }

    /// Its time in each of the steps that are kept by themselves, and theirs.
    fn of_each<'a>(&'a self, steps: &'a UsualSteps) -> impl Iterator<Item = (f64, f64)> + 'a {
        let own = |at: usize| self.by_step.get(at).copied().unwrap_or(0) as f64;
        let all = steps.sampled_ns.iter().enumerate().filter(|(_, ns)| **ns > 0);
        all.map(move |(at, ns)| (own(at), *ns as f64))
    }
}

/// Adds to the time of a step that is kept by itself.
fn add_at(by_step: &mut Vec<u64>, place: UsualPlace, ns: u64) {
    if place.at == NOT_SAMPLED {
        return;
    }
    let at = place.at as usize;
    if by_step.len() <= at {
        by_step.resize(at + 1, 0);
    }
    by_step[at] = by_step[at].saturating_add(ns);
}

/// The median of those above zero, times their part of all: what is in every step has its median, and what is in few of
/// them nearly its mean.
fn usual_of(each: &[f64]) -> Option<f64> {
    let there: Vec<f64> = each.iter().copied().filter(|value| *value > 0.0).collect();
    Some(percentile_of(&there, 0.5)? * there.len() as f64 / each.len() as f64)
}

/// Which steps are usual.
#[derive(Debug, Default)]
pub struct UsualKinds {
    /// By number of a usual step: its kind, and its place among those that are kept by themselves.
    places: IntMap<u64, UsualPlace>,
    kinds: Vec<UsualSteps>,
}

impl UsualKinds {
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
        let far = at(0.5).map_or(u64::MAX, |median| (FAR_LONGER * median) as u64);
        let beyond = steps.iter().filter(|step| !has_more(step)).map(|step| step.dur_ns.saturating_sub(far));
        let mut kind = UsualSteps {
            all_ns: total(steps.iter().map(|step| step.dur_ns)),
            held_up_ns: total(beyond),
            name: name.to_string(),
            steps: kept.len() as u64,
            set_apart: (steps.len() - kept.len()) as u64,
            limit_ns: (kept.len() < steps.len()).then_some(limit as u64),
            many_tokens,
            ..UsualSteps::default()
        };
        // Every nth, so that they come from the whole run.
        let every = kept.len().div_ceil(SAMPLED).max(1);
        let of_kind = self.kinds.len() as u32;
        for (nth, step) in kept.into_iter().enumerate() {
            kind.total_ns = kind.total_ns.saturating_add(step.dur_ns);
            let at = if nth % every == 0 {
                kind.sampled_ns.push(step.dur_ns);
                kind.sampled_ns.len() as u32 - 1
            } else {
                NOT_SAMPLED
            };
            self.places.insert(step.step, UsualPlace { kind: of_kind, at });
        }
        self.kinds.push(kind);
    }

    /// The kind of a step, and its place among those that are kept by themselves; `None` if it is not usual.
    pub fn place(&self, step: Option<u64>) -> Option<UsualPlace> {
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
    fn a_stall_in_one_step_does_not_decide_what_is_an_intervals_own() {
        // Half of each interval is in others inside it; in one step something held it up for a hundred times as long.
        let own: Vec<u64> = (0..15).map(|n| if n == 5 { 100_400 } else { 400 }).collect();
        let steps: Vec<u64> = own.iter().map(|own| own + 600).collect();
        let (mut time, all) = of(&own, &steps);
        (time.inside_ns, time.inside_by_step) = (15 * 200, vec![200; 15]);
        let part = time.own_part().unwrap();
        assert!((part - 0.5).abs() < 1e-9, "{part}");
        let (share, ns) = time.own(&all).unwrap();
        assert!((share - 0.2).abs() < 1e-9 && ns == 200.0, "{share} {ns}");
        assert_eq!(UsualTime::default().own_part(), None);
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
