//! Timelines of several ranks: one Perfetto trace of all, one profile of PyTorch's form for each.

use super::export_file::{cannot_write, only_a_file};
use crate::args::{ExportArgs, ExportFormat};
use crate::output::say;
use crate::warnings::warn;
use anyhow::{Context, Result, bail};
use candlescope_core::beside_run;
use candlescope_core::files::write_whole;
use candlescope_core::run::{RunManifest, env_key};
use candlescope_exporters::perfetto::PerfettoTrace;
use candlescope_ranks::{Rank, Ranks, analyse};
use candlescope_reader::Run;
use serde_json::json;
use std::collections::HashSet;
#[cfg(feature = "kineto")]
use std::{
    fs::File,
    io::{self, BufWriter},
    path::PathBuf,
};

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

/// Traces of one program may share a file, one after the other or in turns: tracks and sequences have numbers of their
/// own by rank.
fn one_trace(args: &ExportArgs, ranks: &Ranks) -> Result<()> {
    only_a_file(args)?;
    let file = args.out.clone().unwrap_or_else(|| args.run.join(beside_run::RANKS_TRACE));
    let clocks = analyse(ranks).clocks;
    let (mut findings, mut spans, mut kernels) = (Vec::new(), 0, 0);
    let written = write_whole(&file, |out| {
        let mut described = apart(ranks).into_iter().zip(&clocks.ahead_ns);
        for of_run in ranks.by_run() {
            let own = described.by_ref().take(of_run.ranks().len());
            let mut traces: Vec<_> = own.map(|(manifest, ahead)| (PerfettoTrace::new(&manifest), -ahead)).collect();
            let found = of_run.read(Run::batches, |place, mut own| {
                let (trace, later) = &mut traces[place];
                if *later != 0 {
                    own.move_by(*later);
                }
                spans += own.spans.len();
                kernels += own.kernels.len();
                trace.batch(&own, out)
            })?;
            findings.extend(found);
            traces.into_iter().try_for_each(|(trace, _)| trace.end(out).map(drop))?;
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
    use candlescope_exporters::kineto::KinetoTrace;
    only_a_file(args)?;
    let dir = args.out.clone().unwrap_or_else(|| args.run.join(beside_run::KINETO_FOLDER));
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
    let mut described = apart(ranks).into_iter().zip(&clocks.ahead_ns);
    for of_run in ranks.by_run() {
        let (mut own_files, mut profiles) = (Vec::new(), Vec::new());
        for (mut manifest, ahead) in described.by_ref().take(of_run.ranks().len()) {
            // A rank whose clock is ahead counts from as much later.
            manifest.started_ns = origin + ahead;
            own_files.push(dir.join(beside_run::of_rank(manifest.rank)));
            profiles.push(KinetoTrace::new(&manifest));
        }
        let written = write_all_whole(&own_files, Vec::new(), |outs| {
            let found = of_run.read(without_stacks, |place, own| profiles[place].batch(&own, outs[place]))?;
            for (profile, out) in profiles.into_iter().zip(outs) {
                kernels += profile.end(*out)?.written().kernels;
            }
            Ok(found)
        });
        let place = if own_files.len() == 1 { &own_files[0] } else { &dir };
        findings.extend(written.with_context(|| cannot_write(place))?);
        files.extend(own_files);
    }
    if args.json {
        let object = json!({ "files": files, "ranks": files.len(), "kernels": kernels, "findings": findings });
        return say(&object.to_string());
    }
    warn(&findings);
    say(&format!("wrote {kernels} kernels of {} ranks to {}", files.len(), dir.display()))?;
    say("open the folder with HolisticTraceAnalysis (set HTA_DISABLE_NS_ROUNDING=1)")
}

/// Writes several files at once, each whole or not at all; `outs` are those that are open already.
#[cfg(feature = "kineto")]
fn write_all_whole<T>(
    files: &[PathBuf],
    outs: Vec<&mut BufWriter<File>>,
    write: impl FnOnce(&mut [&mut BufWriter<File>]) -> io::Result<T>,
) -> io::Result<T> {
    let mut outs = outs;
    match files.split_first() {
        None => write(&mut outs),
        Some((file, others)) => write_whole(file, |out| {
            let mut outs: Vec<&mut BufWriter<File>> = outs;
            outs.push(out);
            write_all_whole(others, outs, write)
        }),
    }
}
