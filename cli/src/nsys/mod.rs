//! `candlescope nsys`: runs a program under NVIDIA's Nsight Systems, its intervals as NVTX ranges.

mod find;
mod importer;
mod process;

pub(crate) use find::find;

use crate::args::NsysArgs;
use crate::output::note;
use anyhow::{Context, Result, bail};
use candlescope_analysis::ReadLimits;
use candlescope_analysis::nsys::Profile;
#[cfg(feature = "nsys")]
use candlescope_core::files::open_regular;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::SystemTime;

/// File extensions of Nsight's reports, of recordings that could not be imported into one, and of exported reports.
const REPORT: &str = "nsys-rep";
const RAW: &str = "qdstrm";
const SQLITE: &str = "sqlite";

/// Runs the command; the exit status to end with.
pub(crate) fn run(args: &NsysArgs) -> Result<u8> {
    let nsys = find()?;
    let out = Output::new(args.out.as_deref())?;
    let runs = if args.no_run { None } else { out.runs() };
    let variable = merged(std::env::var("CANDLESCOPE").ok().as_deref(), runs.as_deref());
    let trace = args.trace.clone().unwrap_or_else(|| if gpu() { "cuda,nvtx" } else { "nvtx" }.to_string());

    let before = out.changed(REPORT).max(out.changed(RAW));
    let mut command = Command::new(&nsys);
    command.arg("profile").args(["-t", &trace]);
    // Samples of the CPU and context switches would make up nearly all of the report: 550 MB instead of 11 (measured).
    for (option, value) in [("--sample", "none"), ("--cpuctxsw", "none"), ("--force-overwrite", "true")] {
        // nsys accepts each option only once, and the user's choice has precedence.
        if !args.nsys_arg.iter().any(|arg| arg.split('=').next() == Some(option)) {
            command.arg(format!("{option}={value}"));
        }
    }
    command.arg("-o").arg(&out.stem).args(&args.nsys_arg).args(&args.command).env("CANDLESCOPE", variable);
    let status = process::run(&mut command).with_context(|| format!("cannot start {}", nsys.display()))?;

    if out.changed(REPORT) <= before {
        if out.changed(RAW) > before {
            bail!(
                "nsys recorded, but could not import what it recorded: {}; {} is kept, and opens in nsys-ui on a machine with a complete installation",
                importer::diagnosis(&nsys),
                out.file(RAW).display()
            );
        }
        bail!("nsys ended with status {status} and wrote no report: see what it says above");
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
        export(&find()?, file, &sqlite)?;
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

/// Where a profile goes.
#[derive(Debug)]
struct Output {
    /// The files' path without extension, absolute: the program may change its directory.
    stem: PathBuf,
}

impl Output {
    fn new(out: Option<&Path>) -> Result<Self> {
        let seconds = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
        let out = out.map_or_else(|| PathBuf::from(format!("nsys-{seconds}")), Path::to_path_buf);
        let out = if out.extension().is_some_and(|e| e == REPORT) { out.with_extension("") } else { out };
        if out.file_name().is_none() || out.to_string_lossy().contains('%') {
            // nsys would substitute it: %p is the process id.
            bail!("--out {}: give a file's name without %", out.display());
        }
        let stem = std::path::absolute(&out).with_context(|| format!("--out {}", out.display()))?;
        if let Some(parent) = stem.parent() {
            std::fs::create_dir_all(parent)
                .with_context(|| format!("cannot make {}: choose another place with --out", parent.display()))?;
        }
        Ok(Self { stem })
    }

    fn file(&self, extension: &str) -> PathBuf {
        let mut name = self.stem.clone().into_os_string();
        name.push(".");
        name.push(extension);
        name.into()
    }

    /// Where runs recorded beside it go, if the variable can hold it.
    fn runs(&self) -> Option<String> {
        self.file("runs").to_str().filter(|dir| !dir.contains([',', '='])).map(str::to_string)
    }

    fn changed(&self, extension: &str) -> Option<SystemTime> {
        self.file(extension).metadata().and_then(|m| m.modified()).ok()
    }
}

/// `CANDLESCOPE` for the program: its own value, with ranges added, and with a run in `runs` if it names none.
fn merged(given: Option<&str>, runs: Option<&str>) -> String {
    let mut parts: Vec<String> =
        given.unwrap_or_default().split(',').map(str::trim).filter(|p| !p.is_empty()).map(str::to_string).collect();
    let has = |parts: &[String], key: &str| parts.iter().any(|p| p.split('=').next().map(str::trim) == Some(key));
    if !has(&parts, "nvtx") {
        parts.push("nvtx".to_string());
    }
    if let Some(runs) = runs.filter(|_| !has(&parts, "parquet")) {
        parts.push(format!("parquet={runs}"));
    }
    parts.join(",")
}

/// Whether there is an NVIDIA GPU to trace; nsys complains when there is none.
fn gpu() -> bool {
    ["/proc/driver/nvidia/version", "/dev/nvidiactl", "/dev/dxg"].iter().any(|path| Path::new(path).exists())
}

/// Runs in `dir`, newest first.
fn newest_first(dir: &str) -> Vec<PathBuf> {
    let mut runs: Vec<(OsString, PathBuf)> = std::fs::read_dir(dir)
        .into_iter()
        .flatten()
        .flatten()
        .filter(|entry| entry.path().is_dir())
        .map(|entry| (entry.file_name(), entry.path()))
        .collect();
    runs.sort();
    runs.into_iter().rev().map(|(_, path)| path).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_variable_keeps_what_it_says() {
        assert_eq!(merged(None, None), "nvtx");
        assert_eq!(merged(Some(""), Some("/r")), "nvtx,parquet=/r");
        assert_eq!(merged(Some(" host=off , parquet = mine"), Some("/r")), "host=off,parquet = mine,nvtx");
        assert_eq!(merged(Some("nvtx=off"), None), "nvtx=off", "off is off");
    }

    #[test]
    fn names_of_outputs() {
        let dir = tempfile::tempdir().unwrap();
        let out = |name: &str| Output::new(Some(&dir.path().join(name)));
        assert_eq!(out("a/b.c").unwrap().file(REPORT), dir.path().join("a/b.c.nsys-rep"));
        assert_eq!(out("x.nsys-rep").unwrap().file(SQLITE), dir.path().join("x.sqlite"));
        assert!(out("p%p").unwrap_err().to_string().contains("without %"));
        assert!(out("a,b").unwrap().runs().is_none(), "the variable's own separator");
        assert!(Output::new(None).unwrap().stem.is_absolute());
    }
}
