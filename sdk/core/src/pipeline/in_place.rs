//! The cost of recording, measured in place: recorded steps beside plain ones of the same kind on the same thread.
//!
//! No clocks and no I/O: durations come in, figures go out.

use crate::run::{InPlaceKind, InPlaceOverhead};
use candlescope_work::estimate::median;
use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, VecDeque};

/// Samples kept for one kind; a long run keeps every second, every fourth, … of them.
const MAX_SAMPLES: usize = 1_000;

/// Steps of a window that are compared with those before it.
const NEAR: u32 = 8;
/// Recorded steps before a window whose median they are compared with, and the fewest.
const RECENT: usize = 8;
const FEWEST: usize = 3;
/// Of the steps before a window, the last ones go on while the recorder is switched on, which takes them a third more.
const SWITCHING: usize = 4;

/// The 95 % interval of a median exists from this many samples on.
const FOR_INTERVAL: usize = 6;

/// The last comparisons of a kind by which a budget is held.
const LATELY: usize = 256;

/// The latest step of a kind on a thread. Durations are natural logarithms of nanoseconds.
#[derive(Debug, Clone, Copy)]
enum LatestStep {
    Recorded(f64),
    /// To be compared with the recorded step that follows.
    Plain(f64),
    /// A plain step that was compared with the one before it.
    Done,
    /// So many steps of a window of kernels, after recorded steps that took this.
    Window(f64, u32),
}

/// What is known of one kind of step.
#[derive(Debug, Default)]
struct Kind {
    /// Logarithms of recorded ÷ plain, one for each comparison of a plain step with a recorded one.
    samples: Vec<f64>,
    /// One sample in `stride` is kept; `n` is how many have come.
    stride: u64,
    n: u64,
    /// The last samples, all of them.
    lately: VecDeque<f64>,
    /// Which neighbour the next plain step is compared with.
    before_next: bool,
    /// Time in recorded steps, nanoseconds.
    recorded_ns: u64,
}

/// Compares each plain step with the recorded one right before or right after it, by turns.
///
/// It is compared with neighbours, because steps get longer with their context: the medians of all plain and of all
/// recorded steps would differ by where in the run they stand. It is done by turns, so that a steady trend lengthens as
/// many results as it shortens. And with one neighbour only: on a busy machine many steps are interrupted, and the mean
/// of two would be spoilt by either.
#[derive(Debug, Default)]
pub(crate) struct InPlace {
    latest: FxHashMap<(u32, u32), LatestStep>,
    kinds: BTreeMap<u32, Kind>,
    /// The latest recorded steps of a kind on a thread, the latest last; kept while there are windows of kernels.
    recent: FxHashMap<(u32, u32), VecDeque<f64>>,
    /// Steps with kernels ÷ the recorded steps before their window.
    windows: Kind,
    /// Steps that were recorded, and those of them with kernels.
    steps: (u64, u64),
}

impl InPlace {
    /// A recorded step of kind `name` ended on `thread`.
    pub(crate) fn recorded(&mut self, thread: u32, name: u32, ns: u64) {
        self.steps.0 += 1;
        let kind = self.kinds.entry(name).or_default();
        kind.recorded_ns = kind.recorded_ns.saturating_add(ns);
        let own = (ns.max(1) as f64).ln();
        let recent = self.recent.entry((thread, name)).or_default();
        if recent.len() == RECENT + SWITCHING {
            recent.pop_front();
        }
        recent.push_back(own);
        if let Some(LatestStep::Plain(plain)) = self.latest.insert((thread, name), LatestStep::Recorded(own)) {
            kind.add(own - plain);
        }
    }

    /// A plain step of kind `name` ended on `thread`.
    pub(crate) fn plain(&mut self, thread: u32, name: u32, ns: u64) {
        let kind = self.kinds.entry(name).or_default();
        let own = (ns.max(1) as f64).ln();
        kind.before_next = !kind.before_next;
        let latest = match self.latest.get(&(thread, name)) {
            Some(LatestStep::Recorded(before)) if kind.before_next => {
                kind.add(before - own);
                LatestStep::Done
            }
            _ => LatestStep::Plain(own),
        };
        self.latest.insert((thread, name), latest);
    }

    /// A step of this kind ended whose kernels were recorded, too: it is like neither of the others, and not compared with a
    /// plain one.
    pub(crate) fn with_kernels(&mut self, thread: u32, name: u32, ns: u64) {
        self.steps.0 += 1;
        self.steps.1 += 1;
        let (before, nth) = match self.latest.remove(&(thread, name)) {
            Some(LatestStep::Window(before, nth)) => (before, nth.saturating_add(1)),
            _ => match self.before_window(thread, name) {
                Some(before) => (before, 1),
                None => return,
            },
        };
        // Further on the step before the window is no neighbour.
        if nth <= NEAR {
            self.windows.add((ns.max(1) as f64).ln() - before);
        }
        self.latest.insert((thread, name), LatestStep::Window(before, nth));
    }

    /// What a recorded step took before the recorder of kernels was switched on.
    fn before_window(&self, thread: u32, name: u32) -> Option<f64> {
        let recent = self.recent.get(&(thread, name))?;
        let undisturbed: Vec<f64> = recent.iter().rev().skip(SWITCHING).copied().collect();
        if undisturbed.len() >= FEWEST { median(undisturbed) } else { None }
    }

    /// The share of recorded steps whose kernels were recorded.
    pub(crate) fn window_share(&self) -> f64 {
        if self.steps.0 > 0 { self.steps.1 as f64 / self.steps.0 as f64 } else { 0.0 }
    }

    /// A thread has ended: no step of it comes any more.
    pub(crate) fn thread_ended(&mut self, thread: u32) {
        self.latest.retain(|(of, _), _| *of != thread);
        self.recent.retain(|(of, _), _| *of != thread);
    }

    /// The result for the manifest; `None` if no plain step was compared. `name_of` returns a kind's name.
    pub(crate) fn overhead(&self, name_of: impl Fn(u32) -> String) -> Option<InPlaceOverhead> {
        self.figures(name_of, Kind::figures)
    }

    /// The same of the last comparisons alone, by which a budget is held: what steps cost may change while a program runs.
    pub(crate) fn lately(&self, name_of: impl Fn(u32) -> String) -> Option<InPlaceOverhead> {
        self.figures(name_of, Kind::lately)
    }

    fn figures(
        &self,
        name_of: impl Fn(u32) -> String,
        of: impl Fn(&Kind) -> Option<InPlaceKind>,
    ) -> Option<InPlaceOverhead> {
        let mut figures = InPlaceOverhead::default();
        let mut weights = Vec::new();
        for (&name, kind) in &self.kinds {
            let Some(one) = of(kind) else { continue };
            figures.n_plain += one.n_plain;
            figures.n_recorded += one.n_recorded;
            weights.push((kind.recorded_ns as f64, one));
            // Spans of the same name and different targets are different kinds; the one with more plain steps stands
            // for both.
            let known = figures.kinds.entry(name_of(name)).or_insert(one);
            if known.n_plain < one.n_plain {
                *known = one;
            }
        }
        if weights.is_empty() {
            return None;
        }
        // Kinds are weighted by the time they take. If some have an interval, those without one are left out as too
        // uncertain.
        if weights.iter().any(|(_, k)| k.low.is_some()) {
            weights.retain(|(_, k)| k.low.is_some());
        }
        let whole: f64 = weights.iter().map(|(ns, _)| ns).sum();
        let weight = |ns: f64| if whole > 0.0 { ns / whole } else { 1.0 / weights.len() as f64 };
        figures.ratio = weights.iter().map(|(ns, k)| weight(*ns) * k.ratio).sum();
        // The kinds are independent, so the squares of the half-widths add up.
        let half = |end: fn(&InPlaceKind) -> Option<f64>| {
            let squares = weights.iter().map(|(ns, k)| Some((weight(*ns) * (end(k)? - k.ratio)).powi(2)));
            squares.sum::<Option<f64>>().map(f64::sqrt)
        };
        figures.windows = of(&self.windows).map(|windows| InPlaceKind { n_plain: 0, ..windows });
        figures.low = half(|k| k.low).map(|half| figures.ratio - half);
        figures.high = half(|k| k.high).map(|half| figures.ratio + half);
        Some(figures)
    }
}

impl Kind {
    /// `None` if nothing was compared.
    fn figures(&self) -> Option<InPlaceKind> {
        self.figures_of(self.samples.clone())
    }

    fn lately(&self) -> Option<InPlaceKind> {
        self.figures_of(self.lately.iter().copied().collect())
    }

    fn figures_of(&self, mut samples: Vec<f64>) -> Option<InPlaceKind> {
        samples.sort_by(f64::total_cmp);
        let share = |log: f64| log.exp_m1();
        let interval = interval(&samples);
        Some(InPlaceKind {
            n_plain: self.n,
            n_recorded: self.n,
            ratio: share(median(samples)?),
            low: interval.map(|(low, _)| share(low)),
            high: interval.map(|(_, high)| share(high)),
        })
    }

    fn add(&mut self, sample: f64) {
        if self.samples.len() == MAX_SAMPLES {
            let mut keep = false;
            self.samples.retain(|_| {
                keep = !keep;
                keep
            });
            self.stride = self.stride.max(1) * 2;
        }
        if self.n.is_multiple_of(self.stride.max(1)) {
            self.samples.push(sample);
        }
        self.n += 1;
        if self.lately.len() == LATELY {
            self.lately.pop_front();
        }
        self.lately.push_back(sample);
    }
}

/// The order statistics that enclose the median with a probability of at least 95 %, by the binomial distribution
/// (Conover 1999, section 3.2).
fn interval(sorted: &[f64]) -> Option<(f64, f64)> {
    let n = sorted.len();
    if n < FOR_INTERVAL {
        return None;
    }
    // The probability of at most `rank` heads of n fair coins must not exceed 2.5 %. There are at most a thousand
    // samples, and 2⁻¹⁰⁰⁰ can still be represented.
    let mut chance = 0.5f64.powi(n as i32);
    let (mut sum, mut rank) = (chance, 0);
    while rank < n / 2 {
        let next = chance * (n - rank) as f64 / (rank + 1) as f64;
        if sum + next > 0.025 {
            break;
        }
        (chance, sum, rank) = (next, sum + next, rank + 1);
    }
    Some((*sorted.get(rank)?, *sorted.get(n - 1 - rank)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};

    fn name(n: u32) -> String {
        format!("kind{n}")
    }

    #[test]
    fn a_known_cost_is_found_through_trend_and_noise() {
        let mut noise = StdRng::seed_from_u64(1);
        let mut in_place = InPlace::default();
        for step in 0..1_000u64 {
            // Steps become three times as long over the run and vary by a tenth; recording takes 4 %.
            let plain = step % 10 == 7;
            let truth = 1e6 * (1.0 + 2.0 * step as f64 / 1_000.0) * (0.95 + 0.1 * noise.random::<f64>());
            let thread = (step % 2) as u32;
            match plain {
                true => in_place.plain(thread, 3, truth as u64),
                false => in_place.recorded(thread, 3, (truth * 1.04) as u64),
            }
        }
        let figures = in_place.overhead(name).expect("measured");
        assert_eq!((figures.n_plain, figures.n_recorded), (100, 100));
        assert!((figures.ratio - 0.04).abs() < 0.015, "{figures:?}");
        let (low, high) = (figures.low.expect("an interval"), figures.high.expect("an interval"));
        assert!(low < 0.04 && 0.04 < high && high - low < 0.04, "{figures:?}");
        assert_eq!(figures.kinds["kind3"].ratio, figures.ratio);
    }

    #[test]
    fn what_steps_cost_lately_shows_soon_after_it_has_changed() {
        let mut in_place = InPlace::default();
        let mut compare = |times: u64, cost: f64| {
            for _ in 0..times {
                in_place.plain(1, 3, 1_000_000);
                in_place.recorded(1, 3, (1e6 * (1.0 + cost)) as u64);
            }
            (in_place.overhead(name).expect("measured").ratio, in_place.lately(name).expect("measured").ratio)
        };
        let (whole, lately) = compare(5_000, 0.005);
        assert!((whole - 0.005).abs() < 1e-3 && (lately - 0.005).abs() < 1e-3, "{whole} {lately}");
        let (whole, lately) = compare(500, 0.05);
        assert!(whole < 0.01 && (lately - 0.05).abs() < 1e-3, "{whole} {lately}");
    }

    #[test]
    fn nothing_is_kept_of_threads_that_have_ended() {
        let mut in_place = InPlace::default();
        for thread in 0..1_000 {
            in_place.recorded(thread, 3, 1_000);
            in_place.plain(thread, 3, 1_000);
            in_place.thread_ended(thread);
        }
        assert!(in_place.latest.is_empty() && in_place.recent.is_empty());
        assert!(in_place.overhead(name).is_some(), "but for what it showed");
    }

    #[test]
    fn steps_that_are_interrupted_do_not_count() {
        let mut noise = StdRng::seed_from_u64(3);
        let mut in_place = InPlace::default();
        for step in 0..400u64 {
            // A third of all steps take up to thirty times as long, as if something else ran meanwhile.
            let held_up = if noise.random::<f64>() < 0.33 { 1.0 + 29.0 * noise.random::<f64>() } else { 1.0 };
            match step % 4 {
                1 => in_place.plain(1, 1, (1e6 * held_up) as u64),
                _ => in_place.recorded(1, 1, (1.3e6 * held_up) as u64),
            }
        }
        let figures = in_place.overhead(name).expect("measured");
        assert!((figures.ratio - 0.3).abs() < 0.02, "{figures:?}");
    }

    #[test]
    fn the_interval_covers_what_it_says() {
        // If recording costs nothing, 95 of 100 intervals contain 0.
        let mut noise = StdRng::seed_from_u64(7);
        for n in [6, 8, 25, 60] {
            let rounds = 2_000;
            let held = (0..rounds)
                .filter(|_| {
                    let mut samples: Vec<f64> = (0..n).map(|_| noise.random::<f64>() - 0.5).collect();
                    samples.sort_by(f64::total_cmp);
                    interval(&samples).is_some_and(|(low, high)| low <= 0.0 && 0.0 <= high)
                })
                .count();
            let coverage = held as f64 / f64::from(rounds);
            assert!(coverage >= 0.94, "{n}: {coverage}");
        }
        assert_eq!(interval(&[1.0, 2.0, 3.0, 4.0, 5.0]), None, "93.8 % at best");
        let many: Vec<f64> = (0..1_000).map(f64::from).collect();
        assert_eq!(interval(&many), Some((468.0, 531.0)));
    }

    #[test]
    fn kinds_count_by_the_time_they_take() {
        let mut in_place = InPlace::default();
        for _ in 0..50 {
            // In nine tenths of the time recording costs 10 %, in one tenth nothing.
            in_place.recorded(1, 1, 9_900);
            in_place.plain(1, 1, 9_000);
            in_place.recorded(1, 2, 1_100);
            in_place.plain(1, 2, 1_100);
        }
        let figures = in_place.overhead(name).expect("measured");
        assert!((figures.ratio - 0.09).abs() < 1e-9, "{figures:?}");
        assert!((figures.kinds["kind1"].ratio - 0.1).abs() < 1e-9 && figures.kinds["kind2"].ratio.abs() < 1e-9);
    }

    #[test]
    fn without_neighbours_nothing_is_said() {
        let mut in_place = InPlace::default();
        assert_eq!(in_place.overhead(name), None);
        in_place.plain(1, 1, 100);
        in_place.plain(1, 1, 100);
        in_place.recorded(2, 1, 100);
        assert_eq!(in_place.overhead(name), None, "another thread's is none");
        in_place.recorded(1, 1, 110);
        in_place.plain(1, 1, 100);
        in_place.recorded(1, 1, 110);
        in_place.plain(1, 1, 100);
        in_place.with_kernels(1, 1, 150);
        in_place.recorded(1, 1, 900);
        let figures = in_place.overhead(name).expect("two");
        assert_eq!((figures.n_plain, figures.low), (2, None));
        assert!((figures.ratio - 0.1).abs() < 1e-9);
    }

    #[test]
    fn windows_of_kernels_are_compared_with_steps_before_the_recorder_was_switched_on() {
        let mut in_place = InPlace::default();
        (0..3).for_each(|_| in_place.with_kernels(1, 1, 5000));
        for _ in 0..10 {
            for _ in 0..6 {
                in_place.recorded(1, 1, 1000);
                in_place.plain(1, 1, 1000);
            }
            // While it is switched on, steps take longer than those of the window.
            (0..3).for_each(|_| in_place.recorded(1, 1, 1900));
            (0..12).for_each(|_| in_place.with_kernels(1, 1, 1300));
        }
        let figures = in_place.overhead(name).expect("plain steps");
        let windows = figures.windows.expect("steps with kernels");
        assert_eq!(windows.n_recorded, 80, "the first eight of each window, and none where nothing was known before");
        assert!((windows.ratio - 0.3).abs() < 1e-9 && figures.ratio.abs() < 0.1, "{figures:?}");
        assert!((in_place.window_share() - 123.0 / 213.0).abs() < 1e-9);
    }

    #[test]
    fn a_long_run_keeps_a_bounded_list() {
        let mut in_place = InPlace::default();
        for _ in 0..20_000 {
            in_place.recorded(1, 1, 105);
            in_place.plain(1, 1, 100);
        }
        assert!(in_place.kinds[&1].samples.len() <= MAX_SAMPLES);
        assert_eq!(in_place.overhead(name).map(|f| f.n_plain), Some(19_999));
    }
}
