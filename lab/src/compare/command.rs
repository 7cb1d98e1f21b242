//! A command that writes a run: where it is told to put it, and how it is started.

use super::error::CompareFailed;
use super::target::Target;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Stands for the run's directory in a command.
const OUT: &str = "{out}";
/// The variable that programs with `candlescope::init()` read.
const VARIABLE: &str = "CANDLESCOPE";
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
    ) -> Result<Option<PathBuf>, CompareFailed> {
        let text = self.text.replace(OUT, &quoted(out));
        let start = |cause| CompareFailed::Start { command: self.name.clone(), cause };
        let output = File::create(printed).map_err(|cause| CompareFailed::Write { path: printed.into(), cause })?;
        let errors = output.try_clone().map_err(start)?;
        let mut command = shell(&text);
        if !self.text.contains(OUT) {
            command.env(VARIABLE, variable(std::env::var(VARIABLE).ok().as_deref(), out));
        }
        let status = command.stdin(Stdio::null()).stdout(output).stderr(errors).status().map_err(start)?;
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

#[cfg(not(windows))]
fn shell(text: &str) -> Command {
    let mut command = Command::new("/bin/sh");
    command.args(["-c", text]);
    command
}

#[cfg(windows)]
fn shell(text: &str) -> Command {
    let mut command = Command::new("cmd");
    command.args(["/C", text]);
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

/// A path as one word for the shell that runs the command.
fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    match shlex::try_quote(&text) {
        Ok(quoted) if !cfg!(windows) => quoted.into_owned(),
        // cmd knows no other quotes; a NUL byte, which shlex refuses, is in no path that can be opened.
        _ => format!("\"{text}\""),
    }
}

/// The variable's value with the run's directory in place of any other.
fn variable(given: Option<&str>, out: &Path) -> String {
    let kept = given.unwrap_or_default().split(',').map(str::trim);
    let kept = kept.filter(|key| !key.is_empty() && !key.starts_with("parquet") && !key.starts_with("report"));
    let ours = [format!("parquet={}", out.display()), "report=off".to_string()];
    kept.map(str::to_string).chain(ours).collect::<Vec<_>>().join(",")
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
    fn a_command_is_called_by_its_program_alone() {
        let name = |given: &str| RunCommand::new(given, 'A', false).name;
        assert_eq!(name("KEY=sk-1 ./target/server --token sk-2"), "server (command A)");
        assert_eq!(name("candlescope profile --hub-token sk-3"), "candlescope (command A)");
        assert_eq!(name("KEY='sk 4' ./server"), "a program (command A)");
        assert_eq!(name(""), "a program (command A)");
        assert_eq!(RunCommand::new("KEY=sk-1 ./a", 'B', true).name, "KEY=sk-1 ./a");
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
