//! Which runs belong together.

use super::rank::Rank;
use super::ranks_error::RanksError;
use super::ranks_of_run::RanksOfRun;
use candlescope_reader::{ReadLimits, Run};
use candlescope_schema::hive;
use candlescope_schema::run::{MANIFEST_FILE, RunManifest};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The most ranks that are read as one.
const MOST: usize = 4096;

/// Ranks of one program, in order.
#[derive(Debug)]
pub struct Ranks {
    all: Vec<Rank>,
    world_size: usize,
    /// Runs in the folder that cannot be read, each with the reason: of a start that failed, perhaps.
    unreadable: Vec<String>,
}

impl Ranks {
    /// Opens the runs of ranks in a folder, or below it by day and machine: of several starts of the program, the last
    /// of each rank.
    ///
    /// # Errors
    /// When there are none, or two of one rank that ran at the same time.
    pub fn open(folder: &Path, limits: &ReadLimits) -> Result<Self, RanksError> {
        let mut runs: Vec<(Run, RunManifest)> = Vec::new();
        let mut unreadable = Vec::new();
        for dir in runs_below(folder) {
            let run = match Run::open_within(&dir, limits.clone()) {
                Ok(run) => run,
                Err(error) => {
                    unreadable.push(error.to_string());
                    continue;
                }
            };
            let manifest = run.manifest().filter(|manifest| manifest.world_size.is_some_and(|size| size > 1)).cloned();
            runs.extend(manifest.map(|manifest| (run, manifest)));
        }
        runs.sort_by_key(|(_, manifest)| std::cmp::Reverse(manifest.started_ns));
        let Some((_, last)) = runs.first() else { return Err(RanksError::None(folder.to_path_buf())) };
        let last = last.clone();
        // Of several programs at once, the one that began last, where launchers say which is which.
        let is_of_last = |manifest: &RunManifest| {
            let is_of_another = manifest.job.is_some() && last.job.is_some() && manifest.job != last.job;
            manifest.world_size == last.world_size && !is_of_another
        };
        let mut by_rank: BTreeMap<u32, (Run, RunManifest)> = BTreeMap::new();
        for (run, manifest) in runs.into_iter().filter(|(_, manifest)| is_of_last(manifest)) {
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
            let folder = folder.to_path_buf();
            return Err(match unreadable.into_iter().next() {
                Some(reason) => RanksError::OneReadable { folder, reason },
                None => RanksError::None(folder),
            });
        }
        let all = by_rank.into_values().filter_map(|(run, _)| Rank::of_process(run)).collect();
        Ok(Self { all, world_size: last.world_size.unwrap_or(0) as usize, unreadable })
    }

    /// Opens one run, of which each thread that runs marked phases is a rank: a program with a thread a device.
    ///
    /// # Errors
    /// When the run cannot be read, fewer than two of its threads run phases, or steps have no record.
    pub fn of_threads(run: &Path, limits: &ReadLimits) -> Result<Self, RanksError> {
        let all = Rank::of_threads(Run::open_within(run, limits.clone())?)?;
        Ok(Self { world_size: all.len(), all, unreadable: Vec::new() })
    }

    /// Those that have records, in order.
    pub fn all(&self) -> &[Rank] {
        &self.all
    }

    /// The same by the runs that their records are in, in order.
    pub fn by_run(&self) -> impl Iterator<Item = RanksOfRun<'_>> {
        RanksOfRun::each(&self.all)
    }

    /// How many ranks the program has.
    pub fn world_size(&self) -> usize {
        self.world_size
    }

    /// Ranks of which there is no run.
    pub fn missing(&self) -> Vec<u32> {
        let known: Vec<u32> = self.all.iter().map(|rank| rank.manifest().rank).collect();
        (0..u32::try_from(self.world_size).unwrap_or(0)).filter(|rank| !known.contains(rank)).collect()
    }

    /// Runs in the folder that cannot be read, with the reasons.
    pub fn unreadable(&self) -> &[String] {
        &self.unreadable
    }
}

/// Directories of runs in a folder, and in those of days and machines below it, as programs of several machines write
/// them into one. Of more than are read, the last ones by name: days and names that were not chosen say the time.
fn runs_below(folder: &Path) -> Vec<PathBuf> {
    let (mut found, mut folders) = (Vec::new(), vec![(folder.to_path_buf(), 0)]);
    while let Some((folder, depth)) = folders.pop() {
        for path in std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()) {
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            if path.join(MANIFEST_FILE).is_file() {
                found.push(path);
            } else if depth < 2 && (name.starts_with(hive::DATE) || name.starts_with(hive::MACHINE)) {
                folders.push((path, depth + 1));
            }
        }
    }
    found.sort();
    found.split_off(found.len().saturating_sub(MOST))
}
