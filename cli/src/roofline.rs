//! `candlescope roofline`: what a model can reach on a device, and how near runs came to it.

use crate::json_arg::JsonArg;
use crate::kept_between_runs;
use crate::limits::limits;
use crate::output::say;
use crate::roofline_model::AskedModel;
use crate::warnings::warn;
use anyhow::{Context, Result, bail};
use candlescope_core::beside_run::{DYNAMIC_ANALYSIS, ROOFLINE_PAGE, STATIC_ANALYSIS};
use candlescope_core::files::{open_regular, read_text_limited, write_whole};
use candlescope_core::run::MANIFEST_FILE;
use candlescope_core::study_files;
use candlescope_document::{Document, html};
use candlescope_figures::Analysis;
use candlescope_predict::roofline::{
    CalibrationError, CalibrationRun, Goal, KernelStudy, LoadTest, Outlook, RunRoofline, Scenario, Thresholds,
    USABLE_MEMORY, batch_and_context, calibrate, device_row, load_stages,
};
use candlescope_reader::Run;
use candlescope_report::{roofline as render, verdict_line};
use candlescope_work::devices::{Device, DeviceKind, Format, Multiply, known_device, peaks_device};
use clap::Args;
use serde_json::Value;
use std::io::{BufReader, Write as _};
use std::path::{Path, PathBuf};

/// The largest config.json or peaks file that is read: a thousand times what one holds.
const MOST_BYTES: u64 = 16 << 20;
/// Columns of a terminal.
const WIDTH: usize = 120;

pub(crate) const EXAMPLES: &str = "\
Examples:
  candlescope roofline meta-llama/Llama-2-7b-hf --gpu H100-SXM --slo ttft=200ms,tpot=20ms
      latency, memory, batches and number formats, without running anything
  candlescope roofline path/to/config.json --peaks peaks.json --dtype q4_k --context 4096
      another model, on peaks that were measured
  candlescope roofline model-q4_k_m.gguf --gpu
      the model in a file, of which the header is read, on the peaks that `bench peaks` keeps of this machine
  candlescope roofline qwen2.5-7b --gpu T4,L4,H100 --price 0.35,0.8,2.5
      a table over devices, with what a million tokens cost
  candlescope roofline --calibrate runs/a runs/b runs/c --out peaks
      effective peaks of the device that these ran on, for --peaks peaks/calibrated-peaks.json
  candlescope roofline llama-3-8b --gpu H200 --kernels results/kernels
      from what `bench kernels --for llama-3-8b --device cuda:0 --out results/kernels` measured, beside the roofline
  candlescope roofline runs/first --gpu H200
      a run: measured against predicted, with roofline.html beside it";

#[derive(Debug, Args)]
pub(crate) struct RooflineArgs {
    /// A model (a hub id, a short name such as llama-3-8b, config:NAME, a config.json or a .gguf file), directories of
    /// runs, or load_test_results.json and the model that was served
    #[arg(value_name = "MODEL|RUN", required = true)]
    targets: Vec<String>,
    /// Device, by its datasheet: H100-SXM, H200, L4, MI300X, EPYC-9654, …; a wrong name lists them all. Several with commas
    /// make a table. Without a name, and where no device is named at all: the peaks that `bench peaks` keeps of this machine
    #[arg(long, value_name = "NAME", num_args = 0..=1, default_missing_value = "")]
    gpu: Option<String>,
    /// Peaks of the device, measured: what `bench peaks` or a calibration wrote, or JSON with `flops` and `bandwidth`
    #[arg(long, value_name = "FILE", visible_alias = "calibration")]
    peaks: Option<PathBuf>,
    /// Predict from measured kernels as well: the directory that `bench kernels --out STUDY` wrote; can be repeated, and
    /// of a shape that several have the last one counts
    #[arg(long, value_name = "STUDY")]
    kernels: Vec<PathBuf>,
    /// Format of the weights: f32, bf16, f16, fp8, int8, int4, q8_0, q4_k, … [default: bf16 on a GPU, f32 on a CPU]
    #[arg(long, value_name = "FORMAT")]
    dtype: Option<String>,
    /// Format of cached keys and values [default: that of the activations]
    #[arg(long, value_name = "FORMAT")]
    kv_dtype: Option<String>,
    /// Sequences at once [default: 1]
    #[arg(long, value_name = "N", value_parser = size())]
    batch: Option<u64>,
    /// Tokens of each prompt [default: 512]
    #[arg(long, value_name = "N", value_parser = size())]
    prompt: Option<u64>,
    /// Tokens to generate for each [default: 128]
    #[arg(long, value_name = "N", value_parser = size())]
    output: Option<u64>,
    /// Context at which the time of a token is told [default: the prompt and half of the output]
    #[arg(long, value_name = "N", value_parser = size())]
    context: Option<u64>,
    /// Devices that share every matrix (tensor parallelism) [default: 1]
    #[arg(long, value_name = "N", value_parser = size())]
    tp: Option<u64>,
    /// Memory of a device in 10⁹ bytes, where its datasheet does not say
    #[arg(long, value_name = "GB")]
    memory_gb: Option<f64>,
    /// Share of a device's memory that the model can have [default: 0.9]
    #[arg(long, value_name = "SHARE")]
    memory_share: Option<f64>,
    /// What one device costs for an hour, for a table over devices in their order: 0.35,0.8,2.5
    #[arg(long, value_name = "PRICE", value_delimiter = ',', visible_alias = "price-per-hour")]
    price: Vec<f64>,
    /// Latency to keep, for which a batch is recommended: ttft=TIME, tpot=TIME or both, as in ttft=200ms,tpot=50ms
    #[arg(long, value_name = "GOAL")]
    slo: Option<String>,
    /// Threshold of a run's rating: ttft=100,500 (ms), tpot=50,100, throughput=200,150, utilisation=0.8,0.95; can be
    /// repeated
    #[arg(long, value_name = "NAME=GOOD,FAIR")]
    rate: Vec<String>,
    /// Fit effective peaks to runs, with the errors of runs left out; writes calibrated-peaks.json, which --peaks takes,
    /// and calibration.md
    #[arg(long)]
    calibrate: bool,
    /// Where to put roofline.html and the JSON files [default: the run's directory; for a model nowhere]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Raise or lower a limit on what is read, for example steps=10000000; --help lists them
    #[arg(long = "limit", value_name = "NAME=VALUE", long_help = crate::limits::help())]
    limits: Vec<String>,
    #[command(flatten)]
    json: JsonArg,
}

/// Sizes of prompts, batches and the like: beyond this no figure means anything.
fn size() -> clap::builder::RangedU64ValueParser<u64> {
    clap::builder::RangedU64ValueParser::new().range(1..=10_000_000)
}

pub(crate) fn run(args: &RooflineArgs) -> Result<()> {
    let first = Path::new(&args.targets[0]);
    if first.is_file() && is_load_test(first) {
        return of_load_test(args, first);
    }
    if args.calibrate {
        return calibrate_runs(args);
    }
    if args.targets.iter().any(|target| is_run(Path::new(target))) {
        return of_runs(args);
    }
    if args.targets.len() > 1 {
        bail!("one model at a time: give `{}` alone, or directories of runs", args.targets[0]);
    }
    of_model(args)
}

/// Whether a path is meant as a run: a directory without a model in it.
pub(crate) fn is_run(path: &Path) -> bool {
    path.is_dir() && (path.join(MANIFEST_FILE).exists() || !path.join("config.json").exists())
}

fn is_load_test(path: &Path) -> bool {
    let named = path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("load_test_results"));
    named && path.extension().is_some_and(|e| e == "json")
}

fn read(path: &Path) -> Result<String> {
    read_text_limited(path, MOST_BYTES).with_context(|| format!("cannot read `{}`", path.display()))
}

/// Names of `--gpu`; none if it is given without one, or not given.
fn named(args: &RooflineArgs) -> Vec<&str> {
    let names = args.gpu.as_deref().unwrap_or_default().split(',').map(str::trim);
    names.filter(|name| !name.is_empty()).collect()
}

/// The device of `--gpu` and `--peaks`, if either is given.
fn device(args: &RooflineArgs) -> Result<Option<Device>> {
    let names = named(args);
    if names.len() > 1 {
        bail!("several devices make a table of one model: give `{}` alone here", names[0]);
    }
    let known = names.first().map(|name| known_device(name)).transpose()?;
    match &args.peaks {
        None if known.is_none() && args.gpu.is_some() => match kept()? {
            None => bail!(
                "no peaks of this machine are kept: measure them with `candlescope bench peaks`, or name a device after --gpu"
            ),
            kept => Ok(kept),
        },
        None => Ok(known),
        Some(path) => {
            let read = peaks_device(&read(path)?, known);
            Ok(Some(read.with_context(|| format!("in `{}`", path.display()))?))
        }
    }
}

/// This machine with the peaks that are kept of it.
fn kept() -> Result<Option<Device>> {
    let Some(text) = kept_between_runs::of_this_machine()? else { return Ok(None) };
    Ok(Some(peaks_device(&text, None).context("in the peaks that `bench peaks` keeps of this machine")?))
}

/// The studies of `--kernels` as one, if some are given: directories, or their kernels.json.
fn kernels(args: &RooflineArgs) -> Result<Option<KernelStudy>> {
    let mut all: Option<KernelStudy> = None;
    for path in &args.kernels {
        let study = kernel_study(path)?;
        all = Some(match all {
            Some(before) => before.joined(study).with_context(|| format!("in `{}`", path.display()))?,
            None => study,
        });
    }
    Ok(all)
}

/// How the kernels of `--kernels` were measured, where that makes them slower than in a model: a sentence for each study.
fn conditions(args: &RooflineArgs) -> Result<Vec<String>> {
    let mut all = Vec::new();
    for path in &args.kernels {
        let beside = match path.is_dir() {
            true => path.join(study_files::MANIFEST_FILE),
            false => path.with_file_name(study_files::MANIFEST_FILE),
        };
        if beside.is_file() {
            let study: Value = serde_json::from_str(&read(&beside)?).unwrap_or_default();
            all.extend(condition(&study).map(|how| format!("kernels of `{}` were measured {how}", path.display())));
        }
    }
    Ok(all)
}

/// `on 2 threads, with the caches written over before each`.
fn condition(study: &Value) -> Option<String> {
    let on_cpu = study["options"]["device"].as_str() == Some("cpu");
    let threads = study["environment"]["compute_threads"].as_u64().filter(|_| on_cpu);
    let threads = threads.map(|n| format!("on {n} thread{}", if n == 1 { "" } else { "s" }));
    let flushed = study["options"]["warm"].as_bool() == Some(false);
    let flushed = flushed.then(|| {
        "with the caches written over before each: what a model's steps find in a cache is read faster (`bench kernels \
         --warm`)"
            .to_string()
    });
    let known: Vec<String> = threads.into_iter().chain(flushed).collect();
    (!known.is_empty()).then(|| known.join(", "))
}

fn kernel_study(path: &Path) -> Result<KernelStudy> {
    let file = if path.is_dir() { path.join("kernels.json") } else { path.to_path_buf() };
    if !file.is_file() {
        bail!("`{}` has no kernels.json: measure some with `candlescope bench kernels --out STUDY`", path.display());
    }
    let beside = file.with_file_name(study_files::MANIFEST_FILE);
    let study = beside.is_file().then(|| read(&beside)).transpose()?;
    let found = KernelStudy::read(&read(&file)?, study.as_deref());
    found.with_context(|| format!("in `{}`", file.display()))
}

/// bf16 where the device multiplies it, f16 where only that, f32 on a CPU.
pub(crate) fn usual_format(device: &Device) -> &'static str {
    match device.kind {
        DeviceKind::Cpu => "f32",
        _ if device.flops.contains_key(&Multiply::F16) && !device.flops.contains_key(&Multiply::Bf16) => "f16",
        _ => "bf16",
    }
}

fn scenario(args: &RooflineArgs, model: &AskedModel, device: &Device) -> Result<Scenario> {
    let stored = args.dtype.as_deref().or(model.format.as_deref());
    let format = Format::named(stored.unwrap_or(usual_format(device)))?;
    let bits = model.bits.filter(|_| args.dtype.is_none()).unwrap_or(format.bits);
    let weights = Format { bits, ..format };
    if args.memory_share.is_some_and(|share| !(share > 0.0 && share <= 1.0)) {
        bail!("--memory-share is not a number above 0 and up to 1");
    }
    if args.memory_gb.is_some_and(|gb| !gb.is_finite() || gb <= 0.0) {
        bail!("--memory-gb is not a number above 0");
    }
    let goal = args.slo.as_deref().map(str::parse::<Goal>).transpose().context("in --slo")?;
    Ok(Scenario::new(weights)
        .cached(args.kv_dtype.as_deref().map(Format::named).transpose()?)
        .batch(args.batch.unwrap_or(1))
        .tokens(args.prompt.unwrap_or(512), args.output.unwrap_or(128))
        .context(args.context)
        .devices(args.tp.unwrap_or(1))
        .memory(args.memory_gb.map(|gb| gb * 1e9))
        .memory_share(args.memory_share.unwrap_or(USABLE_MEMORY))
        .goal(goal.unwrap_or_default()))
}

/// The prediction for a model on a device.
fn outlook(args: &RooflineArgs, model: &AskedModel, device: &Device) -> Result<Outlook> {
    let mut outlook = Outlook::of(&model.shape, device, &scenario(args, model, device)?);
    outlook.warnings.extend(model.note.clone().filter(|_| args.dtype.is_none()));
    Ok(outlook)
}

fn of_model(args: &RooflineArgs) -> Result<()> {
    let model = AskedModel::of(&args.targets[0])?;
    if !args.rate.is_empty() {
        bail!("--rate is for runs: a prediction has nothing to rate");
    }
    if named(args).len() > 1 || !args.price.is_empty() {
        return of_devices(args, &model);
    }
    let study = kernels(args)?;
    let given = match device(args)?.or_else(|| study.as_ref()?.device()) {
        Some(device) => Some(device),
        // Kernels of another machine do not go with the peaks of this one.
        None => kept()?.filter(|kept| study.as_ref().is_none_or(|study| study.device_name() == Some(&*kept.name))),
    };
    let Some(device) = given else {
        match study.as_ref().and_then(KernelStudy::device_name) {
            Some(name) => bail!(
                "the kernels were measured on `{name}`, which no table has: measure its peaks with `candlescope bench \
                 peaks`, or give --peaks FILE"
            ),
            None => bail!(
                "no device: give --gpu NAME (such as H200, L4, EPYC-9654) or --peaks FILE, or measure this machine with \
                 `candlescope bench peaks`"
            ),
        }
    };
    let mut outlook = outlook(args, &model, &device)?;
    if let Some(study) = &study {
        outlook = outlook.with_kernels(study).asked_as(&args.targets[0], false);
        outlook.warnings.extend(conditions(args)?);
    }
    let json = render::static_json(&outlook);
    let mut files = Vec::new();
    if let Some(out) = &args.out {
        let page = html::page(&render::static_document(&outlook));
        files = write(out, &[(STATIC_ANALYSIS, pretty(&json)), (ROOFLINE_PAGE, page)])?;
    }
    show(args, &json, || render::static_document(&outlook), || render::static_text(&outlook, WIDTH), &files)
}

/// One model on several devices.
fn of_devices(args: &RooflineArgs, model: &AskedModel) -> Result<()> {
    if !args.kernels.is_empty() {
        bail!("--kernels are those of one device: name it alone after --gpu, without --price");
    }
    let names = named(args);
    let devices = match names.len() {
        0 | 1 => vec![device(args)?.map_or_else(kept, |device| Ok(Some(device)))?.context(
            "no device: give --gpu NAME (such as H200, L4, EPYC-9654), or measure this machine with `candlescope bench peaks`",
        )?],
        _ if args.peaks.is_some() => bail!("--peaks is of one device: name it alone after --gpu"),
        _ => names.iter().map(|name| known_device(name)).collect::<Result<Vec<_>, _>>()?,
    };
    let prices = &args.price;
    if prices.iter().any(|price| !price.is_finite() || *price < 0.0) {
        bail!("--price is not a number of 0 or more");
    }
    if !prices.is_empty() && prices.len() != devices.len() {
        bail!("--price has {} prices for {} devices: give one for each, in their order", prices.len(), devices.len());
    }
    let mut all = Vec::new();
    for (at, device) in devices.iter().enumerate() {
        let outlook = outlook(args, model, device)?;
        let row = device_row(&outlook, prices.get(at).copied());
        all.push((outlook, row));
    }
    let json = render::devices_json(&all);
    let mut files = Vec::new();
    if let Some(out) = &args.out {
        let page = html::page(&render::devices_document(&all));
        files = write(out, &[("devices.json", pretty(&json)), (ROOFLINE_PAGE, page)])?;
    }
    show(args, &json, || render::devices_document(&all), || render::devices_text(&all, WIDTH), &files)
}

fn of_runs(args: &RooflineArgs) -> Result<()> {
    refuse_with_runs(args)?;
    let limits = limits(&args.limits)?;
    let thresholds = thresholds(args)?;
    let (device, study) = (device(args)?, kernels(args)?);
    let mut runs = Vec::new();
    for target in &args.targets {
        let run = Run::open_within(target, limits.clone())?;
        let mut analysis = Analysis::of(&run);
        warn(&analysis.noticed);
        let on_gpu = analysis.ran_on_gpu();
        kept_between_runs::add_to(&mut analysis.manifest, on_gpu)?;
        let mut measured =
            RunRoofline::of(&run, &analysis, device.as_ref(), &thresholds).judged(verdict_line(&analysis));
        if let Some(study) = &study {
            measured = measured.with_kernels(study).asked_as(target);
        }
        runs.push((run, analysis, measured));
    }
    let all: Vec<_> = runs.iter().map(|(run, analysis, measured)| (run, analysis, measured)).collect();
    let contexts = batch_and_context(&all);
    let measured: Vec<RunRoofline> = runs.iter().map(|(_, _, measured)| measured.clone()).collect();
    let json = render::dynamic_json(&measured, contexts.as_ref());
    let mut contents = Vec::new();
    if let Some(outlook) = measured[0].outlook.as_ref() {
        contents.push((STATIC_ANALYSIS, pretty(&render::static_json(outlook))));
    }
    contents.push((DYNAMIC_ANALYSIS, pretty(&json)));
    let document = || render::dynamic_document(&measured, contexts.as_ref());
    contents.push((ROOFLINE_PAGE, html::page(&document())));
    let out = args.out.clone().unwrap_or_else(|| PathBuf::from(&args.targets[0]));
    let files = write(&out, &contents)?;
    let text = || {
        let text = render::dynamic_text(&measured, contexts.as_ref(), WIDTH);
        // What was asked for is the prediction, where the run ran on something else.
        match predicted_elsewhere(&measured[0]) {
            Some(outlook) => format!("{}\n\n{}", text.trim_end(), render::static_text(outlook, WIDTH)),
            None => text,
        }
    };
    show(args, &json, document, text, &files)
}

/// The prediction for a device that is not the run's.
fn predicted_elsewhere(run: &RunRoofline) -> Option<&Outlook> {
    let outlook = run.outlook.as_ref()?;
    let elsewhere = format!("{} is not the device of this run", outlook.device.name);
    run.notes.iter().any(|note| note.starts_with(&elsewhere)).then_some(outlook)
}

fn calibrate_runs(args: &RooflineArgs) -> Result<()> {
    refuse_with_runs(args)?;
    if args.gpu.is_some() || args.peaks.is_some() {
        bail!("--calibrate fits the peaks: leave out --gpu and --peaks");
    }
    if !args.kernels.is_empty() {
        bail!("--calibrate fits what runs measured: leave out --kernels, and give it with the prediction");
    }
    let limits = limits(&args.limits)?;
    let mut runs = Vec::new();
    let mut device: Option<Device> = None;
    for target in &args.targets {
        let analysis = Analysis::of(&Run::open_within(target, limits.clone())?);
        warn(&analysis.noticed);
        let (run, own) = CalibrationRun::of(target, &analysis)?;
        let known = device.get_or_insert_with(|| own.clone());
        if (known.kind, &known.name) != (own.kind, &own.name) {
            return Err(CalibrationError::Mixed(target.clone()).into());
        }
        runs.push(run);
    }
    let device = device.ok_or(CalibrationError::Nothing)?;
    let calibration = calibrate(&runs, &device)?;
    let json = render::calibration_json(&calibration);
    let out = args.out.clone().unwrap_or_else(|| PathBuf::from(&args.targets[0]));
    let table = render::calibration_markdown(&calibration);
    let files = write(&out, &[("calibrated-peaks.json", pretty(&json)), ("calibration.md", table)])?;
    let document = || render::calibration_document(&calibration);
    show(args, &json, document, || render::calibration_text(&calibration, WIDTH), &files)
}

/// Options that say what is asked of a model.
const ASKED: &[&str] = &["--batch", "--prompt", "--output", "--context", "--slo"];
/// Options that say how a model is stored, and where.
const STORED: &[&str] = &["--dtype", "--kv-dtype", "--tp", "--memory-gb", "--memory-share"];
/// Options of a table over devices.
const COMPARED: &[&str] = &["--price"];

/// What a run says itself must not be said otherwise.
fn refuse_with_runs(args: &RooflineArgs) -> Result<()> {
    refuse(args, "a run says itself what it ran", ASKED)?;
    refuse(args, "a run says itself what it ran", STORED)?;
    refuse(args, "it is for a model on devices", COMPARED)
}

fn refuse(args: &RooflineArgs, why: &str, options: &[&str]) -> Result<()> {
    let given = [
        ("--dtype", args.dtype.is_some()),
        ("--kv-dtype", args.kv_dtype.is_some()),
        ("--batch", args.batch.is_some()),
        ("--prompt", args.prompt.is_some()),
        ("--output", args.output.is_some()),
        ("--context", args.context.is_some()),
        ("--tp", args.tp.is_some()),
        ("--memory-gb", args.memory_gb.is_some()),
        ("--slo", args.slo.is_some()),
        ("--memory-share", args.memory_share.is_some()),
        ("--price", !args.price.is_empty()),
    ];
    match given.iter().find(|(name, given)| *given && options.contains(name)) {
        Some((name, _)) => bail!("{name} cannot be given here: {why}; leave it out"),
        None => Ok(()),
    }
}

/// A load test says what it asked; which model on which device in which format it does not say.
fn of_load_test(args: &RooflineArgs, file: &Path) -> Result<()> {
    refuse(args, "a load test says itself what it asked", ASKED)?;
    refuse(args, "it is for a model on devices", COMPARED)?;
    if !args.kernels.is_empty() {
        bail!("--kernels is for a model or for runs: a load test does not say which kernels ran");
    }
    let named = || format!("in `{}`", file.display());
    let test = LoadTest::read(BufReader::new(open_regular(file).with_context(named)?)).with_context(named)?;
    let model = args.targets.get(1).map_or(test.model(), String::as_str);
    let model = AskedModel::of(model).context("which model was served? Give it after the results: RESULTS MODEL")?;
    let Some(device) = device(args)? else {
        bail!("a load test does not know the server's device: give --gpu NAME or --peaks FILE");
    };
    let (scenario, thresholds) = (scenario(args, &model, &device)?, thresholds(args)?);
    let mut outlook = test.outlook(&model.shape, &device, &scenario);
    outlook.warnings.extend(model.note.clone().filter(|_| args.dtype.is_none()));
    let stages = load_stages(&test, &model.shape, &device, &scenario, &thresholds);
    let json = render::load_json(&model.shape.name, &stages);
    let beside = file.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let document = || render::load_document(&outlook, &stages);
    let contents = [(DYNAMIC_ANALYSIS, pretty(&json)), (ROOFLINE_PAGE, html::page(&document()))];
    let files = write(args.out.as_deref().unwrap_or(beside), &contents)?;
    show(args, &json, document, || render::load_text(&outlook, &stages, WIDTH), &files)
}

fn thresholds(args: &RooflineArgs) -> Result<Thresholds> {
    args.rate.iter().try_fold(Thresholds::default(), |all, given| all.with(given)).context("in --rate")
}

/// JSON as files have it.
pub(crate) fn pretty(json: &Value) -> String {
    format!("{json:#}\n")
}

/// Writes files of these names and texts into a directory, which is made if it is not there.
pub(crate) fn write(out: &Path, contents: &[(&str, String)]) -> Result<Vec<PathBuf>> {
    std::fs::create_dir_all(out)
        .with_context(|| format!("cannot make the directory `{}`: give another one with --out", out.display()))?;
    let mut files = Vec::new();
    for (name, text) in contents {
        let path = out.join(name);
        write_whole(&path, |file| file.write_all(text.as_bytes())).with_context(|| {
            format!("cannot write `{}`: free space or give another directory with --out", path.display())
        })?;
        files.push(path);
    }
    Ok(files)
}

fn show(
    args: &RooflineArgs,
    json: &Value,
    document: impl FnOnce() -> Document,
    text: impl FnOnce() -> String,
    files: &[PathBuf],
) -> Result<()> {
    if args.json.say(json, document)? {
        return Ok(());
    }
    say(text().trim_end())?;
    files.iter().try_for_each(|file| say(&format!("wrote {}", file.display())))
}

#[cfg(test)]
mod tests {
    use super::condition;
    use serde_json::json;

    #[test]
    fn how_kernels_were_measured_is_said() {
        let study = |threads: u64, warm: bool| json!({ "options": { "device": "cpu", "warm": warm }, "environment": { "compute_threads": threads } });
        let flushed = condition(&study(2, false)).unwrap();
        assert!(flushed.starts_with("on 2 threads, with the caches written over before each"), "{flushed}");
        assert_eq!(condition(&study(1, true)).as_deref(), Some("on 1 thread"));
        assert_eq!(condition(&json!({})), None);
    }
}
