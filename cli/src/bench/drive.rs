//! Drives a study: starts the processes that measure it, one after the other, and makes its files at the end.

use super::common_args::CommonArgs;
use super::operations::{begin, cancel_on_interrupt, end, state};
use crate::output::{note, say};
use anyhow::{Context, Result, anyhow, bail};
use candlescope_lab::method::{Cancel, Ended, StopReason};
use candlescope_lab::study::{CaseSummary, Manifest, Records, Study};
use candlescope_lab::suites::{lines, write_results};
use serde_json::Value;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Measures what `plan` says and returns the exit status: 130 where it was interrupted.
pub(super) fn run(plan: &Manifest, args: &CommonArgs) -> Result<u8> {
    let mut study = match args.resume {
        true => Study::resume(&args.out, plan)?,
        false => Study::create(&args.out, plan.clone())?,
    };
    let cancel = cancel_on_interrupt(|| ());
    let outcome = rounds(&mut study, args, &cancel);
    if outcome.is_err() && !args.resume && study.records()?.samples.is_empty() {
        // An empty study would only be in the way of the next try.
        study.discard();
        return outcome.map(|_| 1);
    }
    let records = study.finish(state(outcome.as_ref().ok().copied()))?;
    let (summaries, _) = write_results(&study, &records)?;
    show(&study, &summaries, args)?;
    match outcome {
        Err(error) => {
            let dir = study.dir().display();
            Err(error.context(format!("what was measured until then is in {dir}; --resume goes on with it")))
        }
        Ok(Ended::Cancelled) => {
            note(&format!("interrupted: {} keeps what was measured; --resume goes on with it", study.dir().display()));
            Ok(130)
        }
        Ok(Ended::Done) => verdict(&summaries),
    }
}

/// A study without a single figure is an error, and so is a case that failed; what did not fit into memory is a result.
fn verdict(summaries: &[CaseSummary]) -> Result<u8> {
    let failed = summaries.iter().find(|case| case.outcome() == Some(StopReason::Failed));
    if let Some(case) = failed {
        bail!("{} failed: {}", case.case.key(), case.detail.as_deref().unwrap_or("no reason was given"));
    }
    match summaries.iter().all(|case| case.plain.is_empty()) {
        true => bail!(
            "no case could be measured: {}",
            summaries.iter().find_map(|case| case.detail.as_deref()).unwrap_or("there was none")
        ),
        false => Ok(0),
    }
}

fn rounds(study: &mut Study, args: &CommonArgs, cancel: &Cancel) -> Result<Ended> {
    let (rounds, recorded) = (study.manifest().rounds, study.manifest().method.profiled_runs > 0);
    let cases = study.manifest().cases.len();
    let began = Instant::now();
    let first = next_process(study, &study.records()?);
    let plan = (0..rounds).map(|round| (round, false)).chain(recorded.then_some((rounds, true)));
    for (round, recorded) in plan {
        if study.records()?.done(round, recorded, first).len() >= cases {
            continue;
        }
        if let Ended::Cancelled = start(study, args, (round, recorded), first, began, cancel)? {
            return Ok(Ended::Cancelled);
        }
    }
    Ok(Ended::Done)
}

/// Has one round measured by a process of its own. `first` is the number of the first start since the study was begun
/// or gone on with.
pub(super) fn start(
    study: &mut Study,
    args: &CommonArgs,
    (round, recorded): (u32, bool),
    first: u32,
    began: Instant,
    cancel: &Cancel,
) -> Result<Ended> {
    let process = next_process(study, &study.records()?);
    begin(study, process, round, recorded)?;
    let ended = one_round(study, args, (process, first), (round, recorded), began.elapsed(), cancel)?;
    if ended == Ended::Done {
        end(study, process)?;
    }
    Ok(ended)
}

/// The number of the next process start: one that neither a sample nor `study.json` has.
pub(super) fn next_process(study: &Study, records: &Records) -> u32 {
    let known = study.manifest().processes.iter().map(|start| start.process + 1).max().unwrap_or(0);
    records.next_process().max(known)
}

/// Starts this program again to measure one round, and waits for it.
fn one_round(
    study: &Study,
    args: &CommonArgs,
    (process, first): (u32, u32),
    (round, recorded): (u32, bool),
    since: Duration,
    cancel: &Cancel,
) -> Result<Ended> {
    if cancel.is_cancelled() {
        return Ok(Ended::Cancelled);
    }
    let program = std::env::current_exe().context("cannot find this program to start it again")?;
    let mut command = Command::new(&program);
    command.args(["bench", "round"]).arg(study.dir());
    command.args(["--process", &process.to_string(), "--first", &first.to_string(), "--round", &round.to_string()]);
    command.args(["--since-ms", &since.as_millis().to_string()]);
    command.args(recorded.then_some("--recorded"));
    command.args((args.no_progress || args.json).then_some("--no-progress"));
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    let child = command.spawn().with_context(|| format!("cannot start {} again to measure", program.display()))?;
    let (status, text) = wait(child, cancel)?;
    let said: Value = serde_json::from_str(text.lines().last().unwrap_or_default()).unwrap_or_default();
    match (said["error"].as_str(), said["ended"].as_str()) {
        (Some(error), _) => Err(anyhow!("{error}")),
        (None, Some("done")) if status.success() => Ok(Ended::Done),
        (None, Some("cancelled")) => Ok(Ended::Cancelled),
        _ if cancel.is_cancelled() => Ok(Ended::Cancelled),
        _ => bail!("the process that measures ended before its work did ({status}): memory may have run out"),
    }
}

/// Waits for the process and reads what it says. An interrupt of this command alone is handed on to it.
fn wait(mut child: Child, cancel: &Cancel) -> Result<(std::process::ExitStatus, String)> {
    let mut handed_on = false;
    let status = loop {
        if let Some(status) = child.try_wait().context("cannot wait for the process that measures")? {
            break status;
        }
        if cancel.is_cancelled() && !handed_on {
            handed_on = true;
            interrupt(&child);
        }
        // Waking up ten times a second takes nothing from what is measured.
        std::thread::sleep(Duration::from_millis(100));
    };
    // It says one line, which a pipe holds.
    let mut text = String::new();
    if let Some(mut out) = child.stdout.take() {
        let _ = std::io::Read::read_to_string(&mut out, &mut text);
    }
    Ok((status, text))
}

#[cfg(unix)]
fn interrupt(child: &Child) {
    let id = i32::try_from(child.id()).ok().and_then(rustix::process::Pid::from_raw);
    if let Some(id) = id {
        // One that has just ended needs no interrupt.
        let _ = rustix::process::kill_process(id, rustix::process::Signal::TERM);
    }
}

#[cfg(not(unix))]
fn interrupt(_: &Child) {}

fn show(study: &Study, summaries: &[CaseSummary], args: &CommonArgs) -> Result<()> {
    let dir = study.dir();
    if args.json {
        let text = candlescope_core::files::read_text_limited(&dir.join("baseline_metrics.json"), 64 << 20)?;
        let metrics: Value = serde_json::from_str(&text)?;
        return say(&serde_json::json!({ "study": dir, "metrics": metrics }).to_string());
    }
    let records = study.manifest();
    for text in &records.disturbances {
        note(&format!("warning: {text}"));
    }
    for line in lines(summaries) {
        say(&line)?;
    }
    let processes = records.method.processes;
    if (processes as usize) < candlescope_analysis::passes::stats::INTERVAL_FROM {
        say(&format!(
            "Process starts: {processes}. There is no 95 % interval over them: that takes 6 (--processes 6)."
        ))?;
    }
    say(&format!("Study: {}   Report: {}", dir.display(), dir.join("report.html").display()))
}
