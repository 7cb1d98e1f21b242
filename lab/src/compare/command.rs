//! A command that writes a run: where it is told to put it, and how it is started.

use super::error::CompareFailed;
use super::target::Target;
use crate::method::Cancel;
use candlescope::env::VARIABLE;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// Stands for the run's directory in a command.
const OUT: &str = "{out}";
/// Characters of what a command printed that an error shows.
const SHOWN: usize = 600;

/// A command that writes a run each time it is started.
#[derive(Debug, Clone)]
pub(super) struct RunCommand {
    text: String,
    /// What it is called in results and messages.
    name: String,
}

impl RunCommand {
    /// The command as the user gave it, `letter`'s side. `candlescope profile` without a directory is given one. Unless
    /// `keep` says so, it is called by its program alone: other words may hold keys.
    pub(super) fn new(text: &str, letter: char, keep: bool) -> Self {
        let name = if keep { text.to_string() } else { format!("{} (command {letter})", program(text)) };
        let mut words = text.split_whitespace();
        let program = words.next().map(|word| word.rsplit(['/', '\\']).next().unwrap_or(word));
        let profiles = matches!(program, Some("candlescope" | "candlescope-cuda")) && words.next() == Some("profile");
        let has = |option: &str| {
            let given =
                |word: &str| word.strip_prefix(option).is_some_and(|rest| rest.is_empty() || rest.starts_with('='));
            text.split_whitespace().any(given)
        };
        let mut text_to_run = text.to_string();
        if profiles && !text.contains(OUT) && !has("--out") {
            text_to_run += &format!(" --out {OUT}");
            // Twice is an error.
            text_to_run += if has("--no-progress") { "" } else { " --no-progress" };
        }
        Self { text: text_to_run, name }
    }

    /// What it is called in results.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Runs it, with `out` for its run and `printed` for what it prints, and returns the run's directory. `Ok(None)`
    /// where it failed after an interrupt, which every process of a terminal gets.
    pub(super) fn run(
        &self,
        out: &Path,
        printed: &Path,
        interrupted: impl Fn() -> bool,
        kept: &str,
        limit: Option<Duration>,
    ) -> Result<Option<PathBuf>, CompareFailed> {
        is_text(out)?;
        let text = self.text.replace(OUT, &quoted(out));
        let start = |cause| CompareFailed::Start { command: self.name.clone(), cause };
        let output = File::create(printed).map_err(|cause| CompareFailed::Write { path: printed.into(), cause })?;
        let errors = output.try_clone().map_err(start)?;
        let mut command = shell(&text);
        if !self.text.contains(OUT) {
            command.env(VARIABLE, variable(std::env::var(VARIABLE).ok().as_deref(), out));
        }
        command.stdin(Stdio::null()).stdout(output).stderr(errors);
        let status = match limit {
            None => command.status().map_err(start)?,
            Some(limit) => {
                match BoundedCommand::start(command).map_err(start)?.wait(limit, &interrupted).map_err(start)? {
                    Some(status) => status,
                    None if interrupted() => return Ok(None),
                    None => {
                        let (command, seconds, said) = (self.name.clone(), limit.as_secs_f64(), tail(printed));
                        return Err(CompareFailed::TooLong { command, seconds, said, kept: kept.to_string() });
                    }
                }
            }
        };
        if !status.success() {
            if interrupted() {
                return Ok(None);
            }
            let said = tail(printed);
            return Err(CompareFailed::Command {
                command: self.name.clone(),
                status: status.to_string(),
                said,
                kept: kept.to_string(),
            });
        }
        match Target::find(out) {
            Ok(Target::Runs(runs)) if runs.len() == 1 => Ok(runs.into_iter().next()),
            _ => Err(CompareFailed::NoRun { command: self.name.clone(), kept: kept.to_string() }),
        }
    }
}

/// What is started for a command, for people: `{out}` stands where each run has a directory of its own. A command that
/// does not say `{out}` is told where to record by a variable, which stands before it; what that variable has of the
/// user's own, such as an address with a password, stands as `…`.
pub fn started_as(text: &str) -> String {
    started_with(text, std::env::var(VARIABLE).ok().as_deref())
}

/// The same where the variable has this value.
fn started_with(text: &str, given: Option<&str>) -> String {
    let command = RunCommand::new(text, 'A', false);
    if command.text.contains(OUT) {
        return command.text;
    }
    let ours = variable(None, Path::new(OUT));
    let value = if kept(given).next().is_some() { format!("…,{ours}") } else { ours };
    format!("{VARIABLE}={} {}", shlex::try_quote(&value).map_or(value.as_str().into(), |value| value), command.text)
}

/// Runs a program, with all the processes that it starts, for `limit` at most. `None` if it took longer or was
/// cancelled, and was ended.
///
/// # Errors
/// It cannot be started, or waited for.
pub fn run_within(command: Command, limit: Duration, cancel: &Cancel) -> std::io::Result<Option<ExitStatus>> {
    BoundedCommand::start(command)?.wait(limit, &|| cancel.is_cancelled())
}

/// A command that may take so long and no longer, with all the processes that it starts.
struct BoundedCommand(Child);

impl BoundedCommand {
    /// Pause between two looks at whether it has ended.
    const PAUSE: Duration = Duration::from_millis(20);
    /// What an interrupted command has to write what it knows.
    const PATIENCE: Duration = Duration::from_secs(if cfg!(test) { 1 } else { 10 });

    fn start(mut command: Command) -> std::io::Result<Self> {
        #[cfg(unix)]
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        command.spawn().map(Self)
    }

    /// Its status; `None` if it took too long or was interrupted, and was ended.
    fn wait(mut self, limit: Duration, interrupted: &impl Fn() -> bool) -> std::io::Result<Option<ExitStatus>> {
        let began = Instant::now();
        while began.elapsed() < limit && !interrupted() {
            if let Some(status) = self.0.try_wait()? {
                return Ok(Some(status));
            }
            std::thread::sleep(Self::PAUSE);
        }
        // In a group of its own, it does not get what a terminal sends.
        #[cfg(unix)]
        self.signal(rustix::process::Signal::INT);
        let asked = Instant::now();
        while asked.elapsed() < Self::PATIENCE && self.0.try_wait()?.is_none() {
            std::thread::sleep(Self::PAUSE);
        }
        // What a shell starts in the background does not listen.
        #[cfg(unix)]
        self.signal(rustix::process::Signal::KILL);
        Ok(None)
    }

    #[cfg(unix)]
    fn signal(&self, signal: rustix::process::Signal) {
        let group = i32::try_from(self.0.id()).ok().and_then(rustix::process::Pid::from_raw);
        // If there is no such group any more, nothing is left to be ended.
        let _ = group.map(|group| rustix::process::kill_process_group(group, signal));
    }
}

impl Drop for BoundedCommand {
    fn drop(&mut self) {
        if matches!(self.0.try_wait(), Ok(None)) {
            #[cfg(unix)]
            self.signal(rustix::process::Signal::KILL);
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }
}

#[cfg(not(windows))]
fn shell(text: &str) -> Command {
    let mut command = Command::new("/bin/sh");
    command.args(["-c", text]);
    command
}

/// The text reaches `cmd` as it is, between two quotes that `cmd` takes off: those of an argument would escape its own.
#[cfg(windows)]
fn shell(text: &str) -> Command {
    let mut command = Command::new("cmd");
    std::os::windows::process::CommandExt::raw_arg(&mut command, format!("/S /C \"{text}\""));
    command
}

/// The program that a command starts, without its folder: the first word that sets no variable.
fn program(text: &str) -> &str {
    let sets = |word: &&str| {
        word.split_once('=').is_some_and(|(name, _)| {
            !name.is_empty() && name.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '_')
        })
    };
    // A variable's value in quotes may have spaces, and then parts of it look like a program.
    let plain = !text.contains(['"', '\'', '`', '\\', '$']);
    let mut words = text.split_whitespace().skip_while(sets);
    let first = words.next().filter(|_| plain || !text.split_whitespace().next().is_some_and(|word| sets(&word)));
    first.map_or("a program", |word| word.rsplit(['/', '\\']).next().unwrap_or(word).trim_matches(['"', '\'']))
}

/// Commands are told where to record in text, which a path has to be: another one would send the run elsewhere.
pub(super) fn is_text(out: &Path) -> Result<(), CompareFailed> {
    match out.to_str() {
        Some(_) => Ok(()),
        None => Err(CompareFailed::NotText { path: out.to_path_buf() }),
    }
}

/// A path as one word for the shell that runs the command.
fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    match shlex::try_quote(&text) {
        Ok(quoted) if !cfg!(windows) => quoted.into_owned(),
        // cmd knows no other quotes; a NUL byte, which shlex refuses, is in no path that can be opened.
        _ => format!("\"{text}\""),
    }
}

/// The variable's value with the run's directory in place of any other. A comma in the path is written as the variable
/// wants it: without a backslash before it, it would end the path.
fn variable(given: Option<&str>, out: &Path) -> String {
    let path = out.display().to_string().replace(',', "\\,");
    let ours = [format!("parquet={path}"), "report=off".to_string()];
    kept(given).map(str::to_string).chain(ours).collect::<Vec<_>>().join(",")
}

/// What is kept of the variable's value, whose entries are as they are written there: a comma behind a backslash is part of
/// one.
fn kept(given: Option<&str>) -> impl Iterator<Item = &str> {
    let mut before = ' ';
    let ends = move |letter: char| std::mem::replace(&mut before, letter) != '\\' && letter == ',';
    let all = given.unwrap_or_default().split(ends).map(str::trim);
    all.filter(|key| !key.is_empty() && !key.starts_with("parquet") && !key.starts_with("report"))
}

/// The end of what a command printed, as a part of a sentence.
fn tail(printed: &Path) -> String {
    let bytes = std::fs::read(printed).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes[bytes.len().saturating_sub(SHOWN)..]).trim().to_string();
    let lines: Vec<&str> = text.lines().rev().take(3).collect();
    let lines: Vec<&str> = lines.into_iter().rev().map(str::trim).collect();
    if lines.is_empty() { String::new() } else { format!(", after it printed: {}", lines.join(" / ")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn profile_is_given_a_directory_unless_it_has_one() {
        let text = |given: &str| RunCommand::new(given, 'A', false).text;
        assert_eq!(
            text("target/debug/candlescope profile --model embedded"),
            "target/debug/candlescope profile --model embedded --out {out} --no-progress"
        );
        assert_eq!(text("candlescope profile --no-progress"), "candlescope profile --no-progress --out {out}");
        assert_eq!(text("candlescope profile --out {out}/x"), "candlescope profile --out {out}/x");
        assert_eq!(text("./server --model x"), "./server --model x");
    }

    #[test]
    fn what_is_started_has_the_directory_or_the_variable() {
        assert_eq!(started_as("candlescope profile"), "candlescope profile --out {out} --no-progress");
        assert_eq!(started_as("KEY=1 ./server --run {out}"), "KEY=1 ./server --run {out}");
        let own = "CANDLESCOPE='parquet={out},report=off' THREADS=2 ./server once";
        for nothing_kept in [None, Some(""), Some("parquet=old,report")] {
            assert_eq!(started_with("THREADS=2 ./server once", nothing_kept), own);
        }
    }

    #[test]
    fn what_the_user_set_is_handed_on_and_not_shown() {
        let given = Some("parquet=old,otlp=http://u:s3cr3t@host,log");
        let shown = started_with("./server once", given);
        assert_eq!(shown, "CANDLESCOPE='…,parquet={out},report=off' ./server once");
        let handed_on = variable(given, Path::new("/runs/a"));
        assert_eq!(handed_on, "otlp=http://u:s3cr3t@host,log,parquet=/runs/a,report=off");
        assert_eq!(started_with("./server --run {out}", given), "./server --run {out}");
    }

    #[test]
    fn a_command_is_called_by_its_program_alone() {
        let name = |given: &str| RunCommand::new(given, 'A', false).name;
        assert_eq!(name("KEY=sk-1 ./target/server --token sk-2"), "server (command A)");
        assert_eq!(name("candlescope profile --hub-token sk-3"), "candlescope (command A)");
        assert_eq!(name("KEY='sk 4' ./server"), "a program (command A)");
        assert_eq!(name(""), "a program (command A)");
        assert_eq!(RunCommand::new("KEY=sk-1 ./a", 'B', true).name, "KEY=sk-1 ./a");
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_command_that_does_not_end_is_stopped_with_all_that_it_started() {
        let dir = tempfile::tempdir().unwrap();
        let (out, printed) = (dir.path().join("run"), dir.path().join("printed.txt"));
        let command = RunCommand::new("sleep 61.75 & echo begun; sleep 61.75", 'A', false);
        let took = Instant::now();
        let error = command.run(&out, &printed, || false, "kept", Some(Duration::from_millis(300))).unwrap_err();
        assert!(
            error.to_string().contains("had not ended after 0 s and was stopped, after it printed: begun"),
            "{error}"
        );
        assert!(took.elapsed() < Duration::from_secs(15));
        let sleeps = || {
            let all = procfs::process::all_processes().unwrap().flatten();
            all.filter_map(|process| process.cmdline().ok())
                .filter(|words| words.iter().any(|word| word == "61.75"))
                .count()
        };
        let gone = (0..100).any(|_| {
            std::thread::sleep(Duration::from_millis(20));
            sleeps() == 0
        });
        assert!(gone, "{} left", sleeps());
        let interrupted = command.run(&out, &printed, || true, "kept", Some(Duration::from_secs(60)));
        assert!(interrupted.unwrap().is_none());
        let quick =
            RunCommand::new("exit 3", 'A', false).run(&out, &printed, || false, "kept", Some(Duration::from_secs(60)));
        assert!(quick.unwrap_err().to_string().contains("exit status: 3"));
    }

    #[test]
    fn a_path_reaches_the_shell_as_one_word() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("with space");
        assert!(shell(&format!("mkdir {}", quoted(&path))).status().unwrap().success());
        assert!(path.is_dir());
    }

    /// What the recorder reads is what the command was told.
    #[test]
    fn a_comma_in_the_path_does_not_end_it() {
        use candlescope::env::EnvConfig;
        let wanted = |path: &str, more: &[(&str, &str)]| {
            let mut wanted = EnvConfig::default();
            for (key, value) in [("parquet", path), ("report", "off")].iter().chain(more) {
                wanted.set(key, value).unwrap();
            }
            wanted
        };
        for path in ["a,b", "a,report", "a\\,b", "a\\b,,c", "plain"] {
            assert_eq!(EnvConfig::parse(&variable(None, Path::new(path))), Ok(wanted(path, &[])), "{path}");
        }
        let both = variable(Some("parquet=old\\,er,perfetto=x\\,y.pftrace"), Path::new("a,b"));
        assert_eq!(EnvConfig::parse(&both), Ok(wanted("a,b", &[("perfetto", "x,y.pftrace")])), "{both}");
    }

    #[cfg(unix)]
    #[test]
    fn a_path_that_is_no_text_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let out = dir.path().join(<std::ffi::OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(b"a\xff"));
        let command = RunCommand::new("true", 'A', false);
        let error = command.run(&out, &dir.path().join("printed.txt"), || false, "kept", None).unwrap_err().to_string();
        assert!(error.contains("is no text in UTF-8") && error.contains("--out"), "{error}");
        assert!(!dir.path().join("printed.txt").exists(), "nothing was started");
    }

    #[test]
    fn the_variable_keeps_what_else_was_asked_for() {
        let out = Path::new("out/a");
        assert_eq!(variable(None, out), "parquet=out/a,report=off");
        assert_eq!(
            variable(Some("cupti=5/500, parquet=./runs,nvml=off"), out),
            "cupti=5/500,nvml=off,parquet=out/a,report=off"
        );
        let words = |path: &str| shlex::split(&quoted(Path::new(path))).expect("words of a shell");
        for path in ["it's", "with space", "$HOME `x` \"y\" \\", "plain/a-b_c.d"] {
            assert_eq!(words(path), [path], "{}", quoted(Path::new(path)));
        }
    }
}
