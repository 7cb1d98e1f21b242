//! `candlescope nsys`: runs a program under NVIDIA's Nsight Systems, its intervals as NVTX ranges.

mod importer;

use crate::args::NsysArgs;
use crate::nsight::{NSYS, Output, merged, newest_first, process};
use crate::output::note;
use anyhow::{Context, Result, bail};
use candlescope::env::VARIABLE;
#[cfg(feature = "nsys")]
use candlescope_core::files::open_regular;
use candlescope_figures::nsys::Profile;
use candlescope_reader::ReadLimits;
use std::path::Path;
use std::process::{Command, Stdio};

/// File extensions of Nsight's reports, of recordings that could not be imported into one, and of exported reports.
const REPORT: &str = "nsys-rep";
const RAW: &str = "qdstrm";
const SQLITE: &str = "sqlite";

/// Runs the command; the exit status to end with.
pub(crate) fn run(args: &NsysArgs) -> Result<u8> {
    let nsys = NSYS.find()?;
    let out = Output::new(args.out.as_deref(), "nsys", REPORT)?;
    let runs = if args.no_run { None } else { out.runs() };
    let variable = merged(std::env::var(VARIABLE).ok().as_deref(), runs.as_deref());
    let trace = args.trace.clone().unwrap_or_else(|| if gpu() { "cuda,nvtx" } else { "nvtx" }.to_string());

    let before = out.changed(REPORT).max(out.changed(RAW));
    let mut command = Command::new(&nsys);
    command.arg("profile").args(["-t", &trace]);
    // Samples of the CPU and context switches would make up nearly all of the report: 550 MB instead of 11 (measured).
    let mut options = vec![("--sample", "none"), ("--cpuctxsw", "none"), ("--force-overwrite", "true")];
    // Since CUDA 11.7 nsys has a graph as a whole, without its kernels, unless it is told otherwise; older ones do not
    // know the option.
    let wants_nodes = args.cuda_graph_trace.as_str() == "node";
    if wants_nodes && trace.split(',').any(|what| what.trim().starts_with("cuda")) {
        options.push(("--cuda-graph-trace", "node"));
    }
    for (option, value) in options {
        // nsys accepts each option only once, and the user's choice has precedence.
        if !args.nsys_arg.iter().any(|arg| arg.split('=').next() == Some(option)) {
            command.arg(format!("{option}={value}"));
        }
    }
    command.arg("-o").arg(&out.stem).args(&args.nsys_arg).args(&args.command).env(VARIABLE, variable);
    let status = process::run(&mut command).with_context(|| format!("cannot start {}", nsys.display()))?;

    if out.changed(REPORT) <= before {
        if out.changed(RAW) > before {
            bail!(
                "nsys recorded, but could not import what it recorded: {}; {} is kept, and opens in nsys-ui on a machine with a complete installation",
                importer::diagnosis(&nsys),
                out.file(RAW).display()
            );
        }
        bail!(
            "nsys ended with status {status} and wrote no report: see what it says above (\"End of file\" there: its own \
             daemon went away before the program had started; run it again)"
        );
    }
    let exported = export(&nsys, &out.file(REPORT), &out.file(SQLITE));
    // Standard output belongs to the program, so our messages go to standard error.
    note(&format!("wrote {}: open it with nsys-ui", out.file(REPORT).display()));
    exported?;
    note(&format!("wrote {}: the same for SQL", out.file(SQLITE).display()));
    for run in runs.iter().flat_map(|dir| newest_first(dir)) {
        let sqlite = out.file(SQLITE);
        note(&format!("kernels by path: candlescope report {} --nsys {}", run.display(), sqlite.display()));
    }
    Ok(status)
}

/// The profile in an `.sqlite` file, or in an `.nsys-rep`, which is exported beside it first.
#[cfg(feature = "nsys")]
pub(crate) fn open(file: &Path, limits: &ReadLimits) -> Result<Profile> {
    if file.extension().is_none_or(|extension| extension != REPORT) {
        return Ok(Profile::open_within(file, limits)?);
    }
    let changed = |file: &Path| file.metadata().and_then(|m| m.modified()).ok();
    let report = changed(file).with_context(|| format!("no profile at {}", file.display()))?;
    // nsys would wait for the other end of a pipe.
    open_regular(file).with_context(|| format!("cannot read the profile {}", file.display()))?;
    let sqlite = file.with_extension(SQLITE);
    if changed(&sqlite).is_none_or(|sqlite| sqlite < report) {
        export(&NSYS.find()?, file, &sqlite)?;
    }
    Ok(Profile::open_within(sqlite, limits)?)
}
#[cfg(not(feature = "nsys"))]
pub(crate) fn open(_: &Path, _: &ReadLimits) -> Result<Profile> {
    Err(crate::lacking::default_feature("report --nsys", "nsys"))
}

fn export(nsys: &Path, report: &Path, sqlite: &Path) -> Result<()> {
    let mut command = Command::new(nsys);
    command.args(["export", "--type", "sqlite", "--force-overwrite", "true", "-o"]).arg(sqlite).arg(report);
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("cannot start {}", nsys.display()))?;
    if output.status.success() && sqlite.is_file() {
        return Ok(());
    }
    // Its progress bar overwrites one line; the error message is the last line.
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    let said = said.lines().flat_map(|line| line.split('\r')).map(str::trim).rfind(|line| !line.is_empty());
    bail!("nsys cannot export {} to SQLite: {}", report.display(), said.unwrap_or("it does not say why"))
}

/// Whether there is an NVIDIA GPU to trace; nsys complains when there is none.
fn gpu() -> bool {
    ["/proc/driver/nvidia/version", "/dev/nvidiactl", "/dev/dxg"].iter().any(|path| Path::new(path).exists())
}
