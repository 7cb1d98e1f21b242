//! Runs held against a baseline, and against how the history of such runs went.
//!
//! A change that is too small for one comparison can be clear in the history: many runs lie on the other side of it.
//! The history also says how much days differ by themselves, without which one day beside another says nothing of a
//! change.

use super::baseline::Baseline;
use super::error::CompareFailed;
use super::history::{HistoryEntry, append, read};
use candlescope_compare::{
    ChangePoint, CompareOptions, Comparison, Day, Days, DecidedBy, LEAST_DAYS, MOST_VALUES, Outcome, RunFacts, Side,
    compare, figures_of, level_changes,
};
use candlescope_core::HostNs;
use candlescope_core::numbers::day_number;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Share of histories without a change in which one is seen long after.
const ALPHA: f64 = 0.005;
/// Times, changes long ago and changes not long ago decide, each by itself, so that they share the probability to be wrong:
/// times have half of it, and this part is for changes not long ago.
const RECENT: f64 = 0.25;
/// The figure that decides.
const STEP: &str = "step_ns";

/// A change of level of the history.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Shift {
    /// Runs of the first entry after it.
    pub runs: Vec<String>,
    /// When that was, Unix nanoseconds.
    pub time_ns: i64,
    /// Median time of a step before it, in nanoseconds.
    pub before_ns: f64,
    /// Median time of a step from there on.
    pub after_ns: f64,
    /// `after_ns` ÷ `before_ns` − 1.
    pub change: f64,
    /// Share of random orders of the history with a change as clear.
    pub p: f64,
}

/// What a gate found.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct GateResult {
    /// Version of this object.
    pub schema: u32,
    /// Whether it may pass.
    pub outcome: Outcome,
    /// Directory of the baseline.
    pub baseline: PathBuf,
    /// When the baseline was saved, Unix nanoseconds.
    pub saved_ns: i64,
    /// The comparison with the baseline.
    pub comparison: Comparison,
    /// Entries of the history since the baseline was saved, this one included.
    pub history: usize,
    /// Days that are known, those of the baseline and this one included.
    pub days: usize,
    /// Changes of its level.
    pub shifts: Vec<Shift>,
    /// Why the history that is there could not be read, if it could not: it is left as it is.
    pub not_read: Option<String>,
    /// Why this entry could not be kept in the history, if it could not.
    pub not_kept: Option<String>,
}

/// Saves runs as the baseline in `dir`, in place of the one there. The history stays, and begins anew for the gate.
///
/// # Errors
/// When the runs are not alike or have no steps, or the file cannot be written.
pub fn save(side: &Side, dir: &Path, options: &CompareOptions) -> Result<PathBuf, CompareFailed> {
    // What cannot be compared with itself is no baseline.
    compare(side, side, options)?;
    Baseline::of(side).write(dir)
}

/// Holds runs against the baseline in `dir`, and notes the result in its history.
///
/// How much days differ is learnt from the history: until it has [`LEAST_DAYS`] days, that of the baseline included,
/// times do not decide, unless the options give a floor.
///
/// # Errors
/// When there is no baseline, or it is of another machine, or the runs must not be compared with it.
pub fn gate(side: &Side, dir: &Path, options: &CompareOptions) -> Result<GateResult, CompareFailed> {
    gate_at(side, dir, options, HostNs::now().0)
}

fn gate_at(side: &Side, dir: &Path, options: &CompareOptions, now_ns: i64) -> Result<GateResult, CompareFailed> {
    let baseline = Baseline::read(dir)?;
    let before = baseline.side(dir);
    if let Some((saved, here)) = before.runs.first().zip(side.runs.first())
        && saved.fingerprint.machine != here.fingerprint.machine
    {
        return Err(CompareFailed::OtherMachine {
            path: dir.to_path_buf(),
            saved: saved.fingerprint.machine_name(),
            here: here.fingerprint.machine_name(),
        });
    }
    let (entries, not_read) = read(dir, baseline.saved_ns);
    let today = HistoryDay { runs: names(side), day: Day { time_ns: now_ns, figures: figures_of(&all(side)) } };
    let mut days = by_day(&baseline, &entries, now_ns);
    let known = Days::of(days.iter().map(|day| day.day.clone()));
    let mut comparison = compare(&before, side, &options.clone().days(known))?;
    let mut entry = HistoryEntry {
        time_ns: now_ns,
        runs: today.runs.clone(),
        step_ns: today.step_ns(),
        figures: today.day.figures.clone(),
        outcome: comparison.outcome,
    };
    days.push(today);
    let shifts = shifts(&days, comparison.margin, comparison.alpha);
    let now = shifts.last().filter(|shift| shift.change > comparison.margin);
    if now.is_some() && matches!(comparison.outcome, Outcome::Equivalent | Outcome::Undecided) {
        (comparison.outcome, comparison.decided_by) = (Outcome::Worse, Some(DecidedBy::History));
    }
    entry.outcome = comparison.outcome;
    let not_kept = append(dir, &entry).err().map(|error| error.to_string());
    Ok(GateResult {
        schema: 1,
        outcome: comparison.outcome,
        baseline: dir.to_path_buf(),
        saved_ns: baseline.saved_ns,
        history: entries.len() + 1,
        days: days.iter().map(|day| day_number(day.day.time_ns)).collect::<BTreeSet<_>>().len(),
        shifts,
        comparison,
        not_read,
        not_kept,
    })
}

fn all(side: &Side) -> Vec<&RunFacts> {
    side.runs.iter().collect()
}

fn names(side: &Side) -> Vec<String> {
    side.runs.iter().map(|run| run.run_id.clone()).collect()
}

/// A day of the history with the runs that were measured on it.
struct HistoryDay {
    runs: Vec<String>,
    day: Day,
}

impl HistoryDay {
    fn step_ns(&self) -> f64 {
        self.day.figures.get(STEP).copied().unwrap_or(0.0)
    }
}

/// Days before `now_ns`: those of the baseline, and one for each later date with entries.
fn by_day(baseline: &Baseline, entries: &[HistoryEntry], now_ns: i64) -> Vec<HistoryDay> {
    let known = baseline.runs.iter().all(|run| run.started_ns > 0);
    let of_baseline = match known {
        true => Days::of_runs(&baseline.runs),
        false => {
            vec![Day { time_ns: baseline.saved_ns, figures: figures_of(&baseline.runs.iter().collect::<Vec<_>>()) }]
        }
    };
    let last = of_baseline.last().map_or(i64::MIN, |day| day_number(day.time_ns));
    let mut later: BTreeMap<i64, Vec<&HistoryEntry>> = BTreeMap::new();
    for entry in entries {
        let day = day_number(entry.time_ns);
        if day > last && day < day_number(now_ns) {
            later.entry(day).or_default().push(entry);
        }
    }
    let figures = |entry: &HistoryEntry| match entry.figures.is_empty() {
        true => BTreeMap::from([(STEP.to_string(), entry.step_ns)]),
        false => entry.figures.clone(),
    };
    let day = |entries: Vec<&HistoryEntry>| {
        let of_day = entries.iter().map(|entry| Day { time_ns: entry.time_ns, figures: figures(entry) });
        let runs = entries.iter().flat_map(|entry| entry.runs.clone()).collect();
        Some(HistoryDay { runs, day: Days::of(of_day).days().first()?.clone() })
    };
    let first = of_baseline.into_iter().map(|day| HistoryDay { runs: Vec::new(), day });
    first.chain(later.into_values().filter_map(day)).collect()
}

/// Changes of level among the days, of which the last one is today.
fn shifts(days: &[HistoryDay], margin: f64, alpha: f64) -> Vec<Shift> {
    let usable: Vec<&HistoryDay> = days.iter().filter(|day| day.step_ns() > 0.0).collect();
    let all = &usable[usable.len().saturating_sub(MOST_VALUES)..];
    let logs: Vec<f64> = all.iter().map(|day| day.step_ns().ln()).collect();
    let shift = |point: ChangePoint| Shift {
        runs: all[point.at].runs.clone(),
        time_ns: all[point.at].day.time_ns,
        before_ns: point.before.exp(),
        after_ns: point.after.exp(),
        change: (point.after - point.before).exp_m1(),
        p: point.p,
    };
    level_changes(&logs, ALPHA, LEAST_DAYS, margin, alpha * RECENT).into_iter().map(shift).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use candlescope_compare::{Doubt, KindFacts, RunFigure};
    use candlescope_core::numbers::DAY_NS;
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};

    /// A machine whose days differ.
    struct Machine {
        random: StdRng,
        /// How much slower than usual this day is, as a logarithm, its standard deviation, and the share of it that the
        /// next day has, too.
        day: f64,
        days_differ: f64,
        passed_on: f64,
        now_ns: i64,
    }

    impl Machine {
        fn new(seed: u64, days_differ: f64, passed_on: f64) -> Self {
            let mut machine =
                Self { random: StdRng::seed_from_u64(seed), day: 0.0, days_differ, passed_on, now_ns: DAY_NS };
            machine.day = days_differ * machine.normal();
            machine
        }

        /// About normal, with a standard deviation of 1.
        fn normal(&mut self) -> f64 {
            (0..12).map(|_| self.random.random::<f64>() - 0.5).sum()
        }

        /// Six runs of the next day, of a program that is slower by `slower`.
        fn next(&mut self, slower: f64) -> Side {
            self.now_ns += DAY_NS;
            self.day = self.passed_on * self.day
                + (1.0 - self.passed_on * self.passed_on).sqrt() * self.days_differ * self.normal();
            let run = |n: i64, machine: &mut Self| {
                let took = 1e6 * (machine.day + slower + 0.01 * machine.normal()).exp();
                let kind = KindFacts { steps: 64, host_ns: RunFigure::whole(took), ..KindFacts::default() };
                RunFacts {
                    run_id: format!("{}-{n}", machine.now_ns / DAY_NS),
                    started_ns: machine.now_ns + n * 1_000_000_000,
                    kinds: [("decode".to_string(), kind)].into(),
                    step_ns: Some(RunFigure::whole(took)),
                    ..RunFacts::default()
                }
            };
            Side { name: "today".to_string(), runs: (0..6).map(|n| run(n, self)).collect() }
        }
    }

    /// Uses a gate on so many days, with a change from one of them on; what it said each time.
    fn history(machine: &mut Machine, uses: usize, change: Option<(usize, f64)>) -> Vec<GateResult> {
        let dir = tempfile::tempdir().unwrap();
        let first = machine.next(0.0);
        Baseline { saved_ns: machine.now_ns, ..Baseline::of(&first) }.write(dir.path()).unwrap();
        let used = (1..=uses).map(|n| {
            let side = machine.next(change.filter(|(from, _)| n >= *from).map_or(0.0, |(_, by)| by));
            let now_ns = machine.now_ns + 3_600_000_000_000;
            gate_at(&side, dir.path(), &CompareOptions::default(), now_ns).unwrap()
        });
        used.collect()
    }

    fn wrong(results: &[GateResult]) -> usize {
        results.iter().filter(|result| matches!(result.outcome, Outcome::Worse | Outcome::Better)).count()
    }

    #[test]
    fn days_that_differ_are_no_change() {
        for (days_differ, passed_on) in [(0.01, 0.0), (0.01, 0.8), (0.002, 0.0), (0.03, 0.5)] {
            let of = |seed: u64| history(&mut Machine::new(seed, days_differ, passed_on), 24, None);
            let all: Vec<Vec<GateResult>> = (0..8).map(of).collect();
            let wrong: usize = all.iter().map(|results| wrong(results)).sum();
            assert!(wrong <= 4, "{wrong} of 192 with days that differ by {days_differ}, {passed_on} passed on");
            let named = all.iter().filter(|results| results.iter().any(|result| !result.shifts.is_empty())).count();
            assert!(named <= 2, "a change of level in {named} of 8 histories");
        }
    }

    #[test]
    fn a_change_is_found_after_a_few_days() {
        for (passed_on, wanted) in [(0.0, 7), (0.8, 9)] {
            let found = |seed: u64| {
                let results = history(&mut Machine::new(100 + seed, 0.01, passed_on), 16, Some((12, 0.04)));
                let early = wrong(&results[..11]);
                early == 0 && results[11..].iter().any(|result| result.outcome == Outcome::Worse)
            };
            let found = (0..10).filter(|seed| found(*seed)).count();
            assert!(found >= wanted, "{found} of 10, {passed_on} passed on");
        }
    }

    #[test]
    fn until_days_are_known_only_a_floor_decides() {
        let mut machine = Machine::new(7, 0.01, 0.0);
        let results = history(&mut machine, 5, Some((1, 0.5)));
        let outcomes: Vec<Outcome> = results.iter().map(|result| result.outcome).collect();
        assert_eq!(outcomes[..LEAST_DAYS - 1], [Outcome::Undecided; LEAST_DAYS - 1], "{outcomes:?}");
        let step = results[0].comparison.step.as_ref().unwrap().estimate.unwrap();
        assert_eq!((step.doubt, step.low), (Some(Doubt::FewDays { known: 1, needed: LEAST_DAYS }), None));

        let dir = tempfile::tempdir().unwrap();
        Baseline::of(&machine.next(0.0)).write(dir.path()).unwrap();
        let told = CompareOptions::default().floor(Some(0.05));
        let found = gate(&machine.next(0.5), dir.path(), &told).unwrap();
        assert_eq!(found.outcome, Outcome::Worse);
    }

    /// The simulations of [`days_that_differ_are_no_change`], ten times as many.
    #[test]
    #[ignore = "a minute"]
    fn days_that_differ_are_no_change_in_2000_uses() {
        let small = [(0.01, 0.0), (0.01, 0.8), (0.01, 0.9), (0.002, 0.0)];
        let large = [(0.03, 0.0), (0.03, 0.5), (0.03, 0.8), (0.03, 0.9), (0.06, 0.0)];
        for (days_differ, passed_on) in small.into_iter().chain(large) {
            let of = |seed: u64| wrong(&history(&mut Machine::new(1_000 + seed, days_differ, passed_on), 24, None));
            let wrong: usize = (0..84).map(of).sum();
            println!("days differ by {days_differ}, {passed_on} passed on: {wrong} of 2,016 uses wrong");
            assert!(wrong <= 40, "{wrong} of 2,016 with days that differ by {days_differ}, {passed_on} passed on");
        }
    }

    #[cfg(unix)]
    #[test]
    fn a_history_that_is_a_link_or_a_pipe_is_not_written() {
        let mut machine = Machine::new(1, 0.01, 0.0);
        for pipe in [false, true] {
            let dir = tempfile::tempdir().unwrap();
            Baseline::of(&machine.next(0.0)).write(dir.path()).unwrap();
            let (history, target) = (dir.path().join(super::super::HISTORY_FILE), dir.path().join("target"));
            std::fs::write(&target, "theirs").unwrap();
            match pipe {
                true => assert!(std::process::Command::new("mkfifo").arg(&history).status().unwrap().success()),
                false => std::os::unix::fs::symlink(&target, &history).unwrap(),
            }
            let found = gate(&machine.next(0.0), dir.path(), &CompareOptions::default()).unwrap();
            let reason = found.not_kept.expect("it cannot be kept");
            let wanted = if pipe { "a named pipe" } else { "a symbolic link" };
            assert!(reason.contains(wanted) && reason.contains("history.jsonl"), "{reason}");
            let reason = found.not_read.expect("nor read");
            assert!(reason.contains(wanted) && reason.contains("history.jsonl"), "{reason}");
            assert_eq!(std::fs::read(&target).unwrap(), b"theirs");
        }
    }
}
