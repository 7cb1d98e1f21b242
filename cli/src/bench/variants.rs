//! `candlescope bench variants`: drives the study.

use super::common_args::CommonArgs;
use super::drive::{next_process, start};
use super::operations::{cancel_on_interrupt, state};
use super::plan;
use super::variants_args::VariantsArgs;
use crate::output::{note, say};
use anyhow::{Context, Result, bail, ensure};
use candlescope_analysis::Run;
use candlescope_core::files::write_whole;
use candlescope_exporters::chrome;
use candlescope_lab::method::{Cancel, Ended};
use candlescope_lab::study::{Manifest, Records, Study, summaries};
use candlescope_lab::variants::{
    Closing, SUITE, Variant, VariantOptions, VariantRow, object, read_closing, variant_lines, write_variants,
};
use candlescope_models::ModelSource;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Where files are made that a variant is run from, in the study; removed at the end.
pub(super) const FILES: &str = "variant_files";

pub(super) fn run(args: &VariantsArgs) -> Result<u8> {
    let (options, common) = (options(args)?, &args.common);
    let plan = manifest(&options, common)?;
    let mut study = match common.resume {
        true => Study::resume(&common.out, &plan)?,
        false => Study::create(&common.out, plan)?,
    };
    let cancel = cancel_on_interrupt(|| ());
    let outcome = rounds(&mut study, common, &cancel);
    if outcome.is_err() && !common.resume && study.records()?.samples.is_empty() {
        // An empty study would only be in the way of the next try.
        study.discard();
        return outcome.map(|_| 1);
    }
    let records = study.finish(state(outcome.as_ref().ok().copied()))?;
    let closing =
        read_closing(&study).context("the study's quality_results.json is damaged: remove it and --resume")?;
    let traces = traces(&study, &options, &records)?;
    let rows = write_variants(&study, &options, &records, closing.as_ref(), &traces)?;
    let files = study.dir().join(FILES);
    if matches!(outcome, Ok(Ended::Done)) && files.is_dir() {
        let _ = std::fs::remove_dir_all(files);
    }
    show(&study, &rows, closing.as_ref(), common)?;
    match outcome {
        Err(error) => {
            let dir = study.dir().display();
            Err(error.context(format!("what was measured until then is in {dir}; --resume goes on with it")))
        }
        Ok(Ended::Cancelled) => {
            note(&format!("interrupted: {} keeps what was measured; --resume goes on with it", study.dir().display()));
            Ok(130)
        }
        Ok(Ended::Done) => verdict(&rows, closing.as_ref()),
    }
}

/// A text that was asked for and cannot be used is an error, and so is a study without figures.
fn verdict(rows: &[VariantRow], closing: Option<&Closing>) -> Result<u8> {
    let wrong = closing.filter(|closing| closing.text_is_wrong).and_then(|closing| closing.no_quality.as_deref());
    if let Some(why) = wrong {
        bail!("{why}; speed and sizes were measured and are kept");
    }
    match rows.iter().all(|row| row.absent().is_some()) {
        true => bail!(
            "no variant could be measured: {}",
            rows.iter().find_map(VariantRow::absent).unwrap_or_else(|| "there was none".into())
        ),
        false => Ok(0),
    }
}

fn options(args: &VariantsArgs) -> Result<VariantOptions> {
    let common = &args.common;
    ensure!(
        common.dtype.is_none() && !common.dequantize && common.engine == "instrumented",
        "--dtype, --dequantize and --engine are for other benchmarks: variants choose their own types; name them with \
         --variants"
    );
    ModelSource::parse(&common.model)?;
    let mut options = if common.quick { VariantOptions::quick() } else { VariantOptions::default() };
    if !args.variants.is_empty() {
        let variants: Vec<Variant> = args.variants.iter().map(|name| Variant::parse(name)).collect::<Result<_, _>>()?;
        options.choose(&variants);
    }
    options.model = match Path::new(&common.model) {
        // The processes that measure may be started elsewhere.
        path if path.exists() => std::path::absolute(path)?.display().to_string(),
        _ => common.model.clone(),
    };
    options.device = common.device.clone();
    options.seed = common.seed;
    for (given, name, least, option) in [
        (args.prompt_tokens, "--prompt-tokens", 1, &mut options.prompt_tokens),
        (args.output_tokens, "--output-tokens", 1, &mut options.output_tokens),
        (args.chunk, "--chunk", 4, &mut options.chunk),
        (args.chunks, "--chunks", 1, &mut options.chunks),
    ] {
        if let Some(given) = given {
            ensure!(given >= least, "{name} is {given}; it must be at least {least}");
            *option = given;
        }
    }
    options.quality = !args.no_quality;
    options.text = args.text.as_deref().map(std::path::absolute).transpose()?;
    if let Some(text) = &options.text {
        check_text(text, options.chunk)?;
    }
    options.keep = args.keep.as_deref().map(std::path::absolute).transpose()?;
    if let Some(keep) = options.keep.as_deref().filter(|_| !common.resume) {
        let mut entries = std::fs::read_dir(keep).into_iter().flatten();
        ensure!(entries.next().is_none(), "{} is not empty: name another directory with --keep", keep.display());
        std::fs::create_dir_all(keep).with_context(|| format!("cannot make {}", keep.display()))?;
    }
    options.onnxruntime = args.onnxruntime.as_deref().map(std::path::absolute).transpose()?;
    if let Some(library) = options.onnxruntime.as_deref().filter(|library| !library.is_file()) {
        bail!("{} is not there: name the library libonnxruntime.so.VERSION with --onnxruntime", library.display());
    }
    options.memory_limit = common.memory_limit.map(|mib| mib.saturating_mul(1 << 20));
    Ok(options)
}

/// What can be told of a text before a model is loaded: a token has one byte at least.
fn check_text(path: &Path, chunk: usize) -> Result<()> {
    let meta = std::fs::metadata(path).with_context(|| format!("cannot read the text {}", path.display()))?;
    ensure!(meta.is_file(), "{} is no file: name a text with --text", path.display());
    ensure!(
        meta.len() >= chunk as u64,
        "the text {} has {} bytes, and {chunk} tokens are needed at least: pass a longer one with --text, or a smaller \
         --chunk",
        path.display(),
        meta.len()
    );
    Ok(())
}

fn manifest(options: &VariantOptions, common: &CommonArgs) -> Result<Manifest> {
    let method = plan::method(common)?;
    let mut manifest = Manifest::new(format!("{SUITE} of {}", common.model), options.case_ids(), &method);
    if let Value::Object(map) = serde_json::to_value(options)? {
        manifest.options = map;
    }
    Ok(manifest)
}

/// The rounds of the plan, and a last one that records and measures what is measured once.
fn rounds(study: &mut Study, common: &CommonArgs, cancel: &Cancel) -> Result<Ended> {
    let (rounds, cases, began) = (study.manifest().rounds, study.manifest().cases.len(), Instant::now());
    let first = next_process(study, &study.records()?);
    for round in 0..rounds {
        if study.records()?.done(round, false, first).len() >= cases {
            continue;
        }
        if let Ended::Cancelled = start(study, common, (round, false), first, began, cancel)? {
            return Ok(Ended::Cancelled);
        }
    }
    match read_closing(study) {
        Ok(Some(_)) => Ok(Ended::Done),
        _ => start(study, common, (rounds, true), first, began, cancel),
    }
}

/// Traces of the recorded cases for a viewer, relative to the study.
fn traces(study: &Study, options: &VariantOptions, records: &Records) -> Result<Vec<PathBuf>> {
    let mut written = Vec::new();
    for (variant, name) in [(Variant::NoCache, "trace_no_cache.json"), (Variant::KvCache, "trace_with_cache.json")] {
        let summary = summaries(&[options.case_id(variant)], records);
        let Some(folder) = summary.first().and_then(|case| case.last_run()) else { continue };
        let run = Run::open(study.dir().join(folder))?;
        let file = Path::new("traces").join(name);
        let path = study.dir().join(&file);
        std::fs::create_dir_all(study.dir().join("traces"))?;
        let manifest = run.manifest().cloned().unwrap_or_default();
        let mut batches = run.batches();
        write_whole(&path, |out| chrome::write(out, &manifest, &mut batches))
            .with_context(|| format!("cannot write {}", path.display()))?;
        written.push(file);
    }
    Ok(written)
}

fn show(study: &Study, rows: &[VariantRow], closing: Option<&Closing>, common: &CommonArgs) -> Result<()> {
    let dir = study.dir();
    if common.json {
        let all: Vec<Value> = rows.iter().map(object).collect();
        return say(&json!({ "study": dir, "variants": all }).to_string());
    }
    for text in &study.manifest().disturbances {
        note(&format!("warning: {text}"));
    }
    variant_lines(rows).iter().try_for_each(|line| say(line))?;
    if let Some(why) = closing.and_then(|closing| closing.no_quality.as_deref()) {
        say(&format!("Quality: not measured: {why}"))?;
    }
    let processes = study.manifest().method.processes;
    if (processes as usize) < candlescope_analysis::passes::stats::INTERVAL_FROM {
        say(&format!(
            "Process starts: {processes}. There is no 95 % interval over them: that takes 6 (--processes 6)."
        ))?;
    }
    say(&format!("Study: {}   Report: {}", dir.display(), dir.join("profiling_report.md").display()))
}
