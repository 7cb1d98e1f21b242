//! `candlescope record`: records a CUDA program that does not link candlescope, by a library that the driver and NVTX
//! load into it.

#[cfg(unix)]
mod program_file;

use crate::nsight::{entries, key_of, process};
use crate::output::note;
use anyhow::{Context, Result, anyhow, bail};
use candlescope::env::EnvConfig;
use candlescope::env::VARIABLE;
use candlescope_core::RecordKind;
use candlescope_core::files::read_text_limited;
use candlescope_core::injected::{
    CHILDREN, CLAIM, CUDA_LIBRARY, MODEL, NSIGHT_COMPUTE, NVTX_LIBRARY, PROGRAM_STEP, SESSION, STEPS, WINDOWS, WORK,
    Windows, Work,
};
use candlescope_core::run::keys::Key;
use candlescope_core::run::{Code, MANIFEST_FILE, RunManifest, env_key};
use candlescope_reader::Run;
use candlescope_work::devices::Format;
use candlescope_work::shape::ModelShape;
use clap::Args;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

pub(crate) const EXAMPLES: &str = "\
Examples:
  candlescope record --out runs/torch -- python generate.py
      all kernels, tied to the program's NVTX ranges where it makes some
  candlescope record --cupti 20/60s --budget 1% --out runs/server -- ./server
      kernels of 20 steps each minute, for programs that run long; --budget leaves out ranges, where the program makes some
  candlescope record --step-range '^(prefill|decode)' --out runs/server -- ./server
      steps are the ranges that match
  candlescope record --model-config model/config.json --work batch=1,prompt=64,dtype=bf16 --out runs/torch -- python generate.py
      with FLOPs and bytes of each token; what repeats is a token, where the program makes no ranges
  CANDLESCOPE=prometheus=9464 candlescope record --out runs/torch -- python generate.py
      with what else the library was built with: that of a release has `prometheus`";

/// Names the library. Without it, it is looked for beside the program and in `../lib`.
const LIBRARY: &str = "CANDLESCOPE_INJECT_LIBRARY";

const FILE: &str = "libcandlescope_inject.so";

/// The largest config.json that is read: a thousand times what one holds.
const MOST_CONFIG: u64 = 16 << 20;

#[derive(Debug, Args)]
pub(crate) struct RecordArgs {
    /// Where the run goes: a directory that is not there yet, or empty
    #[arg(long, short, value_name = "RUN")]
    out: PathBuf,
    /// Kernels of which steps: `all`; N in EVERY, such as 20/500, of a program whose ranges are its steps; N in a time,
    /// such as 20/60s, of any program; or off
    #[arg(long, value_name = "STEPS", default_value = "all")]
    cupti: String,
    /// The most of step time that recording may take, such as 1%: measured in place, and kept by leaving steps out
    #[arg(long, value_name = "SHARE")]
    budget: Option<String>,
    /// The config.json of the language model that the program runs: its steps then have FLOPs and bytes, and what
    /// repeats is a token
    #[arg(long, value_name = "FILE")]
    model_config: Option<PathBuf>,
    /// What is done with it: batch=N, prompt=TOKENS (of each sequence), dtype=FORMAT of its weights, joined by commas
    #[arg(long, value_name = "WORK", requires = "model_config")]
    work: Option<String>,
    /// Listens to the program's NVTX ranges, which become intervals; so it is unless --no-nvtx is given
    #[arg(long, overrides_with = "no_nvtx")]
    attach_nvtx: bool,
    /// Does not listen to NVTX: a step lasts from one result that the program fetches to the next
    #[arg(long)]
    no_nvtx: bool,
    /// Only NVTX ranges whose names this regular expression matches are steps
    #[arg(long, value_name = "REGEX")]
    step_range: Option<String>,
    /// Records every process that the program starts, each as a run of its own below RUN; those that are forked from a
    /// recorded one are left out, and counted. Otherwise the first one that uses CUDA or NVTX is the one
    #[arg(long)]
    follow_forks: bool,
    /// Loads nothing before the program's own libraries (LD_PRELOAD), for those that cannot bear it: the last seconds
    /// of what ends by _exit, and what stands before an exec, are lost
    #[arg(long)]
    no_preload: bool,
    /// The program and its arguments, after --
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// Runs the program; the exit status to end with: the program's, or 1 if it has none of its own and nothing was
/// recorded.
pub(crate) fn run(args: &RecordArgs) -> Result<u8> {
    if let Some(steps) = &args.step_range {
        regex::Regex::new(steps).with_context(|| format!("--step-range {steps} is no regular expression"))?;
    }
    if std::env::var_os(NSIGHT_COMPUTE).is_some_and(|value| !value.is_empty()) {
        bail!(
            "Nsight Compute runs this command ({NSIGHT_COMPUTE} is set), and it ends programs into which another library is loaded: \
             record without ncu, and have its counters of another start"
        );
    }
    let model = model(args)?;
    let library = library()?;
    let out = std::path::absolute(&args.out).with_context(|| format!("--out {}", args.out.display()))?;
    if std::fs::read_dir(&out).is_ok_and(|mut there| there.next().is_some()) || out.is_file() {
        bail!("{} is there and not empty: name another directory with --out", args.out.display());
    }
    let Some(runs) = beside(&out) else {
        bail!("--out {}: a path in UTF-8, without `,` and with a name", args.out.display())
    };
    // Before the program runs for nothing.
    let expected = "`all`, N/EVERY such as 20/500, N/TIME such as 20/60s, or off";
    if args.cupti.contains(',') {
        bail!("--cupti {}: {expected}", args.cupti);
    }
    if args.budget.as_ref().is_some_and(|budget| budget.contains(',')) {
        bail!("--budget: one share of step time, such as 1%");
    }
    let windows = Windows::parse(&args.cupti);
    let cupti = if windows.is_some() { "on-request" } else { &args.cupti };
    let variable = variable(std::env::var(VARIABLE).ok().as_deref(), &runs, cupti, args.budget.as_deref());
    EnvConfig::parse(&variable)
        .with_context(|| format!("of --cupti ({expected}), --budget and CANDLESCOPE together"))?;
    let claim = runs.join(".claim");
    std::fs::create_dir_all(&runs)
        .with_context(|| format!("cannot make {}: choose another place with --out", runs.display()))?;
    if std::fs::read_dir(&runs).is_ok_and(|mut there| there.next().is_some()) {
        bail!(
            "{} holds what an earlier recording left, which was stopped: report on it, or remove it, first",
            runs.display()
        );
    }

    let mut command = Command::new(&args.command[0]);
    command.args(&args.command[1..]).env(CUDA_LIBRARY, &library).env(CLAIM, &claim);
    if !args.no_nvtx {
        command.env(NVTX_LIBRARY, &library);
    }
    if !args.no_preload {
        match preload(&args.command[0], &library) {
            Ok(preload) => _ = command.env("LD_PRELOAD", preload),
            Err(why) => note(&format!("note: what ends by _exit loses its last seconds: {why}")),
        }
    }
    [STEPS, CHILDREN, MODEL, WORK, WINDOWS].iter().for_each(|name| _ = command.env_remove(name));
    // CANDLESCOPE itself is left as it is: a program that links candlescope has a session of its own, where that says.
    command.env(SESSION, variable);
    if windows.is_some() {
        command.env(WINDOWS, &args.cupti);
    }
    if let Some(model) = model {
        command.env(MODEL, model).env(WORK, args.work.as_deref().unwrap_or_default());
    }
    if let Some(steps) = &args.step_range {
        command.env(STEPS, steps);
    }
    if args.follow_forks {
        command.env(CHILDREN, "1");
    }
    let ended = process::run(&mut command);
    let was_claimed = std::fs::remove_file(&claim).is_ok();
    // Only somebody else can have removed it: it is ours until the end of this function.
    let was_removed = !runs.exists();
    let status = match ended {
        Ok(status) => status,
        Err(error) => {
            let _ = std::fs::remove_dir(&runs);
            return Err(error).with_context(|| format!("cannot start {}", args.command[0].display()));
        }
    };
    if let Some(run) = still_written(&runs) {
        note(&format!(
            "error: {} is still being written by a process that outlived {}: everything stays in {}",
            run.display(),
            args.command[0].display(),
            runs.display()
        ));
        return Ok(if status == 0 { 1 } else { status });
    }
    let made = collect(&runs, &out)?;
    // Standard output belongs to the program, so our messages go to standard error.
    if made.is_empty() {
        let program = args.command[0].display();
        note(&match (was_removed, was_claimed) {
            (true, _) => format!(
                "error: {} was removed while {program} ran, and what was recorded with it: record it again, and leave that folder alone",
                runs.display()
            ),
            (_, true) => format!(
                "error: nothing was recorded of {program}: it ended before recording had begun, or recording could not begin: see above"
            ),
            _ if args.no_nvtx => format!("error: nothing was recorded of {program}: it did not start the CUDA driver"),
            _ => format!(
                "error: nothing was recorded of {program}: it neither started the CUDA driver nor made an NVTX range"
            ),
        });
        if runs.exists() {
            note(&format!("note: {} has what was begun", runs.display()));
        }
        return Ok(if status == 0 { 1 } else { status });
    }
    made.iter().for_each(|run| tell(run));
    Ok(status)
}

/// The file of the model, which has to be one whose steps are known: a mistake is told before the program runs.
fn model(args: &RecordArgs) -> Result<Option<PathBuf>> {
    let Some(file) = &args.model_config else { return Ok(None) };
    let file = if file.is_dir() { file.join("config.json") } else { file.clone() };
    let text = read_text_limited(&file, MOST_CONFIG).with_context(|| format!("--model-config {}", file.display()))?;
    ModelShape::from_config_text("the program's model", &text)
        .with_context(|| format!("--model-config {}", file.display()))?;
    let work = Work::parse(args.work.as_deref().unwrap_or_default()).map_err(|error| anyhow!("--work {error}"))?;
    if let Some(dtype) = &work.dtype {
        Format::named(dtype).context("--work dtype")?;
    }
    Ok(Some(std::path::absolute(&file).context("the current directory is not known")?))
}

/// Where runs go until the program has ended, of which nobody knows before how many there will be.
fn beside(out: &Path) -> Option<PathBuf> {
    let mut name = out.file_name()?.to_os_string();
    name.push(".recording");
    let runs = out.with_file_name(name);
    runs.to_str().is_some_and(|text| !text.contains(',')).then_some(runs)
}

/// What the library is told, as `CANDLESCOPE` would say it: what the user says, and what was asked for here.
fn variable(given: Option<&str>, runs: &Path, cupti: &str, budget: Option<&str>) -> String {
    // A run of its own would be in another place, and the program's output is the program's.
    let ours = ["parquet", "parquet-hive", "report", "cupti"];
    let mut parts: Vec<String> =
        entries(given).filter(|entry| !ours.contains(&key_of(entry))).map(str::to_string).collect();
    parts.push(format!("parquet={}", runs.display()));
    parts.push("report=off".into());
    if !parts.iter().any(|part| key_of(part) == "sigterm") {
        parts.push("sigterm".into());
    }
    if cupti != "off" {
        parts.push(format!("cupti={cupti}"));
    }
    if let Some(budget) = budget {
        parts.retain(|part| key_of(part) != "cost");
        parts.push(format!("cost={budget}"));
    }
    parts.join(",")
}

/// What is loaded before all other libraries of this command, or why nothing is.
#[cfg_attr(not(unix), allow(unused_variables, reason = "`record` works on Linux alone"))]
fn preload(command: &OsStr, library: &Path) -> Result<OsString, String> {
    #[cfg(unix)]
    if let Some(obstacle) = program_file::obstacle(command) {
        let name = command.display();
        return Err(format!("{name} {}, so nothing is preloaded (LD_PRELOAD)", obstacle.text()));
    }
    let path = library.display();
    preloaded(library, std::env::var_os("LD_PRELOAD"))
        .ok_or_else(|| format!("{path} cannot be preloaded, because of a space or a colon in its path"))
}

/// What is loaded before all other libraries: ours, for programs that end by `_exit`, and then the user's. `None` where
/// its path has what separates paths there.
fn preloaded(library: &Path, others: Option<OsString>) -> Option<OsString> {
    let text = library.to_str()?;
    if text.contains(|c: char| c.is_whitespace() || c == ':') {
        return None;
    }
    let mut all = OsString::from(text);
    if let Some(others) = others.filter(|others| !others.is_empty()) {
        all.push(":");
        all.push(others);
    }
    Some(all)
}

/// Whether a process goes on. One that has ended and that nobody has asked about yet is only a row in the system's
/// table.
fn lives(process: &str) -> bool {
    let Ok(text) = std::fs::read_to_string(Path::new("/proc").join(process).join("stat")) else { return false };
    // Its name, which may have anything in it, stands in parentheses before its state.
    let state = text.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
    !matches!(state, Some('Z' | 'X') | None)
}

/// A run of a process that goes on, after a moment for those that are about to end.
fn still_written(runs: &Path) -> Option<PathBuf> {
    let living = |dir: &PathBuf| {
        let text = std::fs::read_to_string(dir.join(MANIFEST_FILE)).unwrap_or_default();
        let Ok(manifest) = serde_json::from_str::<RunManifest>(&text) else { return false };
        let process = env_key::PID.of(&manifest.environment);
        !manifest.complete && process.is_some_and(|process| lives(&process.to_string()))
    };
    let begun = Instant::now();
    loop {
        let entries = std::fs::read_dir(runs).into_iter().flatten().flatten().map(|entry| entry.path());
        let found = entries.filter(living).min()?;
        if begun.elapsed() > Duration::from_secs(5) {
            return Some(found);
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Moves what was recorded to where it was asked for: one run there, several below.
fn collect(runs: &Path, out: &Path) -> Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(runs).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut made: Vec<PathBuf> = entries.filter(|path| path.join(MANIFEST_FILE).is_file()).collect();
    made.sort();
    let to = |from: &Path| {
        // An empty directory may be there.
        let _ = std::fs::remove_dir(out);
        std::fs::rename(from, out)
            .with_context(|| format!("cannot move {} to {}: it is whole where it is", from.display(), out.display()))
    };
    match &made[..] {
        [] => {
            let _ = std::fs::remove_dir(runs);
            Ok(Vec::new())
        }
        [one] => {
            to(one)?;
            let _ = std::fs::remove_dir(runs);
            Ok(vec![out.to_path_buf()])
        }
        several => {
            to(runs)?;
            Ok(several.iter().map(|run| out.join(run.file_name().unwrap_or_default())).collect())
        }
    }
}

/// What a run has, in a line.
fn tell(run: &Path) {
    let opened = Run::open(run);
    let text = match &opened {
        Ok(opened) => {
            // By the tables: the manifest of a run that was not ended has no counts.
            let [steps, spans, kernels] =
                [RecordKind::Step, RecordKind::Span, RecordKind::Kernel].map(|kind| opened.rows(kind));
            let complete = opened.manifest().is_some_and(|manifest| manifest.complete);
            let rest =
                if complete { "" } else { "; the program ended without ending the run: its last seconds are missing" };
            let hint = match steps {
                0 => {
                    "; no step was seen: --cupti all or 20/60s where the program makes no ranges, --follow-forks where its children do the work"
                }
                _ => "",
            };
            let mut told = opened.manifest().map(told_apart).unwrap_or_default();
            if told.is_empty() && is_one_program(opened) {
                told = " (the program as it is: it makes no ranges and fetches no results, so that nothing tells its steps apart)"
                    .to_string();
            }
            let why = opened.manifest().filter(|_| kernels == 0).and_then(without_kernels).unwrap_or_default();
            format!("{steps} steps{told}, {spans} intervals, {kernels} kernels{why}{rest}{hint}")
        }
        Err(error) => error.to_string(),
    };
    note(&format!("wrote {}: {text}; candlescope report {}", run.display(), run.display()));
    opened.ok().as_ref().and_then(Run::manifest).map(reported).unwrap_or_default().iter().for_each(|text| note(text));
}

/// Whether all steps are what stands for a program outside of ranges. Of steps that are ranges, the first one says no.
fn is_one_program(run: &Run) -> bool {
    let mut steps = run.table(RecordKind::Step).flat_map(|batch| batch.steps).peekable();
    steps.peek().is_some() && steps.all(|step| step.path.path == PROGRAM_STEP)
}

/// What the library reported of a run that its verdict does not say, a line each.
fn reported(manifest: &RunManifest) -> Vec<String> {
    let known = |text: &str| manifest.verdict.findings.iter().any(|finding| finding.message().contains(text));
    let problems = env_key::RECORDER_PROBLEMS.of(&manifest.environment).into_iter().flatten();
    let problems = problems.filter_map(serde_json::Value::as_str);
    // Its source stands before it.
    let unknown = problems.filter(|text| !known(text.split_once(": ").map_or(*text, |(_, text)| text)));
    let mut lines: Vec<String> = unknown.map(|text| format!("note: {text}")).collect();
    if let Some(forked) = env_key::FORKED_UNRECORDED.of(&manifest.environment) {
        lines.push(format!(
            "note: processes that were forked from it while it was recorded made ranges or started the driver ({forked}), and nothing \
             of them is recorded: have it start them anew (spawn, forkserver), with --follow-forks"
        ));
    }
    lines
}

/// Why there are no kernels, where some were asked for.
fn without_kernels(manifest: &RunManifest) -> Option<String> {
    let finding = manifest.verdict.findings.iter().find(|finding| finding.code == Code::NoKernels)?;
    Some(format!(" ({})", finding.message()))
}

/// How steps were told apart, where the program's ranges do not say it.
fn told_apart(manifest: &RunManifest) -> String {
    let of = |key: Key<u64>| key.of(&manifest.environment).unwrap_or(0);
    let (ended, repeated, results) =
        (of(env_key::STEPS_BY_RESULTS), of(env_key::STEPS_BY_PATTERN), of(env_key::RESULTS_A_STEP));
    let percent = |key: Key<f64>| key.of(&manifest.environment).map(|share| (share * 100.0).floor());
    // Rounded down: what is said to be the same is.
    let mut alike = match (percent(env_key::STEPS_ALIKE), percent(env_key::STEPS_ALIKE_LEAST)) {
        (Some(mean), Some(least)) => format!(", {mean:.0} % of their launches alike ({least:.0} % at least)"),
        _ => String::new(),
    };
    if let Some(confidence) = percent(env_key::STEPS_CONFIDENCE) {
        alike.push_str(&format!(", confidence {confidence:.0} %"));
    }
    match (ended, results) {
        (0, _) => String::new(),
        (_, 0) => format!(" ({ended} by the results that it fetches; nothing repeats)"),
        (_, 1) => format!(" ({ended} by the results that it fetches; {repeated} repeat the ones before{alike})"),
        (_, n) => format!(
            " ({ended} by the results that it fetches; {repeated} repeat the ones before, {n} results each{alike})"
        ),
    }
}

/// The library that goes into the program.
fn library() -> Result<PathBuf> {
    if !cfg!(target_os = "linux") {
        bail!(
            "`record` works on Linux alone, where the library goes into CUDA programs: link candlescope into yours elsewhere"
        );
    }
    if let Some(named) = std::env::var_os(LIBRARY) {
        let named = PathBuf::from(named);
        if !named.is_file() {
            bail!("{LIBRARY} names {}, which is no file", named.display());
        }
        return std::path::absolute(&named).context("the current directory is not known");
    }
    let exe = std::env::current_exe().context("it is not known where this program is")?;
    let folder = exe.parent().unwrap_or_else(|| Path::new("/"));
    let places = [folder.join(FILE), folder.join("../lib").join(FILE)];
    places.into_iter().find(|place| place.is_file()).with_context(|| {
        format!(
            "there is no {FILE} beside {} or in ../lib: put it into {}. It is in the release's archive candlescope-{}-{}-unknown-linux-gnu.tar.gz, \
             of which `cargo binstall` installs the command alone; in the repository, cargo build --profile dist -p candlescope-inject makes \
             target/dist/{FILE}. {LIBRARY} names one elsewhere",
            exe.file_name().unwrap_or(OsStr::new("candlescope")).display(),
            folder.display(),
            env!("CARGO_PKG_VERSION"),
            std::env::consts::ARCH,
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use candlescope_core::run::Finding;

    #[test]
    fn a_process_that_has_ended_is_not_waited_for() {
        assert!(lives(&std::process::id().to_string()) && !lives("4294967295"));
        let mut child = Command::new("true").spawn().expect("starts");
        let of_child = child.id().to_string();
        // Nobody has asked about it yet: it is still in the table.
        let begun = Instant::now();
        while lives(&of_child) && begun.elapsed() < Duration::from_secs(10) {
            std::thread::sleep(Duration::from_millis(5));
        }
        assert!(!lives(&of_child) && Path::new("/proc").join(&of_child).exists());
        child.wait().expect("ends");
    }

    #[test]
    fn the_variable_keeps_what_the_user_says_but_for_what_is_asked_for_here() {
        let of = |given, cupti| variable(given, Path::new("/r"), cupti, None);
        assert_eq!(of(None, "all"), "parquet=/r,report=off,sigterm,cupti=all");
        assert_eq!(
            of(Some("parquet=mine, prometheus=9464,cupti=1/2,sigterm=off"), "20/500"),
            "prometheus=9464,sigterm=off,parquet=/r,report=off,cupti=20/500"
        );
        assert_eq!(of(Some("host=off"), "off"), "host=off,parquet=/r,report=off,sigterm");
        let held = variable(Some("cost=5%"), Path::new("/r"), "off", Some("1%"));
        assert_eq!(held, "parquet=/r,report=off,sigterm,cost=1%");
    }

    #[test]
    fn how_steps_were_told_apart_is_said_where_no_range_says_it() {
        let of = |facts: &[(Key<u64>, u64)], alike: &[(Key<f64>, f64)]| {
            let mut manifest = RunManifest::default();
            let facts = facts.iter().map(|(key, n)| (key.name().to_string(), serde_json::Value::from(*n)));
            let alike = alike.iter().map(|(key, share)| (key.name().to_string(), serde_json::Value::from(*share)));
            manifest.environment = facts.chain(alike).collect();
            told_apart(&manifest)
        };
        assert_eq!(of(&[], &[]), "", "ranges are its steps");
        let [ended, repeated, results] =
            [env_key::STEPS_BY_RESULTS, env_key::STEPS_BY_PATTERN, env_key::RESULTS_A_STEP];
        let nothing = of(&[(ended, 12), (repeated, 0)], &[]);
        assert_eq!(nothing, " (12 by the results that it fetches; nothing repeats)");
        let one = [(ended, 12), (repeated, 8), (results, 1)];
        assert_eq!(of(&one, &[]), " (12 by the results that it fetches; 8 repeat the ones before)", "an older library");
        let alike = [(env_key::STEPS_ALIKE, 0.9999), (env_key::STEPS_ALIKE_LEAST, 0.8125)];
        let said = of(&one, &alike);
        assert!(said.ends_with("8 repeat the ones before, 99 % of their launches alike (81 % at least))"), "{said}");
        let said = of(&[(ended, 12), (repeated, 8), (results, 2)], &[alike[0], (env_key::STEPS_ALIKE_LEAST, 1.0)]);
        assert!(said.contains("before, 2 results each, 99 % of their launches alike (100 % at least)"), "{said}");
        let said = of(&one, &[alike[0], alike[1], (env_key::STEPS_CONFIDENCE, 0.6756)]);
        assert!(said.ends_with("(81 % at least), confidence 67 %)"), "{said}");
    }

    #[test]
    fn what_the_library_reported_is_said_unless_the_verdict_says_it() {
        let mut manifest = RunManifest::default();
        let texts = ["cupti: detaching failed with error 7", "cupti: there is no driver"];
        manifest.environment.insert(env_key::RECORDER_PROBLEMS.name().into(), texts.to_vec().into());
        assert_eq!(reported(&manifest), texts.map(|text| format!("note: {text}")));
        let said = Finding::new(Code::NoKernels, "kernels were not recorded: {error}", "none");
        manifest.verdict.findings.push(said.text("error", "there is no driver"));
        assert_eq!(reported(&manifest), ["note: cupti: detaching failed with error 7"]);
        manifest.environment.insert(env_key::FORKED_UNRECORDED.name().into(), 3.into());
        assert!(reported(&manifest)[1].contains("(3)") && reported(&manifest)[1].contains("--follow-forks"));
    }

    #[test]
    fn a_path_that_cannot_be_preloaded_is_not() {
        let of = |library: &str, others: Option<&str>| {
            preloaded(Path::new(library), others.map(OsString::from)).map(|all| all.to_string_lossy().into_owned())
        };
        assert_eq!(of("/a/b.so", Some("/c.so")).as_deref(), Some("/a/b.so:/c.so"));
        assert_eq!(of("/a/b.so", Some("")).as_deref(), Some("/a/b.so"));
        assert_eq!((of("/a b/c.so", None), of("/a:b/c.so", None)), (None, None));
    }

    #[test]
    fn one_run_takes_the_place_and_several_lie_below() {
        let dir = tempfile::tempdir().unwrap();
        let run = |runs: &Path, name: &str| {
            std::fs::create_dir_all(runs.join(name)).unwrap();
            std::fs::write(runs.join(name).join(MANIFEST_FILE), "{}").unwrap();
        };
        let (runs, out) = (dir.path().join("a.recording"), dir.path().join("a"));
        std::fs::create_dir(&out).unwrap();
        run(&runs, "run-1");
        assert_eq!(collect(&runs, &out).unwrap(), std::slice::from_ref(&out));
        assert!(out.join(MANIFEST_FILE).is_file() && !runs.exists());
        let (runs, out) = (dir.path().join("b.recording"), dir.path().join("b"));
        run(&runs, "run-1");
        run(&runs, "run-2");
        assert_eq!(collect(&runs, &out).unwrap(), [out.join("run-1"), out.join("run-2")]);
        let (runs, out) = (dir.path().join("c.recording"), dir.path().join("c"));
        std::fs::create_dir(&runs).unwrap();
        assert!(collect(&runs, &out).unwrap().is_empty() && !runs.exists() && !out.exists());
    }
}
