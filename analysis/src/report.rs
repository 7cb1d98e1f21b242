//! Turns a run's directory into its reports.

use crate::nsys::Profile;
use crate::passes::{Analysis, KernelsByPath};
use crate::reader::{OpenError, Run};
use crate::render::html::HtmlError;
use crate::render::terminal::TerminalOptions;
use crate::render::{html, json, markdown, terminal};
use candlescope_core::run::Verdict;
use serde_json::Value;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

/// The reports could not be made.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// The run could not be read.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The page could not be put together.
    #[error(transparent)]
    Html(#[from] HtmlError),
    /// A report could not be written.
    #[error("cannot write `{}`: {cause}. Free space or give another directory for the reports", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// Why not.
        cause: std::io::Error,
    },
}

/// What to make of a run.
#[derive(Debug, Clone, Default)]
pub struct ReportOptions {
    /// Where the reports go; the run's own directory unless given.
    pub out: Option<PathBuf>,
    /// A profile of Nsight Systems made of the same run, whose kernels are shown by path.
    pub nsys: Option<Profile>,
    /// Layout of the terminal summary.
    pub terminal: TerminalOptions,
}

/// What was made.
#[derive(Debug, Clone)]
pub struct ReportOutput {
    /// Summary for a terminal.
    pub summary: String,
    /// What `metrics.json` holds.
    pub metrics: Value,
    /// Whether the data can be trusted.
    pub verdict: Verdict,
    /// The files written: `report.html`, `report.md`, `operators.md`, `metrics.json`.
    pub files: Vec<PathBuf>,
}

/// Reads the run in `dir` and writes `report.html`, `report.md`, `operators.md` and `metrics.json`.
///
/// Each file appears whole or not at all: it is written under a temporary name and renamed.
///
/// # Errors
/// When the run cannot be opened or a file cannot be written. Damage to part of a run is in the verdict instead.
pub fn write_report(dir: impl AsRef<Path>, options: &ReportOptions) -> Result<ReportOutput, ReportError> {
    let run = Run::open(dir.as_ref())?;
    let mut analysis = Analysis::of(&run);
    if let Some(profile) = &options.nsys {
        let kernels = KernelsByPath::of(&run, profile, &analysis.warmup);
        analysis.verdict.findings.extend(kernels.findings());
        analysis.nsys = Some(kernels);
    }
    let out = options.out.as_deref().unwrap_or(dir.as_ref());
    std::fs::create_dir_all(out).map_err(|cause| ReportError::Write { path: out.to_path_buf(), cause })?;
    let metrics = json::metrics(&analysis);
    let contents = [
        ("report.html", html::page(&analysis)?),
        ("report.md", markdown::report(&analysis)),
        ("operators.md", markdown::operators(&analysis)),
        ("metrics.json", format!("{metrics:#}\n")),
    ];
    let mut files = Vec::new();
    for (name, text) in contents {
        let path = out.join(name);
        write_whole(&path, &text).map_err(|cause| ReportError::Write { path: path.clone(), cause })?;
        files.push(path);
    }
    Ok(ReportOutput {
        summary: terminal::summary(&analysis, &options.terminal),
        metrics,
        verdict: analysis.verdict,
        files,
    })
}

fn write_whole(path: &Path, text: &str) -> std::io::Result<()> {
    let mut name = path.file_name().unwrap_or_default().to_os_string();
    // Two reports of one run at a time must not write into each other's file.
    name.push(format!(".{}.tmp", std::process::id()));
    let temporary = path.with_file_name(name);
    let written = File::create(&temporary)
        .and_then(|mut file| file.write_all(text.as_bytes()).and_then(|()| file.sync_all()))
        .and_then(|()| std::fs::rename(&temporary, path));
    if written.is_err() {
        // Half a file is worse than none; that it may be gone already is no further error.
        let _ = std::fs::remove_file(&temporary);
    }
    written
}
