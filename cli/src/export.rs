//! `candlescope export`.

use crate::args::{ExportArgs, ExportFormat};
use anyhow::{Context, Result};
use candlescope_analysis::Run;
use candlescope_exporters::{chrome, perfetto};
use serde_json::json;
use std::fs::File;
use std::io::{BufWriter, Write};

pub(crate) fn run(args: &ExportArgs) -> Result<()> {
    let run = Run::open(&args.run)?;
    let name = match args.format {
        ExportFormat::Chrome => "trace.json",
        ExportFormat::Perfetto => "trace.pftrace",
    };
    let file = args.out.clone().unwrap_or_else(|| args.run.join(name));
    let cannot = || format!("cannot write {}: choose another place with --out", file.display());
    let mut out = BufWriter::new(File::create(&file).with_context(cannot)?);
    let manifest = run.manifest().cloned().unwrap_or_default();
    let mut batches = run.batches();
    let written = match args.format {
        ExportFormat::Chrome => chrome::write(&mut out, &manifest, batches.by_ref()),
        ExportFormat::Perfetto => perfetto::write(&mut out, &manifest, batches.by_ref()),
    };
    written.and_then(|()| out.flush()).with_context(cannot)?;
    let findings = batches.findings();
    let spans = batches.records(candlescope_core::RecordKind::Span);
    if args.json {
        println!("{}", json!({ "file": file, "spans": spans, "findings": findings }));
        return Ok(());
    }
    for finding in &findings {
        eprintln!("warning: {}; {}", finding.message, finding.remedy);
    }
    println!("wrote {spans} intervals to {}", file.display());
    match args.format {
        ExportFormat::Chrome => println!("open it at chrome://tracing, in speedscope, or at ui.perfetto.dev"),
        ExportFormat::Perfetto => {
            println!("open it at ui.perfetto.dev (it stays in your browser) or with trace_processor")
        }
    }
    Ok(())
}
