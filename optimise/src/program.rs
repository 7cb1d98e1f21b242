//! The program that is made faster: `candlescope profile` with a setting.

use crate::setting::{Change, Setting};
use crate::words::quoted;
use std::path::PathBuf;

/// The program, and words that every command of it has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Program {
    /// Path of the executable that is started; commands for people name it without directory and ending.
    pub program: PathBuf,
    /// Words that are no options: groups and keys of a configuration.
    pub words: Vec<String>,
    /// Words that no file and no message has: texts, addresses with passwords.
    pub private: Vec<String>,
}

/// What a run is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Recording {
    /// To be diagnosed: all that can be recorded.
    Diagnosis,
    /// To be compared: steps, at the least cost.
    Comparison,
}

impl Program {
    /// The command with a setting, as a shell reads it. Its run goes to where `{out}` says.
    pub(crate) fn command(&self, setting: &Setting, recording: Recording, on_gpu: bool) -> String {
        let recorded = match (recording, on_gpu) {
            (Recording::Diagnosis, true) => Change::default().option("cupti", "20/200"),
            (Recording::Diagnosis, false) => Change::default(),
            (Recording::Comparison, true) => Change::default().option("gpu-timing", "steps").option("stacks", "off"),
            (Recording::Comparison, false) => Change::default().option("stacks", "off"),
        };
        // What the user asked for stays. All answers are as long as they may be, so that they can be compared.
        let given = setting.with(&Change::default());
        let recorded = recorded.option("ignore-eos", true);
        let setting = Setting::default().with(&recorded);
        let all = Setting {
            options: setting.options.into_iter().chain(given.options).collect(),
            environment: given.environment,
        };
        let words = self.words.iter().chain(&self.private).map(|word| quoted(word) + " ").collect::<String>();
        format!(
            "{}{} profile {words}{} --no-progress --out {{out}}",
            all.environment_in_words(),
            quoted(&self.program.display().to_string()),
            all.options_in_words()
        )
    }

    /// A command as it may be shown: in place of what nobody is to read stands `…`.
    pub(crate) fn shown(&self, command: &str) -> String {
        self.private.iter().fold(command.to_string(), |shown, word| {
            let name = word.split_once('=').map_or_else(String::new, |(name, _)| format!("{name}="));
            shown.replace(&quoted(word), &format!("{name}…"))
        })
    }

    /// What people call it: `candlescope`.
    fn name(&self) -> String {
        self.program.file_stem().map_or_else(|| "candlescope".into(), |name| name.to_string_lossy().into_owned())
    }

    /// The command with a setting for people to use.
    pub fn to_use(&self, setting: &Setting) -> String {
        let words = self.words.iter().map(|word| quoted(word) + " ").collect::<String>();
        // Whoever uses it says again what is written nowhere.
        let private = self.private.iter().filter_map(|word| word.split_once('=')).map(|(name, _)| format!(" {name}=…"));
        let options = setting.options_in_words() + &private.collect::<String>();
        format!("{}{} profile {words}{options}", setting.environment_in_words(), self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_user_asked_for_stays() {
        let program =
            Program { program: "candlescope".into(), words: vec!["model=smollm2".into()], private: Vec::new() };
        let setting = Setting::default().with(&Change::default().option("stacks", "99").option("prompt", "it's"));
        assert_eq!(
            program.command(&setting, Recording::Comparison, false),
            "candlescope profile model=smollm2 --ignore-eos=true \"--prompt=it's\" --stacks=99 --no-progress --out {out}"
        );
        assert_eq!(program.to_use(&setting), "candlescope profile model=smollm2 \"--prompt=it's\" --stacks=99");
    }

    #[test]
    fn texts_are_in_no_command_that_is_shown() {
        let private = vec!["--prompt=a secret".to_string()];
        let program = Program { program: "candlescope".into(), words: Vec::new(), private };
        let run = program.command(&Setting::default(), Recording::Comparison, false);
        assert!(run.contains("'--prompt=a secret'"), "{run}");
        assert_eq!(
            program.shown(&run),
            "candlescope profile --prompt=… --ignore-eos=true --stacks=off --no-progress --out {out}"
        );
        let shown = program.to_use(&Setting::default());
        assert!(shown.contains("--prompt=…") && !shown.contains("secret"), "{shown}");
    }
}
