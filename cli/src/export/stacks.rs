//! `candlescope export firefox`, `pprof` and `stacks`: what consists of call stacks.

use super::export_file::{cannot_write, no_endpoint, refuse_unless};
use crate::args::ExportArgs;
use crate::output::say;
use crate::warnings::warn;
use anyhow::{Context, Result};
use candlescope_core::RecordKind;
use candlescope_core::beside_run;
use candlescope_core::files::write_whole;
use candlescope_figures::Analysis;
use candlescope_figures::flame::{FlameTime, collapsed_functions};
use candlescope_reader::Run;
use serde_json::json;
use std::io::Write;

/// Refuses a run that has none, and arguments of other formats.
fn check(args: &ExportArgs, run: &Run) -> Result<()> {
    no_endpoint(args)?;
    refuse_unless(run.rows(RecordKind::StackSample) > 0, run.findings(), || {
        format!(
            "`{}` has no call stacks: record some with `candlescope profile --stacks`, or with `stacks` in CANDLESCOPE, on \
             Linux; the intervals alone go out with `export perfetto` or `export chrome`",
            args.run.display()
        )
    })
}

#[cfg(not(feature = "firefox"))]
pub(super) fn firefox(_: &ExportArgs, _: &Run) -> Result<()> {
    Err(crate::lacking::default_feature("`candlescope export firefox`", "firefox"))
}

#[cfg(feature = "firefox")]
pub(super) fn firefox(args: &ExportArgs, run: &Run) -> Result<()> {
    use super::export_file::only_stacks;
    use candlescope_exporters::firefox::{ProfileCounts, write};
    use candlescope_exporters::gzip::write_as_named;
    only_stacks(args)?;
    check(args, run)?;
    let file = args.out.clone().unwrap_or_else(|| args.run.join(beside_run::FIREFOX));
    let manifest = run.manifest().cloned().unwrap_or_default();
    let tables = [RecordKind::Stack, RecordKind::StackSample, RecordKind::Span];
    let mut batches = run.batches().held().of_tables(&tables);
    let written = write_whole(&file, |out| write_as_named(&file, out, |out| write(out, &manifest, &mut batches)))
        .with_context(|| cannot_write(&file))?;
    let findings = batches.findings();
    let ProfileCounts { samples, off_cpu, intervals, intervals_left_out, threads } = written;
    if args.json {
        let counts = json!({
            "file": file, "samples": samples, "off_cpu": off_cpu, "spans": intervals,
            "spans_left_out": intervals_left_out, "threads": threads, "findings": findings,
        });
        return say(&counts.to_string());
    }
    warn(&findings);
    let without = match intervals_left_out {
        0 => String::new(),
        n => format!(" (without {n} intervals more, which the viewer cannot show)"),
    };
    say(&format!(
        "wrote {samples} samples and {off_cpu} times off the CPU of {threads} threads, and {intervals} intervals{without}, to {}",
        file.display()
    ))?;
    say("open it at profiler.firefox.com (it stays in your browser) or with `samply load`")
}

#[cfg(not(feature = "pprof"))]
pub(super) fn pprof(_: &ExportArgs, _: &Run) -> Result<()> {
    Err(crate::lacking::default_feature("`candlescope export pprof`", "pprof"))
}

#[cfg(feature = "pprof")]
pub(super) fn pprof(args: &ExportArgs, run: &Run) -> Result<()> {
    use super::export_file::only_stacks;
    use candlescope_exporters::pprof::{ProfileCounts, write};
    only_stacks(args)?;
    check(args, run)?;
    let file = args.out.clone().unwrap_or_else(|| args.run.join(beside_run::PPROF));
    let manifest = run.manifest().cloned().unwrap_or_default();
    let mut batches = run.batches().held().of_tables(&[RecordKind::Stack, RecordKind::StackSample]);
    let written = write_whole(&file, |out| write(out, &manifest, &mut batches)).with_context(|| cannot_write(&file))?;
    let findings = batches.findings();
    let ProfileCounts { samples, off_cpu, functions } = written;
    if args.json {
        let counts = json!({
            "file": file, "samples": samples, "off_cpu": off_cpu, "functions": functions, "findings": findings,
        });
        return say(&counts.to_string());
    }
    warn(&findings);
    say(&format!(
        "wrote {samples} samples and {off_cpu} times off the CPU in {functions} functions to {}",
        file.display()
    ))?;
    say(&format!("open it with `go tool pprof -http=: {}`", file.display()))
}

/// Lines of the run's intervals and, below them, functions, as the flame graphs of its report have them.
pub(super) fn collapsed(args: &ExportArgs, run: &Run) -> Result<()> {
    check(args, run)?;
    let (name, shown, what) = match args.off_cpu {
        false => (beside_run::STACKS, FlameTime::OnCpu, "on"),
        true => (beside_run::STACKS_OFF_CPU, FlameTime::OffCpu, "off"),
    };
    let analysis = Analysis::of(run);
    let lines = analysis.host.as_ref().map_or(Vec::new(), |host| collapsed_functions(&analysis.tree, host, shown));
    let findings = &analysis.noticed;
    refuse_unless(!lines.is_empty(), findings, || {
        format!(
            "`{}` has no time {what} the CPU in its measured steps: record more steps, or a higher rate with `--stacks=HZ`",
            args.run.display()
        )
    })?;
    let file = args.out.clone().unwrap_or_else(|| args.run.join(name));
    let write = |out: &mut dyn Write| lines.iter().try_for_each(|line| writeln!(out, "{line}"));
    write_whole(&file, |out| write(out)).with_context(|| cannot_write(&file))?;
    if args.json {
        return say(&json!({ "file": file, "stacks": lines.len(), "findings": findings }).to_string());
    }
    warn(findings);
    let count = lines.len();
    say(&format!("wrote {count} stacks with their time {what} the CPU in measured steps to {}", file.display()))?;
    say("draw it with inferno-flamegraph, or open it in speedscope")
}
