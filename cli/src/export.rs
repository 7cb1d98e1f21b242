//! `candlescope export`.

use crate::args::{ExportArgs, ExportFormat};
use crate::limits::limits;
use crate::output::{note, say};
use anyhow::{Context, Result};
use candlescope_analysis::{Batches, Run};
use candlescope_core::files::write_whole;
use candlescope_core::run::{Finding, RunManifest};
use candlescope_exporters::{chrome, perfetto};
use serde_json::json;
use std::fs::File;
use std::io::BufWriter;

type Writer = fn(&mut BufWriter<File>, &RunManifest, &mut Batches<'_>) -> std::io::Result<()>;

pub(crate) fn run(args: &ExportArgs) -> Result<()> {
    let run = Run::open_within(&args.run, limits(&args.limits)?)?;
    let (name, hint, write): (_, _, Writer) = match args.format {
        ExportFormat::Chrome => {
            let hint = "open it at chrome://tracing, in speedscope, or at ui.perfetto.dev";
            ("trace.json", hint, |out, run, batches| chrome::write(out, run, batches))
        }
        ExportFormat::Perfetto => {
            let hint = "open it at ui.perfetto.dev (it stays in your browser) or with trace_processor";
            ("trace.pftrace", hint, |out, run, batches| perfetto::write(out, run, batches))
        }
        ExportFormat::Otlp => return otlp(args, &run),
    };
    anyhow::ensure!(args.endpoint.is_none(), "--endpoint is for otlp; this format goes to a file, which --out names");
    let file = args.out.clone().unwrap_or_else(|| args.run.join(name));
    let cannot = || format!("cannot write {}: choose another place with --out", file.display());
    let manifest = run.manifest().cloned().unwrap_or_default();
    let mut batches = run.batches();
    write_whole(&file, |out| write(out, &manifest, &mut batches)).with_context(cannot)?;
    let findings = batches.findings();
    let spans = batches.records(candlescope_core::RecordKind::Span);
    if args.json {
        return say(&json!({ "file": file, "spans": spans, "findings": findings }).to_string());
    }
    warn(&findings);
    say(&format!("wrote {spans} intervals to {}", file.display()))?;
    say(hint)
}

fn warn(findings: &[Finding]) {
    for finding in findings {
        note(&format!("warning: {}; {}", finding.message(), finding.remedy()));
    }
}

#[cfg(feature = "otlp")]
fn otlp(args: &ExportArgs, run: &Run) -> Result<()> {
    use candlescope_exporters::otlp::send_run;
    anyhow::ensure!(args.out.is_none(), "--out is for files; otlp goes to a collector, which --endpoint names");
    // Nothing waits for this, and whoever exports a run that was recorded at full speed wants all its traces.
    let limits = candlescope_exporters::otlp::OtlpLimits::default().spans_per_second(u64::MAX);
    let config = crate::services::collector(args.endpoint.as_deref()).limits(limits);
    let mut batches = run.batches();
    let report = send_run(config, &run.manifest().cloned().unwrap_or_default(), batches.by_ref())
        .context("start a collector such as Jaeger, or name another with --endpoint")?;
    let findings = batches.findings();
    if args.json {
        say(&json!({ "report": report, "findings": findings }).to_string())?;
    } else {
        warn(&findings);
        let left_out = report.dropped.get("spans").and_then(|reasons| reasons.get("limit")).copied().unwrap_or(0);
        let sent = report.exported["spans"];
        say(&format!("sent {sent} intervals; {left_out} were left out to keep traces readable"))?;
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
