//! `candlescope ncu`: runs a program under NVIDIA's Nsight Compute and shows the counters of its kernels by path.

use crate::nsight::{NCU, Output, merged, newest_first, process};
use crate::output::{note, say};
use crate::warnings::warn;
use anyhow::{Context, Result, bail};
use candlescope::env::VARIABLE;
use candlescope_core::files::write_whole;
use candlescope_figures::ncu::{Counters, CountersByPath};
use candlescope_figures::nsys::DOMAIN;
use candlescope_reader::Run;
use candlescope_report::ncu::text;
use clap::Args;
use serde_json::json;
use std::ffi::OsString;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

pub(crate) const EXAMPLES: &str = "\
Examples:
  candlescope ncu --path 'decode/*/mlp' -- ./my-server --model llama
      kernels below `mlp`, at any depth, in a program that calls candlescope::init()
  candlescope ncu --path prefill --kernel gemm --launches 20 -- candlescope-cuda profile --device cuda:0 --model M
      matrix products of a prompt; counters are read of the first 20";

/// File extensions of Nsight Compute's reports, and of the page of raw counters that is read from it.
const REPORT: &str = "ncu-rep";
const PAGE: &str = "ncu.csv";

#[derive(Debug, Args)]
pub(crate) struct NcuArgs {
    /// Intervals whose kernels are measured, by their names from the outside in; * stands for any in between. Can be
    /// repeated
    #[arg(long, value_name = "PATH", default_value = "decode")]
    path: Vec<String>,
    /// Only kernels whose name matches this regular expression
    #[arg(long, value_name = "REGEX")]
    kernel: Option<String>,
    /// Kernels that are left out before the first one that is measured
    #[arg(long, allow_negative_numbers = true, value_name = "N", default_value_t = 0)]
    skip: u64,
    /// Kernels that are measured, each of which runs some ten times; the program goes on without counters after them
    #[arg(long, allow_negative_numbers = true, value_name = "N", default_value_t = 100)]
    launches: u64,
    /// Where the files go: a path without extension [default: ncu-TIME]
    #[arg(long, short, value_name = "PATH")]
    out: Option<PathBuf>,
    /// Run that the program records, for paths and bytes [default: the newest of those recorded beside the report]
    #[arg(long, value_name = "RUN")]
    run: Option<PathBuf>,
    /// One more option for `ncu`, for example --ncu-arg=--cache-control=none; can be repeated
    #[arg(long, value_name = "ARG", allow_hyphen_values = true)]
    ncu_arg: Vec<String>,
    /// Rows of the table; 0 shows all
    #[arg(long, allow_negative_numbers = true, value_name = "N", default_value_t = 30)]
    top: usize,
    /// Print one machine-readable object on standard output instead of text
    #[arg(long)]
    json: bool,
    /// The program and its arguments, after --
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

pub(crate) fn run(args: &NcuArgs) -> Result<()> {
    let filters = args.path.iter().map(|path| filter(path)).collect::<Result<Vec<_>>>()?;
    let ncu = NCU.find()?;
    let out = Output::new(args.out.as_deref(), "ncu", REPORT)?;
    let runs = out.runs();
    let variable = merged(std::env::var(VARIABLE).ok().as_deref(), runs.as_deref());

    let before = out.changed(REPORT);
    let mut command = Command::new(&ncu);
    // Clocks stay as they are: fixing them needs rights, and changes the device for others.
    command.args(["--clock-control", "none", "--target-processes", "all", "--nvtx", "--force-overwrite"]);
    filters.iter().for_each(|filter| {
        command.args(["--nvtx-include", filter]);
    });
    if let Some(kernel) = &args.kernel {
        command.args(["--kernel-name", &format!("regex:{kernel}")]);
    }
    command.args(["--launch-skip", &args.skip.to_string(), "--launch-count", &args.launches.to_string()]);
    command.args(["--metrics", &Counters::metrics()]).arg("--export").arg(&out.stem);
    command.args(&args.ncu_arg).args(&args.command).env(VARIABLE, variable);
    if args.json {
        // Standard output is for the object.
        command.stdout(std::io::stderr());
    }
    let status = process::run(&mut command).with_context(|| format!("cannot start {}", ncu.display()))?;
    if out.changed(REPORT) <= before {
        bail!(
            "ncu ended with status {status} and wrote no report. Either no kernel ran in {}, or counters are not \
             allowed (ERR_NVGPUCTRPERM above): `candlescope doctor` says which, or the program makes no NVTX ranges: \
             build it with the feature nvtx",
            args.path.join(", "),
        );
    }
    let report = out.file(REPORT);
    let page = page(&ncu, &report)?;
    let csv = out.file(PAGE);
    write_whole(&csv, |file| file.write_all(&page))
        .with_context(|| format!("cannot write {}: choose another place with --out", csv.display()))?;
    let counters = Counters::read(page.as_slice()).with_context(|| format!("cannot read {}", csv.display()))?;
    let dir = args.run.clone().or_else(|| runs.iter().flat_map(|dir| newest_first(dir)).next());
    let recorded = dir.as_deref().map(Run::open).transpose()?;
    warn(recorded.iter().flat_map(Run::findings));
    let found = CountersByPath::of(&counters, recorded.as_ref());
    if args.json {
        let object = json!({ "schema": 1, "report": report, "run": dir, "counters": found });
        return say(&object.to_string());
    }
    say(text(&found, args.top).trim_end())?;
    note(&format!("wrote {}: open it with ncu-ui, and {}", report.display(), csv.display()));
    if recorded.is_none() {
        note("no run was recorded beside it: paths are names of ranges, and what operations should move is unknown");
    }
    if status != 0 {
        note(&format!("the program, or ncu, ended with status {status}"));
    }
    Ok(())
}

/// What `--nvtx-include` takes for a path. Ranges have no numbers: those of a path as reports show it are left out.
fn filter(path: &str) -> Result<String> {
    let mut names = Vec::new();
    for name in path.split('/') {
        let name = name.split_once('[').map_or(name, |(name, _)| name).trim();
        if name.is_empty() || name.contains(['@', ',', '"']) {
            bail!("--path {path}: give names of intervals with / between them, such as decode/*/mlp");
        }
        names.push(name);
    }
    Ok(format!("{DOMAIN}@{}/", names.join("/")))
}

/// The raw counters of a report, as CSV.
fn page(ncu: &Path, report: &Path) -> Result<Vec<u8>> {
    let mut command = Command::new(ncu);
    command.arg("--import").arg(report).args(["--csv", "--page", "raw", "--print-units", "base"]);
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("cannot start {}", ncu.display()))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        let last = said.lines().map(str::trim).rfind(|line| !line.is_empty());
        bail!("ncu cannot read {}: {}", report.display(), last.unwrap_or("it does not say why"));
    }
    Ok(output.stdout)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_become_filters() {
        assert_eq!(filter("decode").unwrap(), "candlescope@decode/");
        assert_eq!(filter("decode/*/mlp").unwrap(), "candlescope@decode/*/mlp/");
        assert_eq!(filter("decode/block[12]/mlp").unwrap(), "candlescope@decode/block/mlp/");
        for wrong in ["", "decode//mlp", "a@b"] {
            assert!(filter(wrong).unwrap_err().to_string().contains("names of intervals"), "{wrong}");
        }
    }
}
