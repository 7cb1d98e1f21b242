//! What became of promises: a file of the user's with each gain that was predicted and what was obtained. Nothing of it
//! leaves the machine.

use candlescope_figures::advice::{AdviceCode, TrackRecord, came_true};
use candlescope_schema::run::{RunManifest, env_key, option_key};
use candlescope_work::estimate::Estimate;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions, create_dir_all};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// The largest file that is read: hundreds of thousands of promises.
const MOST_BYTES: u64 = 64 << 20;
/// A mended rule starts anew.
const VERSION: &str = env!("CARGO_PKG_VERSION");
/// Version of a line.
const FORMAT: u32 = 1;

/// A promise, and what was obtained. Gains are shares of the run's step time, 0.1 for a tenth less.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LedgerEntry {
    /// Version of this form.
    pub format: u32,
    /// When it was measured, Unix nanoseconds.
    pub time_ns: i64,
    /// Version of candlescope that made the promise.
    pub version: String,
    /// The processor or the GPU.
    pub device: String,
    /// Name of the model.
    pub model: String,
    /// What was applied, as people write it: `--threads=2`, `NAME=value`; a title if it is neither.
    pub remedy: String,
    /// The finding, `what_if` for a promise of a simulation alone, or `ngram_lookup` for one of tokens that are looked up.
    pub code: String,
    /// Promised: the gain at least.
    pub low: f64,
    /// Promised: the gain to reckon with, between `low` and `high`.
    pub mid: f64,
    /// Promised: the gain at most.
    pub high: f64,
    /// Obtained: the gain that was measured, below 0 for a loss.
    pub obtained: f64,
    /// Lower end of its interval, if it has one.
    pub obtained_low: Option<f64>,
    /// Upper end of that interval, if it has one.
    pub obtained_high: Option<f64>,
}

impl LedgerEntry {
    /// A promise of now.
    pub fn new(code: &str, remedy: &str) -> Self {
        Self {
            format: FORMAT,
            time_ns: 0,
            version: VERSION.to_string(),
            device: String::new(),
            model: String::new(),
            remedy: remedy.to_string(),
            code: code.to_string(),
            low: 0.0,
            mid: 0.0,
            high: 0.0,
            obtained: 0.0,
            obtained_low: None,
            obtained_high: None,
        }
    }

    /// Whether the promise came true; `None` if the result is too uncertain to tell, or has no interval.
    pub fn came_true(&self) -> Option<bool> {
        let promised = Estimate { low: self.low, mid: self.mid, high: self.high };
        let obtained = Estimate { low: self.obtained_low?, mid: self.obtained, high: self.obtained_high? };
        came_true(promised, obtained)
    }
}

/// The device of a run, as promises name it: the GPU's name, or the processor's.
pub fn device(manifest: &RunManifest) -> String {
    let environment = &manifest.environment;
    let on_gpu = option_key::DEVICE.of(&manifest.options).map(|device| device.starts_with("cuda"));
    let on_gpu = on_gpu.unwrap_or_else(|| manifest.gpu.as_ref().is_some_and(|gpu| !gpu.devices.is_empty()));
    let cpu = || env_key::CPU_MODEL.of(environment).unwrap_or("a CPU").to_string();
    if on_gpu { manifest.gpu_name().unwrap_or("a GPU").to_string() } else { cpu() }
}

/// The promises of this user.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Ledger {
    /// In the order in which they were written.
    pub promises: Vec<LedgerEntry>,
    /// Lines that could not be read.
    pub unread: u64,
}

impl Ledger {
    /// The file that programs share, in the directory of what is kept between processes.
    pub fn file_in(cache: &Path) -> PathBuf {
        cache.join("advice.jsonl")
    }

    /// Reads a ledger; an empty one if there is no such file. Lines that cannot be read are counted.
    ///
    /// # Errors
    /// The file cannot be read, or is too large to be one.
    pub fn read(path: &Path) -> io::Result<Self> {
        let file = match File::open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::default()),
            Err(error) => return Err(error),
        };
        if file.metadata()?.len() > MOST_BYTES {
            let why = format!("it is larger than {} MiB: move it away", MOST_BYTES >> 20);
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, why));
        }
        let mut ledger = Self::default();
        for line in BufReader::new(file.take(MOST_BYTES)).split(b'\n') {
            let line = line?;
            if line.iter().all(u8::is_ascii_whitespace) {
                continue;
            }
            match serde_json::from_slice::<LedgerEntry>(&line) {
                Ok(kept) if kept.format == FORMAT => ledger.promises.push(kept),
                _ => ledger.unread += 1,
            }
        }
        Ok(ledger)
    }

    /// Adds promises to the file, which is made if need be.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn append(path: &Path, kept: &[LedgerEntry]) -> io::Result<()> {
        if kept.is_empty() {
            return Ok(());
        }
        if let Some(parent) = path.parent() {
            create_dir_all(parent)?;
        }
        let mut lines = String::new();
        for one in kept {
            lines += &serde_json::to_string(one)?;
            lines.push('\n');
        }
        // A line that was torn when a machine went down ends here.
        if !ends_with_newline(path) {
            lines.insert(0, '\n');
        }
        // In one call, so that two commands at once do not mix their lines.
        OpenOptions::new().create(true).append(true).open(path)?.write_all(lines.as_bytes())
    }

    /// How promises of each finding, made by this version, came out on a device. One remedy tried again on the same
    /// model counts once, with its latest result: the same promise kept ten times is one.
    pub fn records(&self, device: &str) -> BTreeMap<&str, TrackRecord> {
        let mut latest: BTreeMap<(&str, &str, &str), &LedgerEntry> = BTreeMap::new();
        for kept in self.promises.iter().filter(|kept| kept.device == device && kept.version == VERSION) {
            latest.insert((&kept.code, &kept.model, &kept.remedy), kept);
        }
        let mut records: BTreeMap<&str, TrackRecord> = BTreeMap::new();
        for ((code, ..), kept) in latest {
            let Some(came_true) = kept.came_true() else { continue };
            let record = records.entry(code).or_default();
            record.promises += 1;
            record.came_true += u64::from(came_true);
        }
        records
    }

    /// The same of one finding.
    pub fn record(&self, device: &str, code: AdviceCode) -> Option<TrackRecord> {
        self.records(device).get(code.as_str()).copied()
    }
}

/// Whether what comes next begins a line; so it does in a file that is empty or not there.
fn ends_with_newline(path: &Path) -> bool {
    let last = || {
        let mut file = File::open(path).ok()?;
        file.seek(SeekFrom::End(-1)).ok()?;
        let mut last = [0];
        file.read_exact(&mut last).ok()?;
        Some(last[0])
    };
    last().is_none_or(|last| last == b'\n')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(code: &str, model: &str, promised: (f64, f64), obtained: f64) -> LedgerEntry {
        LedgerEntry {
            device: "cpu".into(),
            model: model.into(),
            low: promised.0,
            mid: promised.0,
            high: promised.1,
            obtained,
            obtained_low: Some(obtained - 0.0078125),
            obtained_high: Some(obtained + 0.0078125),
            ..LedgerEntry::new(code, "quantize=q8_0")
        }
    }

    #[test]
    fn promises_are_kept_and_counted_once_for_each_model() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("cache").join("advice.jsonl");
        assert_eq!(Ledger::read(&path).unwrap(), Ledger::default(), "there is none yet");
        let list = [
            kept("weight_streaming", "a", (0.5, 0.7), 0.2),
            kept("weight_streaming", "a", (0.5, 0.7), 0.6),
            kept("weight_streaming", "b", (0.5, 0.7), 0.705),
            kept("weight_streaming", "c", (0.5, 0.7), 0.8),
            LedgerEntry { device: "other".into(), ..kept("weight_streaming", "d", (0.5, 0.7), 0.6) },
        ];
        Ledger::append(&path, &list[..2]).unwrap();
        Ledger::append(&path, &list[2..]).unwrap();
        let ledger = Ledger::read(&path).unwrap();
        assert_eq!(ledger.promises, list);
        let record = ledger.record("cpu", AdviceCode::WeightStreaming);
        assert_eq!(record, Some(TrackRecord { promises: 3, came_true: 2 }));
        assert_eq!(ledger.record("cpu", AdviceCode::BelowRoof), None);
    }

    #[test]
    fn a_damaged_line_costs_itself_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("advice.jsonl");
        Ledger::append(&path, &[kept("unfused", "a", (0.1, 0.2), 0.15)]).unwrap();
        let mut file = OpenOptions::new().append(true).open(&path).unwrap();
        file.write_all(b"{\"format\": 1, \"code\n\xff\n{\"format\": 7}\n\n{\"torn").unwrap();
        Ledger::append(&path, &[kept("unfused", "b", (0.1, 0.2), 0.15)]).unwrap();
        let ledger = Ledger::read(&path).unwrap();
        assert_eq!((ledger.promises.len(), ledger.unread), (2, 4));
    }
}
