//! Two settings run in turns.

use crate::account::{BeforeAfter, MeasuredGain};
use crate::facts::Facts;
use crate::options::LEAST_PAIRS;
use crate::percentiles::{self, Sides};
use crate::words::GOODPUT;
use candlescope_compare::{CompareOptions, Comparison, GoodputChange, Outcome, SideInfo};
use candlescope_core::numbers::{duration, percent};
use candlescope_core::run::result_key;
use candlescope_lab::compare::{CompareFailed, PairOptions, PairsEnded, TakenRun, take_pairs};
use candlescope_lab::method::Cancel;
use candlescope_reader::{ReadLimits, Run};
use candlescope_work::slo::Slo;
use std::path::Path;
use std::time::{Duration, Instant};

/// Differences between the sides that are the change itself.
pub(crate) const ALLOWED: [&str; 6] = ["options", "dtype", "clocks", "recording", "batch", "threads"];

/// How a trial is made.
#[derive(Debug)]
pub(crate) struct TrialOptions<'a> {
    pub(crate) out: &'a Path,
    pub(crate) most: usize,
    pub(crate) seed: u64,
    pub(crate) time_limit: Duration,
    pub(crate) deadline: Instant,
    pub(crate) limits: &'a ReadLimits,
    /// Whether the work is cut into other steps on one side: the mean context of a step is another one then. `None`
    /// where the runs have to tell.
    pub(crate) other_steps: Option<bool>,
    /// Limits of requests whose goodput decides; `None` where the time of a step does.
    pub(crate) goodput: Option<Slo>,
    /// The figure of requests that decides in place of the time of a step, where steps are others than before.
    pub(crate) figure: Option<&'static str>,
    /// Limits of requests, of which those of percentiles are held against all requests of a side.
    pub(crate) slo: Slo,
}

/// What came out of a trial.
#[derive(Debug)]
pub(crate) struct Trial {
    pub(crate) comparison: Comparison,
    pub(crate) samples_ns: Vec<[f64; 2]>,
    /// Whether the work was cut into other steps on one side.
    pub(crate) other_steps: bool,
    /// Whether all runs wrote the same tokens; `None` if a run does not tell, or [`tokens_vary`](Self::tokens_vary).
    pub(crate) same_tokens: Option<bool>,
    /// Whether the program as it was writes other tokens each time, so that those of the change tell nothing.
    pub(crate) tokens_vary: bool,
    /// How goodput changed, where it decides and runs have requests.
    pub(crate) goodput: Option<GoodputChange>,
    /// What the percentiles of each side come to.
    pub(crate) percentiles: Sides,
}

/// Why a trial came to nothing.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TrialFailed {
    /// Its time was over before the first pair of runs that counts: how long a pair takes, in words.
    #[error("{0}")]
    NoPair(String),
    /// A program failed, or the two cannot be compared.
    #[error(transparent)]
    Runs(#[from] CompareFailed),
}

impl TrialFailed {
    /// No pair fitted into the time that it `had`, because one takes so long.
    fn no_pair(had: Duration, pair: Duration) -> Self {
        // A run of each side stands before the pairs.
        let needs = pair.mul_f64((LEAST_PAIRS + 1) as f64);
        let [had, pair, needs] = [had, pair, needs].map(|time| duration(time.as_nanos() as f64));
        Self::NoPair(format!(
            "no pair of runs fitted into its time: it had {had}, a run of each side takes about {pair}, and \
             {LEAST_PAIRS} pairs with one before them take about {needs}; `--resume` with a larger `--budget` tries it again"
        ))
    }
}

/// Runs both commands in turns. `None` if it was interrupted.
pub(crate) fn trial(
    (before, after): (&str, &str),
    options: &TrialOptions<'_>,
    cancel: &Cancel,
    observe: impl FnMut(TakenRun),
) -> Result<Option<Trial>, TrialFailed> {
    let compare = |other_steps: bool| {
        let of_steps = other_steps.then_some("tokens");
        CompareOptions::default().allow(ALLOWED.into_iter().chain(of_steps).map(str::to_string).collect())
    };
    let known = options.other_steps;
    let pairs = PairOptions::new(options.out)
        .most(options.most)
        .least(LEAST_PAIRS.min(options.most))
        .seed(options.seed)
        .time_limit(Some(options.time_limit))
        .deadline(Some(options.deadline))
        .step_decides(true)
        .figure_decides(options.figure.filter(|_| known == Some(true)))
        .goodput(options.goodput)
        .compare(compare(known == Some(true)))
        .limits(options.limits.clone());
    let pairs = match known {
        Some(_) => pairs,
        None => pairs.where_steps_are_others(options.figure, compare(true)),
    };
    let began = Instant::now();
    let taken = take_pairs((before, after), &pairs, cancel, observe)?;
    let other_steps = known.unwrap_or(taken.other_steps);
    // What was interrupted is made again by whoever goes on.
    if taken.ended == PairsEnded::Cancelled {
        return Ok(None);
    }
    let Some(comparison) = taken.comparison else {
        // An interrupt that no program noticed is one all the same.
        if cancel.is_cancelled() {
            return Ok(None);
        }
        // Those before the pairs, and those that lost records.
        let pairs = (1 + taken.spoiled) as f64;
        let had = options.deadline.saturating_duration_since(began);
        return Err(TrialFailed::no_pair(had, began.elapsed().div_f64(pairs)));
    };
    let open = |run: &String| Run::open_within(run, options.limits.clone()).ok();
    let digest = |run: &String| Some(result_key::OUTPUT_SHA256.of(&open(run)?.manifest()?.results)?.to_string());
    let digests = |side: &SideInfo| side.runs.iter().map(digest).collect::<Vec<_>>();
    let (same_tokens, tokens_vary) = tokens(&digests(&comparison.a), &digests(&comparison.b));
    // Of sequences that draw, each draws its own: more of them write more.
    let draws = || comparison.a.runs.first().and_then(open)?.manifest().map(|manifest| Facts::of(manifest).draws);
    let same_tokens = same_tokens.filter(|same| *same || !comparison.per_sequence || draws() != Some(true));
    let percentiles =
        [&comparison.a, &comparison.b].map(|side| percentiles::held(&side.runs, &options.slo, options.limits));
    let goodput = taken.goodput.map(|change| percentiles::counted(change, &percentiles));
    let samples_ns = taken.samples;
    Ok(Some(Trial { comparison, samples_ns, other_steps, same_tokens, tokens_vary, goodput, percentiles }))
}

/// Whether runs with the change wrote what those before it did, by the digests of all runs, and whether those before it
/// differ among themselves.
fn tokens(before: &[Option<String>], after: &[Option<String>]) -> (Option<bool>, bool) {
    let mut known = before.iter().flatten();
    let Some(first) = known.next() else { return (None, false) };
    if known.any(|other| other != first) {
        return (None, true);
    }
    let differs = after.iter().flatten().any(|other| other != first);
    let all_tell = before.iter().chain(after).all(Option::is_some) && !after.is_empty();
    (if differs { Some(false) } else { all_tell.then_some(true) }, false)
}

impl Trial {
    /// What the time of a step comes to. That other work is done, such as more FLOPs for less time, is no loss here.
    pub(crate) fn outcome(&self) -> Outcome {
        self.comparison.step.as_ref().and_then(|step| step.outcome).unwrap_or(Outcome::Undecided)
    }

    /// What the step gains.
    pub(crate) fn obtained(&self) -> Option<MeasuredGain> {
        let estimate = self.comparison.step.as_ref()?.estimate?;
        // A change of −10 % is a gain of 10 %.
        Some(MeasuredGain {
            gain: -estimate.change,
            low: estimate.high.map(|high| -high),
            high: estimate.low.map(|low| -low),
        })
    }

    /// What requests gain by this figure: less time, or more tokens a second.
    pub(crate) fn obtained_of(&self, figure: &str) -> Option<MeasuredGain> {
        let change = self.comparison.figures.iter().find(|known| known.name == figure)?.estimate?;
        // Of tokens a second, more is better: a token takes the reciprocal.
        let gain = |by: f64| if figure == "output_tps" { 1.0 - 1.0 / (1.0 + by) } else { -by };
        let (low, high) = (change.low.map(gain), change.high.map(gain));
        let (low, high) = if figure == "output_tps" { (low, high) } else { (high, low) };
        Some(MeasuredGain { gain: gain(change.change), low, high })
    }

    /// Figures before and after.
    pub(crate) fn figures(&self) -> Vec<BeforeAfter> {
        let all = self.comparison.step.iter().chain(&self.comparison.figures);
        let one = |change: &candlescope_compare::FigureChange| BeforeAfter {
            name: change.name.clone(),
            before: change.a,
            after: change.b,
            change: change.estimate.map(|estimate| (estimate.change, estimate.low, estimate.high)),
        };
        let mut figures: Vec<BeforeAfter> = all.map(one).collect();
        // A share of nothing is none.
        let change = |good: &GoodputChange| {
            let share = |by: f64| by / good.before;
            let (low, high) = good.interval.filter(|_| good.before > 0.0)?;
            Some((share(good.after - good.before), Some(share(low)), Some(share(high))))
        };
        figures.extend(self.goodput.iter().map(|good| BeforeAfter {
            name: GOODPUT.to_string(),
            before: good.before,
            after: good.after,
            change: change(good),
        }));
        figures
    }

    /// The first of these figures that clearly became worse, in words.
    pub(crate) fn worse(&self, names: &[&str]) -> Option<String> {
        let worse = self
            .comparison
            .figures
            .iter()
            .find(|figure| names.contains(&figure.name.as_str()) && figure.outcome == Some(Outcome::Worse))?;
        let estimate = worse.estimate?;
        Some(format!("{} became worse, by {}", worse.name, percent(estimate.change.abs())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_those_of_every_run() {
        let of = |before: &[&str], after: &[&str]| {
            let digests = |runs: &[&str]| -> Vec<Option<String>> {
                runs.iter().map(|run| Some(run.to_string()).filter(|run| !run.is_empty())).collect()
            };
            tokens(&digests(before), &digests(after))
        };
        assert_eq!(of(&["x", "x"], &["x", "x"]), (Some(true), false));
        // Right in its first run, and wrong from the second one on; also where another one does not tell.
        assert_eq!(of(&["x", "x"], &["x", "y"]), (Some(false), false));
        assert_eq!(of(&["x", "x", "x"], &["x", "", "y"]), (Some(false), false));
        assert_eq!(of(&["x", "x"], &["x", ""]), (None, false), "a run that says nothing may be wrong");
        assert_eq!(of(&["", ""], &["x", "x"]), (None, false));
        // A program that draws anew at each start is no measure of others.
        assert_eq!(of(&["x", "y"], &["z", "z"]), (None, true));
    }
}
