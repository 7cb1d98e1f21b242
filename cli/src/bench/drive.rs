//! Drives a study: starts the processes that measure it, one after the other, and makes its files at the end.

use super::common_args::CommonArgs;
use super::environment::environment;
use super::operations::{begin, cancel_on_interrupt, end, lock, state};
use crate::output::{note, say};
use crate::this_program::this_program;
use anyhow::{Context, Result, anyhow, bail};
use candlescope_core::beside_run::REPORT_PAGE;
use candlescope_document::Document;
use candlescope_figures::stats::INTERVAL_FROM;
use candlescope_lab::method::{Cancel, MeasurementEnd, Method, StopReason};
use candlescope_lab::study::{CaseSummary, Manifest, Records, Study, told_once};
use candlescope_lab::suites::{METRICS_FILE, cost_lines, lines, write_results};
use serde_json::Value;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Measures what `plan` says and returns the exit status: 130 where it was interrupted.
pub(super) fn run(plan: &Manifest, args: &CommonArgs) -> Result<u8> {
    let all = |rounds: &mut Rounds<'_>| match rounds.plain()? {
        MeasurementEnd::Done if rounds.study.manifest().method.profiled_runs > 0 && rounds.lacks_last()? => {
            rounds.last()
        }
        ended => Ok(ended),
    };
    let tell = |study: &Study, records: &Records, _| {
        let (summaries, document) = write_results(study, records)?;
        show(study, &summaries, document, args)?;
        Ok(summaries)
    };
    measure(plan, args, all, tell, |summaries| verdict(summaries))
}

/// Opens the study of `plan`, has it measured by `rounds`, and has `tell` write and say what was measured, also where
/// that ended early. Returns what `verdict` says of a study that was finished, and 130 for one that was interrupted.
pub(super) fn measure<T>(
    plan: &Manifest,
    args: &CommonArgs,
    rounds: impl FnOnce(&mut Rounds<'_>) -> Result<MeasurementEnd>,
    tell: impl FnOnce(&Study, &Records, Option<MeasurementEnd>) -> Result<T>,
    verdict: impl FnOnce(&T) -> Result<u8>,
) -> Result<u8> {
    if plan.method.profiled_runs > 0 {
        // Copied into the recorded runs, which come last: a file of peaks that cannot be used is told before anything else.
        crate::kept_between_runs::of(&args.subject.device)?;
    }
    // `latency of MODEL`.
    let kind = plan.study.split(' ').next().unwrap_or("bench");
    let out = crate::out_dir::chosen(args.out.as_deref(), kind, args.resume)?;
    let _lock = lock(&out, args.resume)?;
    let mut study = match args.resume {
        true => Study::resume(out, &planned_here(plan, &args.subject.device))?,
        false => Study::create(out, plan.clone())?,
    };
    let cancel = cancel_on_interrupt(|| ());
    let outcome = Rounds::new(&mut study, args, &cancel).and_then(|mut all| rounds(&mut all));
    if outcome.is_err() && !args.resume && study.records()?.samples.is_empty() {
        // An empty study would only be in the way of the next try.
        study.discard();
        return outcome.map(|_| 1);
    }
    let ended = outcome.as_ref().ok().copied();
    let records = study.finish(state(ended))?;
    let told = tell(&study, &records, ended)?;
    match outcome {
        Err(error) => {
            let dir = study.dir().display();
            Err(error
                .context(format!("what was measured until then is in {dir}; --resume --out {dir} goes on with it")))
        }
        Ok(MeasurementEnd::Cancelled) => {
            let dir = study.dir().display();
            note(&format!("interrupted: {dir} keeps what was measured; --resume --out {dir} goes on with it"));
            Ok(130)
        }
        Ok(MeasurementEnd::Done) => verdict(&told),
    }
}

/// The plan with what is known of this machine: samples of another one are not those of the same study.
fn planned_here(plan: &Manifest, device: &str) -> Manifest {
    let mut here = plan.clone();
    here.environment.extend(environment(device));
    here
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

/// The rounds of a study, each measured by a process of its own; one that is gone on with leaves out what it has.
pub(super) struct Rounds<'a> {
    study: &'a mut Study,
    args: &'a CommonArgs,
    cancel: &'a Cancel,
    /// The number of the first process start since the study was begun or gone on with.
    first: u32,
    began: Instant,
}

impl<'a> Rounds<'a> {
    fn new(study: &'a mut Study, args: &'a CommonArgs, cancel: &'a Cancel) -> Result<Self> {
        let first = next_process(study, &study.records()?);
        Ok(Self { study, args, cancel, first, began: Instant::now() })
    }

    pub(super) fn study(&self) -> &Study {
        self.study
    }

    /// Those that give the figures.
    pub(super) fn plain(&mut self) -> Result<MeasurementEnd> {
        for round in 0..self.study.manifest().rounds {
            if self.lacks(round, false)?
                && let MeasurementEnd::Cancelled = self.round(round, false)?
            {
                return Ok(MeasurementEnd::Cancelled);
            }
        }
        Ok(MeasurementEnd::Done)
    }

    /// The one after them, which records runs.
    pub(super) fn last(&mut self) -> Result<MeasurementEnd> {
        self.round(self.study.manifest().rounds, true)
    }

    fn lacks_last(&self) -> Result<bool> {
        self.lacks(self.study.manifest().rounds, true)
    }

    fn lacks(&self, round: u32, recorded: bool) -> Result<bool> {
        Ok(self.study.records()?.done(round, recorded, self.first).len() < self.study.manifest().cases.len())
    }

    fn round(&mut self, round: u32, recorded: bool) -> Result<MeasurementEnd> {
        let process = next_process(self.study, &self.study.records()?);
        begin(self.study, process, round, recorded)?;
        let since = self.began.elapsed();
        let ended = one_round(self.study, self.args, (process, self.first), (round, recorded), since, self.cancel)?;
        if ended == MeasurementEnd::Done {
            end(self.study, process)?;
        }
        Ok(ended)
    }
}

/// The number of the next process start: one that neither a sample nor `study.json` has.
fn next_process(study: &Study, records: &Records) -> u32 {
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
) -> Result<MeasurementEnd> {
    if cancel.is_cancelled() {
        return Ok(MeasurementEnd::Cancelled);
    }
    let program = this_program()?;
    let mut command = Command::new(&program);
    command.args(["bench", "round"]).arg(study.dir());
    command.args(["--process", &process.to_string(), "--first", &first.to_string(), "--round", &round.to_string()]);
    command.args(["--since-ms", &since.as_millis().to_string()]);
    command.args(recorded.then_some("--recorded"));
    command.args((args.no_progress || args.json.is_json()).then_some("--no-progress"));
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    let child = command.spawn().with_context(|| format!("cannot start {} again to measure", program.display()))?;
    let (status, text) = wait(child, cancel)?;
    let said: Value = serde_json::from_str(text.lines().last().unwrap_or_default()).unwrap_or_default();
    match (said["error"].as_str(), said["ended"].as_str()) {
        (Some(error), _) => Err(anyhow!("{error}")),
        (None, Some("done")) if status.success() => Ok(MeasurementEnd::Done),
        (None, Some("cancelled")) => Ok(MeasurementEnd::Cancelled),
        _ if cancel.is_cancelled() => Ok(MeasurementEnd::Cancelled),
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

fn show(study: &Study, summaries: &[CaseSummary], document: Document, args: &CommonArgs) -> Result<()> {
    let dir = study.dir();
    if args.json.is_json() {
        let text = candlescope_core::files::read_text_limited(&dir.join(METRICS_FILE), 64 << 20)?;
        let metrics: Value = serde_json::from_str(&text)?;
        let figures = serde_json::json!({ "study": dir, "metrics": metrics });
        return args.json.say(&figures, || document).map(drop);
    }
    for text in told_once(&study.manifest().disturbances) {
        note(&format!("warning: {text}"));
    }
    let fact = |key: &str| study.manifest().model.get(key).and_then(Value::as_str).unwrap_or_default();
    if let Some(text) = crate::device::engine_note(&args.subject.engine, fact("architecture"), fact("engine")) {
        note(&text);
    }
    for line in lines(summaries).into_iter().chain(cost_lines(study.manifest(), summaries)) {
        say(&line)?;
    }
    say_threads(study)?;
    say_processes(study)?;
    say(&format!("Study: {}   Report: {}", dir.display(), dir.join(REPORT_PAGE).display()))
}

/// Says how many threads computed, on a CPU: what they are decides more than most that is measured.
pub(super) fn say_threads(study: &Study) -> Result<()> {
    match study.manifest().threads() {
        Some(threads) => say(&format!("{threads}; `candlescope tune threads` compares others.")),
        None => Ok(()),
    }
}

/// Says why there is no interval where the study has too few process starts for one.
pub(super) fn say_processes(study: &Study) -> Result<()> {
    match no_interval(&study.manifest().method) {
        Some(why) => say(&why),
        None => Ok(()),
    }
}

/// Why there is no interval over process starts, with the options that give one; `None` where there are enough of them.
fn no_interval(method: &Method) -> Option<String> {
    let is_few = |number: u32| (number as usize) < INTERVAL_FROM;
    if !is_few(method.processes) {
        return None;
    }
    // There are never more starts than requests of a case.
    let runs = if method.runs.is_some_and(is_few) { format!(" --runs {INTERVAL_FROM}") } else { String::new() };
    Some(format!(
        "Process starts: {}. There is no 95 % interval over them: that takes {INTERVAL_FROM} \
         (--processes {INTERVAL_FROM}{runs}).",
        method.processes
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_options_that_are_named_give_an_interval() {
        let method = |processes: u32, runs: Option<u32>| Method::default().processes(processes).runs(runs);
        let told = |method: Method| no_interval(&method).expect("too few starts");
        assert!(told(method(1, None)).ends_with("that takes 6 (--processes 6)."));
        assert!(told(method(1, Some(12))).ends_with("that takes 6 (--processes 6)."));
        // As with `--quick`, whose three requests have no more than three starts.
        assert!(told(method(3, Some(3))).ends_with("that takes 6 (--processes 6 --runs 6)."));
        assert_eq!(no_interval(&method(6, Some(6))), None);
    }
}
