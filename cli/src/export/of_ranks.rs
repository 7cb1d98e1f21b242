//! Timelines of several ranks: one Perfetto trace of all, one profile of PyTorch's form for each.

use super::export_file::{cannot_write, only_a_file};
use crate::args::{ExportArgs, ExportFormat};
use crate::output::say;
use crate::warnings::warn;
use anyhow::{Context, Result, bail};
use candlescope_core::files::write_whole;
use candlescope_core::run::{RunManifest, env_key};
use candlescope_core::{Batch, RecordKind};
use candlescope_exporters::perfetto;
use candlescope_ranks::{Ranks, analyse};
use serde_json::json;
use std::collections::HashSet;

pub(super) fn export(args: &ExportArgs, ranks: &Ranks) -> Result<()> {
    match args.format {
        ExportFormat::Perfetto => one_trace(args, ranks),
        ExportFormat::Kineto => one_each(args, ranks),
        _ => bail!(
            "`{}` has the runs of {} ranks: all together go to perfetto, one file each to kineto; name the run of one rank for \
             other formats",
            args.run.display(),
            ranks.runs().len()
        ),
    }
}

/// Traces of one program may follow each other in a file: tracks and sequences have numbers of their own by rank.
fn one_trace(args: &ExportArgs, ranks: &Ranks) -> Result<()> {
    only_a_file(args)?;
    let file = args.out.clone().unwrap_or_else(|| args.run.join("ranks.pftrace"));
    let clocks = analyse(ranks).clocks;
    let (mut findings, mut spans, mut kernels) = (Vec::new(), 0, 0);
    let written = write_whole(&file, |out| {
        for ((run, manifest), ahead) in ranks.runs().iter().zip(apart(ranks)).zip(&clocks.ahead_ns) {
            let mut batches = run.batches();
            perfetto::write(&mut *out, &manifest, later(batches.by_ref(), -ahead))?;
            spans += batches.records(RecordKind::Span);
            kernels += batches.records(RecordKind::Kernel);
            findings.extend(batches.findings());
        }
        Ok(())
    });
    written.with_context(|| cannot_write(&file))?;
    if args.json {
        let object = json!({ "file": file, "ranks": ranks.runs().len(), "spans": spans, "kernels": kernels, "clocks": clocks, "findings": findings });
        return say(&object.to_string());
    }
    warn(&findings);
    say(&format!(
        "wrote {spans} intervals and {kernels} kernels of {} ranks to {}\n{}\nopen it at ui.perfetto.dev",
        ranks.runs().len(),
        file.display(),
        clocks.text()
    ))
}

/// Batches with all times moved.
fn later<'a>(batches: impl Iterator<Item = Batch> + 'a, ns: i64) -> impl Iterator<Item = Batch> + 'a {
    batches.map(move |mut batch| {
        if ns != 0 {
            batch.move_by(ns);
        }
        batch
    })
}

/// Descriptions of the ranks, of which no two have the same process: in containers every program is the first one.
fn apart(ranks: &Ranks) -> Vec<RunManifest> {
    let pid = |manifest: &RunManifest| env_key::PID.of(&manifest.environment);
    let mut seen = HashSet::new();
    let own = |manifest: &RunManifest| {
        let mut manifest = manifest.clone();
        if !seen.insert(pid(&manifest)) {
            let other = 10_000_000 + u64::from(manifest.rank);
            manifest.environment.insert(env_key::PID.name().to_string(), other.into());
        }
        manifest
    };
    ranks.manifests().into_iter().map(own).collect()
}

#[cfg(not(feature = "kineto"))]
fn one_each(_: &ExportArgs, _: &Ranks) -> Result<()> {
    Err(crate::lacking::default_feature("`candlescope export kineto`", "kineto"))
}

#[cfg(feature = "kineto")]
fn one_each(args: &ExportArgs, ranks: &Ranks) -> Result<()> {
    use super::export_file::{refuse_unless, without_stacks};
    use candlescope_exporters::kineto;
    only_a_file(args)?;
    let dir = args.out.clone().unwrap_or_else(|| args.run.join("kineto"));
    let (mut files, mut kernels, mut findings) = (Vec::new(), 0, Vec::new());
    for run in ranks.runs() {
        refuse_unless(run.rows(RecordKind::Kernel) > 0, run.findings(), || {
            format!(
                "`{}` has no recorded kernels, which a profile of PyTorch consists of: record some with --cupti",
                run.dir().display()
            )
        })?;
    }
    std::fs::create_dir_all(&dir).with_context(|| cannot_write(&dir))?;
    // Times of all files count from one moment, of the first rank's clock.
    let clocks = analyse(ranks).clocks;
    let began =
        ranks.manifests().into_iter().zip(&clocks.ahead_ns).map(|(manifest, ahead)| manifest.started_ns - ahead);
    let origin = began.min().unwrap_or(0);
    for ((run, mut manifest), ahead) in ranks.runs().iter().zip(apart(ranks)).zip(&clocks.ahead_ns) {
        // A rank whose clock is ahead counts from as much later.
        manifest.started_ns = origin + ahead;
        let file = dir.join(format!("rank{}.json", manifest.rank));
        let mut batches = without_stacks(run);
        let written = write_whole(&file, |out| kineto::write(out, &manifest, &mut batches));
        kernels += written.with_context(|| cannot_write(&file))?.kernels;
        findings.extend(batches.findings());
        files.push(file);
    }
    if args.json {
        let object = json!({ "files": files, "ranks": files.len(), "kernels": kernels, "findings": findings });
        return say(&object.to_string());
    }
    warn(&findings);
    say(&format!("wrote {kernels} kernels of {} ranks to {}", files.len(), dir.display()))?;
    say("open the folder with HolisticTraceAnalysis (set HTA_DISABLE_NS_ROUNDING=1)")
}
