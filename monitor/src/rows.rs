//! Figures as CSV: a row for each GPU, process and program in each reading. Unknown values stay empty.

use crate::error::MonitorError;
use crate::program::Activity;
use crate::state::{GpuTrack, Monitor, ProcessTrack, ProgramTrack};
use candlescope_core::files::create_alone;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Columns. Units are in the names; `subject` is `gpu`, `process` or `program`.
const HEAD: [&str; 26] = [
    "time_ns",
    "elapsed_seconds",
    "subject",
    "id",
    "name",
    "state",
    "use_ratio",
    "memory_bytes",
    "memory_limit_bytes",
    "power_watts",
    "power_limit_watts",
    "energy_joules",
    "sm_clock_hertz",
    "memory_clock_hertz",
    "temperature_celsius",
    "throttled",
    "cpu_ratio",
    "threads",
    "phase",
    "tokens_per_second",
    "working_tokens_per_second",
    "ttft_seconds",
    "ttft_mean_seconds",
    "tpot_seconds",
    "requests_active",
    "tokens_in_flight",
];

type Row = [String; HEAD.len()];

/// The rows of the last reading, in the order of [`Rows`]' columns.
pub fn rows(monitor: &Monitor) -> Vec<Vec<String>> {
    let now = |ended: Option<Duration>| ended.is_none_or(|at| at == monitor.at);
    let gpus = monitor.gpus.iter().map(|gpu| of_gpu(monitor, gpu));
    let processes = monitor.processes.iter().filter(|p| now(p.ended)).map(|p| of_process(monitor, p));
    let programs = monitor.programs.iter().filter(|p| now(p.ended)).map(|p| of_program(monitor, p));
    gpus.chain(processes).chain(programs).map(|row| row.to_vec()).collect()
}

/// Begins a row.
fn row(monitor: &Monitor, subject: &str, id: String, name: &str, values: &[(&str, String)]) -> Row {
    let time = [
        ("time_ns", monitor.clock(monitor.at).0.to_string()),
        ("elapsed_seconds", format!("{:.3}", monitor.at.as_secs_f64())),
        ("subject", subject.to_string()),
        ("id", id),
        ("name", name.to_string()),
    ];
    let value =
        |column: &&str| time.iter().chain(values).find(|(name, _)| name == column).map(|(_, value)| value.clone());
    HEAD.each_ref().map(|column| value(column).unwrap_or_default())
}

fn number(value: Option<f64>) -> String {
    value.map_or_else(String::new, |value| value.to_string())
}

fn state(ended: Option<Duration>, silent: bool) -> String {
    match (ended, silent) {
        (Some(_), _) => "ended",
        (None, true) => "silent",
        (None, false) => "running",
    }
    .to_string()
}

fn of_gpu(monitor: &Monitor, gpu: &GpuTrack) -> Row {
    let f = &gpu.figures;
    let name = gpu.product.as_deref().unwrap_or_default();
    let throttled = f.throttled.as_ref().map(|reasons| reasons.join(" ")).unwrap_or_default();
    row(
        monitor,
        "gpu",
        gpu.uuid.clone(),
        name,
        &[
            ("use_ratio", number(f.use_ratio)),
            ("memory_bytes", number(f.memory_bytes)),
            ("memory_limit_bytes", number(f.memory_limit_bytes)),
            ("power_watts", number(f.power_watts)),
            ("power_limit_watts", number(f.power_limit_watts)),
            ("energy_joules", number(f.energy_joules)),
            ("sm_clock_hertz", number(f.sm_clock_hertz)),
            ("memory_clock_hertz", number(f.memory_clock_hertz)),
            ("temperature_celsius", number(f.temperature_celsius)),
            ("throttled", throttled),
        ],
    )
}

fn of_process(monitor: &Monitor, process: &ProcessTrack) -> Row {
    let f = &process.figures;
    row(
        monitor,
        "process",
        process.pid.to_string(),
        &process.name,
        &[
            ("state", state(process.ended, false)),
            ("memory_bytes", number(f.memory_bytes)),
            ("cpu_ratio", number(f.cpu_ratio)),
            ("threads", number(f.threads)),
        ],
    )
}

fn of_program(monitor: &Monitor, program: &ProgramTrack) -> Row {
    let (f, process) = (&program.figures, monitor.process_figures(program));
    let phase = match &f.activity {
        Activity::Phase(phase) => phase.clone(),
        _ => String::new(),
    };
    let mut values = vec![("state", state(program.ended, program.silent.is_some()))];
    // Figures of an earlier reading are not repeated as if they were of this one, but for the last ones of an ended
    // program.
    if program.silent.is_none() {
        values.extend([
            ("memory_bytes", number(process.memory_bytes)),
            ("cpu_ratio", number(process.cpu_ratio)),
            ("threads", number(process.threads)),
            ("phase", phase),
            ("tokens_per_second", number(f.tokens_per_s)),
            ("working_tokens_per_second", number(f.working_tokens_per_s)),
            ("ttft_seconds", number(f.ttft_seconds)),
            ("ttft_mean_seconds", number(f.ttft_mean_seconds)),
            ("tpot_seconds", number(f.tpot_seconds)),
            ("requests_active", number(f.requests_active)),
            ("tokens_in_flight", number(f.tokens_in_flight)),
        ]);
    }
    row(monitor, "program", program.endpoint.clone(), &program.name, &values)
}

/// A file that gets the rows of every reading.
#[derive(Debug)]
pub struct Rows {
    path: PathBuf,
    writer: csv::Writer<File>,
}

impl Rows {
    /// Begins the file, in place of one that is there.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn create(path: &Path) -> Result<Self, MonitorError> {
        let failed = |cause| MonitorError::Rows { path: path.to_path_buf(), cause };
        let (file, _) = create_alone(path).map_err(failed)?;
        let mut rows = Self { path: path.to_path_buf(), writer: csv::Writer::from_writer(file) };
        rows.put([HEAD.map(str::to_string).to_vec()])?;
        Ok(rows)
    }

    /// Adds the rows of the last reading; they are in the file when this returns.
    ///
    /// # Errors
    /// They cannot be written, because the disk is full for example.
    pub fn add(&mut self, monitor: &Monitor) -> Result<(), MonitorError> {
        self.put(rows(monitor))
    }

    fn put(&mut self, rows: impl IntoIterator<Item = Vec<String>>) -> Result<(), MonitorError> {
        let outcome = rows.into_iter().try_for_each(|row| Ok(self.writer.write_record(&row)?));
        let outcome: std::io::Result<()> = outcome.and_then(|()| self.writer.flush());
        outcome.map_err(|cause| MonitorError::Rows { path: self.path.clone(), cause })
    }
}
