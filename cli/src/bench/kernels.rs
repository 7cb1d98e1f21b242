//! `candlescope bench kernels`.

use super::environment::environment;
use super::operations::{
    begin, cancel_on_interrupt, elements, end, interrupted, last_repetition, lock, state, study, surroundings, watch,
};
use crate::json_arg::JsonArg;
use crate::output::{note, say};
use crate::progress::Progress;
use anyhow::{Context, Result, anyhow, bail};
use candlescope_core::beside_run::REPORT_PAGE;
use candlescope_core::run::option_key;
use candlescope_document::Document;
use candlescope_lab::kernels::{
    Kernel, KernelCase, RunOptions, STREAM_ELAPSED, Sizes, all, by_name, case_id, cases, engine_cases, table, write,
};
use candlescope_lab::method::{Engine, MeasurementEnd, Method, StopReason};
use candlescope_lab::peaks::{DeviceIdentity, load, read, shown};
use candlescope_lab::study::{Manifest, Study, Table};
use candlescope_work::devices::{PeakKind, Roof, datasheet_peaks};
use clap::Args;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Seconds; what takes less needs no word.
const LONG: f64 = 300.0;
/// Why a case has no figure that an interrupt came before: cancelled, or not begun.
const UNMEASURED: [Option<&str>; 2] = [None, Some(StopReason::Cancelled.as_str())];
/// Recorded repetitions of each case on a GPU.
const RECORDED: u32 = 5;
/// Cases whose inputs are in memory at once.
const AT_ONCE: u32 = 4;

pub(super) const EXAMPLES: &str = "\
Examples:
  candlescope bench kernels --quick
  candlescope bench kernels --ops gemm,linear --sizes 'm=1,16,256;n=4096;k=4096' --dtype f32,bf16
  candlescope bench kernels --device cuda:0 --ops attention_decode --sizes 'context=128-8192*4'
  candlescope bench kernels --for smollm2-135m --batch 4 --prompt 512 --out results/kernels
      the kernels that a model's steps are made of, for `candlescope roofline smollm2-135m --kernels results/kernels`";

#[derive(Debug, Args)]
pub(crate) struct KernelsArgs {
    /// Kernels, separated by commas [default: all; --list shows them with their sizes]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    ops: Vec<String>,
    /// Sizes to sweep over, for example 'm=1,16,256;n=4096;k=64-256+64'; others are the kernel's usual ones
    #[arg(long, value_name = "SIZES", default_value = "", hide_default_value = true)]
    sizes: String,
    /// Measure the kernels that a model's steps are made of, each at its shape: of a model as `roofline` takes it, or of
    /// a run
    #[arg(long = "for", value_name = "MODEL|RUN", conflicts_with_all = ["ops", "sizes", "list"])]
    of_model: Option<String>,
    /// With --for: sequences at once [default: 1]
    #[arg(long, value_name = "N", requires = "of_model", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    batch: Option<u64>,
    /// With --for: tokens of each prompt [default: 512]
    #[arg(long, value_name = "N", requires = "of_model", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    prompt: Option<u64>,
    /// With --for: context of a token [default: the prompt and 64 more]
    #[arg(long, value_name = "N", requires = "of_model", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    context: Option<u64>,
    /// Element types, separated by commas: f32, f16, bf16, q4_k, q8_0 [default: f32 on a CPU, bf16 on a GPU, and each
    /// for quantised weights]; with --for the format of the weights
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    dtype: Vec<String>,
    /// cpu or cuda:N
    #[arg(long, value_name = "DEVICE", default_value = "cpu")]
    device: String,
    #[arg(long, value_name = "N", help = crate::threads::HELP)]
    threads: Option<usize>,
    /// Leave the caches as the repetition before left them, instead of writing over them
    #[arg(long)]
    warm: bool,
    /// Small shapes and few repetitions: whether everything works, not how fast it is
    #[arg(long)]
    quick: bool,
    /// Exactly this many repetitions of each case, instead of as many as its noise asks for
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    runs: Option<u32>,
    /// Longest time for one case, in seconds [default: 15, quick: 3]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    time_limit: Option<u64>,
    /// Recorded repetitions of each case besides, from which kernels are counted [default: 5 on a GPU, else 0]
    #[arg(long, value_name = "N")]
    profiled: Option<u32>,
    /// Seed of the inputs and of the order of the cases
    #[arg(long, value_name = "N", default_value_t = 42)]
    seed: u64,
    /// Peaks to hold figures against, instead of those that `bench peaks` keeps of this device
    #[arg(long, value_name = "FILE")]
    peaks: Option<PathBuf>,
    /// Directory of the study; must be empty or absent [default: results/kernels-TIME]
    #[arg(long, value_name = "STUDY")]
    out: Option<PathBuf>,
    /// Go on with the study in that directory
    #[arg(long)]
    resume: bool,
    /// Show kernels and their sizes, and measure nothing
    #[arg(long)]
    list: bool,
    #[command(flatten)]
    json: JsonArg,
    /// No progress bar
    #[arg(long)]
    no_progress: bool,
}

pub(crate) fn run(args: &KernelsArgs) -> Result<u8> {
    if args.list {
        return list().map(|()| 0);
    }
    // Before cases are chosen: reading a run starts threads.
    crate::threads::settle(args.threads, model_of(args).as_deref())?;
    let cases = chosen(args)?;
    let device = crate::device::device(&args.device)?;
    let identity = DeviceIdentity::of(&args.device)?;
    let out = crate::out_dir::chosen(args.out.as_deref(), "kernels", args.resume)?;
    let roof = roof(args, &identity)?;
    let on_gpu = !device.is_cpu();
    let method = method(args, on_gpu);
    let options = RunOptions::new(device).warm(args.warm).seed(args.seed).runs(out.join("runs"));
    let _lock = lock(&out, args.resume)?;
    let mut study = study(&out, args.resume, manifest(args, &cases, &options, &method, &identity))?;

    let (cancel, progress) =
        (cancel_on_interrupt(last_repetition), Progress::new(!args.no_progress && !args.json.is_json()));
    tell_length(args, cases.len(), &method);
    let before = study.records()?;
    let process = before.next_process();
    begin(&mut study, process, 0, false)?;
    let mut around = surroundings(&identity);
    let source = around.source();
    study.update(|manifest| manifest.surroundings = source)?;
    let mut journal = study.journal()?;
    let recorded = method.profiled_runs > 0;
    let ended = Engine::new(method, around.as_mut())
        .place(process, 0)
        .cancel(&cancel)
        .observe(watch(&progress, true))
        .skip(before.done(0, recorded, process))
        .run(&mut engine_cases(&cases, &options), &mut journal);
    progress.clear();
    end(&mut study, process)?;
    let records = study.finish(state(ended.as_ref().ok().copied()))?;
    let table = table(&cases, &options, &study, &records, &roof);
    let document = write(&study, &table)?;
    show(args, &study, &cases, &table, document)?;
    match ended.map_err(|error| anyhow!(error))? {
        MeasurementEnd::Done => has_figures(&table).map(|()| 0),
        MeasurementEnd::Cancelled => Ok(interrupted(&out)),
    }
}

/// A study without a single figure is an error: whoever asked for it would take it for measured.
fn has_figures(table: &Table) -> Result<()> {
    let rows = table.json();
    if rows.iter().any(|row| row["median_ns"].is_number()) {
        return Ok(());
    }
    let reason = rows.iter().find_map(|row| row["detail"].as_str());
    bail!("no case could be measured: {}", reason.unwrap_or("no reason was given"))
}

/// Says how long it may take, while there is time to ask for less.
fn tell_length(args: &KernelsArgs, cases: usize, method: &Method) {
    let most = method.time_limit.as_secs_f64() * cases as f64;
    if method.runs.is_some() || most < LONG || args.no_progress || args.json.is_json() {
        return;
    }
    note(&format!(
        "up to {:.0} min: {cases} cases of at most {:.0} s each. Less to do: --quick (a look), fewer --ops or --sizes, \
         a shorter --time-limit",
        most / 60.0,
        method.time_limit.as_secs_f64()
    ));
}

fn list() -> Result<()> {
    all().iter().try_for_each(|kernel| {
        let sizes: Vec<String> = kernel.sizes().iter().map(|size| format!("{}={}", size.name, size.usual)).collect();
        let types: Vec<&str> = kernel.elements().iter().map(|element| element.name()).collect();
        say(&format!("{}: {}\n    {}   ({})", kernel.name(), kernel.about(), sizes.join(";"), types.join(", ")))
    })
}

fn chosen(args: &KernelsArgs) -> Result<Vec<KernelCase>> {
    if let Some(target) = args.of_model.as_deref() {
        let (batch, prompt, context) = (args.batch, args.prompt, args.context);
        let asked = super::kernels_of_model::KernelQuestion { target, dtype: &args.dtype, batch, prompt, context };
        return super::kernels_of_model::cases(&asked, &DeviceIdentity::of(&args.device)?);
    }
    let kernels: Vec<&'static dyn Kernel> = match args.ops.as_slice() {
        [] => all().to_vec(),
        names => names.iter().map(|name| by_name(name.trim())).collect::<Result<_, _>>()?,
    };
    let on_gpu = args.device != "cpu";
    let cases = cases(&kernels, &Sizes::parse(&args.sizes)?, &elements(&args.dtype)?, on_gpu, args.quick)?;
    if cases.is_empty() {
        bail!("none of these kernels runs in any of these types: name others with --ops or --dtype");
    }
    Ok(cases)
}

/// Measured peaks where there are any, else those of the datasheet. Where a file of peaks was named, it has to be there.
fn roof(args: &KernelsArgs, device: &DeviceIdentity) -> Result<Roof> {
    let measured = match &args.peaks {
        Some(file) => {
            let missing = || format!("{} is not there: make it with `candlescope bench peaks`", file.display());
            Some(read(file, device)?.with_context(missing)?)
        }
        None => load(device)?,
    };
    let measured = measured.map(|peaks| peaks.environment()).unwrap_or_default();
    Ok(Roof::new(measured.into_iter().chain(datasheet_peaks(&device.name))))
}

fn method(args: &KernelsArgs, on_gpu: bool) -> Method {
    let method = if args.quick { Method::quick() } else { Method::default() };
    let limit = args.time_limit.map_or(method.time_limit, Duration::from_secs);
    let runs = args.runs.or(args.quick.then_some(3));
    let recorded = args.profiled.unwrap_or(if on_gpu { RECORDED } else { 0 });
    method.time_limit(limit).runs(runs).profiled_runs(recorded).seed(args.seed).interleave(AT_ONCE)
}

fn manifest(
    args: &KernelsArgs,
    cases: &[KernelCase],
    options: &RunOptions,
    method: &Method,
    device: &DeviceIdentity,
) -> Manifest {
    let ids = cases.iter().map(|case| case_id(case, options)).collect();
    let mut manifest = Manifest::new("kernels", ids, method)
        .option("device", args.device.as_str())
        .option("warm", args.warm)
        .option(super::common_args::THREADS, crate::threads::settled().map(|threads| threads.number))
        .option("seed", args.seed);
    manifest.environment.extend(environment(&args.device));
    manifest.environment.insert("device".to_string(), json!(device));
    manifest
}

/// The model whose kernels are measured, by the name that decides the default number of threads; of a run that which it
/// ran.
fn model_of(args: &KernelsArgs) -> Option<String> {
    let target = args.of_model.as_deref()?;
    if !crate::roofline::is_run(Path::new(target)) {
        return Some(target.to_string());
    }
    let run = candlescope_reader::Run::open(target).ok()?;
    Some(option_key::MODEL.of(&run.manifest()?.options)?.to_string())
}

fn show(args: &KernelsArgs, study: &Study, cases: &[KernelCase], table: &Table, document: Document) -> Result<()> {
    let (rows, out) = (table.json(), study.dir());
    if args.json.say(&json!({ "study": out, "rows": rows }), || document)? {
        return Ok(());
    }
    for (case, row) in cases.iter().zip(&rows) {
        // One that an interrupt came before has neither a figure nor a reason of its own.
        if row["median_ns"].is_number() || !UNMEASURED.contains(&row["stop_reason"].as_str()) {
            say(&line(case, row))?;
        }
    }
    if !rows.iter().any(|row| row["utilisation"].is_number()) {
        note("note: there are no peaks to hold these figures against; `candlescope bench peaks` measures them");
    }
    let above = rows.iter().filter(|row| row["utilisation"].as_f64().is_some_and(|share| share > 1.0)).count();
    if above > 0 {
        note(&format!(
            "warning: {above} of {} cases are above what their peaks allow: {}",
            rows.len(),
            if args.warm {
                "with --warm they read from the caches, which are faster than memory"
            } else {
                "the peaks are too low; measure them again on an idle machine, with `candlescope bench peaks`"
            }
        ));
    }
    super::drive::say_threads(study)?;
    let (table, page) = (out.join("kernels.csv"), out.join(REPORT_PAGE));
    say(&format!("Study: {}   Table: {}   Page: {}", out.display(), table.display(), page.display()))
}

/// `gemm bf16 m=1 n=4096 k=4096: 9.31 µs (95 % 9.25 to 9.4 µs) stream elapsed (kernels 9.02 µs), 3.60 GFLOP/s,
/// 3.61 TB/s, 87 % of what measured bandwidth allows`.
fn line(case: &KernelCase, row: &Value) -> String {
    let number = |key: &str| row[key].as_f64();
    let text = |key: &str| row[key].as_str().unwrap_or_default();
    let name = case.name();
    let Some(median) = number("median_ns") else {
        return format!("{name}: {} {}", text("stop_reason").replace('_', " "), text("detail"));
    };
    let seconds = |ns: f64| shown(PeakKind::Launch, ns / 1e9);
    let spread = spread(row, seconds).unwrap_or_default();
    let flops = number("flops_per_s").map_or(String::new(), |rate| format!(", {}", shown(PeakKind::Flops, rate)));
    let bytes = number("bytes_per_s").map_or(String::new(), |rate| format!(", {}", shown(PeakKind::Read, rate)));
    let roof = if text("roof") == "compute" { "FLOP/s" } else { "bandwidth" };
    let used = number("utilisation").map_or(String::new(), |share| {
        format!(", {:.0} % of what {} {roof} allows", share * 100.0, text("peak_label"))
    });
    let what = if text("clock") == STREAM_ELAPSED { format!(" {STREAM_ELAPSED}") } else { String::new() };
    let kernels = number("kernel_ns").map_or(String::new(), |ns| format!(" (kernels {})", seconds(ns)));
    format!("{name}: {}{spread}{what}{kernels}{flops}{bytes}{used}", seconds(median))
}

/// How well the median is known: its 95 % interval, or the range of the samples where these are too few for one.
fn spread(row: &Value, shown: impl Fn(f64) -> String) -> Option<String> {
    let ends = |low: &str, high: &str| Some((row[low].as_f64()?, row[high].as_f64()?));
    let words = |(low, high): (f64, f64)| format!("{} to {}", shown(low), shown(high));
    match ends("median_low_ns", "median_high_ns") {
        Some(interval) => Some(format!(" (95 % {})", words(interval))),
        None => {
            ends("min_ns", "max_ns").filter(|(low, high)| low < high).map(|range| format!(" (range {})", words(range)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_spread_is_that_of_the_median() {
        let row = |low: Option<f64>| {
            json!({ "median_ns": 262e3, "median_low_ns": low, "median_high_ns": low.map(|_| 270e3), "stddev_ns": 421e3,
                "min_ns": 240e3, "max_ns": 900e3 })
        };
        let shown = |ns: f64| format!("{:.0} µs", ns / 1e3);
        assert_eq!(spread(&row(Some(254e3)), shown).as_deref(), Some(" (95 % 254 µs to 270 µs)"));
        assert_eq!(spread(&row(None), shown).as_deref(), Some(" (range 240 µs to 900 µs)"), "too few samples");
        assert_eq!(spread(&json!({ "median_ns": 1.0, "min_ns": 1.0, "max_ns": 1.0 }), shown), None, "a single one");
    }
}
