//! `candlescope bench variants`: drives the study.

use super::common_args::CommonArgs;
use super::drive::{Rounds, measure, say_processes, say_threads};
use super::plan;
use super::variants_args::VariantsArgs;
use crate::output::{note, say};
use anyhow::{Context, Result, bail, ensure};
use candlescope_core::beside_run::REPORT_PAGE;
use candlescope_core::files::write_whole;
use candlescope_document::Document;
use candlescope_exporters::chrome;
use candlescope_lab::method::MeasurementEnd;
use candlescope_lab::study::{Manifest, Records, Study, summaries, told_once};
use candlescope_lab::variants::{
    SUITE, Variant, VariantOptions, VariantRow, VariantsSummary, object, read_closing, variant_lines, write_variants,
};
use candlescope_reader::Run;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// Where files are made that a variant is run from, in the study; removed at the end.
pub(super) const FILES: &str = "variant_files";

pub(super) fn run(args: &VariantsArgs) -> Result<u8> {
    let (options, common) = (options(args)?, &args.common);
    let plan = manifest(&options, common)?;
    // What is measured once is measured by the round that records.
    let all = |rounds: &mut Rounds<'_>| match rounds.plain()? {
        MeasurementEnd::Done if !matches!(read_closing(rounds.study()), Ok(Some(_))) => rounds.last(),
        ended => Ok(ended),
    };
    let tell = |study: &Study, records: &Records, ended| {
        let closing =
            read_closing(study).context("the study's quality_results.json is damaged: remove it and --resume")?;
        let traces = traces(study, &options, records)?;
        let (rows, document) = write_variants(study, &options, records, closing.as_ref(), &traces)?;
        let files = study.dir().join(FILES);
        if ended == Some(MeasurementEnd::Done) && files.is_dir() {
            let _ = std::fs::remove_dir_all(files);
        }
        show(study, &rows, document, closing.as_ref(), common)?;
        Ok((rows, closing))
    };
    measure(&plan, common, all, tell, |(rows, closing)| verdict(rows, closing.as_ref()))
}

/// A text that was asked for and cannot be used is an error, and so is a study without figures.
fn verdict(rows: &[VariantRow], closing: Option<&VariantsSummary>) -> Result<u8> {
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
        common.subject.dtype.is_none()
            && !common.subject.dequantize
            && common.subject.kv_cache_dtype.is_none()
            && ["auto", "instrumented"].contains(&common.subject.engine.as_str()),
        "--dtype, --dequantize, --kv-cache-dtype and --engine are for other benchmarks: variants choose their own types; \
         name them with --variants"
    );
    common.subject.check()?;
    let mut options = if common.quick { VariantOptions::quick() } else { VariantOptions::default() };
    if !args.variants.is_empty() {
        let variants: Vec<Variant> = args.variants.iter().map(|name| Variant::parse(name)).collect::<Result<_, _>>()?;
        options.choose(&variants);
    }
    options.model = common.subject.anywhere()?;
    options.device = common.subject.device.clone();
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
    let mut manifest = Manifest::new(format!("{SUITE} of {}", common.subject.model), options.case_ids(), &method);
    if let Value::Object(map) = serde_json::to_value(options)? {
        manifest.options = map;
    }
    common.subject.settle_threads(&mut manifest)?;
    common.tell_price(&mut manifest)?;
    Ok(manifest)
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

fn show(
    study: &Study,
    rows: &[VariantRow],
    document: Document,
    closing: Option<&VariantsSummary>,
    common: &CommonArgs,
) -> Result<()> {
    let dir = study.dir();
    let all: Vec<Value> = rows.iter().map(object).collect();
    if common.json.say(&json!({ "study": dir, "variants": all }), || document)? {
        return Ok(());
    }
    for text in told_once(&study.manifest().disturbances) {
        note(&format!("warning: {text}"));
    }
    variant_lines(rows).iter().try_for_each(|line| say(line))?;
    if let Some(why) = closing.and_then(|closing| closing.no_quality.as_deref()) {
        say(&format!("Quality: not measured: {why}"))?;
    }
    say_threads(study)?;
    say_processes(study)?;
    say(&format!("Study: {}   Report: {}", dir.display(), dir.join(REPORT_PAGE).display()))
}
