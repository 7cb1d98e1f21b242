//! Turns a run's directory into its reports.

use crate::report::document;
use crate::terminal::TerminalOptions;
use crate::{inputs, json, markdown, terminal};
use candlescope_document::Document;
use candlescope_figures::nsys::Profile;
use candlescope_figures::{KernelsByPath, Price};
use candlescope_findings::{AnalyzeOptions, Analyzed, analyze};
use candlescope_reader::limits::ReadLimits;
use candlescope_reader::{OpenError, Run};
use candlescope_schema::beside_run;
use candlescope_schema::files::write_whole;
use candlescope_schema::run::Verdict;
use serde_json::Value;
use std::io::Write;
use std::path::{Path, PathBuf};

/// The reports could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "its messages say what the fields are")]
pub enum ReportError {
    /// The run could not be read.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// A report could not be written.
    #[error("cannot write `{}`: {cause}. Free space or give another directory for the reports", path.display())]
    Write { path: PathBuf, cause: std::io::Error },
}

/// What to write for a run.
#[derive(Debug, Clone, Default)]
pub struct ReportOptions {
    /// Where the reports go; the run's own directory by default.
    pub out: Option<PathBuf>,
    /// A profile of Nsight Systems made of the same run, whose kernels are shown by path.
    pub nsys: Option<Profile>,
    /// What the machine costs, in place of what the run says.
    pub price: Option<Price>,
    /// Layout of the terminal summary.
    pub terminal: TerminalOptions,
    /// Limits on reading the run.
    pub limits: ReadLimits,
}

/// What [`write_report`] wrote, and what it says of the run.
#[derive(Debug, Clone)]
pub struct ReportOutput {
    /// Summary for a terminal.
    pub summary: String,
    /// The content of `metrics.json`.
    pub metrics: Value,
    /// What `report.html` and the other forms show: `candlescope_document` draws it.
    pub document: Document,
    /// Whether the data can be trusted.
    pub verdict: Verdict,
    /// The files written, as [`write_report`] lists them.
    pub files: Vec<PathBuf>,
}

/// Reads the run in `dir` and writes its reports:
///
/// - `report.html`, `report.md`, `operators.md`, `metrics.json`: every figure, for people and for programs;
/// - `stakeholder_summary.md`: one page for somebody who decides; `assumptions.md`: what the figures rest on;
/// - `env.json`: the machine; `inputs.yaml`: the configuration, to make the run again.
///
/// Each file appears whole or not at all: it is written under a temporary name and renamed.
///
/// # Errors
/// If the run cannot be opened or a file cannot be written. Damage to a part of the run is in the verdict instead.
pub fn write_report(dir: impl AsRef<Path>, options: &ReportOptions) -> Result<ReportOutput, ReportError> {
    write_report_of(&Run::open_within(dir.as_ref(), options.limits.clone())?, options)
}

/// The same of a run that is open, with the limits that it was opened with.
///
/// # Errors
/// If a file cannot be written.
pub fn write_report_of(run: &Run, options: &ReportOptions) -> Result<ReportOutput, ReportError> {
    let Analyzed { mut analysis, account, .. } = analyze(run, &AnalyzeOptions::default());
    analysis.account = account.ok();
    if let Some(profile) = &options.nsys {
        let kernels = KernelsByPath::of(run, profile, &analysis.warmup);
        analysis.verdict.join(kernels.findings());
        analysis.nsys = Some(kernels);
    }
    analysis.price = options.price.or(analysis.price);
    let out = options.out.as_deref().unwrap_or(run.dir());
    let metrics = json::metrics(&analysis);
    let mut document = document(&analysis, options.terminal.tree, options.terminal.operators);
    let contents = [
        (beside_run::REPORT_PAGE, candlescope_document::html::page(&document)),
        (beside_run::REPORT_TEXT, candlescope_document::markdown::draw(&document)),
        (beside_run::OPERATORS, markdown::operators(&analysis)),
        (beside_run::METRICS, format!("{metrics:#}\n")),
        (beside_run::STAKEHOLDER_SUMMARY, markdown::stakeholder_summary(&analysis)),
        (beside_run::ASSUMPTIONS, markdown::assumptions(&analysis)),
        (beside_run::ENVIRONMENT, format!("{:#}\n", json::environment(&analysis.manifest))),
        (beside_run::INPUTS, inputs::inputs(&analysis.manifest)),
    ];
    let files = write_files(out, contents)?;
    Ok(ReportOutput {
        summary: terminal::drawn(&mut document, &options.terminal),
        metrics,
        document,
        verdict: analysis.verdict,
        files,
    })
}

/// Writes files into a directory, which is made if it is missing.
pub(crate) fn write_files<N: AsRef<str>>(
    out: &Path,
    contents: impl IntoIterator<Item = (N, String)>,
) -> Result<Vec<PathBuf>, ReportError> {
    std::fs::create_dir_all(out).map_err(|cause| ReportError::Write { path: out.to_path_buf(), cause })?;
    let write = |(name, text): (N, String)| {
        let path = out.join(name.as_ref());
        let written = write_whole(&path, |file| file.write_all(text.as_bytes()));
        written.map(|()| path.clone()).map_err(|cause| ReportError::Write { path, cause })
    };
    contents.into_iter().map(write).collect()
}
