//! The run's directory while it may have to go again: a run of nothing would only stand in the way of the next try.

use candlescope::InitError;
use candlescope_core::run::{MANIFEST_FILE, RunManifest};
use candlescope_core::{RecordKind, StartError};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Longest wait for an exporter that is closing after another one could not start.
const CLOSING: Duration = Duration::from_secs(1);

/// A run's directory and what was there before the run.
#[derive(Debug)]
pub(crate) struct RunDir {
    path: PathBuf,
    before: Before,
}

#[derive(Debug)]
enum Before {
    /// Neither the directory nor these: it and those of its parents that the run makes, innermost first.
    Absent(Vec<PathBuf>),
    /// An empty directory, which stays.
    Empty,
    /// Anything else: nothing in it is ours.
    InUse,
}

impl RunDir {
    /// Notes what is at `path`. Call it before anything is made there.
    pub(crate) fn before_start(path: PathBuf) -> Self {
        let before = match fs::read_dir(&path).map(|mut entries| entries.next().is_none()) {
            Ok(true) => Before::Empty,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                let missing = |p: &&Path| !p.as_os_str().is_empty() && fs::symlink_metadata(p).is_err();
                Before::Absent(path.ancestors().take_while(missing).map(Path::to_path_buf).collect())
            }
            _ => Before::InUse,
        };
        Self { path, before }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Takes away what a session that could not start has left.
    pub(crate) fn remove_after_failed_start(&self, error: &anyhow::Error) {
        let refused = match error.downcast_ref::<InitError>() {
            Some(InitError::Start(StartError::Exporter { name, .. })) => *name,
            _ => "",
        };
        let manifest = self.path.join(MANIFEST_FILE).exists();
        if refused == "parquet" && manifest {
            // It found a run that came here after we had looked.
            return;
        }
        if manifest {
            // The directory was made, then another exporter refused: the first one's thread is now closing its tables.
            let deadline = Instant::now() + CLOSING;
            while !RecordKind::ALL.iter().all(|kind| self.has_segment(*kind)) && Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(2));
            }
        }
        self.remove();
    }

    /// Takes away a finished run that holds no record of the program; says whether `manifest` is of such a run.
    pub(crate) fn remove_if_nothing_recorded(&self, manifest: Option<&RunManifest>) -> bool {
        let nothing = manifest.is_some_and(recorded_nothing);
        if nothing {
            self.remove();
        }
        nothing
    }

    fn has_segment(&self, kind: RecordKind) -> bool {
        fs::read_dir(self.path.join(kind.table()))
            .is_ok_and(|entries| entries.flatten().any(|e| e.path().extension().is_some_and(|x| x == "parquet")))
    }

    /// Removes what a run makes, by name, and the folders that are empty then. What is something else stays, and with it the
    /// folders it is in. Best effort: the error that led here is the one to report.
    fn remove(&self) {
        let made: &[PathBuf] = match &self.before {
            Before::InUse => return,
            Before::Empty => &[],
            Before::Absent(made) => made,
        };
        for kind in RecordKind::ALL {
            let table = self.path.join(kind.table());
            for entry in fs::read_dir(&table).into_iter().flatten().flatten() {
                if is_segment(&entry.file_name().to_string_lossy()) {
                    let _ = fs::remove_file(entry.path());
                }
            }
            let _ = fs::remove_dir(table);
        }
        let _ = fs::remove_file(self.path.join(MANIFEST_FILE));
        for directory in made {
            // Fails for one that holds something, which is what we want.
            let _ = fs::remove_dir(directory);
        }
    }
}

/// `part-00000.parquet`, or one that was never finished.
fn is_segment(name: &str) -> bool {
    name.starts_with("part-") && (name.ends_with(".parquet") || name.ends_with(".parquet.inprogress"))
}

/// Whether the final manifest says that the program left no record. One that does not say it, as that of a session which did
/// not end in time, is no proof.
fn recorded_nothing(manifest: &RunManifest) -> bool {
    let none = |kind: &RecordKind| manifest.counts.get(kind.table()) == Some(&0);
    [RecordKind::Span, RecordKind::Step, RecordKind::Request].iter().all(none) && manifest.loss.emitted == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the Parquet exporter leaves of a run without records.
    fn write_run(path: &Path) {
        for kind in RecordKind::ALL {
            fs::create_dir_all(path.join(kind.table())).unwrap();
            fs::write(path.join(kind.table()).join("part-00000.parquet"), "PAR1").unwrap();
        }
        fs::write(path.join(MANIFEST_FILE), "{}").unwrap();
    }

    fn counted(spans: u64) -> RunManifest {
        let counts = RecordKind::ALL.map(|k| (k.table().to_string(), if k == RecordKind::Span { spans } else { 0 }));
        RunManifest { counts: counts.into(), ..RunManifest::default() }
    }

    #[test]
    fn only_a_run_known_to_be_empty_goes() {
        let dir = tempfile::tempdir().unwrap();
        let run = RunDir::before_start(dir.path().join("run"));
        write_run(run.path());
        for unknown in [None, Some(RunManifest::default()), Some(counted(1))] {
            assert!(!run.remove_if_nothing_recorded(unknown.as_ref()));
            assert!(run.path().join("spans/part-00000.parquet").exists());
        }
        assert!(run.remove_if_nothing_recorded(Some(&counted(0))));
        assert!(!run.path().exists());
    }

    #[test]
    fn what_was_there_before_stays() {
        let dir = tempfile::tempdir().unwrap();
        let nested = RunDir::before_start(dir.path().join("a/b"));
        write_run(nested.path());
        nested.remove();
        assert!(!dir.path().join("a").exists() && dir.path().exists());

        let empty = dir.path().join("empty");
        fs::create_dir(&empty).unwrap();
        let run = RunDir::before_start(empty.clone());
        write_run(&empty);
        run.remove();
        assert_eq!(fs::read_dir(&empty).unwrap().count(), 0);

        write_run(&empty);
        RunDir::before_start(empty.clone()).remove();
        assert!(empty.join(MANIFEST_FILE).exists() && empty.join("spans/part-00000.parquet").exists());
    }

    #[test]
    fn what_somebody_put_there_meanwhile_stays() {
        let dir = tempfile::tempdir().unwrap();
        let run = RunDir::before_start(dir.path().join("run"));
        write_run(run.path());
        fs::write(run.path().join("notes.txt"), "mine").unwrap();
        fs::write(run.path().join("spans/notes.txt"), "mine").unwrap();
        run.remove();
        assert!(run.path().join("notes.txt").exists() && run.path().join("spans/notes.txt").exists());
        assert!(!run.path().join("steps").exists() && !run.path().join(MANIFEST_FILE).exists());
    }
}
