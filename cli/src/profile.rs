//! `candlescope profile`.

use crate::args::ProfileArgs;
use crate::conf::{Composition, multirun};
use crate::crash_report;
use crate::limits::limits;
use crate::options::{Options, Prompt, composed, resolve};
use crate::output::{note, printable, say};
use crate::progress::Progress;
use crate::run_dir::RunDir;
use crate::work::{self, Output, RunContext};
use anyhow::{Context, Result, anyhow, bail};
use candle_core::Device;
use candlescope::Scope;
use candlescope::parquet::ParquetConfig;
use candlescope_core::beside_run::REPORT_PAGE;
use candlescope_core::run::{CANDLE_VERSION, Finding, INTERRUPTED, RunManifest, Severity, env_key, result_key};
use candlescope_core::{Perturb, Side};
use candlescope_models::slots::KvCollector;
use candlescope_models::{AnyModel, LoadOptions, ModelSource, Picture};
use candlescope_prompts::sha256;
use candlescope_reader::ReadLimits;
use candlescope_report::{ReportOptions, write_report};
use serde_json::json;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tracing_subscriber::prelude::*;

pub(crate) fn run(args: &ProfileArgs) -> Result<()> {
    let combinations = composed(args)?;
    if args.conf.print_config {
        return print_config(&combinations, args.json);
    }
    // Mistakes in any combination end the command before the first one runs.
    let mut resolved = combinations.iter().map(checked).collect::<Result<Vec<_>>>()?;
    match args.conf.pick {
        Some(n) if n < resolved.len() => {
            let mut options = resolved.swap_remove(n);
            options.given.above.out.clone_from(&args.conf.pick_out);
            profile(options, ProfileDisplay { json: true, progress: false })
        }
        Some(n) => bail!("there is no combination {n}; the files of the configuration have changed meanwhile"),
        None if args.conf.multirun => {
            let out = resolved.first().and_then(|options| options.given.above.out.clone());
            if resolved.iter().any(|options| options.given.above.out != out) {
                bail!("with -m, --out is the folder of all runs: give one");
            }
            let several = resolved.len() > 1;
            if let Some(trace) = resolved.iter().find_map(|options| options.sdk.perfetto.as_ref()).filter(|_| several) {
                bail!(
                    "every run would write {} anew; leave it out, and make each trace from its run: candlescope export \
                     perfetto RUN",
                    trace
                );
            }
            multirun::run(&combinations, out, args.json)
        }
        None => {
            let shown = ProfileDisplay { json: args.json, progress: !args.no_progress && !args.json };
            profile(resolved.swap_remove(0), shown)
        }
    }
}

/// The options of a configuration, as far as they can be checked before a model is loaded.
fn checked(composed: &Composition) -> Result<Options> {
    let options = resolve(composed)?;
    ModelSource::parse(&options.given.model.path)?;
    crate::device::engine(&options.given.model.engine)?;
    options.given.model.dtype.as_deref().map(crate::device::dtype).transpose()?;
    crate::work::sampling(&options).check().map_err(|why| anyhow!(why))?;
    Ok(options)
}

/// Shows configurations, and where their values come from.
fn print_config(combinations: &[Composition], as_json: bool) -> Result<()> {
    combinations.iter().try_for_each(|composed| {
        // What cannot be run is not shown as if it could.
        checked(composed)?;
        if as_json {
            return say(&composed.to_json().to_string());
        }
        let swept = composed.swept();
        let title = if swept.is_empty() { String::new() } else { format!("# {}\n", swept.join(" ")) };
        say(&format!("{title}{}", composed.to_toml()))
    })
}

/// What the command prints.
#[derive(Clone, Copy)]
struct ProfileDisplay {
    /// One object in place of text.
    json: bool,
    /// A bar while it runs.
    progress: bool,
}

fn profile(options: Options, shown: ProfileDisplay) -> Result<()> {
    let limits = limits(&[])?;
    let RecordedGeneration { out, manifest, outputs } = record(&options, shown.progress)?;
    show(shown, &options, &out, &manifest, &outputs, limits)?;
    lost(&manifest)
}

/// What a recorded generation left.
pub(crate) struct RecordedGeneration {
    /// The run's directory.
    pub(crate) out: PathBuf,
    pub(crate) manifest: RunManifest,
    outputs: Vec<Output>,
}

/// Runs the model and records it, and prints nothing.
pub(crate) fn record(options: &Options, progress: bool) -> Result<RecordedGeneration> {
    let source = ModelSource::parse(&options.given.model.path)?;
    // First of all, because it has to be known before any thread starts.
    let threads = crate::threads::settle(options.given.hardware.threads, Some(&options.given.model.path))?;
    let mut options = options.clone();
    options.inputs["hardware"]["threads"] = json!(threads.number);
    let options = &options;
    let load = load_options(options)?;
    // Before the model, which can take minutes to load.
    let picture = options.given.dataset.image.as_deref().map(Picture::read).transpose()?;
    let peaks = crate::kept_between_runs::of(&options.given.hardware.device)?;
    let disturbances = disturbances(&options.given.hardware.device);
    // The verdict says it, too; whoever reads the output by program is not told twice.
    if progress && std::io::IsTerminal::is_terminal(&std::io::stderr()) {
        disturbances.iter().for_each(|what| note(&format!("warning: {what}")));
    }
    crate::threads::start_pool()?;
    let dir = RunDir::make(options.given.above.out.clone().unwrap_or_else(|| default_out(&source)));
    let out = dir.path();
    crash_report::writing(out);
    crash_report::doing("starting the session");
    let scope = start(options, &load.device, out, peaks, disturbances).inspect_err(|_| dir.remove_if_empty())?;
    let progress = Progress::new(progress);

    // The scope is always ended properly, so that what was recorded before an error can be read. A panic is treated
    // like an error: unwinding past this point would leave a run that ended without one.
    let work = || generate_all(options, &source, &load, picture.as_ref(), &scope, &progress);
    let outcome = catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<&str>().map(|s| (*s).to_string());
        let text = text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
        Err(anyhow!("running {source} panicked: {}", text.lines().map(str::trim).collect::<Vec<_>>().join(" ")))
    });
    progress.clear();
    crash_report::doing("ending the session");
    if let (Err(error), Some(handle)) = (&outcome, scope.handle()) {
        handle.set_result(result_key::ERROR.name(), format!("{error:#}"));
    }
    let manifest = scope.finish();
    crash_report::doing("reading what was recorded");
    match outcome {
        Ok(outputs) => {
            Ok(RecordedGeneration { out: out.to_path_buf(), manifest: manifest.unwrap_or_default(), outputs })
        }
        Err(error) if dir.remove_if_nothing_recorded(manifest.as_ref()) => Err(error),
        Err(error) => Err(error.context(format!("what was recorded until then is in {}", out.display()))),
    }
}

/// An error where an exporter could not write: figures cover what was written.
pub(crate) fn lost(manifest: &RunManifest) -> Result<()> {
    let failed = |f: &&Finding| f.code.as_str().starts_with("exporter_") && f.severity == Severity::Error;
    match manifest.verdict.findings.iter().find(failed) {
        Some(finding) => bail!("{}; {}", finding.message(), finding.remedy()),
        None => Ok(()),
    }
}

/// What disturbs the machine before the work begins, as benchmarks look for it.
#[cfg(feature = "lab")]
fn disturbances(device: &str) -> Vec<String> {
    crate::bench::operations::surroundings_of(device).disturbances()
}

/// Without the lab, the samples of the run have to tell.
#[cfg(not(feature = "lab"))]
fn disturbances(_: &str) -> Vec<String> {
    Vec::new()
}

fn load_options(options: &Options) -> Result<LoadOptions> {
    let slots = options.slots();
    let name = &options.given.hardware.device;
    Ok(LoadOptions {
        device: match slots {
            Some(slots) if slots.cuda_graph => crate::device::with_own_stream(name)?,
            _ => crate::device::device(name)?,
        },
        slots,
        dtype: options.given.model.dtype.as_deref().map(crate::device::dtype).transpose()?,
        dequantize: options.given.model.dequantize,
        quantize: options.given.model.quantize.as_deref().map(crate::device::quantised).transpose()?,
        seed: options.given.runtime.seed,
        engine: crate::device::engine(&options.given.model.engine)?,
        kv_cache_dtype: crate::device::kv_cache_dtype_or_auto(options.given.runtime.kv_cache_dtype.as_deref())?,
    })
}

fn default_out(source: &ModelSource) -> PathBuf {
    let name: String = match source {
        ModelSource::Gguf(path) => path.file_stem().map(|s| s.to_string_lossy().into_owned()).unwrap_or_default(),
        ModelSource::Directory(path) => path.file_name().map(|s| s.to_string_lossy().into_owned()).unwrap_or_default(),
        other => other.to_string(),
    };
    let name: String =
        name.chars().map(|c| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '-' }).collect();
    PathBuf::from("runs").join(format!("{name}-{}", candlescope_core::HostNs::now().0 / 1_000_000))
}

/// Installs the layer: before the model loads, because spans are made then.
fn start(
    options: &Options,
    device: &Device,
    out: &Path,
    peaks: Option<serde_json::Value>,
    disturbances: Vec<String>,
) -> Result<Scope> {
    let budget = options.given.profiling.disk_budget_mb.map(|mb| mb.saturating_mul(1 << 20));
    let config = ParquetConfig::new(out).disk_budget(budget);
    let run_id = out.file_name().map_or_else(|| "run".into(), |n| n.to_string_lossy().into_owned());
    let mut builder = crate::device::told_of(crate::sdk::builder(options)?, device)
        .parquet_with(config)
        .run_id(&run_id)
        .on_problem(candlescope_core::diagnostics::to_stderr)
        .session(|s| s.environment(env_key::CANDLE.name(), CANDLE_VERSION));
    if options.slots().is_some() {
        builder = builder.collector(KvCollector::default());
    }
    for (key, value) in crate::threads::facts() {
        builder = builder.session(|s| s.environment(key, value));
    }
    if !disturbances.is_empty() {
        builder = builder.session(|s| s.environment(env_key::DISTURBANCES.name(), disturbances));
    }
    if let Some(peaks) = peaks {
        builder = builder.session(|s| s.environment(env_key::MEASURED_PEAKS.name(), peaks));
    }
    for (key, value) in options.kept() {
        builder = builder.session(|s| s.option(&key, value));
    }
    let (layer, scope) = builder.layer()?;
    let logs = std::env::var_os("RUST_LOG").map(|_| {
        tracing_subscriber::fmt::layer()
            .with_writer(std::io::stderr)
            .with_filter(tracing_subscriber::EnvFilter::from_default_env())
    });
    tracing::subscriber::set_global_default(tracing_subscriber::registry().with(layer).with(logs))
        .context("another tracing subscriber is installed")?;
    keep_data_on_interrupt(&scope, out);
    Ok(scope)
}

/// On Ctrl-C, writes what was recorded before the program ends. The run is closed when the process exits, and says that
/// it was interrupted: it can be read like any other.
fn keep_data_on_interrupt(scope: &Scope, out: &Path) {
    let Some(handle) = scope.handle().cloned() else { return };
    let run = out.display().to_string();
    let installed = ctrlc::set_handler(move || {
        note("");
        note("interrupted: writing what has been recorded");
        handle.set_result(result_key::ERROR.name(), INTERRUPTED);
        if let Err(error) = handle.flush(Duration::from_secs(5)) {
            note(&error.to_string());
        }
        note(&format!("Run: {run}   Report: candlescope report {run}"));
        std::process::exit(130);
    });
    if let Err(error) = installed {
        note(&format!("warning: an interrupt will lose the open segment: {error}"));
    }
}

fn generate_all(
    options: &Options,
    source: &ModelSource,
    load: &LoadOptions,
    picture: Option<&Picture>,
    scope: &Scope,
    progress: &Progress,
) -> Result<Vec<Output>> {
    progress.wait(&printable(&format!("loading {source}")));
    crash_report::doing("loading the model");
    let model = AnyModel::load(source, load)?;
    if let Some(handle) = scope.handle() {
        for (key, value) in model.info().to_map() {
            handle.set_model(&key, value);
        }
    }
    if options.kernels().is_some_and(|windows| windows.wait == 0)
        && let Some(handle) = scope.handle()
    {
        progress.wait("switching the recorder of kernels on");
        handle.wait_for_kernels(work::RECORDER_STARTS);
    }
    if let (Some(asked), Some(handle)) = (&options.perturb, scope.handle()) {
        handle.prepare_perturbing(asked)?;
    }
    crash_report::doing("generating");
    let work::WorkResult { outputs, dataset, sharing, lookup } =
        work::run(model, source, picture, options, &RunContext { progress, handle: scope.handle() })?;
    if let (Some(handle), Some(facts)) = (scope.handle(), dataset) {
        handle.set_result(result_key::DATASET.name(), facts);
    }
    if let (Some(handle), Some(facts)) = (scope.handle(), sharing) {
        handle.set_result(result_key::PROMPT_SHARING.name(), facts);
    }
    if let (Some(handle), Some(facts)) = (scope.handle(), lookup) {
        handle.set_result(result_key::NGRAM_LOOKUP.name(), facts);
    }
    if let (Some(handle), Some(digest)) = (scope.handle(), digest(&outputs)) {
        handle.set_result(result_key::OUTPUT_SHA256.name(), digest);
    }
    if let (Some(handle), Some(first)) = (scope.handle(), outputs.first()) {
        handle.set_result("prompt_tokens", first.prompt_tokens());
        if let Some(reason) = first.finish_reason() {
            handle.set_result(result_key::FINISH_REASON.name(), reason);
        }
    }
    Ok(outputs)
}

/// By which two runs can be told to have written the same; `None` where no tokens were generated.
fn digest(outputs: &[Output]) -> Option<String> {
    let tokens = outputs.iter().map(|output| match output {
        Output::Text(text) => of_sequences(text.sequences.iter().map(|sequence| sequence.tokens.as_slice())),
        Output::Vectors(_) => None,
    });
    let tokens: Vec<String> = tokens.collect::<Option<_>>()?;
    (!tokens.is_empty()).then(|| sha256(&tokens.join("\n")))
}

/// The tokens of a request: those of its first sequence, and of each that wrote others, with its place. So a batch in which all write
/// the same is told from no other batch of that.
fn of_sequences<'a>(mut sequences: impl Iterator<Item = &'a [u32]>) -> Option<String> {
    let first = sequences.next()?;
    let others = sequences.enumerate().filter(|(_, tokens)| *tokens != first);
    Some(others.fold(format!("{first:?}"), |all, (at, tokens)| format!("{all} {}:{tokens:?}", at + 1)))
}

/// Says of which paths an experiment tells nothing.
fn nothing_was_slower(options: &Options, metrics: &serde_json::Value) {
    let rows = metrics["sensitivity"].as_array().map_or(&[][..], Vec::as_slice);
    let sides: &[Side] = if options.on_gpu() { &[Side::Host, Side::Device] } else { &[Side::Host] };
    for what in options.perturb.iter().flat_map(Perturb::what) {
        let target = what.target();
        for side in sides.iter().filter(|side| what.side.is_none_or(|only| only == **side)) {
            let is_it = |row: &serde_json::Value| row["target"] == target.as_str() && row["side"] == side.as_str();
            if !rows.iter().any(is_it) {
                note(&format!(
                    "no pair of steps tells of {target} on the {side}: no interval in them has this path there (the report and the \
                     table `spans` have all paths), or requests are too short for pairs (ask for more tokens)"
                ));
            }
        }
    }
}

/// Whether the model's text does not continue the prompt, but is about it.
fn reads_source(manifest: &RunManifest) -> bool {
    manifest.model.contains_key("encoder_layers")
}

fn show(
    shown: ProfileDisplay,
    options: &Options,
    out: &Path,
    manifest: &RunManifest,
    outputs: &[Output],
    limits: ReadLimits,
) -> Result<()> {
    let report = write_report(out, &ReportOptions { limits, ..ReportOptions::default() })?;
    nothing_was_slower(options, &report.metrics);
    let sequences = outputs.first().map_or(&[][..], |output| match output {
        Output::Text(text) => text.sequences.as_slice(),
        Output::Vectors(_) => &[],
    });
    if shown.json {
        let texts: Vec<&str> = sequences.iter().map(|s| s.text.as_str()).collect();
        let object = json!({
            "run": out, "run_id": manifest.run_id, "text": texts, "finish_reason": result_key::FINISH_REASON.raw(&manifest.results),
            "metrics": report.metrics,
        });
        return say(&serde_json::to_string(&object)?);
    }
    let fact = |key: &str| manifest.model.get(key).and_then(serde_json::Value::as_str).unwrap_or_default();
    if let Some(text) = crate::device::engine_note(&options.given.model.engine, fact("architecture"), fact("engine")) {
        note(&text);
    }
    if let Some(Output::Vectors(encoding)) = outputs.first() {
        let features = encoding.vectors.first().map_or(0, Vec::len);
        say(&format!("{} tokens encoded: a vector of {features} features a text\n", encoding.tokens))?;
    }
    if let Some(sequence) = sequences.first() {
        let text = match (&options.prompt, sequence.text.is_empty()) {
            (_, true) => format!(
                "(no tokenizer) {} tokens: {:?}",
                sequence.tokens.len(),
                &sequence.tokens[..sequence.tokens.len().min(16)]
            ),
            (Prompt::Text(prompt), _) if !options.given.runtime.chat && !reads_source(manifest) => {
                format!("{}{}", prompt.trim_end_matches('\n'), sequence.text)
            }
            _ => sequence.text.clone(),
        };
        say(&format!("{}\n", text.trim_end()))?;
    }
    say(&report.summary)?;
    say(&format!("Run: {}   Report: {}", out.display(), out.join(REPORT_PAGE).display()))
}

#[cfg(test)]
mod tests {
    use super::of_sequences;

    #[test]
    fn a_sequence_that_writes_something_else_is_told_by_its_place() {
        let of = |sequences: &[&[u32]]| of_sequences(sequences.iter().copied());
        // As runs of one sequence have had it since there are such runs.
        assert_eq!(of(&[&[1, 2]]).as_deref(), Some("[1, 2]"));
        assert_eq!(of(&[&[1, 2], &[1, 2], &[1, 2]]), of(&[&[1, 2]]), "as many times the same");
        let of_wrong = [of(&[&[1, 2], &[1, 3], &[1, 2]]), of(&[&[1, 2], &[1, 2], &[1, 3]]), of(&[&[1, 2], &[1, 3]])];
        assert_eq!(of_wrong[0].as_deref(), Some("[1, 2] 1:[1, 3]"));
        assert!(of_wrong[0] != of_wrong[1] && of_wrong.iter().all(|wrong| *wrong != of(&[&[1, 2]])), "{of_wrong:?}");
        assert_eq!(of_sequences(std::iter::empty()), None);
    }
}
