//! Options of `profile`, from a composed configuration.

use crate::args::{PartialOptions, ProfileArgs};
use crate::conf::{Composed, DEFAULT_PROMPT, Layers};
use crate::samples;
use anyhow::{Context, Result, anyhow, bail};
use candlescope_core::files::read_text_limited;
use candlescope_core::{GpuTier, GpuTiming, RedactedUrl, Schedule};
use serde::Serialize;
use std::path::{Path, PathBuf};

/// Options of `profile` as resolved.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) struct Options {
    pub(crate) model: String,
    #[serde(skip)]
    pub(crate) prompt: Prompt,
    #[serde(skip)]
    pub(crate) image: Option<PathBuf>,
    pub(crate) chat: bool,
    pub(crate) max_new_tokens: usize,
    pub(crate) ignore_eos: bool,
    pub(crate) batch: usize,
    pub(crate) repeats: usize,
    pub(crate) warmup: usize,
    /// Requests go on until this many seconds have passed, in place of `repeats`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) duration_s: Option<f64>,
    pub(crate) device: String,
    pub(crate) dtype: Option<String>,
    pub(crate) dequantize: bool,
    pub(crate) engine: String,
    /// In the environment and in `inputs`, as settled.
    #[serde(skip)]
    pub(crate) threads: Option<usize>,
    pub(crate) seed: u64,
    pub(crate) temperature: f64,
    pub(crate) top_k: Option<usize>,
    pub(crate) top_p: Option<f64>,
    #[serde(skip)]
    pub(crate) out: Option<PathBuf>,
    pub(crate) disk_budget_mb: Option<u64>,
    pub(crate) gpu_timing: GpuTier,
    pub(crate) gpu_budget: f64,
    pub(crate) cupti: Option<String>,
    #[serde(skip)]
    pub(crate) kernels: Option<Schedule>,
    pub(crate) overhead_probe: Option<u64>,
    /// The session records it, resolved.
    #[serde(skip)]
    pub(crate) ring_capacity: Option<usize>,
    pub(crate) queue_records: Option<u64>,
    pub(crate) nvtx: Option<bool>,
    /// May carry a password: never recorded.
    #[serde(skip)]
    pub(crate) otlp: Option<RedactedUrl>,
    #[serde(skip)]
    pub(crate) prometheus: Option<String>,
    #[serde(skip)]
    pub(crate) perfetto: Option<PathBuf>,
    /// US dollars.
    pub(crate) price_per_hour: Option<f64>,
    /// The group files that were chosen.
    pub(crate) groups: Vec<String>,
    /// The composed configuration, from which the run can be made again.
    pub(crate) inputs: serde_json::Value,
}

/// The prompt. Its text is not recorded unless `dataset.keep_text` is on.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Prompt {
    Text(String),
    RandomTokens(usize),
    Dataset(Dataset),
}

/// Prompts of a data set, and which of them to use.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Dataset {
    /// As it was given.
    pub(crate) name: String,
    pub(crate) prompts: Vec<candlescope_prompts::Prompt>,
    /// Most prompts.
    pub(crate) limit: Option<usize>,
    /// In an order that the seed decides.
    pub(crate) shuffle: bool,
    /// Longer ones are left out.
    pub(crate) max_prompt_tokens: Option<usize>,
    /// Record the texts.
    pub(crate) keep_text: bool,
}

/// Most sequences at once. Far more than any machine can decode, and few enough that the prompts themselves fit into
/// memory.
pub(crate) const MAX_BATCH: usize = 1 << 16;

/// Largest prompt file, in bytes: more than the longest context that a model may have.
const MAX_PROMPT_BYTES: u64 = 64 << 20;

/// Most megabytes whose bytes can still be counted.
const MAX_BUDGET_MB: u64 = u64::MAX >> 20;

/// The configurations that `profile` was asked for: one, or with `-m` every combination.
pub(crate) fn composed(args: &ProfileArgs) -> Result<Vec<Composed>> {
    Layers::of(&args.options, &args.conf, args.config.as_deref(), &args.set)?.combinations()
}

/// Resolves the options of a composed configuration.
pub(crate) fn resolve(composed: &Composed) -> Result<Options> {
    let p = composed.options()?;
    let on_gpu = p.device.as_ref().is_some_and(|device| device.starts_with("cuda"));
    let options = Options {
        gpu_timing: gpu_timing(p.gpu_timing.as_deref(), on_gpu)?,
        gpu_budget: gpu_budget(p.gpu_budget)?,
        kernels: p.cupti.as_deref().map(windows).transpose()?,
        cupti: p.cupti.clone(),
        overhead_probe: p.overhead_probe,
        ring_capacity: p.ring_capacity.map(|records| usize::try_from(records).unwrap_or(usize::MAX)),
        queue_records: p.queue_records,
        nvtx: p.nvtx,
        prompt: prompt(&p, composed)?,
        image: p.image,
        model: p.model.unwrap_or_default(),
        chat: p.chat.unwrap_or_default(),
        max_new_tokens: p.max_new_tokens.unwrap_or_default(),
        ignore_eos: p.ignore_eos.unwrap_or_default(),
        batch: p.batch.unwrap_or_default(),
        repeats: p.repeats.unwrap_or_default(),
        warmup: p.warmup.unwrap_or_default(),
        duration_s: None,
        device: p.device.unwrap_or_default(),
        dtype: p.dtype,
        dequantize: p.dequantize.unwrap_or_default(),
        engine: p.engine.unwrap_or_default(),
        threads: p.threads,
        seed: p.seed.unwrap_or_default(),
        temperature: p.temperature.unwrap_or_default(),
        top_k: p.top_k,
        top_p: p.top_p,
        out: p.out,
        disk_budget_mb: p.disk_budget_mb,
        otlp: p.otlp.map(Into::into),
        prometheus: p.prometheus,
        perfetto: p.perfetto,
        price_per_hour: price(composed)?,
        groups: composed.groups().to_vec(),
        inputs: composed.inputs(),
    };
    for (name, value) in
        [("max-new-tokens", options.max_new_tokens), ("batch", options.batch), ("repeats", options.repeats)]
    {
        if value == 0 {
            bail!("--{name} is 0; it must be at least 1");
        }
    }
    if options.queue_records == Some(0) {
        bail!("--queue-records is 0; it must be at least 1, or left out for the default");
    }
    if options.threads == Some(0) {
        bail!("--threads is 0; it must be at least 1");
    }
    if options.batch > MAX_BATCH {
        bail!(
            "--batch is {}; at most {MAX_BATCH} sequences run at once: use a smaller batch, and --repeats for more requests",
            options.batch
        );
    }
    match options.disk_budget_mb {
        Some(0) => bail!("--disk-budget-mb is 0; it must be at least 1, or left out for no limit"),
        Some(mb) if mb > MAX_BUDGET_MB => {
            bail!("--disk-budget-mb is {mb}; it must be at most {MAX_BUDGET_MB}, or left out for no limit")
        }
        _ => {}
    }
    Ok(options)
}

fn gpu_timing(word: Option<&str>, on_gpu: bool) -> Result<GpuTier> {
    let Some(word) = word else {
        return Ok(if on_gpu { GpuTier::Adaptive } else { GpuTier::Off });
    };
    let tier = GpuTier::from_word(word)
        .ok_or_else(|| anyhow!("--gpu-timing is `{word}`; it can be off, steps, blocks, all or adaptive"))?;
    if tier != GpuTier::Off && !on_gpu {
        bail!("--gpu-timing {word} needs a GPU: add --device cuda:0");
    }
    Ok(tier)
}

fn gpu_budget(share: Option<f64>) -> Result<f64> {
    let share = share.unwrap_or(GpuTiming::default().budget);
    if !(0.0..=1.0).contains(&share) {
        bail!("--gpu-budget is {share}; it is a share of step time from 0 to 1, for example 0.02");
    }
    Ok(share)
}

fn windows(text: &str) -> Result<Schedule> {
    text.parse().map_err(|error| anyhow!("--cupti: {error}"))
}

fn price(composed: &Composed) -> Result<Option<f64>> {
    let price = composed.get("hardware.price_per_hour").and_then(toml::Value::as_float);
    if let Some(wrong) = price.filter(|price| !price.is_finite() || *price < 0.0) {
        bail!("hardware.price_per_hour is {wrong}; it is US dollars an hour, 0 or more");
    }
    Ok(price)
}

fn prompt(p: &PartialOptions, composed: &Composed) -> Result<Prompt> {
    let set = composed.text("dataset.path");
    let given = [p.prompt.is_some(), p.prompt_file.is_some(), p.prompt_tokens.is_some(), set.is_some()];
    if given.iter().filter(|g| **g).count() > 1 {
        bail!("give one of prompt, prompt-file, prompt-tokens and dataset.path, not several");
    }
    if let Some(name) = set {
        return Ok(Prompt::Dataset(dataset(name, composed)?));
    }
    if let Some(key) = ["variant", "limit", "shuffle", "max_prompt_tokens"]
        .into_iter()
        .find(|key| composed.get(&format!("dataset.{key}")).is_some())
    {
        bail!("dataset.{key} is about a data set, and there is none: choose one by dataset=NAME or dataset.path=PATH");
    }
    if let Some(hash) = composed.text("dataset.prompt_sha256") {
        bail!(
            "the run was made with a prompt that it does not keep (SHA-256 {hash}): give the text again with --prompt"
        );
    }
    let text = match (&p.prompt, &p.prompt_file, p.prompt_tokens) {
        (_, _, Some(0)) => bail!("--prompt-tokens is 0; it must be at least 1"),
        (_, _, Some(n)) => return Ok(Prompt::RandomTokens(n)),
        (Some(text), ..) => text.clone(),
        (_, Some(file), _) => read_text_limited(file, MAX_PROMPT_BYTES)
            .with_context(|| format!("cannot read the prompt file {}", file.display()))?,
        _ => DEFAULT_PROMPT.to_string(),
    };
    if text.trim().is_empty() {
        bail!("the prompt is empty; give a text with --prompt, or --prompt-tokens N for random tokens");
    }
    Ok(Prompt::Text(text))
}

/// Reads a data set.
fn dataset(name: String, composed: &Composed) -> Result<Dataset> {
    let variant = composed.text("dataset.variant");
    let prompts = match samples::find(&name, variant.as_deref())? {
        Some(prompts) => prompts,
        None => candlescope_prompts::read(Path::new(&name), variant.as_deref())?,
    };
    let at_least_one = |key: &str| match composed.whole(key) {
        Some(0) => bail!("{key} is 0; it must be at least 1, or left out for no limit"),
        number => Ok(number),
    };
    let is_on = |key: &str| composed.get(key).and_then(toml::Value::as_bool).unwrap_or_default();
    Ok(Dataset {
        name,
        prompts,
        limit: at_least_one("dataset.limit")?,
        shuffle: is_on("dataset.shuffle"),
        max_prompt_tokens: at_least_one("dataset.max_prompt_tokens")?,
        keep_text: is_on("dataset.keep_text"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Cli, Command};
    use clap::Parser;

    fn resolved(args: &[&str]) -> Result<Options> {
        let cli = Cli::try_parse_from(["candlescope", "profile"].iter().chain(args))?;
        match cli.command {
            Command::Profile(args) => resolve(&composed(&args)?[0]),
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
    fn a_prompt_replaces_the_prompts_of_the_layers_below() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("a.toml");
        std::fs::write(&file, "prompt-tokens = 9\n").unwrap();
        let path = file.to_str().unwrap();
        let o = resolved(&["--config", path, "--set", "prompt=x"]).unwrap();
        assert_eq!(o.prompt, Prompt::Text("x".into()));
        let o = resolved(&["--set", "prompt=x", "--set", "prompt-tokens=3"]).unwrap();
        assert_eq!(o.prompt, Prompt::RandomTokens(3));
        let o = resolved(&["--config", path, "--set", "prompt=x", "--prompt", "y"]).unwrap();
        assert_eq!(o.prompt, Prompt::Text("y".into()));
        let o = resolved(&["--config", path, "--set", "repeats=2"]).unwrap();
        assert_eq!(o.prompt, Prompt::RandomTokens(9));
        // Two in one layer are a contradiction.
        std::fs::write(&file, "prompt-tokens = 9\nprompt = \"x\"\n").unwrap();
        assert!(resolved(&["--config", path]).unwrap_err().to_string().contains("give one of"));
    }

    #[test]
    fn numbers_out_of_range_are_named() {
        let message = |args: &[&str]| format!("{:#}", resolved(args).unwrap_err());
        assert!(message(&["--batch", "99999999999"]).contains("--batch is 99999999999; at most 65536"));
        assert!(message(&["--disk-budget-mb", "0"]).contains("--disk-budget-mb is 0; it must be at least 1"));
        let text = message(&["--disk-budget-mb", "17592186044416"]);
        assert!(text.contains("17592186044416; it must be at most 17592186044415"), "{text}");
        assert_eq!(resolved(&["--disk-budget-mb", "17592186044415"]).unwrap().disk_budget_mb, Some(17_592_186_044_415));
        // Layers are kept as TOML, which has no larger whole numbers.
        for option in ["--seed", "--disk-budget-mb", "--prompt-tokens"] {
            let text = message(&[option, "18446744073709551615"]);
            assert!(text.contains(option) && text.contains("9223372036854775807"), "{text}");
        }
        assert_eq!(resolved(&["--temperature", "-1"]).unwrap().temperature, -1.0, "refused by the model, in its words");
        for option in ["--batch", "--top-k", "--max-new-tokens", "--seed", "--disk-budget-mb"] {
            let text = message(&[option, "-1"]);
            assert!(text.contains("invalid value '-1'") && text.contains(option), "{text}");
        }
    }

    #[test]
    fn the_gpu_is_used_where_the_model_is_on_it() {
        assert_eq!(resolved(&[]).unwrap().gpu_timing, GpuTier::Off);
        let o = resolved(&["--device", "cuda:0", "--cupti=5/500"]).unwrap();
        assert_eq!((o.gpu_timing, o.gpu_budget), (GpuTier::Adaptive, 0.02));
        assert_eq!(o.kernels, Some(Schedule { skip_first: 0, wait: 487, warmup: 8, active: 5, repeat: 0 }));
        assert_eq!(resolved(&["--cupti"]).unwrap().kernels.unwrap().active, u64::MAX);
        assert_eq!(resolved(&["--device", "cuda:0", "--gpu-timing", "steps"]).unwrap().gpu_timing, GpuTier::Steps);
        let message = |args: &[&str]| format!("{:#}", resolved(args).unwrap_err());
        assert!(message(&["--gpu-timing", "all"]).contains("--device cuda:0"));
        assert!(message(&["--gpu-timing", "most"]).contains("off, steps, blocks, all or adaptive"));
        assert!(message(&["--gpu-budget", "-1"]).contains("--gpu-budget is -1"));
        for wrong in ["5", "0/9", "9/9", "a/b"] {
            assert!(message(&[&format!("--cupti={wrong}")]).contains("N/EVERY"));
        }
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
