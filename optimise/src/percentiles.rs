//! Percentiles over the requests of several runs, held against their limits.

use crate::options::LEAST_PAIRS;
use candlescope_compare::{GoodputChange, Outcome};
use candlescope_core::Outcome as RequestOutcome;
use candlescope_core::numbers::duration;
use candlescope_figures::{Analysis, RequestFigures};
use candlescope_reader::{ReadLimits, Run};
use candlescope_work::slo::{PercentileLimit, Slo, SloFigure};

/// What is clear is so many standard errors away from what is not.
const CLEAR: f64 = 2.0;

/// Where the percentiles of a side are against their limits, by all of its requests; what is worse comes later.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) enum Level {
    /// All are within, whichever of such runs had been taken; or none has a limit.
    #[default]
    Within,
    /// All are within, and other runs of the same might not be.
    HardlyWithin,
    /// One is above, and in other runs of the same it might not be.
    HardlyAbove,
    /// One is above, whichever of such runs had been taken.
    Above,
}

/// What the percentiles of a side come to.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct LimitCheck {
    pub(crate) level: Level,
    /// The percentile that is above its limit, in words.
    pub(crate) above: Option<String>,
    /// Runs that could not be read any more: their requests are not among those.
    pub(crate) unread: usize,
}

/// Both sides, before and after.
pub(crate) type Sides = [LimitCheck; 2];

/// Holds the percentiles over the measured requests of all `runs` against their limits.
pub(crate) fn held(runs: &[String], slo: &Slo, limits: &ReadLimits) -> LimitCheck {
    if !slo.limits_percentiles() {
        return LimitCheck::default();
    }
    let of_run = |run: Run| -> Vec<RequestFigures> {
        Analysis::of(&run).latency.requests.into_iter().filter(|request| !request.warmup).collect()
    };
    let requests: Vec<Option<Vec<RequestFigures>>> =
        runs.iter().map(|run| Run::open_within(run, limits.clone()).ok().map(of_run)).collect();
    let unread = requests.iter().filter(|run| run.is_none()).count();
    let read: Vec<Vec<RequestFigures>> = requests.into_iter().flatten().collect();
    if read.is_empty() && unread > 0 {
        let above = Some(format!("none of {unread} runs can be read for its percentiles"));
        return LimitCheck { level: Level::HardlyAbove, above, unread };
    }
    let held = of_requests(&read, slo);
    // What is missing may be what would have told.
    let level = match held.level {
        Level::Within if unread > 0 => Level::HardlyWithin,
        Level::Above if unread > 0 => Level::HardlyAbove,
        level => level,
    };
    LimitCheck { level, unread, ..held }
}

/// Of the requests of each run.
fn of_requests(runs: &[Vec<RequestFigures>], slo: &Slo) -> LimitCheck {
    let mut worst = LimitCheck::default();
    for limit in slo.percentiles() {
        let times: Vec<Vec<f64>> = runs.iter().map(|requests| times(requests, limit.figure)).collect();
        let held = of_times(&times, &limit);
        if held.level > worst.level {
            worst = held;
        }
    }
    worst
}

/// The times of the requests that have the figure, in nanoseconds: infinite where one failed or does not say it.
fn times(requests: &[RequestFigures], figure: SloFigure) -> Vec<f64> {
    let has_it = |request: &&RequestFigures| {
        let sequences = u64::from(request.batch.unwrap_or(1).max(1));
        // A single token has no time per output token.
        figure != SloFigure::Tpot || request.output_tokens.is_none_or(|tokens| tokens == 0 || tokens > sequences)
    };
    let time = |request: &RequestFigures| {
        let ns = match figure {
            SloFigure::Ttft => request.ttft_ns.map(|ns| ns as f64),
            SloFigure::Tpot => request.tpot_ns,
            SloFigure::E2e => request.e2e_ns.map(|ns| ns as f64),
        };
        ns.filter(|_| matches!(request.outcome, None | Some(RequestOutcome::Done))).unwrap_or(f64::INFINITY)
    };
    requests.iter().filter(has_it).map(time).collect()
}

/// One percentile, of the times of each run.
fn of_times(runs: &[Vec<f64>], limit: &PercentileLimit) -> LimitCheck {
    let all = runs.concat();
    let requests = all.len();
    let Some(reached) = limit.reached(all) else { return LimitCheck::default() };
    // The share that may be above, and by how many requests each run has more of them. What makes one request of a run slow makes
    // others slow: runs are what is independent.
    let share = f64::from(100 - limit.percent) / 100.0;
    let most = limit.limit_ns as f64;
    let more = |times: &Vec<f64>| times.iter().filter(|time| **time > most).count() as f64 - share * times.len() as f64;
    let more: Vec<f64> = runs.iter().map(more).collect();
    let (sum, n) = (more.iter().sum::<f64>(), more.len() as f64);
    let squares: f64 = more.iter().map(|more| (more - sum / n).powi(2)).sum();
    let needed = (1.0 / share).round() as usize;
    let too_few = runs.len() < LEAST_PAIRS || requests < needed;
    let is_clear = !too_few && sum.abs() > CLEAR * (squares * n / (n - 1.0)).sqrt();
    if reached <= most {
        let level = if is_clear { Level::Within } else { Level::HardlyWithin };
        return LimitCheck { level, ..LimitCheck::default() };
    }
    let is = if reached.is_finite() { format!("is {}", duration(reached)) } else { "has no end".to_string() };
    let above = format!("{limit} of {requests} requests {is}, above the limit of {}", duration(most));
    let (level, above) = match () {
        () if is_clear => (Level::Above, above),
        () if too_few => {
            let words = format!("{above}, of which {needed} requests and {LEAST_PAIRS} runs would tell more");
            (Level::HardlyAbove, words)
        }
        () => (Level::HardlyAbove, format!("{above}, which may be by chance, as runs differ")),
    };
    LimitCheck { level, above: Some(above), unread: 0 }
}

/// A change of goodput where a side that is clearly above a percentile's limit keeps the limits not at all. What is not clear makes
/// nothing better.
pub(crate) fn counted(change: GoodputChange, sides: &Sides) -> GoodputChange {
    let [before, after] = sides.each_ref().map(|side| side.level);
    let is_above = |level: Level| level >= Level::HardlyAbove;
    let but = |from: Outcome, to: Outcome| if change.outcome == from { to } else { change.outcome };
    // All requests of a side were looked at together: there is no interval.
    match (is_above(before), is_above(after)) {
        (false, false) => change,
        (false, true) if after == Level::Above && change.before > 0.0 => {
            GoodputChange { after: 0.0, interval: None, outcome: Outcome::Worse, ..change }
        }
        (false, true) => GoodputChange { outcome: but(Outcome::Better, Outcome::Undecided), ..change },
        (true, false) if before == Level::Above && change.after > 0.0 => {
            // Fewer requests a second of which enough are within are better than more of which too few are, if both is clear.
            let outcome = match change.outcome {
                Outcome::Worse if after != Level::Within => Outcome::Undecided,
                _ => Outcome::Better,
            };
            GoodputChange { before: 0.0, interval: None, outcome, ..change }
        }
        (true, false) => GoodputChange { outcome: but(Outcome::Equivalent, Outcome::Undecided), ..change },
        // Neither keeps its level: what is nearer to it is told by the requests that keep the other limits.
        (true, true) if after > before => GoodputChange { outcome: but(Outcome::Better, Outcome::Undecided), ..change },
        (true, true) => change,
    }
}

/// Whether a percentile is above its limit, by however little, and none was before.
pub(crate) fn is_newly_above(sides: &Sides) -> bool {
    sides[0].above.is_none() && sides[1].above.is_some()
}

/// What is said of it after a verdict.
pub(crate) fn in_words(sides: &Sides) -> String {
    let words = match sides.each_ref().map(|side| side.above.as_deref()) {
        [Some(before), Some(after)] => {
            format!("; both sides are above the limit of a percentile: before, {before}; after, {after}")
        }
        [Some(before), None] => format!("; before, {before}, and now all percentiles are within their limits"),
        [None, Some(after)] => format!("; {after}"),
        [None, None] => String::new(),
    };
    words + &unread(sides)
}

/// The runs that are in no percentile, in words; empty where there are none.
pub(crate) fn unread(sides: &Sides) -> String {
    match sides.iter().map(|side| side.unread).sum::<usize>() {
        0 => String::new(),
        1 => "; a run cannot be read any more, and is in no percentile".to_string(),
        runs => format!("; {runs} runs cannot be read any more, and are in no percentile"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(ttft_ms: u64) -> RequestFigures {
        RequestFigures { ttft_ns: Some(ttft_ms * 1_000_000), output_tokens: Some(4), ..RequestFigures::default() }
    }

    /// Runs of 20 requests each, of which so many are above a limit of 100 ms.
    fn runs(slow: &[u64]) -> Vec<Vec<RequestFigures>> {
        let of = |slow: &u64| (0..20).map(|n| request(if n < *slow { 150 } else { 50 })).collect();
        slow.iter().map(of).collect()
    }

    #[test]
    fn a_percentile_is_that_of_all_requests() {
        let slo: Slo = "ttft_p90=100ms".parse().unwrap();
        assert_eq!(of_requests(&runs(&[2]), &slo).above, None, "two of twenty may be slower");
        let words = of_requests(&runs(&[3]), &slo).above.unwrap();
        assert!(words.starts_with("ttft_p90 of 20 requests is 150") && words.contains("the limit of 100"), "{words}");
        let failed = RequestFigures { outcome: Some(RequestOutcome::Failed), ..request(1) };
        let words = of_requests(&[vec![failed]], &slo).above.unwrap();
        assert!(words.contains("has no end"), "{words}");
    }

    #[test]
    fn a_few_requests_or_one_run_make_nothing_clear() {
        let level = |limit: &str, slow: &[u64]| of_requests(&runs(slow), &limit.parse().unwrap()).level;
        let (p90, p99) = ("ttft_p90=100ms", "ttft_p99=100ms");
        assert_eq!(level(p90, &[4; 8]), Level::Above, "a fifth of each run");
        assert_eq!(level(p90, &[0; 8]), Level::Within);
        assert_eq!(level(p90, &[4; 7]), Level::HardlyAbove, "seven runs");
        // Three of 160 are too many for the 99th percentile: all of one run, or of several.
        assert_eq!(level(p99, &[3, 0, 0, 0, 0, 0, 0, 0]), Level::HardlyAbove);
        assert_eq!(level(p99, &[1; 8]), Level::Above);
        assert_eq!(level(p99, &[1, 0, 0, 0, 0, 0, 0, 0]), Level::HardlyWithin);
        // Of fewer than a hundred requests the 99th percentile is the slowest.
        let few: Vec<Vec<RequestFigures>> = runs(&[1; 8]).into_iter().map(|run| run[..6].to_vec()).collect();
        let held = of_requests(&few, &p99.parse().unwrap());
        assert_eq!(held.level, Level::HardlyAbove);
        let words = held.above.unwrap();
        assert!(words.contains("of 48 requests") && words.contains("100 requests and 8 runs"), "{words}");
        assert_eq!(level("ttft_p50=1s", &[4; 8]), Level::Within);
        // The worst of several limits counts.
        assert_eq!(level("ttft_p50=1s,ttft_p90=100ms,ttft_p99=1s", &[4; 8]), Level::Above);
    }

    #[test]
    fn runs_that_are_gone_are_counted_and_told() {
        let (slo, limits) = ("ttft_p99=1s".parse::<Slo>().unwrap(), ReadLimits::default());
        let gone = ["/nowhere/a".to_string(), "/nowhere/b".to_string()];
        let held = held(&gone, &slo, &limits);
        assert_eq!((held.level, held.unread), (Level::HardlyAbove, 2));
        let words = in_words(&[LimitCheck::default(), held]);
        assert!(
            words.contains("none of 2 runs can be read") && words.contains("2 runs cannot be read any more"),
            "{words}"
        );
    }

    #[test]
    fn a_side_that_is_clearly_above_a_percentile_has_no_goodput() {
        use Level::{Above, HardlyAbove, HardlyWithin, Within};
        use Outcome::{Better, Equivalent, Undecided, Worse};
        let of = |outcome: Outcome, before: Level, after: Level| {
            let change = GoodputChange { before: 3.0, after: 2.0, interval: Some((-1.5, -0.5)), outcome, pairs: 9 };
            let counted = counted(change, &[before, after].map(|level| LimitCheck { level, ..LimitCheck::default() }));
            (counted.before, counted.after, counted.outcome, counted.interval.is_some())
        };
        for outcome in [Better, Equivalent, Undecided, Worse] {
            assert_eq!(of(outcome, Within, HardlyWithin), (3.0, 2.0, outcome, true));
            assert_eq!(of(outcome, Within, Above), (3.0, 0.0, Worse, false));
            assert_eq!(of(outcome, Above, Within), (0.0, 2.0, Better, false), "both is clear");
            // Both are above: what requests say by themselves.
            assert_eq!(of(outcome, Above, Above), (3.0, 2.0, outcome, true));
            assert_eq!(of(outcome, Above, HardlyAbove), (3.0, 2.0, outcome, true));
        }
        // What is not clear makes nothing better, and nothing that is worse anything else.
        assert_eq!(of(Better, Within, HardlyAbove), (3.0, 2.0, Undecided, true));
        assert_eq!(of(Worse, Within, HardlyAbove), (3.0, 2.0, Worse, true));
        assert_eq!(of(Worse, HardlyAbove, Within), (3.0, 2.0, Worse, true));
        assert_eq!(of(Equivalent, HardlyAbove, Within), (3.0, 2.0, Undecided, true));
        assert_eq!(of(Better, HardlyAbove, Within), (3.0, 2.0, Better, true));
        assert_eq!(of(Worse, Above, HardlyWithin), (0.0, 2.0, Undecided, false));
        assert_eq!(of(Better, HardlyAbove, Above), (3.0, 2.0, Undecided, true));
    }

    #[test]
    fn both_sides_above_a_limit_are_told_in_words_of_their_own() {
        let above = |words: &str| LimitCheck { level: Level::Above, above: Some(words.to_string()), unread: 0 };
        let words = in_words(&[above("ttft_p99 is 4 s"), above("ttft_p99 is 3 s")]);
        assert_eq!(
            words,
            "; both sides are above the limit of a percentile: before, ttft_p99 is 4 s; after, ttft_p99 is 3 s"
        );
    }
}
