//! What all exports share: what is said of their file and of the run.

use crate::args::ExportArgs;
use crate::warnings::warn;
use anyhow::{Result, bail};
use candlescope_core::RecordKind;
use candlescope_core::run::Finding;
use candlescope_reader::{Batches, Run};
use std::path::Path;

/// The format has no place for time off the CPU.
pub(super) fn only_stacks(args: &ExportArgs) -> Result<()> {
    anyhow::ensure!(!args.off_cpu, "--off-cpu is for stacks");
    Ok(())
}

pub(super) fn cannot_write(file: &Path) -> String {
    format!("cannot write {}: choose another place with --out", file.display())
}

/// Refuses a run that lacks what a format consists of. What is wrong with its files is told first: they may have had
/// it.
pub(super) fn refuse_unless(there: bool, findings: &[Finding], why: impl FnOnce() -> String) -> Result<()> {
    if there {
        return Ok(());
    }
    warn(findings);
    bail!(why())
}

/// The format goes to a file.
pub(super) fn no_endpoint(args: &ExportArgs) -> Result<()> {
    anyhow::ensure!(args.endpoint.is_none(), "--endpoint is for otlp; this format goes to a file, which --out names");
    Ok(())
}

/// Refuses arguments of other formats than those that write intervals to a file.
pub(super) fn only_a_file(args: &ExportArgs) -> Result<()> {
    no_endpoint(args)?;
    only_stacks(args)
}

/// A run's rows for formats that have no place for call stacks.
pub(super) fn without_stacks(run: &Run) -> Batches<'_> {
    use RecordKind::{Kernel, Request, Sample, Span, Step};
    run.batches().of_tables(&[Request, Step, Sample, Kernel, Span])
}
