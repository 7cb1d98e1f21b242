//! Which runs belong together.

use candlescope_reader::{OpenError, ReadLimits, Run};
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
    /// One cannot be opened.
    #[error(transparent)]
    Run(#[from] OpenError),
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
    /// Opens the runs of ranks in a folder: of several starts of the program, those of the last one.
    ///
    /// # Errors
    /// When there are none, or two of one rank that ran at the same time.
    pub fn open(folder: &Path, limits: &ReadLimits) -> Result<Self, RanksError> {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
        let mut dirs: Vec<PathBuf> = entries.filter(|path| path.join(MANIFEST_FILE).is_file()).take(MOST).collect();
        dirs.sort();
        let runs = dirs.into_iter().map(|dir| Run::open_within(dir, limits.clone())).collect::<Result<Vec<_>, _>>()?;
        let is_rank = |manifest: &RunManifest| manifest.world_size.is_some_and(|size| size > 1);
        let last = runs.iter().filter_map(Run::manifest).filter(|manifest| is_rank(manifest));
        let Some(last) = last.max_by_key(|manifest| manifest.started_ns).cloned() else {
            return Err(RanksError::None(folder.to_path_buf()));
        };
        let at_once = |manifest: &RunManifest| {
            manifest.world_size == last.world_size && manifest.ended_ns.unwrap_or(i64::MAX) >= last.started_ns
        };
        let mut by_rank: BTreeMap<u32, Run> = BTreeMap::new();
        for run in runs {
            let Some(rank) = run.manifest().filter(|manifest| at_once(manifest)).map(|manifest| manifest.rank) else {
                continue;
            };
            if let Some(other) = by_rank.get(&rank) {
                return Err(RanksError::Twice { rank, one: other.dir().to_path_buf(), other: run.dir().to_path_buf() });
            }
            by_rank.insert(rank, run);
        }
        if by_rank.len() < 2 {
            return Err(RanksError::None(folder.to_path_buf()));
        }
        Ok(Self { runs: by_rank.into_values().collect(), world_size: last.world_size.unwrap_or(0) as usize })
    }

    /// The runs.
    pub fn runs(&self) -> &[Run] {
        &self.runs
    }

    /// Their descriptions.
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
