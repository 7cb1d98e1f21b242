//! Lays defaults, a TOML file, `--set` and the command line over each other.

use crate::args::{PartialOptions, ProfileArgs};
use anyhow::{Context, Result, anyhow, bail};
use serde::Serialize;
use std::path::PathBuf;
use toml::{Table, Value};

/// Options of `profile` as resolved.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) struct Options {
    pub(crate) model: String,
    #[serde(skip)]
    pub(crate) prompt: Prompt,
    pub(crate) chat: bool,
    pub(crate) max_new_tokens: usize,
    pub(crate) ignore_eos: bool,
    pub(crate) batch: usize,
    pub(crate) repeats: usize,
    pub(crate) warmup: usize,
    pub(crate) device: String,
    pub(crate) dtype: Option<String>,
    pub(crate) dequantize: bool,
    pub(crate) engine: String,
    pub(crate) seed: u64,
    pub(crate) temperature: f64,
    pub(crate) top_k: Option<usize>,
    pub(crate) top_p: Option<f64>,
    #[serde(skip)]
    pub(crate) out: Option<PathBuf>,
    pub(crate) disk_budget_mb: Option<u64>,
    #[serde(skip)]
    pub(crate) perfetto: Option<PathBuf>,
}

/// What is continued. Its text is never recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Prompt {
    Text(String),
    RandomTokens(usize),
}

const DEFAULT_PROMPT: &str = "The lighthouse keeper opened the door and";

/// Resolves the options of `profile`. Later layers win: defaults, file, `--set`, command line.
pub(crate) fn resolve(args: &ProfileArgs) -> Result<Options> {
    let mut table = Table::new();
    if let Some(file) = &args.config {
        let text = std::fs::read_to_string(file)
            .with_context(|| format!("cannot read the configuration {}", file.display()))?;
        let read: Table = text.parse().with_context(|| format!("{} is not valid TOML", file.display()))?;
        check(&read).with_context(|| format!("in {}", file.display()))?;
        table.extend(read);
    }
    for setting in &args.set {
        let (key, value) = setting.split_once('=').ok_or_else(|| anyhow!("--set wants KEY=VALUE, not `{setting}`"))?;
        let one = Table::from_iter([(key.trim().to_string(), value_of(value.trim()))]);
        check(&one).with_context(|| format!("in --set {setting}"))?;
        table.extend(one);
    }
    let typed = Table::try_from(&args.options).context("cannot lay the options over each other")?;
    // One prompt option on the command line replaces whichever one the file has.
    if ["prompt", "prompt-file", "prompt-tokens"].iter().any(|k| typed.contains_key(*k)) {
        table.retain(|k, _| !k.starts_with("prompt"));
    }
    table.extend(typed);
    let partial: PartialOptions = Value::Table(table).try_into().context("cannot read the options")?;
    build(partial)
}

/// Whether the keys and their types are right.
fn check(table: &Table) -> Result<()> {
    let read: Result<PartialOptions, _> = Value::Table(table.clone()).try_into();
    read.map(drop).map_err(|error| anyhow!("{}", error.message().trim().replace('\n', " ")))
}

/// A value as TOML would read it, or else a string: `--set model=embedded` needs no quotes.
fn value_of(text: &str) -> Value {
    format!("v = {text}")
        .parse::<Table>()
        .ok()
        .and_then(|mut t| t.remove("v"))
        .unwrap_or_else(|| Value::String(text.to_string()))
}

fn build(p: PartialOptions) -> Result<Options> {
    let options = Options {
        prompt: prompt(&p)?,
        model: p.model.unwrap_or_else(|| "embedded".into()),
        chat: p.chat.unwrap_or(false),
        max_new_tokens: p.max_new_tokens.unwrap_or(64),
        ignore_eos: p.ignore_eos.unwrap_or(false),
        batch: p.batch.unwrap_or(1),
        repeats: p.repeats.unwrap_or(5),
        warmup: p.warmup.unwrap_or(1),
        device: p.device.unwrap_or_else(|| "cpu".into()),
        dtype: p.dtype,
        dequantize: p.dequantize.unwrap_or(false),
        engine: p.engine.unwrap_or_else(|| "instrumented".into()),
        seed: p.seed.unwrap_or(42),
        temperature: p.temperature.unwrap_or(0.0),
        top_k: p.top_k,
        top_p: p.top_p,
        out: p.out,
        disk_budget_mb: p.disk_budget_mb,
        perfetto: p.perfetto,
    };
    for (name, value) in
        [("max-new-tokens", options.max_new_tokens), ("batch", options.batch), ("repeats", options.repeats)]
    {
        if value == 0 {
            bail!("--{name} is 0; it must be at least 1");
        }
    }
    Ok(options)
}

fn prompt(p: &PartialOptions) -> Result<Prompt> {
    let given = [p.prompt.is_some(), p.prompt_file.is_some(), p.prompt_tokens.is_some()];
    if given.iter().filter(|g| **g).count() > 1 {
        bail!("give one of prompt, prompt-file and prompt-tokens, not several");
    }
    let text = match (&p.prompt, &p.prompt_file, p.prompt_tokens) {
        (_, _, Some(0)) => bail!("--prompt-tokens is 0; it must be at least 1"),
        (_, _, Some(n)) => return Ok(Prompt::RandomTokens(n)),
        (Some(text), ..) => text.clone(),
        (_, Some(file), _) => {
            std::fs::read_to_string(file).with_context(|| format!("cannot read the prompt file {}", file.display()))?
        }
        _ => DEFAULT_PROMPT.to_string(),
    };
    if text.trim().is_empty() {
        bail!("the prompt is empty; give a text with --prompt, or --prompt-tokens N for random tokens");
    }
    Ok(Prompt::Text(text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Cli, Command};
    use clap::Parser;

    fn resolved(args: &[&str]) -> Result<Options> {
        let cli = Cli::try_parse_from(["candlescope", "profile"].iter().chain(args))?;
        match cli.command {
            Command::Profile(args) => resolve(&args),
            _ => unreachable!("parsed as profile"),
        }
    }

    #[test]
    fn later_layers_win() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("a.toml");
        std::fs::write(&file, "model = \"config:smollm2-135m\"\nmax-new-tokens = 5\nrepeats = 7\nprompt-tokens = 9\n")
            .unwrap();
        let file = file.to_str().unwrap();
        let o = resolved(&["--config", file, "--set", "repeats=8", "--set", "model=embedded", "--max-new-tokens", "6"])
            .unwrap();
        assert_eq!((o.model.as_str(), o.max_new_tokens, o.repeats, o.warmup), ("embedded", 6, 8, 1));
        assert_eq!(o.prompt, Prompt::RandomTokens(9));
        let o = resolved(&["--config", file, "--prompt", "hello"]).unwrap();
        assert_eq!(o.prompt, Prompt::Text("hello".into()));
    }

    #[test]
    fn mistakes_are_named() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("a.toml");
        let path = file.to_str().unwrap();
        let message = |args: &[&str]| format!("{:#}", resolved(args).unwrap_err());
        std::fs::write(&file, "modell = 1\n").unwrap();
        let text = message(&["--config", path]);
        assert!(text.contains("a.toml") && text.contains("modell"), "{text}");
        std::fs::write(&file, "repeats = \"many\"\n").unwrap();
        let text = message(&["--config", path]);
        assert!(text.contains("a.toml") && text.contains("repeats") || text.contains("invalid type"), "{text}");
        std::fs::write(&file, "= 3").unwrap();
        assert!(message(&["--config", path]).contains("not valid TOML"));
        assert!(message(&["--config", "/nowhere.toml"]).contains("/nowhere.toml"));
        assert!(message(&["--set", "repeats"]).contains("KEY=VALUE"));
        assert!(message(&["--set", "nonsense=1"]).contains("nonsense"));
        assert!(message(&["--prompt", "  "]).contains("prompt is empty"));
        assert!(message(&["--repeats", "0"]).contains("--repeats is 0"));
        assert!(message(&["--prompt-tokens", "0"]).contains("--prompt-tokens is 0"));
        assert!(message(&["--nonsense"]).contains("--nonsense"));
        assert!(message(&["--prompt", "a", "--prompt-tokens", "3"]).contains("cannot be used with"));
    }
}
