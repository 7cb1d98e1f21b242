//! `profile -m`: a process and a run for each combination, and a table of all at the end.

use super::compose::Composition;
use crate::output::{note, say};
use crate::this_program::this_program;
use anyhow::{Context, Result, bail};
use candlescope_core::files::{lock_directory, write_whole};
use candlescope_core::numbers::{bytes, count, duration, significant};
use comfy_table::{ContentArrangement, Table, presets};
use serde_json::{Value, json};
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// The table as JSON, in the folder of all runs.
const SUMMARY: &str = "summary.json";
/// Longest part of a folder's name that tells its combination, in characters.
const LONGEST: usize = 80;
/// Pause between two looks at a run under way.
const PAUSE: Duration = Duration::from_millis(30);

/// What became of a combination.
#[derive(Debug)]
enum Outcome {
    /// The object that the run printed.
    Done(Value),
    /// The last line that it wrote to standard error.
    Failed(String),
    /// It was under way when it was told to end, or had not begun.
    Interrupted,
}

/// Runs every combination. One that fails does not end the others.
///
/// # Errors
/// If the folder holds something already, if a run failed, or if the command was told to end; what ran until then is
/// kept.
pub(crate) fn run(combinations: &[Composition], out: Option<PathBuf>, quiet: bool) -> Result<()> {
    let out = out.unwrap_or_else(|| {
        PathBuf::from("runs").join(format!("multirun-{}", candlescope_core::HostNs::now().0 / 1_000_000))
    });
    std::fs::create_dir_all(&out).with_context(|| format!("cannot make the directory {}", out.display()))?;
    // First the lock, then the look: of several commands that begin at once, one finds the folder empty.
    let _lock = lock_directory(&out).with_context(|| {
        format!("cannot write into {}; give another directory for the runs with --out", out.display())
    })?;
    if std::fs::read_dir(&out).is_ok_and(|mut entries| entries.next().is_some()) {
        bail!("{} is not empty; give another directory for the runs with --out", out.display());
    }
    let stop = Arc::new(AtomicBool::new(false));
    let told = stop.clone();
    if let Err(error) = ctrlc::set_handler(move || told.store(true, Ordering::SeqCst)) {
        note(&format!("warning: an interrupt ends this command without its table: {error}"));
    }
    let mut rows = Vec::new();
    for (n, combination) in combinations.iter().enumerate() {
        let folder = out.join(folder_name(n, combination.swept()));
        let outcome = if stop.load(Ordering::SeqCst) {
            Outcome::Interrupted
        } else {
            note(&format!("run {}/{}: {}", n + 1, combinations.len(), folder.display()));
            one(n, &folder, &stop)?
        };
        rows.push((folder, combination, outcome));
    }
    let summary = json!({ "runs": rows.iter().map(row).collect::<Vec<_>>() });
    let path = out.join(SUMMARY);
    write_whole(&path, |file| file.write_all(format!("{summary:#}\n").as_bytes()))
        .with_context(|| format!("cannot write {}: free some space", path.display()))?;
    if quiet {
        say(&summary.to_string())?;
    } else {
        say(&table(&rows))?;
        say(&format!("Runs: {}   Table: {}", out.display(), path.display()))?;
    }
    let lost = |what: fn(&Outcome) -> bool| rows.iter().filter(|(.., outcome)| what(outcome)).count();
    let failed = lost(|outcome| matches!(outcome, Outcome::Failed(_)));
    let open = lost(|outcome| matches!(outcome, Outcome::Interrupted));
    match (failed, open) {
        (0, 0) => Ok(()),
        (_, 0) => bail!("{failed} of {} runs failed; the others are in {}", rows.len(), out.display()),
        _ => bail!("interrupted: {} of {} runs ended; they are in {}", rows.len() - open, rows.len(), out.display()),
    }
}

/// `1_model=embedded_batch=4`, without anything that a path could trip over.
fn folder_name(n: usize, swept: &[String]) -> String {
    let keep = |c: char| if c.is_ascii_alphanumeric() || "-_.=".contains(c) { c } else { '-' };
    let text: String = swept.join("_").chars().map(keep).take(LONGEST).collect();
    if text.is_empty() { (n + 1).to_string() } else { format!("{}_{text}", n + 1) }
}

/// This very command, with the number of the combination that it is to run.
fn one(n: usize, folder: &Path, stop: &AtomicBool) -> Result<Outcome> {
    let program = this_program()?;
    let mut arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    let behind = arguments.iter().position(|argument| argument == "profile").map_or(0, |at| at + 1);
    let pick = ["--pick".into(), n.to_string().into(), "--pick-out".into(), folder.as_os_str().to_os_string()];
    arguments.splice(behind..behind, pick);
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .context("cannot start a process for the run")?;
    let printed = child.stdout.take().map(|out| reader("cs-run-out", move || whole(out))).transpose()?;
    let told = child.stderr.take().map(|err| reader("cs-run-err", move || pass_on(err))).transpose()?;
    let mut asked = false;
    let status = loop {
        if let Some(status) = child.try_wait().context("cannot wait for the run")? {
            break status;
        }
        if stop.load(Ordering::SeqCst) && !asked {
            asked = true;
            ask_to_end(&child);
        }
        std::thread::sleep(PAUSE);
    };
    let printed = printed.and_then(|thread| thread.join().ok()).unwrap_or_default();
    let told = told.and_then(|thread| thread.join().ok()).unwrap_or_default();
    if stop.load(Ordering::SeqCst) {
        return Ok(Outcome::Interrupted);
    }
    Ok(match serde_json::from_str(&printed) {
        Ok(object) if status.success() => Outcome::Done(object),
        _ if told.is_empty() => Outcome::Failed(status.to_string()),
        _ => Outcome::Failed(told),
    })
}

fn reader<T: Send + 'static>(name: &str, work: impl FnOnce() -> T + Send + 'static) -> Result<JoinHandle<T>> {
    std::thread::Builder::new()
        .name(name.to_string())
        .spawn(work)
        .context("cannot start a thread to read a run's output")
}

fn whole(mut out: impl Read) -> String {
    let mut bytes = Vec::new();
    let _ = out.read_to_end(&mut bytes);
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Shows the lines, and returns the last.
fn pass_on(err: impl Read) -> String {
    let mut last = String::new();
    for line in BufReader::new(err).lines().map_while(|line| line.ok()).filter(|line| !line.trim().is_empty()) {
        note(&line);
        last = line;
    }
    last
}

/// A run that is told so writes what it has recorded.
#[cfg(unix)]
fn ask_to_end(child: &Child) {
    let pid = i32::try_from(child.id()).ok().and_then(rustix::process::Pid::from_raw);
    if let Some(pid) = pid {
        // It may have ended meanwhile, or have been told by the terminal already.
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::INT);
    }
}

/// Here the terminal tells it.
#[cfg(not(unix))]
fn ask_to_end(_: &Child) {}

/// One run's figures: medians, or single values.
fn figure(object: &Value, key: &str) -> Option<f64> {
    let figure = object.pointer(&format!("/metrics/figures/{key}"))?;
    figure.get("median").or_else(|| figure.get("value"))?.as_f64()
}

/// One figure as `metrics.json` has it, without its samples; null if the run has none.
fn with_spread(object: &Value, key: &str) -> Value {
    let mut figure = object.pointer(&format!("/metrics/figures/{key}")).cloned().unwrap_or_default();
    if let Some(fields) = figure.as_object_mut() {
        fields.remove("samples");
    }
    figure
}

/// The figures of the table: key, title, how to show them.
type Column = (&'static str, &'static str, fn(f64) -> String);

const FIGURES: [Column; 6] = [
    ("ttft", "TTFT", duration),
    ("tpot", "TPOT", duration),
    ("decode_tps", "decode tokens/s", significant),
    ("output_tps", "output tokens/s", significant),
    ("peak_memory", "peak memory", bytes),
    ("usd_per_million_output_tokens", "$/1M tokens", significant),
];

fn requests(object: &Value) -> Option<u64> {
    let of = |key: &str| object.pointer(&format!("/metrics/requests/{key}"))?.as_u64();
    Some(of("n")?.saturating_sub(of("warmup")?))
}

fn row((folder, combination, outcome): &(PathBuf, &Composition, Outcome)) -> Value {
    let mut row = json!({ "run": folder, "values": combination.swept() });
    match outcome {
        Outcome::Done(object) => {
            let figures = FIGURES.iter().map(|(key, ..)| ((*key).to_string(), with_spread(object, key)));
            row["status"] = json!("done");
            row["requests"] = json!(requests(object));
            row["figures"] = Value::Object(figures.collect());
            row["trusted"] = object.pointer("/metrics/verdict/ok").cloned().unwrap_or_default();
        }
        Outcome::Failed(why) => {
            row["status"] = json!("failed");
            row["error"] = json!(why);
        }
        Outcome::Interrupted => row["status"] = json!("interrupted"),
    }
    row
}

fn table(rows: &[(PathBuf, &Composition, Outcome)]) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_content_arrangement(ContentArrangement::Dynamic);
    if table.width().is_none() {
        // Not a terminal.
        table.set_width(160);
    }
    // A figure that no run has gets no column.
    let has = |key: &str| {
        rows.iter().any(|(.., outcome)| matches!(outcome, Outcome::Done(object) if figure(object, key).is_some()))
    };
    let shown: Vec<&Column> = FIGURES.iter().filter(|(key, ..)| has(key)).collect();
    let titles = shown.iter().map(|(_, title, _)| *title);
    table.set_header(["run", "requests"].into_iter().chain(titles).chain([""]));
    for (folder, _, outcome) in rows {
        let name = folder.file_name().map(|name| name.display().to_string()).unwrap_or_default();
        let mut cells = vec![name];
        match outcome {
            Outcome::Done(object) => {
                cells.push(requests(object).map_or_else(String::new, count));
                cells.extend(shown.iter().map(|(key, _, show)| figure(object, key).map_or_else(String::new, show)));
                let trusted = object.pointer("/metrics/verdict/ok").and_then(Value::as_bool);
                cells.push(if trusted == Some(false) { "not to be trusted: see its report" } else { "" }.to_string());
            }
            Outcome::Failed(why) => {
                cells.extend(vec![String::new(); shown.len() + 1]);
                cells.push(format!("failed: {}", why.trim_start_matches("error: ")));
            }
            Outcome::Interrupted => {
                cells.extend(vec![String::new(); shown.len() + 1]);
                cells.push("interrupted".to_string());
            }
        }
        table.add_row(cells);
    }
    format!("{table}\nMedians over the measured requests; {SUMMARY} has their spread.")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_have_names_that_are_no_paths() {
        let swept = |texts: &[&str]| texts.iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(folder_name(0, &swept(&["model=a", "batch=4"])), "1_model=a_batch=4");
        assert_eq!(folder_name(9, &swept(&["model.path=../x y"])), "10_model.path=..-x-y");
        assert_eq!(folder_name(1, &[]), "2");
        assert_eq!(folder_name(0, &swept(&[&format!("prompt={}", "é".repeat(200))])).len(), 82);
    }
}
