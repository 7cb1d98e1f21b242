//! Which runs belong together.

use candlescope_reader::{ReadLimits, Run};
use candlescope_schema::run::{MANIFEST_FILE, RunManifest};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The most ranks that are read as one.
const MOST: usize = 4096;

/// Runs of one program, in order of their ranks.
#[derive(Debug)]
pub struct Ranks {
    /// Each has a readable manifest.
    runs: Vec<Run>,
    world_size: usize,
}

/// Runs are no ranks of one program.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RanksError {
    /// There are fewer than two.
    #[error("`{}` holds no runs of several ranks", .0.display())]
    None(PathBuf),
    /// Two have the same rank.
    #[error(
        "`{}` and `{}` are both rank {rank}: name a folder with the runs of one start of the program",
        .one.display(), .other.display()
    )]
    Twice {
        /// Which.
        rank: u32,
        /// One of them.
        one: PathBuf,
        /// The other.
        other: PathBuf,
    },
}

impl Ranks {
    /// Opens the runs of ranks in a folder: of several starts of the program, the last of each rank.
    ///
    /// # Errors
    /// When there are none, or two of one rank that ran at the same time.
    pub fn open(folder: &Path, limits: &ReadLimits) -> Result<Self, RanksError> {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
        let mut dirs: Vec<PathBuf> = entries.filter(|path| path.join(MANIFEST_FILE).is_file()).take(MOST).collect();
        dirs.sort();
        let mut runs: Vec<(Run, RunManifest)> = Vec::new();
        for dir in dirs {
            // One that cannot be read, as of a start that failed, is none of those that are looked for.
            let Ok(run) = Run::open_within(&dir, limits.clone()) else { continue };
            let manifest = run.manifest().filter(|manifest| manifest.world_size.is_some_and(|size| size > 1)).cloned();
            runs.extend(manifest.map(|manifest| (run, manifest)));
        }
        runs.sort_by_key(|(_, manifest)| std::cmp::Reverse(manifest.started_ns));
        let Some((_, last)) = runs.first() else { return Err(RanksError::None(folder.to_path_buf())) };
        let last = last.clone();
        let mut by_rank: BTreeMap<u32, (Run, RunManifest)> = BTreeMap::new();
        for (run, manifest) in runs.into_iter().filter(|(_, manifest)| manifest.world_size == last.world_size) {
            // A run that was killed says no end: it was over when another of its rank began.
            let over = manifest.ended_ns.unwrap_or(manifest.started_ns);
            match by_rank.get(&manifest.rank) {
                Some((later, of)) if over > of.started_ns && manifest.host == of.host => {
                    let (one, other) = (later.dir().to_path_buf(), run.dir().to_path_buf());
                    return Err(RanksError::Twice { rank: manifest.rank, one, other });
                }
                Some(_) => {}
                // Of a start before the last one: clocks of other machines do not say so.
                None if over < last.started_ns && manifest.host == last.host => {}
                None => drop(by_rank.insert(manifest.rank, (run, manifest))),
            }
        }
        if by_rank.len() < 2 {
            return Err(RanksError::None(folder.to_path_buf()));
        }
        let runs = by_rank.into_values().map(|(run, _)| run).collect();
        Ok(Self { runs, world_size: last.world_size.unwrap_or(0) as usize })
    }

    /// The runs, one of each rank that has one, in order of ranks.
    pub fn runs(&self) -> &[Run] {
        &self.runs
    }

    /// The `run.json` of each of the runs, in the same order.
    pub fn manifests(&self) -> Vec<&RunManifest> {
        self.runs.iter().filter_map(Run::manifest).collect()
    }

    /// How many ranks the program has.
    pub fn world_size(&self) -> usize {
        self.world_size
    }

    /// Ranks of which there is no run.
    pub fn missing(&self) -> Vec<u32> {
        let known: Vec<u32> = self.manifests().iter().map(|manifest| manifest.rank).collect();
        (0..u32::try_from(self.world_size).unwrap_or(0)).filter(|rank| !known.contains(rank)).collect()
    }
}
