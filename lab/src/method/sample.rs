//! What the engine hands on: samples, and how cases ended.

use super::case::{CaseId, Measurement, Mode};
use super::stop_reason::StopReason;
use super::surroundings::Reading;
use serde::{Deserialize, Serialize};

/// Whether a sample counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum SampleVerdict {
    /// It counts: a recorded one, one whose device was not seen to be slowed down, or one after all retakes.
    Ok,
    /// It counts, and is the case's first repetition, cold: it took as long as the case may, so that no other was taken to
    /// warm up for it.
    Cold,
    /// The device was slowed down while it was taken: it is kept, was taken again, and counts in no figure.
    Retaken,
}

impl SampleVerdict {
    /// As tables have it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Cold => "cold",
            Self::Retaken => "retaken",
        }
    }

    /// Whether the sample is part of the figures.
    pub const fn counts(self) -> bool {
        matches!(self, Self::Ok | Self::Cold)
    }
}

/// One repetition that was measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Suite and parameters of what was repeated.
    pub case: CaseId,
    /// Which start of the process took it, from 0.
    pub process: u32,
    /// Number of the repetition among those of its case and mode in this process, from 0.
    pub repetition: u32,
    /// How it was run; never [`Mode::WarmUp`], whose repetitions are in no table.
    pub mode: Mode,
    /// When it ended, in nanoseconds since the Unix epoch.
    pub ended_ns: i64,
    /// Times, memory and figures of the repetition, with cycles and energy of `reading` where it had none.
    pub measurement: Measurement,
    /// What was read beside it.
    pub reading: Reading,
    /// Whether figures are made of it: it is kept in any case.
    pub verdict: SampleVerdict,
}

/// How a case ended in one process.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CaseEnd {
    /// Suite and parameters of what was measured.
    pub case: CaseId,
    /// Which start of the process.
    pub process: u32,
    /// Which round of the plan: see [`Method::round`](super::Method::round).
    pub round: u32,
    /// Whether it was the recorded part of the plan rather than a round of plain samples.
    pub profiled: bool,
    /// Why it was not repeated any more in this process.
    pub reason: StopReason,
    /// What went wrong, with the figures, if something did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// Plain samples that count.
    pub samples: u32,
    /// Warm-up repetitions before them.
    pub warmup: u32,
    /// Whether the rolling median had settled when warm-up ended; `false` where it ended by its limit.
    pub warmup_settled: bool,
}

/// Keeps what the engine hands on.
pub trait Sink {
    /// Keeps a sample.
    ///
    /// # Errors
    /// When it cannot be kept; the engine stops then.
    fn sample(&mut self, sample: &Sample) -> Result<(), SinkError>;

    /// Keeps how a case ended.
    ///
    /// # Errors
    /// As for [`sample`](Self::sample).
    fn stopped(&mut self, stopped: &CaseEnd) -> Result<(), SinkError>;

    /// Keeps what disturbs the machine: one sentence each, before anything is measured.
    ///
    /// # Errors
    /// As for [`sample`](Self::sample).
    fn disturbed(&mut self, process: u32, sentences: &[String]) -> Result<(), SinkError>;
}

/// A sample cannot be kept.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct SinkError(pub String);

/// Keeps everything in memory.
#[derive(Debug, Clone, Default)]
pub struct InMemory {
    /// Samples in the order in which they were taken.
    pub samples: Vec<Sample>,
    /// How cases ended, in that order.
    pub stopped: Vec<CaseEnd>,
    /// What disturbed the machine.
    pub disturbances: Vec<String>,
}

impl Sink for InMemory {
    fn sample(&mut self, sample: &Sample) -> Result<(), SinkError> {
        self.samples.push(sample.clone());
        Ok(())
    }

    fn stopped(&mut self, stopped: &CaseEnd) -> Result<(), SinkError> {
        self.stopped.push(stopped.clone());
        Ok(())
    }

    fn disturbed(&mut self, _: u32, sentences: &[String]) -> Result<(), SinkError> {
        self.disturbances.extend_from_slice(sentences);
        Ok(())
    }
}
