//! What a path given on the command line holds.

use super::error::CompareFailed;
use candlescope_compare::{RunFacts, Side};
use candlescope_core::RecordKind;
use candlescope_core::run::MANIFEST_FILE;
use candlescope_core::study_files;
use candlescope_reader::{ReadLimits, Run};
use std::path::{Path, PathBuf};

/// What a path holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// Directories of runs, in the order of their paths; at least one.
    Runs(Vec<PathBuf>),
    /// Studies: what distinguishes their cases where there are several, and the directory.
    Studies(Vec<(String, PathBuf)>),
}

impl Target {
    /// Looks at `path`: a run, a study, or a folder of either. Runs may stand one level deeper, as where each process
    /// made a directory of its own.
    ///
    /// # Errors
    /// When there is nothing to compare.
    pub fn find(path: &Path) -> Result<Self, CompareFailed> {
        let nothing = |what: String| CompareFailed::NoTarget { path: path.to_path_buf(), what };
        if !path.exists() {
            return Err(nothing("there is no such directory".into()));
        }
        if !path.is_dir() {
            return Err(nothing("it is a file".into()));
        }
        if is_run(path) {
            return Ok(Self::Runs(vec![path.to_path_buf()]));
        }
        if is_study(path) {
            return Ok(Self::Studies(vec![(String::new(), path.to_path_buf())]));
        }
        let inside = folders(path);
        let runs: Vec<PathBuf> = inside.iter().filter(|dir| is_run(dir)).cloned().collect();
        let studies: Vec<&PathBuf> = inside.iter().filter(|dir| is_study(dir)).collect();
        match (runs.is_empty(), studies.is_empty()) {
            (false, false) => Err(nothing(format!("it holds {} runs and {} studies", runs.len(), studies.len()))),
            (false, true) => Ok(Self::Runs(runs)),
            (true, false) => {
                let named = studies.into_iter().map(|dir| {
                    let name = dir.file_name().unwrap_or_default().to_string_lossy().into_owned();
                    (name, dir.clone())
                });
                Ok(Self::Studies(named.collect()))
            }
            (true, true) => {
                let deeper: Vec<PathBuf> =
                    inside.iter().flat_map(|dir| folders(dir)).filter(|dir| is_run(dir)).collect();
                match deeper.is_empty() {
                    true => Err(nothing("it holds neither run.json nor study.json, and no folder in it does".into())),
                    false => Ok(Self::Runs(deeper)),
                }
            }
        }
    }

    /// What it is, in words.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Runs(_) => "runs",
            Self::Studies(_) => "studies",
        }
    }
}

fn is_run(dir: &Path) -> bool {
    dir.join(MANIFEST_FILE).is_file() || dir.join(RecordKind::Span.table()).is_dir()
}

fn is_study(dir: &Path) -> bool {
    dir.join(study_files::MANIFEST_FILE).is_file()
}

/// Folders inside a folder, by name.
fn folders(dir: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let mut folders: Vec<PathBuf> = entries.map(|entry| entry.path()).filter(|path| path.is_dir()).collect();
    folders.sort();
    folders
}

/// Reads the runs of one side.
///
/// # Errors
/// When one of them cannot be opened. Damage within a run is part of its facts instead.
pub fn read_runs(name: &str, dirs: &[PathBuf], limits: &ReadLimits) -> Result<Side, CompareFailed> {
    let read = |dir: &PathBuf| -> Result<RunFacts, CompareFailed> {
        Ok(RunFacts::of(&Run::open_within(dir, limits.clone())?))
    };
    Ok(Side { name: name.to_string(), runs: dirs.iter().map(read).collect::<Result<_, _>>()? })
}
