//! `candlescope export`: timelines and traces. What consists of call stacks is in [`stacks`].

mod export_file;
mod of_ranks;
mod stacks;

#[cfg(feature = "otlp")]
use self::export_file::only_stacks;
#[cfg(feature = "kineto")]
use self::export_file::refuse_unless;
use self::export_file::{cannot_write, only_a_file, without_stacks};
use crate::args::{ExportArgs, ExportFormat};
use crate::limits::limits;
use crate::output::say;
use crate::warnings::warn;
use anyhow::{Context, Result};
use candlescope_core::RecordKind;
use candlescope_core::beside_run;
use candlescope_core::files::write_whole;
use candlescope_core::run::RunManifest;
use candlescope_exporters::{chrome, perfetto};
#[cfg(feature = "kineto")]
use candlescope_exporters::{gzip::write_as_named, kineto};
use candlescope_reader::{Batches, Run};
use serde_json::json;
use std::fs::File;
use std::io::BufWriter;

type Writer = fn(&mut BufWriter<File>, &RunManifest, &mut Batches<'_>) -> std::io::Result<()>;

pub(crate) fn run(args: &ExportArgs) -> Result<()> {
    let limits = limits(&args.limits)?;
    if let Some(ranks) = crate::ranks::ranks_in(&args.run, &limits, args.by_thread)? {
        return of_ranks::export(args, &ranks);
    }
    let run = Run::open_within(&args.run, limits)?;
    let (name, hint, write): (_, _, Writer) = match args.format {
        ExportFormat::Chrome => {
            let hint = "open it at chrome://tracing, in speedscope, or at ui.perfetto.dev";
            (beside_run::CHROME, hint, |out, run, batches| chrome::write(out, run, batches))
        }
        ExportFormat::Perfetto => {
            let hint = "open it at ui.perfetto.dev (it stays in your browser) or with trace_processor";
            (beside_run::PERFETTO, hint, |out, run, batches| perfetto::write(out, run, batches))
        }
        ExportFormat::Kineto => return kineto(args, &run),
        ExportFormat::Otlp => return otlp(args, &run),
        ExportFormat::Firefox => return stacks::firefox(args, &run),
        ExportFormat::Pprof => return stacks::pprof(args, &run),
        ExportFormat::Stacks => return stacks::collapsed(args, &run),
    };
    only_a_file(args)?;
    let file = args.out.clone().unwrap_or_else(|| args.run.join(name));
    let manifest = run.manifest().cloned().unwrap_or_default();
    let mut batches = match args.format {
        ExportFormat::Perfetto => run.batches(),
        _ => without_stacks(&run),
    };
    write_whole(&file, |out| write(out, &manifest, &mut batches)).with_context(|| cannot_write(&file))?;
    let findings = batches.findings();
    let (spans, kernels) = (batches.records(RecordKind::Span), batches.records(RecordKind::Kernel));
    if args.json {
        return say(&json!({ "file": file, "spans": spans, "kernels": kernels, "findings": findings }).to_string());
    }
    warn(&findings);
    let counts = [(kernels, "kernels"), (batches.records(RecordKind::StackSample), "samples of threads")];
    let more: String = counts.iter().filter(|(n, _)| *n > 0).map(|(n, what)| format!(" and {n} {what}")).collect();
    say(&format!("wrote {spans} intervals{more} to {}", file.display()))?;
    say(hint)
}

#[cfg(not(feature = "kineto"))]
fn kineto(_: &ExportArgs, _: &Run) -> Result<()> {
    Err(crate::lacking::default_feature("`candlescope export kineto`", "kineto"))
}

#[cfg(feature = "kineto")]
fn kineto(args: &ExportArgs, run: &Run) -> Result<()> {
    only_a_file(args)?;
    refuse_unless(run.rows(RecordKind::Kernel) > 0, run.findings(), || {
        format!(
            "`{}` has no recorded kernels, which a profile of PyTorch consists of: record some with --cupti, or export the \
             intervals with `export chrome` or `export perfetto`",
            args.run.display()
        )
    })?;
    let file = args.out.clone().unwrap_or_else(|| args.run.join(beside_run::KINETO));
    let manifest = run.manifest().cloned().unwrap_or_default();
    let mut batches = without_stacks(run);
    let written =
        write_whole(&file, |out| write_as_named(&file, out, |out| kineto::write(out, &manifest, &mut batches)))
            .with_context(|| cannot_write(&file))?;
    let findings = batches.findings();
    let kineto::TraceCounts { kernels, launches, launches_outside, intervals, steps } = written;
    if args.json {
        let counts = json!({
            "file": file, "spans": intervals, "kernels": kernels, "launches": launches,
            "launches_outside": launches_outside, "steps": steps, "findings": findings,
        });
        return say(&counts.to_string());
    }
    warn(&findings);
    let outside = match launches_outside {
        0 => String::new(),
        n => format!(" ({n} outside every interval)"),
    };
    say(&format!(
        "wrote {kernels} kernels, {launches} launch calls{outside} and {intervals} intervals of {steps} steps to {}",
        file.display()
    ))?;
    say("open it with HolisticTraceAnalysis (set HTA_DISABLE_NS_ROUNDING=1), TraceLens, or at ui.perfetto.dev")
}

#[cfg(feature = "otlp")]
fn otlp(args: &ExportArgs, run: &Run) -> Result<()> {
    use candlescope_exporters::otlp::send_run;
    anyhow::ensure!(args.out.is_none(), "--out is for files; otlp goes to a collector, which --endpoint names");
    only_stacks(args)?;
    // Nothing waits for this, and whoever exports a run that was recorded at full speed wants all its traces.
    let limits = candlescope_exporters::otlp::OtlpLimits::default().spans_per_second(u64::MAX);
    let config = crate::services::collector(args.endpoint.as_deref()).limits(limits);
    let mut batches = without_stacks(run);
    let sent = send_run(config, &run.manifest().cloned().unwrap_or_default(), batches.by_ref())
        .context("start a collector such as Jaeger, or name another with --endpoint")?;
    let (report, spans) = (sent.report, sent.spans);
    let findings = batches.findings();
    if args.json {
        say(&json!({ "report": report, "spans": spans, "findings": findings }).to_string())?;
    } else {
        warn(&findings);
        let left_out = report.dropped.get("spans").and_then(|reasons| reasons.get("limit")).copied().unwrap_or(0);
        say(&format!("sent {spans} spans; {left_out} intervals were left out to keep traces readable"))?;
    }
    match &report.last_error {
        Some(error) => anyhow::bail!("not everything arrived: {error}"),
        None => Ok(()),
    }
}
#[cfg(not(feature = "otlp"))]
fn otlp(_: &ExportArgs, _: &Run) -> Result<()> {
    Err(crate::lacking::default_feature("export otlp", "otlp"))
}
