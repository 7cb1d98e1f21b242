//! `candlescope archive`: many runs as one data set.

use crate::limits::limits;
use crate::output::{note, say};
use crate::warnings::warn_left_out;
use anyhow::{Result, bail};
use candlescope_archive::{ArchiveOutcome, Options, archive, restore};
use candlescope_core::RecordKind;
use candlescope_core::run::MANIFEST_FILE;
use candlescope_findings::{AnalyzeOptions, analyze};
use candlescope_reader::{OpenError, ReadLimits, Run};
use clap::Args;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

pub(crate) const EXAMPLES: &str = "\
Examples:
  candlescope archive runs --to /data/candlescope
      moves every finished run of a folder into an archive
  candlescope query 'SELECT model_name, device_name, median(tpot_ns) / 1e6 AS ms FROM archived GROUP BY 1, 2' /data/candlescope
      asks all of them; every view over steps and intervals works there as well
  candlescope archive /data/candlescope --restore run-1764201600000-4711 --to runs/again
      writes one of them back, for report, analyze and export";

#[derive(Debug, Args)]
pub(crate) struct ArchiveArgs {
    /// Runs, and folders of these; none only finishes what another was stopped in
    #[arg(value_name = "RUN")]
    runs: Vec<PathBuf>,
    /// The archive: a directory, which is made where there is none. It may be the folder that runs are written into
    #[arg(long, value_name = "ROOT")]
    to: PathBuf,
    /// Writes a run of the archive that stands in place of RUN back into a new directory, which --to names: the run's
    /// name there, or its run_id. The archive keeps it
    #[arg(long, value_name = "NAME", conflicts_with_all = ["keep_source", "incomplete", "json"])]
    restore: Option<String>,
    /// Copies the runs, and leaves them where they are
    #[arg(long)]
    keep_source: bool,
    /// Takes runs as well that were not closed in order, such as those of programs that were killed. None that is still
    /// being written may be among them
    #[arg(long)]
    incomplete: bool,
    /// Says what became of them as JSON
    #[arg(long)]
    json: bool,
}

/// Runs that nothing keeps from being archived go; whether all did. What lies beside runs in a folder is told of, and
/// no failure.
pub(crate) fn run(args: &ArchiveArgs) -> Result<u8> {
    if let Some(name) = &args.restore {
        return restore_one(args, name);
    }
    let mut options = Options::default();
    options.limits = limits(&[])?;
    (options.keep_source, options.incomplete) = (args.keep_source, args.incomplete);
    let findings = |run: &Run| {
        let analyzed = analyze(run, &AnalyzeOptions::default());
        let found = analyzed.analysis.diagnosis.iter().flat_map(|diagnosis| &diagnosis.findings);
        let codes: BTreeSet<&str> = found.map(|advice| advice.code.as_str()).collect();
        (!codes.is_empty()).then(|| codes.into_iter().collect::<Vec<_>>().join(","))
    };
    options.findings = Some(&findings);
    let mut found = FolderContents::default();
    for path in &args.runs {
        if !path.exists() {
            bail!("`{}` does not exist: nothing was archived", path.display());
        }
        found.take(path, &args.to, &options.limits);
    }
    let mut done = archive(&found.dirs, &args.to, &options)?;
    let is_left = done.left.iter().any(|(dir, _)| !found.beside.contains(dir))
        || found.unlisted.iter().any(|(dir, _)| args.runs.contains(dir));
    done.left.append(&mut found.unlisted);
    if args.json {
        say(&serde_json::to_string(&done)?)?;
    } else {
        tell(&done, args)?;
    }
    Ok(u8::from(is_left))
}

/// Writes a run back.
fn restore_one(args: &ArchiveArgs, name: &str) -> Result<u8> {
    let [root] = &args.runs[..] else { bail!("--restore writes a run of one archive back: name that one before it") };
    let restored = restore(root, name, &args.to, &limits(&[])?)?;
    say(&format!("wrote the run `{}` with {} rows to {}", restored.run, restored.rows, args.to.display()))?;
    Ok(0)
}

/// Whether two paths lead to one place.
fn is_same(one: &Path, other: &Path) -> bool {
    let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
    one == other || real(one) == real(other)
}

/// What folders hold.
#[derive(Debug, Default)]
struct FolderContents {
    /// Directories of runs.
    dirs: Vec<PathBuf>,
    /// Of these, those that lack a `run.json` and were not named, and folders above runs: leaving them is no failure.
    beside: BTreeSet<PathBuf>,
    /// Folders that cannot be listed, and why.
    unlisted: Vec<(PathBuf, String)>,
}

impl FolderContents {
    /// Looks for runs below a folder, but for those of the archive itself: programs may write runs beside its tables.
    fn look(&mut self, dir: &Path, root: &Path, limits: &ReadLimits) {
        let is_root = is_same(dir, root);
        let is_table = |path: &Path| {
            let is_named = |kind: RecordKind| path.file_name().is_some_and(|name| name == kind.table());
            is_root && RecordKind::ALL.into_iter().any(is_named)
        };
        let entries = match std::fs::read_dir(dir) {
            Ok(entries) => entries,
            Err(cause) => {
                let why = OpenError::List { dir: dir.to_path_buf(), cause };
                self.unlisted.push((dir.to_path_buf(), why.to_string()));
                return;
            }
        };
        let entries = entries.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        let mut inside: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
        inside.retain(|path| !candlescope_sql::is_aside(path) && !is_table(path));
        inside.sort();
        for path in inside {
            if !candlescope_sql::is_run(&path) {
                self.look(&path, root, limits);
                continue;
            }
            if !path.join(MANIFEST_FILE).is_file() {
                self.beside.insert(path.clone());
            }
            self.take(&path, root, limits);
        }
    }

    /// Takes a directory if it is meant as a run, and the runs below it where nothing of it can be read: a damaged
    /// `run.json` may lie above them.
    fn take(&mut self, dir: &Path, root: &Path, limits: &ReadLimits) {
        match Run::open_within(dir, limits.clone()) {
            Err(OpenError::NotARun(_) | OpenError::Archive(_) | OpenError::DirectoryOfRuns { .. }) => {
                return self.look(dir, root, limits);
            }
            Err(OpenError::NothingReadable { .. }) => {
                let before = self.dirs.len();
                self.look(dir, root, limits);
                if self.dirs.len() > before {
                    self.beside.insert(dir.to_path_buf());
                }
            }
            _ => {}
        }
        self.dirs.push(dir.to_path_buf());
    }
}

fn tell(done: &ArchiveOutcome, args: &ArchiveArgs) -> Result<()> {
    if done.finished_another {
        note("note: finished a change of the archive that had been stopped");
    }
    let left = done.left.iter().map(|(dir, why)| {
        let became = if dir.exists() { "is left where it is" } else { "was not archived" };
        format!("`{}` {became}: {why}", dir.display())
    });
    warn_left_out(left, "--json");
    let runs = |n: usize| if n == 1 { "1 run".to_string() } else { format!("{n} runs") };
    say(&format!("archived {} with {} rows in {}", runs(done.runs.len()), done.rows, args.to.display()))?;
    if done.made_of_runs > 0 {
        say(&format!(
            "{} that commands had made of them, such as reports and timelines, went with their directories: --restore writes \
             a run back, and the command makes its file again",
            if done.made_of_runs == 1 { "1 file".to_string() } else { format!("{} files", done.made_of_runs) }
        ))?;
    }
    if !done.known.is_empty() {
        say(&format!("{} had been archived before", runs(done.known.len())))?;
    }
    Ok(())
}
