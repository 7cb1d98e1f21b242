//! The journal: each sample on a line of its own, written before the next one is taken.

use super::StudyError;
use super::told_once::PROCESS;
use crate::method::{CaseEnd, Sample, Sink, SinkError, StopReason};
use candlescope_core::files::{open_append, open_regular};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Longest time that a sample is not on the disk yet. Each is with the system at once, so that only a crash of the
/// machine can lose those of this time: a sync takes milliseconds, and after each of a million samples that is too
/// much.
const SYNC_EVERY: Duration = Duration::from_millis(500);

/// A line of the journal.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
enum Line {
    Sample(Box<Sample>),
    Stopped(CaseEnd),
    Disturbed { process: u32, sentences: Vec<String> },
    Facts(Facts),
}

/// What a process found out about what it measures.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Facts {
    /// Facts about the model, under the names of a run's `model`; empty if none was loaded.
    pub model: Map<String, Value>,
    /// Facts about the machine, under the names of a run's `environment`.
    pub environment: Map<String, Value>,
    /// Where clocks, temperature and throttling are read.
    pub surroundings: String,
}

/// Appends to a study's journal.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    file: File,
    synced: Instant,
}

impl Journal {
    pub(super) fn append(path: &Path) -> Result<Self, StudyError> {
        let open = || -> std::io::Result<File> {
            let mut file = open_append(path)?;
            // A line that a crash cut off must not take the next one with it.
            let mut last = [b'\n'];
            if file.metadata()?.len() > 0 {
                file.seek(SeekFrom::End(-1))?;
                file.read_exact(&mut last)?;
            }
            if last != [b'\n'] {
                file.write_all(b"\n")?;
            }
            Ok(file)
        };
        let file = open().map_err(|cause| StudyError::Write { path: path.into(), cause })?;
        Ok(Self { path: path.into(), file, synced: Instant::now() })
    }

    /// Keeps facts about what is measured.
    ///
    /// # Errors
    /// When they cannot be kept.
    pub fn facts(&mut self, facts: Facts) -> Result<(), SinkError> {
        self.line(&Line::Facts(facts), true)
    }

    fn line(&mut self, line: &Line, sync: bool) -> Result<(), SinkError> {
        let mut write = || -> std::io::Result<()> {
            let mut text = serde_json::to_vec(line)?;
            text.push(b'\n');
            self.file.write_all(&text)?;
            if sync || self.synced.elapsed() >= SYNC_EVERY {
                self.file.sync_data()?;
                self.synced = Instant::now();
            }
            Ok(())
        };
        write().map_err(|error| {
            let path = self.path.display();
            SinkError(format!("cannot write {path}: {error}; free some space, and go on with --resume"))
        })
    }
}

impl Sink for Journal {
    fn sample(&mut self, sample: &Sample) -> Result<(), SinkError> {
        self.line(&Line::Sample(Box::new(sample.clone())), false)
    }

    fn stopped(&mut self, stopped: &CaseEnd) -> Result<(), SinkError> {
        self.line(&Line::Stopped(stopped.clone()), true)
    }

    fn disturbed(&mut self, process: u32, sentences: &[String]) -> Result<(), SinkError> {
        self.line(&Line::Disturbed { process, sentences: sentences.to_vec() }, true)
    }
}

/// Everything that has been measured.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Records {
    /// Samples in the order in which they were taken.
    pub samples: Vec<Sample>,
    /// How cases ended in each process start, in that order; [`standing`](Self::standing) has those that still hold.
    pub stopped: Vec<CaseEnd>,
    /// What disturbed the machine.
    pub disturbances: Vec<String>,
    /// What the last process found out.
    pub facts: Facts,
    /// Lines that could not be read: those that a crash cut off.
    pub damaged: usize,
}

impl Records {
    pub(super) fn read(path: &Path) -> Result<Self, StudyError> {
        let failed = |cause| StudyError::Read { path: path.into(), cause };
        let file = match open_regular(path) {
            Ok(file) => file,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Self::default()),
            Err(error) => return Err(failed(error)),
        };
        let mut records = Self::default();
        for line in BufReader::new(file).split(b'\n') {
            let line = line.map_err(failed)?;
            if line.is_empty() {
                continue;
            }
            match serde_json::from_slice(&line) {
                Ok(Line::Sample(sample)) => records.samples.push(*sample),
                Ok(Line::Stopped(stopped)) => records.stopped.push(stopped),
                Ok(Line::Disturbed { process, sentences }) => {
                    records.disturbances.extend(sentences.iter().map(|text| format!("{PROCESS}{process}: {text}")));
                }
                Ok(Line::Facts(facts)) => records.facts = facts,
                Err(_) => records.damaged += 1,
            }
        }
        Ok(records)
    }

    /// Keys of the cases that need nothing more in this round of the plan, or in its recorded part: for
    /// [`Engine::skip`](crate::method::Engine::skip). A case that did not fit into memory is not tried again. One that
    /// failed is tried again when the study is gone on with: `first` is the first process start since then.
    pub fn done(&self, round: u32, profiled: bool, first: u32) -> HashSet<String> {
        let ended = |stop: &&CaseEnd| match stop.reason {
            StopReason::OutOfMemory | StopReason::Refused => true,
            StopReason::Failed => stop.process >= first,
            StopReason::Cancelled => false,
            _ => stop.round == round && stop.profiled == profiled,
        };
        self.stopped.iter().filter(ended).map(|stop| stop.case.key()).collect()
    }

    /// How cases ended, without failures after which the same part of the plan was tried again.
    pub fn standing(&self) -> impl Iterator<Item = &CaseEnd> {
        let part = |stop: &CaseEnd| (stop.case.key(), stop.round, stop.profiled);
        let last: HashMap<_, usize> = self.stopped.iter().enumerate().map(|(at, stop)| (part(stop), at)).collect();
        let stands = move |(at, stop): &(usize, &CaseEnd)| {
            stop.reason != StopReason::Failed || last.get(&part(stop)) == Some(at)
        };
        self.stopped.iter().enumerate().filter(stands).map(|(_, stop)| stop)
    }

    /// The number of the next process start: one that no sample has.
    pub fn next_process(&self) -> u32 {
        let samples = self.samples.iter().map(|sample| sample.process);
        samples.chain(self.stopped.iter().map(|stop| stop.process)).max().map_or(0, |last| last + 1)
    }
}
