//! The run's directory, which is removed again if nothing was recorded: an empty run would only be in the way of the
//! next try.

use candlescope_core::RecordKind;
use candlescope_core::files::read_limited;
use candlescope_core::run::{MANIFEST_FILE, RunManifest};
use candlescope_exporters::parquet::{create_dirs, remove_dirs};
use std::fs;
use std::path::{Path, PathBuf};

/// A run's directory, and which part of its path was made here. Its contents belong to the session that was able to
/// start there.
#[derive(Debug)]
pub(crate) struct RunDir {
    path: PathBuf,
    made: Vec<PathBuf>,
}

impl RunDir {
    /// Makes the directory if it is missing. Whether it can be used is checked by the Parquet exporter, which has the
    /// better error message.
    pub(crate) fn make(path: PathBuf) -> Self {
        let mut made = Vec::new();
        let _ = create_dirs(&path, &mut made);
        Self { path, made }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Removes the directories made here, as far as they are empty, after a failed start, which has removed the rest
    /// itself. Any contents belong to another process.
    pub(crate) fn remove_if_empty(&self) {
        remove_dirs(&self.made);
    }

    /// Removes this process's finished run if it has no record of the program; returns whether `manifest` is of such a
    /// run.
    pub(crate) fn remove_if_nothing_recorded(&self, manifest: Option<&RunManifest>) -> bool {
        let Some(manifest) = manifest.filter(|m| recorded_nothing(m)) else { return false };
        if self.holds(manifest) {
            self.remove();
        }
        true
    }

    /// Whether the run in the directory is still that of `manifest`, and not a later one after somebody removed it.
    fn holds(&self, manifest: &RunManifest) -> bool {
        let text = read_limited(&self.path.join(MANIFEST_FILE), 64 << 20).unwrap_or_default();
        serde_json::from_slice::<RunManifest>(&text)
            .is_ok_and(|there| (there.started_ns, &there.run_id) == (manifest.started_ns, &manifest.run_id))
    }

    /// Removes the files that a run makes, by name, and the folders that are empty then. Other files stay, and so do
    /// their folders. Errors are ignored: the error that led here is the one to report.
    fn remove(&self) {
        let _ = fs::remove_file(self.path.join(MANIFEST_FILE));
        // Spans last, because their folder keeps other sessions out.
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

/// Whether the final manifest says that the program left no record. A manifest that does not, such as that of a session
/// which did not end in time, is not proof.
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
        // Somebody removed our run, and this is a later one.
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
