//! `candlescope bench peaks`.

use super::environment::environment;
use super::operations::{
    begin, cancel_on_interrupt, elements, end, interrupted, last_repetition, lock, state, study, surroundings,
    warn_of_debug_build, watch,
};
use crate::output::{note, say};
use crate::progress::Progress;
use anyhow::{Result, bail};
use candlescope_lab::method::{MeasurementEnd, Method};
use candlescope_lab::peaks::{
    DeviceIdentity, Driver, PeakOptions, Peaks, measure, method, planned, shown, store, to_json, write,
};
use candlescope_lab::study::Manifest;
use candlescope_work::devices::{Peak, PeakKind, datasheet_peaks};
use clap::Args;
use serde_json::json;
use std::path::{Path, PathBuf};

#[derive(Debug, Args)]
pub(crate) struct PeaksArgs {
    /// cpu or cuda:N
    #[arg(long, value_name = "DEVICE", default_value = "cpu")]
    device: String,
    #[arg(long, value_name = "N", help = crate::threads::HELP)]
    threads: Option<usize>,
    /// Element types of matrix products, separated by commas
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "f32,f16,bf16")]
    dtype: Vec<String>,
    /// Small shapes and short times: whether everything works. Its figures are no peaks and are not kept
    #[arg(long)]
    quick: bool,
    /// Write the study only, and leave what is kept of this device as it is
    #[arg(long)]
    no_keep: bool,
    /// Seed of the inputs and of the order of the cases
    #[arg(long, value_name = "N", default_value_t = 42)]
    seed: u64,
    /// Directory of the study; must be empty or absent [default: results/peaks-TIME]
    #[arg(long, value_name = "STUDY")]
    out: Option<PathBuf>,
    /// Print one machine-readable object on standard output instead of text
    #[arg(long)]
    json: bool,
    /// No progress bar
    #[arg(long)]
    no_progress: bool,
}

pub(crate) fn run(args: &PeaksArgs) -> Result<u8> {
    let elements = elements(&args.dtype)?;
    crate::threads::settle(args.threads, None)?;
    let device = crate::device::device(&args.device)?;
    let identity = DeviceIdentity::of(&args.device)?;
    let options = PeakOptions::new(device).elements(&elements).quick(args.quick).seed(args.seed);
    let how = method(args.quick).seed(args.seed);
    warn_of_debug_build();
    let out = crate::out_dir::chosen(args.out.as_deref(), "peaks", false)?;
    let _lock = lock(&out, false)?;
    let mut study = study(&out, false, manifest(args, &options, &how, &identity))?;
    begin(&mut study, 0, 0, false)?;
    let mut around = surroundings(&identity);
    let source = around.source();
    study.update(|manifest| manifest.surroundings = source)?;
    let (cancel, progress) = (cancel_on_interrupt(last_repetition), Progress::new(!args.no_progress && !args.json));
    let mut journal = study.journal()?;
    let driver = Driver { method: how, surroundings: around.as_mut(), cancel, observe: &mut watch(&progress, false) };
    let measured = measure(&options, identity.clone(), driver, &mut journal);
    progress.clear();
    end(&mut study, 0)?;
    study.finish(state(measured.as_ref().ok().map(|(_, ended)| *ended)))?;
    let (peaks, ended) = measured.map_err(|error| anyhow::anyhow!(error))?;
    write(&study, &peaks)?;
    if ended == MeasurementEnd::Cancelled {
        return Ok(interrupted(&out));
    }
    if let Some(why) = nothing_measured(&peaks) {
        bail!("no peak could be measured: {why}. What is kept of this device stays as it is; study: {}", out.display());
    }
    // Figures of a quick run would make every report wrong, and a few of many would look like all there are.
    let kept = if args.quick || args.no_keep { None } else { Some(store(&peaks)?) };
    if kept.is_some() && !study.manifest().disturbances.is_empty() {
        note(
            "warning: others were at work meanwhile, so these peaks may be too low, and shares of them in reports too high: \
             measure again when the machine is free",
        );
    }
    show(args, &out, &peaks, kept, &datasheet_peaks(&identity.name)).map(|()| 0)
}

fn manifest(args: &PeaksArgs, options: &PeakOptions, method: &Method, device: &DeviceIdentity) -> Manifest {
    let mut manifest = Manifest::new("peaks", planned(options), method)
        .option("device", args.device.as_str())
        .option("dtype", args.dtype.clone())
        .option("quick", args.quick)
        .option(super::common_args::THREADS, crate::threads::settled().map(|threads| threads.number))
        .option("seed", args.seed);
    manifest.environment.extend(environment(&args.device));
    manifest.environment.insert("device".to_string(), json!(device));
    manifest
}

fn show(args: &PeaksArgs, out: &Path, peaks: &Peaks, kept: Option<PathBuf>, sheet: &[Peak]) -> Result<()> {
    if args.json {
        return say(&json!({ "study": out, "kept": kept, "peaks": to_json(peaks) }).to_string());
    }
    say(&format!("Peaks of {}, measured {}", peaks.device, peaks.day()))?;
    for figure in &peaks.figures {
        let dtype = figure.dtype.as_ref().map_or(String::new(), |dtype| format!(" {dtype}"));
        let condition = match (figure.kind, figure.condition) {
            (_, Some(condition)) => format!(", {}", condition.name()),
            (PeakKind::Flops, None) => ", best of the sweep".to_string(),
            _ => String::new(),
        };
        let of_sheet = datasheet_value(sheet, figure.kind, figure.dtype.as_deref());
        let of_sheet = of_sheet
            .map_or(String::new(), |sheet| format!(", {:.0} % of the datasheet's", figure.value / sheet * 100.0));
        let value = shown(figure.kind, figure.value);
        say(&format!("  {}{dtype}{condition}: {value} at {}{of_sheet}", figure.kind.name(), figure.at))?;
    }
    for dtype in peaks.dtypes() {
        if let Some(ridge) = peaks.ridge(dtype) {
            say(&format!("  ridge point {dtype}: {ridge:.1} FLOP/B (derived)"))?;
        }
    }
    absent(peaks).iter().try_for_each(|line| say(line))?;
    match &kept {
        Some(path) => say(&format!("Kept for reports: {}   Study: {}", path.display(), out.display())),
        None => {
            let why = if args.quick { "--quick measures too briefly to rely on" } else { "--no-keep" };
            note(&format!("note: these figures are not kept for reports ({why})"));
            say(&format!("Study: {}", out.display()))
        }
    }
}

/// Why there is no figure at all; `None` where there is one.
fn nothing_measured(peaks: &Peaks) -> Option<&str> {
    if !peaks.figures.is_empty() {
        return None;
    }
    Some(peaks.absent.first().map_or("nothing was tried", |absent| absent.reason.as_str()))
}

/// What is absent, a line for each reason: `launch, gap, graph_gap: absent; …`.
fn absent(peaks: &Peaks) -> Vec<String> {
    let mut by_reason: Vec<(&str, Vec<String>)> = Vec::new();
    for absent in &peaks.absent {
        let dtype = absent.dtype.as_ref().map_or(String::new(), |dtype| format!(" {dtype}"));
        let name = format!("{}{dtype}", absent.kind.name());
        match by_reason.iter_mut().find(|(reason, _)| *reason == absent.reason) {
            Some((_, names)) => names.push(name),
            None => by_reason.push((&absent.reason, vec![name])),
        }
    }
    by_reason.into_iter().map(|(reason, names)| format!("  {}: absent; {reason}", names.join(", "))).collect()
}

fn datasheet_value(sheet: &[Peak], kind: PeakKind, dtype: Option<&str>) -> Option<f64> {
    let wanted = match kind {
        PeakKind::Flops => PeakKind::Flops,
        PeakKind::Read | PeakKind::Write | PeakKind::Copy | PeakKind::Triad => PeakKind::Bandwidth,
        _ => return None,
    };
    Some(sheet.iter().find(|peak| peak.kind == wanted && peak.dtype.as_deref() == dtype)?.value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use candlescope_lab::peaks::{MissingPeak, PeakFigure};

    #[test]
    fn without_a_figure_the_first_reason_is_told() {
        let mut peaks = Peaks::new(DeviceIdentity::cpu());
        let none = |kind, reason: &str| MissingPeak { kind, dtype: None, reason: reason.to_string() };
        peaks.absent = vec![none(PeakKind::Read, "out of memory"), none(PeakKind::Launch, "nothing is launched")];
        assert_eq!(nothing_measured(&peaks), Some("out of memory"));
        peaks.figures.push(PeakFigure {
            kind: PeakKind::Copy,
            dtype: None,
            condition: None,
            value: 1e9,
            at: "1 MiB".to_string(),
            n: 3,
            range: (1e9, 1e9),
            measured_ns: None,
        });
        assert_eq!(nothing_measured(&peaks), None);
    }

    #[test]
    fn what_is_absent_for_one_reason_is_one_line() {
        let mut peaks = Peaks::new(DeviceIdentity::cpu());
        let none = |kind, reason: &str| MissingPeak { kind, dtype: None, reason: reason.to_string() };
        peaks.absent = vec![
            none(PeakKind::Launch, "nothing is launched"),
            none(PeakKind::HostToDevice, "nothing is copied"),
            none(PeakKind::Gap, "nothing is launched"),
        ];
        let lines = absent(&peaks);
        assert_eq!(
            lines,
            ["  launch, gap: absent; nothing is launched", "  host_to_device: absent; nothing is copied"]
        );
    }
}
