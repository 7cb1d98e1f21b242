//! Two settings run in turns.

use crate::account::{BeforeAfter, Obtained, Promise};
use crate::words::gain;
use candlescope_compare::{CompareOptions, Comparison, Outcome};
use candlescope_core::numbers::{duration, percent};
use candlescope_core::run::result_key;
use candlescope_lab::compare::{CompareFailed, PairOptions, PairsEnded, TakenRun, take_pairs};
use candlescope_lab::method::Cancel;
use candlescope_reader::{ReadLimits, Run};
use std::path::Path;
use std::time::{Duration, Instant};

/// Fewest pairs: fewer have no interval.
pub(crate) const LEAST_PAIRS: usize = 8;

/// Differences between the sides that are the change itself.
pub(crate) const ALLOWED: [&str; 5] = ["options", "dtype", "clocks", "recording", "batch"];

/// How a trial is made.
#[derive(Debug)]
pub(crate) struct TrialOptions<'a> {
    pub(crate) out: &'a Path,
    pub(crate) most: usize,
    pub(crate) seed: u64,
    pub(crate) time_limit: Duration,
    pub(crate) deadline: Instant,
    pub(crate) limits: &'a ReadLimits,
}

/// What came out of a trial.
#[derive(Debug)]
pub(crate) struct Trial {
    pub(crate) comparison: Comparison,
    pub(crate) samples_ns: Vec<[f64; 2]>,
    /// Whether both wrote the same tokens; `None` if a run does not tell.
    pub(crate) same_tokens: Option<bool>,
}

/// Runs both commands in turns. `None` if it was interrupted.
pub(crate) fn trial(
    (before, after): (&str, &str),
    options: &TrialOptions<'_>,
    cancel: &Cancel,
    observe: impl FnMut(TakenRun),
) -> Result<Option<Trial>, CompareFailed> {
    let compare = CompareOptions::default().allow(ALLOWED.map(str::to_string).to_vec());
    let pairs = PairOptions::new(options.out)
        .most(options.most)
        .least(LEAST_PAIRS.min(options.most))
        .seed(options.seed)
        .time_limit(Some(options.time_limit))
        .deadline(Some(options.deadline))
        .step_decides(true)
        .compare(compare)
        .limits(options.limits.clone());
    let taken = take_pairs((before, after), &pairs, cancel, observe)?;
    // What was interrupted is made again by whoever goes on.
    let Some(comparison) = taken.comparison.filter(|_| taken.ended != PairsEnded::Cancelled) else { return Ok(None) };
    let digest = |side: &candlescope_compare::SideInfo| {
        let run = Run::open(side.runs.first()?).ok()?;
        Some(result_key::OUTPUT_SHA256.of(&run.manifest()?.results)?.to_string())
    };
    let same_tokens = digest(&comparison.a).zip(digest(&comparison.b)).map(|(a, b)| a == b);
    Ok(Some(Trial { comparison, samples_ns: taken.samples, same_tokens }))
}

impl Trial {
    /// What the time of a step comes to. That other work is done, such as more FLOPs for less time, is no loss here.
    pub(crate) fn outcome(&self) -> Outcome {
        self.comparison.step.as_ref().and_then(|step| step.outcome).unwrap_or(Outcome::Undecided)
    }

    /// What the step gains.
    pub(crate) fn obtained(&self) -> Option<Obtained> {
        let estimate = self.comparison.step.as_ref()?.estimate?;
        // A change of −10 % is a gain of 10 %.
        Some(Obtained {
            gain: -estimate.change,
            low: estimate.high.map(|high| -high),
            high: estimate.low.map(|low| -low),
        })
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
        all.map(one).collect()
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

    /// Where the time went that the promise did not see.
    pub(crate) fn second_look(&self, promised: &Promise) -> Vec<String> {
        let mut said = Vec::new();
        let Some(obtained) = self.obtained() else { return said };
        let side = if obtained.gain > promised.high { "more" } else { "less" };
        said.push(format!(
            "{side} than promised: {} for {} ({} to {})",
            gain(obtained.gain),
            gain(promised.mid),
            gain(promised.low),
            gain(promised.high)
        ));
        for figure in self.comparison.figures.iter().filter(|figure| figure.name.starts_with("step_ns ")) {
            let kind = figure.name.trim_start_matches("step_ns ");
            said.push(format!("a step `{kind}` took {} and takes {}", duration(figure.a), duration(figure.b)));
        }
        let changed = self.comparison.modules.changed.iter().take(3);
        said.extend(changed.map(|path| {
            let (before, after) = (duration(path.a_ns), duration(path.b_ns));
            format!("`{}` took {before} of a step and takes {after}", path.path)
        }));
        let functions = self.comparison.functions.iter().flat_map(|functions| functions.changed.iter().take(3));
        said.extend(functions.map(|function| {
            let (before, after) = (duration(function.a_ns), duration(function.b_ns));
            format!("`{}` took {before} of a step and takes {after}", function.function)
        }));
        said
    }
}
