//! Timelines of several ranks: one Perfetto trace of all, one profile of PyTorch's form for each.

use super::export_file::{cannot_write, only_a_file};
use crate::args::{ExportArgs, ExportFormat};
use crate::output::say;
use crate::warnings::warn;
use anyhow::{Context, Result, bail};
use candlescope_core::Batch;
use candlescope_core::files::write_whole;
use candlescope_core::run::{RunManifest, env_key};
use candlescope_exporters::perfetto;
use candlescope_ranks::{Rank, Ranks, analyse};
use serde_json::json;
use std::collections::HashSet;

pub(super) fn export(args: &ExportArgs, ranks: &Ranks) -> Result<()> {
    match args.format {
        ExportFormat::Perfetto => one_trace(args, ranks),
        ExportFormat::Kineto => one_each(args, ranks),
        _ => bail!(
            "`{}` has {} ranks: all together go to perfetto, one file each to kineto; {} for other formats",
            args.run.display(),
            ranks.all().len(),
            if args.by_thread { "leave out --by-thread" } else { "name the run of one rank" }
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
        for ((rank, manifest), ahead) in ranks.all().iter().zip(apart(ranks)).zip(&clocks.ahead_ns) {
            let mut batches = rank.run().batches();
            let own = batches.by_ref().map(|batch| rank.own(batch)).inspect(|batch| {
                spans += batch.spans.len();
                kernels += batch.kernels.len();
            });
            perfetto::write(&mut *out, &manifest, later(own, -ahead))?;
            findings.extend(rank.told(batches.findings()));
        }
        Ok(())
    });
    written.with_context(|| cannot_write(&file))?;
    if args.json {
        let object = json!({ "file": file, "ranks": ranks.all().len(), "spans": spans, "kernels": kernels, "clocks": clocks, "findings": findings });
        return say(&object.to_string());
    }
    warn(&findings);
    say(&format!(
        "wrote {spans} intervals and {kernels} kernels of {} ranks to {}\n{}\nopen it at ui.perfetto.dev",
        ranks.all().len(),
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
    ranks.all().iter().map(Rank::manifest).map(own).collect()
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
    for run in ranks.all().iter().map(Rank::run) {
        refuse_unless(run.rows(candlescope_core::RecordKind::Kernel) > 0, run.findings(), || {
            format!(
                "`{}` has no recorded kernels, which a profile of PyTorch consists of: record some with --cupti",
                run.dir().display()
            )
        })?;
    }
    std::fs::create_dir_all(&dir).with_context(|| cannot_write(&dir))?;
    // Times of all files count from one moment, of the first rank's clock.
    let clocks = analyse(ranks).clocks;
    let began = ranks.all().iter().zip(&clocks.ahead_ns).map(|(rank, ahead)| rank.manifest().started_ns - ahead);
    let origin = began.min().unwrap_or(0);
    for ((rank, mut manifest), ahead) in ranks.all().iter().zip(apart(ranks)).zip(&clocks.ahead_ns) {
        // A rank whose clock is ahead counts from as much later.
        manifest.started_ns = origin + ahead;
        let file = dir.join(format!("rank{}.json", manifest.rank));
        let mut batches = without_stacks(rank.run());
        let own = batches.by_ref().map(|batch| rank.own(batch));
        let written = write_whole(&file, |out| kineto::write(out, &manifest, own));
        kernels += written.with_context(|| cannot_write(&file))?.kernels;
        findings.extend(rank.told(batches.findings()));
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
