//! Options of `profile`, from a composed configuration.

use crate::args::ProfileArgs;
use crate::conf::{Composition, DEFAULT_PROMPT, DatasetOptions, Layers, ProfileChoices, ProfilingOptions};
use crate::samples;
use anyhow::{Context, Result, bail};
use candlescope::env::EnvConfig;
use candlescope::gpu::KernelWindows;
use candlescope_core::files::read_text_limited;
use candlescope_core::numbers::read_share;
use candlescope_core::{GpuTier, GpuTiming, Perturb, Schedule, Side};
use candlescope_models::slots::{BatcherOptions, SlotOptions};
use serde_json::{Map, Value, json};
use std::path::Path;
use std::time::Duration;

/// Options of `profile` as resolved.
#[derive(Debug, Clone)]
pub(crate) struct Options {
    /// The choices as files, flags and `--set` gave them.
    pub(crate) given: ProfileChoices,
    /// Those of the SDK.
    pub(crate) sdk: EnvConfig,
    pub(crate) prompt: Prompt,
    /// The experiment after the measured requests.
    pub(crate) perturb: Option<Perturb>,
    /// Requests go on until this many seconds have passed, in place of `repeats`.
    pub(crate) duration_s: Option<f64>,
    /// The composed configuration, from which the run can be made again.
    pub(crate) inputs: Value,
    /// What the run keeps of them besides.
    kept: Map<String, Value>,
}

impl Options {
    /// The steps whose kernels are recorded.
    pub(crate) fn kernels(&self) -> Option<Schedule> {
        self.sdk.cupti.and_then(KernelWindows::schedule)
    }

    /// What sequences are held in, if in slots.
    pub(crate) fn slots(&self) -> Option<SlotOptions> {
        let runtime = &self.given.runtime;
        let asked = runtime.cuda_graph
            || runtime.max_num_seqs.is_some()
            || runtime.max_model_len.is_some()
            || runtime.concurrency.is_some();
        asked.then(|| SlotOptions {
            slots: runtime.max_num_seqs.or(runtime.concurrency).unwrap_or(runtime.batch),
            context: runtime.max_model_len,
            memory: runtime.gpu_memory_utilization,
            cuda_graph: runtime.cuda_graph,
            ..SlotOptions::default()
        })
    }

    pub(crate) fn on_gpu(&self) -> bool {
        self.given.hardware.device.starts_with("cuda")
    }

    /// What a run has under `options`.
    pub(crate) fn kept(&self) -> Map<String, Value> {
        let mut kept = self.kept.clone();
        kept.insert("inputs".to_string(), self.inputs.clone());
        kept.extend(self.duration_s.map(|seconds| ("duration-s".to_string(), json!(seconds))));
        kept
    }
}

/// The prompt. Its text is not recorded unless `dataset.keep_text` is on.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Prompt {
    Text(String),
    RandomTokens(usize),
    Dataset(Dataset),
}

/// Prompts of a data set. Which of them are used, the options say.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Dataset {
    /// As it was given.
    pub(crate) name: String,
    pub(crate) prompts: Vec<candlescope_prompts::Prompt>,
}

/// Most sequences at once. Far more than any machine can decode, and few enough that the prompts themselves fit into
/// memory.
pub(crate) const MAX_BATCH: usize = 1 << 16;

/// Largest prompt file, in bytes: more than the longest context that a model may have.
const MAX_PROMPT_BYTES: u64 = 64 << 20;

/// Most megabytes whose bytes can still be counted.
const MAX_BUDGET_MB: u64 = u64::MAX >> 20;

/// The configurations that `profile` was asked for: one, or with `-m` every combination.
pub(crate) fn composed(args: &ProfileArgs) -> Result<Vec<Composition>> {
    Layers::of(&args.flags, &args.conf, args.config.as_deref(), &args.set)?.combinations()
}

/// Resolves the options of a composed configuration.
pub(crate) fn resolve(composed: &Composition) -> Result<Options> {
    resolve_where(composed, can_record_kernels)
}

/// As [`resolve`]; `can_record` tells whether kernels can be recorded.
fn resolve_where(composed: &Composition, can_record: impl FnOnce() -> bool) -> Result<Options> {
    let given = ProfileChoices::of(|group, name| composed.at(group, name));
    let mut options = Options {
        sdk: composed.of_sdk()?,
        prompt: prompt(&given.dataset)?,
        perturb: perturb(&given.profiling)?,
        given,
        duration_s: None,
        inputs: composed.inputs(),
        kept: composed.kept(),
    };
    check(&options)?;
    // Marks on layers tell when the device was done with them, and kernels what it took. A budget is one of marks.
    let EnvConfig { gpu, gpu_budget, cupti, .. } = &options.sdk;
    let is_open = gpu.is_none() && gpu_budget.is_none() && cupti.is_none();
    let usual = if !options.on_gpu() {
        GpuTier::Off
    } else if is_open && !windows_would_show(&options) && can_record() {
        options.sdk.cupti = Some(USUAL_WINDOWS);
        options.kept.insert("cupti".to_string(), json!(USUAL_CUPTI));
        GpuTier::Steps
    } else {
        GpuTier::Adaptive
    };
    let tier = *options.sdk.gpu.get_or_insert(usual);
    let budget = options.sdk.gpu_budget.as_ref().and_then(|text| text.parse().ok());
    options.kept.extend([
        ("gpu-timing".to_string(), json!(tier)),
        ("gpu-budget".to_string(), json!(budget.unwrap_or(GpuTiming::default().budget))),
        ("groups".to_string(), json!(composed.groups())),
    ]);
    Ok(options)
}

/// Whether this build and this machine have what records kernels and leaves the process between two windows, and no other
/// profiler has it.
fn can_record_kernels() -> bool {
    #[cfg(feature = "gpu")]
    return candlescope_collectors::cupti::probe().is_ok_and(|found| found.detaches);
    #[cfg(not(feature = "gpu"))]
    false
}

/// The windows of kernels of a run on a GPU that is asked for nothing about GPU time. Opening and closing one takes
/// less than a hundredth of the time between two: 17 to 40 ms were seen.
const USUAL_WINDOWS: KernelWindows = KernelWindows::apart(5, Duration::from_secs(5));
/// The same as an option.
const USUAL_CUPTI: &str = "5/5s";

/// Whether windows would be seen in what is measured, or would see too little: of fewer than three requests one is in the
/// medians; CUPTI has to stay in the process from the capture of a graph on, which costs each replay; the first steps of
/// several requests at once are pieces of prompts; and an experiment compares plain steps.
fn windows_would_show(options: &Options) -> bool {
    let ProfileChoices { runtime, dataset, .. } = &options.given;
    let prompts = match &options.prompt {
        Prompt::Dataset(set) => set.prompts.len().min(dataset.limit.unwrap_or(usize::MAX)),
        _ => 1,
    };
    let few = runtime.repeats.saturating_mul(prompts) < 3;
    few || runtime.cuda_graph || runtime.concurrency.is_some() || options.perturb.is_some()
}

fn check(options: &Options) -> Result<()> {
    let ProfileChoices { runtime, hardware, profiling, .. } = &options.given;
    for (name, value) in [
        ("max-new-tokens", runtime.max_new_tokens),
        ("batch", runtime.batch),
        ("repeats", runtime.repeats),
        ("prompt-piece", runtime.prompt_piece),
    ] {
        if value == 0 {
            bail!("--{name} is 0; it must be at least 1");
        }
    }
    if hardware.threads == Some(0) {
        bail!("--threads is 0; it must be at least 1");
    }
    if runtime.batch > MAX_BATCH {
        bail!(
            "--batch is {}; at most {MAX_BATCH} sequences run at once: use a smaller batch, and --repeats for more requests",
            runtime.batch
        );
    }
    if let Some(name) = &options.given.model.quantize {
        crate::device::quantised(name)?;
        if let Some(dtype) = &options.given.model.dtype {
            bail!("--quantize {name} computes in f32, and --dtype is {dtype}: give one of them");
        }
    }
    crate::device::kv_cache_dtype_or_auto(runtime.kv_cache_dtype.as_deref())?;
    for (name, value) in [
        ("max-num-seqs", runtime.max_num_seqs),
        ("max-model-len", runtime.max_model_len),
        ("concurrency", runtime.concurrency),
        ("speculate", runtime.speculate),
    ] {
        if value == Some(0) {
            bail!("--{name} is 0; it must be at least 1, or left out");
        }
    }
    if runtime.max_model_len == Some(1) {
        bail!("--max-model-len is 1; it must be at least 2, for a prompt and a token");
    }
    if let Some(share) = runtime.gpu_memory_utilization.filter(|share| !(*share > 0.0 && *share <= 1.0)) {
        bail!("--gpu-memory-utilization is {share}; it must be above 0 and at most 1, such as 0.9");
    }
    if runtime.gpu_memory_utilization.is_some() && runtime.max_num_seqs.is_none() {
        bail!("--gpu-memory-utilization says how many slots fit, and --max-num-seqs the most of them: add it");
    }
    if let Some(slots) = runtime.max_num_seqs.filter(|slots| *slots < runtime.batch) {
        bail!("--batch is {} and --max-num-seqs {slots}: every sequence needs a slot", runtime.batch);
    }
    continuous(options)?;
    if let Some(ahead) = runtime.speculate {
        if options.slots().is_some() {
            bail!(
                "--speculate {ahead} checks tokens in a cache that grows: leave --concurrency, --max-num-seqs, --max-model-len and \
                 --cuda-graph out"
            );
        }
        if runtime.batch > 1 || runtime.temperature != 0.0 {
            bail!(
                "--speculate {ahead} is for one sequence of the most likely tokens: leave --batch and --temperature out"
            );
        }
    }
    if runtime.cuda_graph && !options.on_gpu() {
        bail!("--cuda-graph needs a GPU: add --device cuda:0");
    }
    match profiling.disk_budget_mb {
        Some(0) => bail!("--disk-budget-mb is 0; it must be at least 1, or left out for no limit"),
        Some(mb) if mb > MAX_BUDGET_MB => {
            bail!("--disk-budget-mb is {mb}; it must be at most {MAX_BUDGET_MB}, or left out for no limit")
        }
        _ => {}
    }
    if let Some(wrong) = hardware.price_per_hour.filter(|price| !price.is_finite() || *price < 0.0) {
        bail!("hardware.price_per_hour is {wrong}; it is US dollars an hour, 0 or more");
    }
    if options.sdk.cupti == Some(KernelWindows::OnRequest) {
        bail!(
            "--cupti is on-request, and nothing asks for kernels here; it must be `all`, N/EVERY such as 5/500, N/TIME such as 5/10s, or off"
        );
    }
    if options.perturb.is_some() && options.kernels() == Some(Schedule::all()) {
        bail!(
            "--perturb takes steps whose kernels are not recorded, and --cupti records those of all: give N/EVERY such as 8/64"
        );
    }
    let on_device = options.perturb.iter().flat_map(Perturb::what).find(|what| what.side == Some(Side::Device));
    if let Some(what) = on_device.filter(|_| !options.on_gpu()) {
        bail!("--perturb {what} needs a GPU: add --device cuda:0, or leave @device out");
    }
    match options.sdk.gpu {
        Some(tier) if tier != GpuTier::Off && !options.on_gpu() => {
            bail!("--gpu-timing {tier} needs a GPU: add --device cuda:0")
        }
        _ => Ok(()),
    }
}

/// What is about requests that are under way at once.
fn continuous(options: &Options) -> Result<()> {
    let runtime = &options.given.runtime;
    let Some(at_once) = runtime.concurrency else {
        if runtime.prefix_reuse {
            bail!(
                "--prefix-reuse is about what slots hold from one request to the next: say how many are under way with --concurrency"
            );
        }
        let piece = runtime.prompt_piece;
        if piece != BatcherOptions::default().prompt_piece {
            bail!(
                "--prompt-piece is {piece}, and prompts pass in pieces where several requests are under way: say how many with \
                 --concurrency"
            );
        }
        return Ok(());
    };
    if at_once > MAX_BATCH {
        bail!("--concurrency is {at_once}; at most {MAX_BATCH} requests are under way at once");
    }
    if runtime.batch > 1 {
        bail!(
            "--batch is {} and --concurrency {at_once}: each request is one sequence then, so leave --batch out",
            runtime.batch
        );
    }
    if options.perturb.is_some() {
        bail!("--perturb compares steps of requests that come one after the other: leave --concurrency out");
    }
    // With one prompt for all requests, the first would be the only one that is computed.
    if runtime.prefix_reuse && !matches!(options.prompt, Prompt::Dataset(_)) {
        bail!(
            "--prefix-reuse is about prompts that begin alike, and here all are the same: choose some with --dataset"
        );
    }
    Ok(())
}

/// The experiment that was asked for.
fn perturb(given: &ProfilingOptions) -> Result<Option<Perturb>> {
    let Some(asked) = &given.perturb else {
        if let Some(step) = &given.perturb_step {
            bail!("--perturb-step {step} is about an experiment: say what is made slower with --perturb");
        }
        return Ok(None);
    };
    let what = asked.split(',').map(|one| one.parse().context("in --perturb")).collect::<Result<Vec<_>>>()?;
    let text = &given.perturb_budget;
    let budget = read_share(text).with_context(|| {
        format!("--perturb-budget is {text}; it must be a share of time above 0 and up to 100%, such as 5%")
    })?;
    if given.perturb_pairs == 0 {
        bail!("--perturb-pairs is 0; it must be at least 1");
    }
    let perturb = Perturb::new(what).alone(true).budget(budget).pairs(given.perturb_pairs as u64);
    Ok(Some(match &given.perturb_step {
        Some(step) => perturb.step(step.as_str()),
        None => perturb,
    }))
}

fn prompt(given: &DatasetOptions) -> Result<Prompt> {
    let several =
        [given.prompt.is_some(), given.prompt_file.is_some(), given.prompt_tokens.is_some(), given.path.is_some()];
    if several.iter().filter(|g| **g).count() > 1 {
        bail!("give one of prompt, prompt-file, prompt-tokens and dataset.path, not several");
    }
    if let Some(name) = &given.path {
        return Ok(Prompt::Dataset(dataset(name, given)?));
    }
    let of_datasets = [
        ("variant", given.variant.is_some()),
        ("limit", given.limit.is_some()),
        ("shuffle", given.shuffle.is_some()),
        ("max_prompt_tokens", given.max_prompt_tokens.is_some()),
    ];
    if let Some((key, _)) = of_datasets.iter().find(|(_, is_set)| *is_set) {
        bail!("dataset.{key} is about a data set, and there is none: choose one by dataset=NAME or dataset.path=PATH");
    }
    if let Some(hash) = &given.prompt_sha256 {
        bail!(
            "the run was made with a prompt that it does not keep (SHA-256 {hash}): give the text again with --prompt"
        );
    }
    let text = match (&given.prompt, &given.prompt_file, given.prompt_tokens) {
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
fn dataset(name: &str, given: &DatasetOptions) -> Result<Dataset> {
    let variant = given.variant.as_deref();
    let prompts = match samples::find(name, variant)? {
        Some(prompts) => prompts,
        None => candlescope_prompts::read(Path::new(name), variant)?,
    };
    for (key, number) in [("limit", given.limit), ("max_prompt_tokens", given.max_prompt_tokens)] {
        if number == Some(0) {
            bail!("dataset.{key} is 0; it must be at least 1, or left out for no limit");
        }
    }
    Ok(Dataset { name: name.to_string(), prompts })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::{Cli, Command};
    use clap::Parser;

    fn resolved(args: &[&str]) -> Result<Options> {
        resolved_where(args, false)
    }

    fn resolved_where(args: &[&str], can_record: bool) -> Result<Options> {
        let cli = Cli::try_parse_from(["candlescope", "profile"].iter().chain(args))?;
        match cli.command {
            Command::Profile(args) => resolve_where(&composed(&args)?[0], || can_record),
            _ => unreachable!("parsed as profile"),
        }
    }

    #[test]
    fn a_run_on_a_gpu_that_is_asked_for_nothing_has_kernels_of_some_steps_and_marks_of_all() {
        let usual = |args: &[&str], can_record| {
            let options = resolved_where(&[&["--device", "cuda:0"], args].concat(), can_record).unwrap();
            (options.sdk.gpu, options.sdk.cupti)
        };
        assert_eq!(usual(&[], true), (Some(GpuTier::Steps), Some(KernelWindows::apart(5, Duration::from_secs(5)))));
        let chosen = resolved_where(&["--device", "cuda:0"], true).unwrap();
        let given = resolved(&["--device", "cuda:0", &format!("--cupti={}", chosen.kept()["cupti"].as_str().unwrap())])
            .unwrap();
        assert_eq!(chosen.sdk.cupti, given.sdk.cupti, "what is kept is what was chosen");
        assert_eq!(usual(&["profiling=default"], true), usual(&[], true));
        // Without CUPTI, or beside another profiler, layers are known by marks alone.
        assert_eq!(usual(&[], false), (Some(GpuTier::Adaptive), None));
        // Who asks for something gets that and nothing else.
        assert_eq!(usual(&["--gpu-timing", "steps"], true), (Some(GpuTier::Steps), None));
        assert_eq!(usual(&["--gpu-budget", "0.01"], true), (Some(GpuTier::Adaptive), None));
        assert_eq!(usual(&["--cupti=off"], true), (Some(GpuTier::Adaptive), Some(KernelWindows::Off)));
        assert_eq!(usual(&["--cupti"], true).0, Some(GpuTier::Adaptive));
        assert_eq!(usual(&["--repeats", "2"], true), (Some(GpuTier::Adaptive), None));
        assert_eq!(usual(&["--cuda-graph"], true), (Some(GpuTier::Adaptive), None));
        assert_eq!(usual(&["--concurrency", "4"], true), (Some(GpuTier::Adaptive), None));
        assert_eq!(usual(&["--perturb", "path=*/mlp:+5%"], true), (Some(GpuTier::Adaptive), None));
        assert_eq!(resolved_where(&[], true).unwrap().sdk.cupti, None, "on a CPU");
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
        let ProfileChoices { model, runtime, .. } = &o.given;
        let found = (model.path.as_str(), runtime.max_new_tokens, runtime.repeats, runtime.warmup);
        assert_eq!(found, ("embedded", 6, 8, 1));
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
    fn slots_of_requests_that_are_under_way_at_once_are_captured_if_that_is_asked_for() {
        let slots = |args: &[&str]| resolved(args).map(|options| options.slots());
        let captured = slots(&["--concurrency", "4", "--cuda-graph", "--device", "cuda:0"]).unwrap().unwrap();
        assert_eq!((captured.slots, captured.cuda_graph), (4, true));
        let eager = slots(&["--concurrency", "4"]).unwrap().unwrap();
        assert_eq!((eager.slots, eager.cuda_graph), (4, false));
        let refused = slots(&["--concurrency", "4", "--cuda-graph"]).unwrap_err().to_string();
        assert!(refused.contains("--cuda-graph needs a GPU"), "{refused}");
    }

    #[test]
    fn numbers_out_of_range_are_named() {
        let message = |args: &[&str]| format!("{:#}", resolved(args).unwrap_err());
        assert!(message(&["--batch", "99999999999"]).contains("--batch is 99999999999; at most 65536"));
        assert!(message(&["--disk-budget-mb", "0"]).contains("--disk-budget-mb is 0; it must be at least 1"));
        let text = message(&["--disk-budget-mb", "17592186044416"]);
        assert!(text.contains("17592186044416; it must be at most 17592186044415"), "{text}");
        let most = resolved(&["--disk-budget-mb", "17592186044415"]).unwrap().given.profiling.disk_budget_mb;
        assert_eq!(most, Some(17_592_186_044_415));
        // Layers are kept as TOML, which has no larger whole numbers.
        for option in ["--seed", "--disk-budget-mb", "--prompt-tokens"] {
            let text = message(&[option, "18446744073709551615"]);
            assert!(text.contains(option) && text.contains("9223372036854775807"), "{text}");
        }
        let cold = resolved(&["--temperature", "-1"]).unwrap().given.runtime.temperature;
        assert_eq!(cold, -1.0, "refused by the model, in its words");
        for option in ["--batch", "--top-k", "--max-new-tokens", "--seed", "--disk-budget-mb"] {
            let text = message(&[option, "-1"]);
            assert!(text.contains("invalid value '-1'") && text.contains(option), "{text}");
        }
    }

    #[test]
    fn the_gpu_is_used_where_the_model_is_on_it() {
        assert_eq!(resolved(&[]).unwrap().sdk.gpu, Some(GpuTier::Off));
        let o = resolved(&["--device", "cuda:0", "--cupti=5/500"]).unwrap();
        assert_eq!((&o.kept()["gpu-timing"], &o.kept()["gpu-budget"]), (&json!("adaptive"), &json!(0.02)));
        assert_eq!(o.kernels(), Some(Schedule { skip_first: 0, wait: 487, warmup: 8, active: 5, repeat: 0 }));
        assert_eq!(resolved(&["--cupti"]).unwrap().kernels().unwrap().active, u64::MAX);
        assert_eq!(resolved(&["--device", "cuda:0", "--gpu-timing", "steps"]).unwrap().sdk.gpu, Some(GpuTier::Steps));
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
