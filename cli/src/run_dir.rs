//! The run's directory while it may have to go again: a run of nothing would only stand in the way of the next try.

use candlescope_core::RecordKind;
use candlescope_core::files::read_limited;
use candlescope_core::run::{MANIFEST_FILE, RunManifest};
use candlescope_exporters::parquet::{create_dirs, remove_dirs};
use std::fs;
use std::path::{Path, PathBuf};

/// A run's directory, and how much of its path was made here. What is in it belongs to the session that could start
/// there.
#[derive(Debug)]
pub(crate) struct RunDir {
    path: PathBuf,
    made: Vec<PathBuf>,
}

impl RunDir {
    /// Makes the directory where it is missing. Whether it can be used the Parquet exporter finds out, and says it
    /// better.
    pub(crate) fn make(path: PathBuf) -> Self {
        let mut made = Vec::new();
        let _ = create_dirs(&path, &mut made);
        Self { path, made }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Takes away the directories made here, as far as they are empty: after a start that failed, and that has taken
    /// back the rest itself. What is in them is another process's.
    pub(crate) fn remove_if_empty(&self) {
        remove_dirs(&self.made);
    }

    /// Takes away this process's finished run where it holds no record of the program; says whether `manifest` is of
    /// such a run.
    pub(crate) fn remove_if_nothing_recorded(&self, manifest: Option<&RunManifest>) -> bool {
        let Some(manifest) = manifest.filter(|m| recorded_nothing(m)) else { return false };
        if self.holds(manifest) {
            self.remove();
        }
        true
    }

    /// Whether the run in the directory is still the one of `manifest`, not one that came after somebody had removed
    /// it.
    fn holds(&self, manifest: &RunManifest) -> bool {
        let text = read_limited(&self.path.join(MANIFEST_FILE), 64 << 20).unwrap_or_default();
        serde_json::from_slice::<RunManifest>(&text)
            .is_ok_and(|there| (there.started_ns, &there.run_id) == (manifest.started_ns, &manifest.run_id))
    }

    /// Removes what a run makes, by name, and the folders that are empty then. What is something else stays, and with it the
    /// folders it is in. Best effort: the error that led here is the one to report.
    fn remove(&self) {
        let _ = fs::remove_file(self.path.join(MANIFEST_FILE));
        // Spans last: their folder is what keeps other sessions out.
        for kind in RecordKind::ALL.into_iter().rev() {
            let table = self.path.join(kind.table());
            for entry in fs::read_dir(&table).into_iter().flatten().flatten() {
                if is_segment(&entry.file_name().to_string_lossy()) {
                    let _ = fs::remove_file(entry.path());
                }
            }
            let _ = fs::remove_dir(table);
        }
        self.remove_if_empty();
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
    fn write_run(path: &Path, manifest: &RunManifest) {
        for kind in RecordKind::ALL {
            fs::create_dir_all(path.join(kind.table())).unwrap();
            fs::write(path.join(kind.table()).join("part-00000.parquet"), "PAR1").unwrap();
        }
        fs::write(path.join(MANIFEST_FILE), serde_json::to_vec(manifest).unwrap()).unwrap();
    }

    fn counted(spans: u64) -> RunManifest {
        let counts = RecordKind::ALL.map(|k| (k.table().to_string(), if k == RecordKind::Span { spans } else { 0 }));
        RunManifest { counts: counts.into(), started_ns: 7, ..RunManifest::default() }
    }

    #[test]
    fn only_a_run_known_to_be_empty_goes() {
        let dir = tempfile::tempdir().unwrap();
        let run = RunDir::make(dir.path().join("run"));
        write_run(run.path(), &counted(0));
        for unknown in [None, Some(RunManifest::default()), Some(counted(1))] {
            assert!(!run.remove_if_nothing_recorded(unknown.as_ref()));
            assert!(run.path().join("spans/part-00000.parquet").exists());
        }
        assert!(run.remove_if_nothing_recorded(Some(&counted(0))));
        assert!(!run.path().exists());
    }

    #[test]
    fn the_run_of_another_process_stays() {
        let dir = tempfile::tempdir().unwrap();
        let run = RunDir::make(dir.path().join("run"));
        // Ours was removed by somebody, and this one came after it.
        write_run(run.path(), &RunManifest { started_ns: 8, ..counted(0) });
        assert!(run.remove_if_nothing_recorded(Some(&counted(0))), "ours was empty");
        assert!(run.path().join("spans/part-00000.parquet").exists() && run.path().join(MANIFEST_FILE).exists());
        run.remove_if_empty();
        assert!(run.path().join(MANIFEST_FILE).exists());
    }

    #[test]
    fn what_was_there_before_stays() {
        let dir = tempfile::tempdir().unwrap();
        let nested = RunDir::make(dir.path().join("a/b"));
        write_run(nested.path(), &counted(0));
        nested.remove();
        assert!(!dir.path().join("a").exists() && dir.path().exists());

        let empty = dir.path().join("empty");
        fs::create_dir(&empty).unwrap();
        let run = RunDir::make(empty.clone());
        write_run(&empty, &counted(0));
        run.remove();
        assert_eq!(fs::read_dir(&empty).unwrap().count(), 0);
    }

    #[test]
    fn what_somebody_put_there_meanwhile_stays() {
        let dir = tempfile::tempdir().unwrap();
        let run = RunDir::make(dir.path().join("run"));
        write_run(run.path(), &counted(0));
        fs::write(run.path().join("notes.txt"), "mine").unwrap();
        fs::write(run.path().join("spans/notes.txt"), "mine").unwrap();
        run.remove();
        assert!(run.path().join("notes.txt").exists() && run.path().join("spans/notes.txt").exists());
        assert!(!run.path().join("steps").exists() && !run.path().join(MANIFEST_FILE).exists());
    }
}
