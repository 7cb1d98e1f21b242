//! `candlescope demo`: a run that the program brings along, opened as any other.

use crate::args::{ExportArgs, ExportFormat};
use crate::output::{note, say};
use crate::overview::OverviewArgs;
use anyhow::{Context, Result, bail};
use candlescope_core::beside_run::REPORT_PAGE;
use candlescope_core::files::{read_limited, write_whole};
use candlescope_core::run::MANIFEST_FILE;
use candlescope_reader::{ReadLimits, Run};
use candlescope_report::{ReportOptions, write_report_of};
use clap::Args;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

#[derive(Debug, Args)]
pub(crate) struct DemoArgs {
    /// Where the run goes: a directory that is not there yet, or empty, or of an earlier demo
    #[arg(long, short, value_name = "DIR", default_value = "candlescope-demo")]
    pub(crate) out: PathBuf,
    /// Open the report in the browser
    #[arg(long)]
    pub(crate) open: bool,
}

/// Files of the run by their places in it. What `report` writes is made anew, by this version.
macro_rules! files {
    ($($path:literal),+ $(,)?) => {
        &[$(($path, include_bytes!(concat!("../tests/recorded/gpu/unmodified/", $path)))),+]
    };
}

/// Recorded on an H200; `tests/recorded/gpu/README.md` says how.
const FILES: &[(&str, &[u8])] = files![
    "run.json",
    "kernels/part-00000.parquet",
    "requests/part-00000.parquet",
    "samples/part-00000.parquet",
    "spans/part-00000.parquet",
    "steps/part-00000.parquet",
];

pub(crate) fn run(args: &DemoArgs) -> Result<()> {
    must_be_ours(&args.out)?;
    for (path, bytes) in FILES {
        write(&args.out.join(path), bytes)?;
    }
    write_report_of(&Run::open_within(&args.out, ReadLimits::default())?, &ReportOptions::default())?;
    crate::overview::run(&OverviewArgs::of(args.out.clone()))?;
    say("")?;
    crate::export::run(&ExportArgs::of(ExportFormat::Perfetto, args.out.clone()))?;
    let report = args.out.join(REPORT_PAGE);
    say(&told(&report))?;
    if args.open && !opened(&report) {
        note(&format!("no browser could be started: open {} in one", report.display()));
    }
    Ok(())
}

/// Fails if something else than an earlier demo is there, which nothing is written over.
fn must_be_ours(out: &Path) -> Result<()> {
    let is_empty = !std::fs::read_dir(out).is_ok_and(|mut there| there.next().is_some());
    let ours = FILES.iter().find(|(path, _)| *path == MANIFEST_FILE).map(|(_, bytes)| *bytes);
    if !is_empty && read_limited(&out.join(MANIFEST_FILE), 1 << 20).ok().as_deref() != ours {
        bail!("{} is not empty: name another directory with --out", out.display());
    }
    Ok(())
}

fn write(file: &Path, bytes: &[u8]) -> Result<()> {
    let make = || {
        if let Some(folder) = file.parent() {
            std::fs::create_dir_all(folder)?;
        }
        write_whole(file, |out| out.write_all(bytes))
    };
    make().with_context(|| format!("cannot write {}: name another directory with --out", file.display()))
}

fn told(report: &Path) -> String {
    let report = std::path::absolute(report).unwrap_or_else(|_| report.to_path_buf());
    format!(
        "
This was recorded on an NVIDIA H200: candle's own Qwen2.5-0.5B in f32 with random weights, three answers of eight tokens, kernels
of one step in six. The report as a page: {}
A run of your own, of a built-in model on this machine: candlescope profile --model embedded --out runs/first",
        address(&report.display().to_string())
    )
}

/// What a browser opens the file at an absolute path by: `file:///runs/report.html`, on Windows
/// `file:///C:/runs/report.html`.
fn address(path: &str) -> String {
    match path.starts_with('/') {
        true => format!("file://{path}"),
        false => format!("file:///{}", path.replace('\\', "/")),
    }
}

/// Hands a file to whatever opens such files here.
fn opened(file: &Path) -> bool {
    let mut command = match std::env::consts::OS {
        "macos" => Command::new("open"),
        "windows" => {
            let mut command = Command::new("cmd");
            command.args(["/C", "start", ""]);
            command
        }
        _ => Command::new("xdg-open"),
    };
    let command = command.arg(file).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn a_browser_finds_the_report_on_every_system() {
        assert_eq!(address("/runs/demo/report.html"), "file:///runs/demo/report.html");
        assert_eq!(address(r"C:\runs\demo\report.html"), "file:///C:/runs/demo/report.html");
    }

    /// A file that the recording script adds later would be missing from the demo.
    #[test]
    fn all_tables_of_the_recorded_run_are_brought_along() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recorded/gpu/unmodified");
        let mut there = BTreeSet::new();
        for entry in std::fs::read_dir(&folder).unwrap().flatten().filter(|entry| entry.path().is_dir()) {
            let table = entry.file_name().into_string().unwrap();
            let parts = std::fs::read_dir(entry.path()).unwrap().flatten();
            there.extend(parts.map(|part| format!("{table}/{}", part.file_name().into_string().unwrap())));
        }
        let brought: BTreeSet<String> =
            FILES.iter().map(|(path, _)| path.to_string()).filter(|path| path.contains('/')).collect();
        assert_eq!(brought, there);
    }
}
