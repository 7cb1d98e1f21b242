//! `candlescope compare` and `candlescope gate`.

mod compare_args;
#[cfg(feature = "monitor")]
mod live;
mod printed;
mod programs;

pub(crate) use compare_args::{CompareArgs, EXAMPLES, GATE_EXAMPLES, GateArgs};

use crate::interrupts::on_interrupt;
use crate::limits::limits;
use crate::output::{note, say};
use crate::progress::Progress;
use crate::warnings::warn;
use anyhow::{Context, Result, bail};
use candlescope_compare::{CasesComparison, Comparison, LEAST_DAYS, Outcome, Side, compare, compare_cases};
use candlescope_core::HostNs;
use candlescope_core::numbers::{count, day, duration, percent, utc};
use candlescope_document::{Section, html};
use candlescope_lab::compare::{
    CompareFailed, GateResult, PairOptions, PairsEnded, Target, cases_of, gate, read_runs, save, take_pairs,
};
use candlescope_lab::method::Cancel;
use candlescope_reader::ReadLimits;
use candlescope_report::compare as render;
use compare_args::JudgingArgs;
use printed::{colour, told, write};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Compares, says what came out, and returns the exit status.
pub(crate) fn run(args: &CompareArgs) -> u8 {
    status(compared(args))
}

/// Holds runs against a baseline, or saves one, and returns the exit status.
pub(crate) fn run_gate(args: &GateArgs) -> u8 {
    status(gated(args))
}

fn status(outcome: Result<u8>) -> u8 {
    outcome.unwrap_or_else(|error| {
        note(&format!("error: {error:#}"));
        crate::compare_failed::COMPARE_FAILED
    })
}

fn compared(args: &CompareArgs) -> Result<u8> {
    let limits = limits(&args.judging.limits)?;
    if let Some(commands) = &args.run {
        return in_turns(commands, args, limits);
    }
    let (Some(a), Some(b)) = (&args.a, &args.b) else { bail!("give two runs, or two commands after --run") };
    let options = args.judging.options();
    let (name_a, name_b) = (a.display().to_string(), b.display().to_string());
    match (Target::find(a)?, Target::find(b)?) {
        (Target::Runs(of_a), Target::Runs(of_b)) => {
            if let Some(status) = programs::compared((a, &of_a), (b, &of_b), args, &limits)? {
                return Ok(status);
            }
            let a = read_runs(&name_a, &of_a, &limits)?;
            let b = read_runs(&name_b, &of_b, &limits)?;
            warn(a.runs.iter().chain(&b.runs).flat_map(|run| &run.noticed));
            shown(&compare(&a, &b, &options)?, &args.judging)
        }
        (Target::Studies(_), Target::Studies(_)) if args.programs => {
            bail!("--programs puts two runs side by side, and {name_a} and {name_b} are studies: give one run of each")
        }
        (Target::Studies(of_a), Target::Studies(of_b)) => {
            let a = cases_of(&name_a, &of_a, &limits)?;
            let b = cases_of(&name_b, &of_b, &limits)?;
            shown_cases(&compare_cases(&a, &b, &options)?, &args.judging)
        }
        (a, b) => Err(CompareFailed::Kinds { a: a.kind(), b: b.kind() }.into()),
    }
}

/// Runs both programs in turns. Its directory gets the page and the JSON, whatever is printed.
fn in_turns(commands: &[String], args: &CompareArgs, limits: ReadLimits) -> Result<u8> {
    let [a, b] = commands else { bail!("--run wants two commands, each in quotes") };
    let out = args.out.clone().unwrap_or_else(default_out);
    let out = std::path::absolute(&out).with_context(|| format!("cannot use {}", out.display()))?;
    let options = PairOptions::new(&out)
        .most(usize::from(args.pairs))
        .seed(args.seed)
        .keep_commands(args.keep_commands)
        .compare(args.judging.options())
        .limits(limits);
    let cancel = Cancel::new();
    let flag = cancel.clone();
    if let Err(error) = on_interrupt(Duration::from_secs(1), move || flag.cancel()) {
        note(&format!("warning: an interrupt will end the comparison without its result: {error}"));
    }
    let progress = Progress::new(!args.no_progress && !args.judging.json.is_json());
    let taken = take_pairs((a, b), &options, &cancel, |taken| {
        progress.wait(&format!("{} of at most {} pairs", taken.pairs, taken.most));
    });
    progress.clear();
    let taken = taken?;
    let Some(comparison) = taken.comparison else {
        note("interrupted before the first pair");
        return Ok(Outcome::Undecided.exit_code());
    };
    write(&out.join("compare.html"), html::page(&render::document(&comparison)).as_bytes())?;
    write(&out.join("compare.json"), serde_json::to_string_pretty(&comparison)?.as_bytes())?;
    let status = shown(&comparison, &args.judging)?;
    if !args.judging.json.is_json() {
        let pairs = count(taken.pairs as u64);
        let why = match taken.ended {
            PairsEnded::Decided => "which decided it".to_string(),
            PairsEnded::AllTaken => "as many as were asked for".to_string(),
            PairsEnded::Cancelled => "then it was interrupted".to_string(),
        };
        if taken.spoiled > 0 {
            let spoiled = count(taken.spoiled as u64);
            say(&format!(
                "\n{spoiled} pairs were taken again, because a run lost records: see {}/spoiled.",
                out.display()
            ))?;
        }
        say(&format!("\n{pairs} pairs, {why}. Runs, compare.html and compare.json: {}", out.display()))?;
    }
    Ok(status)
}

fn default_out() -> PathBuf {
    let now = HostNs::now().0;
    let seconds = now.div_euclid(1_000_000_000).rem_euclid(86_400);
    PathBuf::from(format!("runs/compare-{}-{:05}", day(now), seconds))
}

fn gated(args: &GateArgs) -> Result<u8> {
    if args.live.prometheus.is_some() {
        #[cfg(feature = "monitor")]
        return live::gated(&args.live, &args.judging);
        #[cfg(not(feature = "monitor"))]
        return Err(crate::lacking::default_feature("`candlescope gate --prometheus`", "monitor"));
    }
    let limits = limits(&args.judging.limits)?;
    let mut dirs = Vec::new();
    for path in &args.runs {
        match Target::find(path)? {
            Target::Runs(runs) => dirs.extend(runs),
            Target::Studies(_) => bail!("{} is a study: a gate takes runs", path.display()),
        }
    }
    let name = args.runs.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ");
    let side = read_runs(&name, &dirs, &limits)?;
    warn(side.runs.iter().flat_map(|run| &run.noticed));
    let options = args.judging.options();
    match (&args.save, &args.baseline) {
        (Some(_), _) if args.judging.json.is_document() => {
            bail!("--json=document is of a comparison: with --save leave out `=document`")
        }
        (Some(dir), _) => saved(&save(&side, dir, &options)?, &side, args),
        (None, Some(dir)) => shown_gate(&gate(&side, dir, &options)?, &args.judging),
        (None, None) => bail!("say which baseline: --baseline DIR, or --save DIR to make one"),
    }
}

fn saved(file: &Path, side: &Side, args: &GateArgs) -> Result<u8> {
    let runs = side.runs.len();
    if args.judging.json.is_json() {
        say(&json!({ "schema": 1, "saved": file, "runs": runs }).to_string())?;
        return Ok(0);
    }
    say(&format!("Saved {} as the baseline: {}", runs_of(runs), file.display()))?;
    if runs < 6 {
        say("With six runs or more, each a process start of its own, smaller changes are seen.")?;
    }
    say(&format!(
        "How much days differ is learnt from each use: a gate decides on times once it has seen {LEAST_DAYS} days before the one \
         that is judged, this one included, or with --floor."
    ))?;
    Ok(0)
}

fn runs_of(n: usize) -> String {
    if n == 1 { "1 run".to_string() } else { format!("{} runs", count(n as u64)) }
}

fn shown_gate(result: &GateResult, judging: &JudgingArgs) -> Result<u8> {
    match (&result.not_read, &result.not_kept) {
        (Some(reason), kept) => note(&format!(
            "warning: the history was left alone, and no earlier day is known{}: {reason}; put the file itself there, or \
             remove it",
            if kept.is_some() { ", nor is this one kept" } else { "" }
        )),
        (None, Some(reason)) => note(&format!("warning: the history lacks this entry: {reason}")),
        (None, None) => {}
    }
    let history = history(result);
    let document = || {
        let mut document = render::document(&result.comparison);
        document.sections.push(Section::new("history", "History", "").list(history.clone()));
        document
    };
    let text = || format!("{}\n\n{}", render::text(&result.comparison, colour()).trim_end(), history.join("\n"));
    told(judging, result, document, text)?;
    Ok(result.outcome.exit_code())
}

/// What is known of days before, a sentence each.
fn history(result: &GateResult) -> Vec<String> {
    let since = utc(result.saved_ns);
    let days = if result.days == 1 { "1 day".to_string() } else { format!("{} days", count(result.days as u64)) };
    let known = format!("History: {} since the baseline was saved ({since}), {days}.", entries(result.history));
    let shifts = result.shifts.iter().map(|shift| {
        format!(
            "It changed its level by {}{} ({} to {} a step) with {} on {}.",
            if shift.change < 0.0 { "−" } else { "+" },
            percent(shift.change.abs()),
            duration(shift.before_ns),
            duration(shift.after_ns),
            shift.runs.join(", "),
            utc(shift.time_ns)
        )
    });
    [known].into_iter().chain(shifts).collect()
}

fn entries(n: usize) -> String {
    if n == 1 { "1 entry".to_string() } else { format!("{} entries", count(n as u64)) }
}

fn shown(comparison: &Comparison, judging: &JudgingArgs) -> Result<u8> {
    told(judging, comparison, || render::document(comparison), || render::text(comparison, colour()))?;
    Ok(comparison.outcome.exit_code())
}

fn shown_cases(comparison: &CasesComparison, judging: &JudgingArgs) -> Result<u8> {
    let document = || render::document_of_cases(comparison);
    told(judging, comparison, document, || render::text_of_cases(comparison, colour()))?;
    Ok(comparison.outcome.exit_code())
}
