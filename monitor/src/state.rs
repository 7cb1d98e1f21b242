//! What all readings together tell. Pure.

use crate::figures::{GpuFigures, MachineFigures, ProcessFigures};
use crate::idle::{Idle, IdleRule, IdleTracker};
use crate::program::{Counters, ProgramFigures};
use crate::reading::{Answer, GpuReading, ProcessReading, ProgramReading, Reading, Work};
use crate::trail::Trail;
use candlescope_core::HostNs;
use std::time::Duration;

/// Programs and processes that have ended and are kept: a watcher may run for weeks.
const MOST_ENDED: usize = 50;

/// The state of watching: give it every [`Reading`], and show it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Monitor {
    pub(crate) rule: IdleRule,
    pub(crate) began: HostNs,
    pub(crate) at: Duration,
    pub(crate) readings: u64,
    pub(crate) machine: MachineFigures,
    pub(crate) gpu_trouble: Option<String>,
    pub(crate) gpus: Vec<GpuTrack>,
    pub(crate) processes: Vec<ProcessTrack>,
    pub(crate) programs: Vec<ProgramTrack>,
}

/// A GPU so far.
#[derive(Debug, Clone, PartialEq)]
pub struct GpuTrack {
    pub(crate) index: u32,
    pub(crate) uuid: String,
    pub(crate) product: Option<String>,
    pub(crate) figures: GpuFigures,
    pub(crate) used: Trail,
    pub(crate) power: Trail,
    pub(crate) idle: IdleTracker,
    /// Its energy counter at first.
    energy_before: Option<f64>,
}

/// A process so far.
#[derive(Debug, Clone, PartialEq)]
pub struct ProcessTrack {
    pub(crate) pid: u32,
    pub(crate) name: String,
    /// Processes that are counted in.
    pub(crate) children: usize,
    /// The last that it said.
    pub(crate) work: Option<Work>,
    /// The last that are known.
    pub(crate) figures: ProcessFigures,
    pub(crate) cpu: Trail,
    pub(crate) idle: IdleTracker,
    pub(crate) ended: Option<Duration>,
}

/// A program that serves metrics, so far.
#[derive(Debug, Clone, PartialEq)]
pub struct ProgramTrack {
    pub(crate) endpoint: String,
    pub(crate) pid: Option<u32>,
    pub(crate) name: String,
    /// The last that are known.
    pub(crate) figures: ProgramFigures,
    pub(crate) tokens: Trail,
    /// Why it did not answer last time.
    pub(crate) silent: Option<String>,
    pub(crate) ended: Option<Duration>,
    before: Option<(Duration, Counters)>,
}

impl Monitor {
    /// Nothing seen yet; `rule` says what is idle.
    pub fn new(rule: IdleRule) -> Self {
        Self { rule, ..Self::default() }
    }

    /// Takes what one look found.
    pub fn push(&mut self, reading: Reading) {
        if self.readings == 0 {
            self.began = HostNs(reading.time.0 - i64::try_from(reading.at.as_nanos()).unwrap_or(0));
        }
        self.readings += 1;
        self.at = reading.at;
        self.machine = reading.machine;
        self.gpu_trouble = reading.gpu_trouble;
        for gpu in reading.gpus {
            self.push_gpu(gpu);
        }
        for process in reading.processes {
            self.push_process(process);
        }
        for program in reading.programs {
            self.push_program(program);
        }
        forget(&mut self.processes, |process| process.ended.is_some());
        forget(&mut self.programs, |program| program.ended.is_some());
    }

    fn push_gpu(&mut self, read: GpuReading) {
        let place = self.gpus.iter().position(|gpu| gpu.uuid == read.uuid).unwrap_or_else(|| {
            self.gpus.push(GpuTrack {
                index: read.index,
                uuid: read.uuid.clone(),
                product: read.product.clone(),
                figures: GpuFigures::default(),
                used: Trail::default(),
                power: Trail::default(),
                idle: IdleTracker::default(),
                energy_before: None,
            });
            self.gpus.len() - 1
        });
        let gpu = &mut self.gpus[place];
        gpu.used.push(read.figures.use_ratio);
        gpu.power.push(read.figures.power_watts);
        gpu.idle.push(self.at, read.figures.use_ratio, &self.rule);
        gpu.energy_before = gpu.energy_before.or(read.figures.energy_joules);
        gpu.figures = read.figures;
    }

    fn push_process(&mut self, read: ProcessReading) {
        let known = self.processes.iter().position(|known| known.pid == read.pid && known.ended.is_none());
        let place = known.unwrap_or_else(|| {
            self.processes.push(ProcessTrack {
                pid: read.pid,
                name: read.name,
                children: 0,
                work: None,
                figures: ProcessFigures::default(),
                cpu: Trail::default(),
                idle: IdleTracker::default(),
                ended: None,
            });
            self.processes.len() - 1
        });
        let process = &mut self.processes[place];
        let Some(figures) = read.figures else {
            process.ended = Some(self.at);
            return;
        };
        process.children = read.children;
        process.work = read.work.or(process.work.take());
        process.cpu.push(figures.cpu_ratio);
        process.idle.push(self.at, figures.cpu_ratio, &self.rule);
        process.figures = figures;
    }

    fn push_program(&mut self, read: ProgramReading) {
        let is_it = |known: &ProgramTrack| {
            known.endpoint == read.endpoint
                && known.ended.is_none()
                && (known.pid == read.pid || known.pid.is_none() || read.pid.is_none())
        };
        let place = self.programs.iter().position(is_it).unwrap_or_else(|| {
            self.programs.push(ProgramTrack {
                endpoint: read.endpoint.clone(),
                pid: None,
                name: String::new(),
                figures: ProgramFigures::default(),
                tokens: Trail::default(),
                silent: None,
                ended: None,
                before: None,
            });
            self.programs.len() - 1
        });
        let program = &mut self.programs[place];
        program.pid = program.pid.or(read.pid);
        program.name = read.name;
        match read.answer {
            Answer::Metrics(now) => {
                let before = program.before.as_ref().map(|(at, counters)| (counters, self.at.saturating_sub(*at)));
                program.figures = ProgramFigures::between(before, &now, &program.figures);
                program.tokens.push(program.figures.tokens_per_s);
                program.before = Some((self.at, *now));
                program.silent = None;
            }
            Answer::Silent(why) => {
                program.tokens.push(None);
                program.silent = Some(why);
            }
            Answer::Ended => program.ended = Some(self.at),
        }
    }

    /// GPUs of all readings so far, in the order in which they were first seen.
    pub fn gpus(&self) -> &[GpuTrack] {
        &self.gpus
    }

    /// Processes, those that have ended included.
    pub fn processes(&self) -> &[ProcessTrack] {
        &self.processes
    }

    /// Programs that serve metrics, those that have ended included.
    pub fn programs(&self) -> &[ProgramTrack] {
        &self.programs
    }

    /// The figures of a program's process: those seen from outside, else what the program tells itself.
    pub(crate) fn process_figures<'a>(&'a self, program: &'a ProgramTrack) -> &'a ProcessFigures {
        let is_its = |process: &&ProcessTrack| Some(process.pid) == program.pid;
        let seen = self.processes.iter().rev().find(is_its).map(|process| &process.figures);
        seen.filter(|figures| !figures.is_empty()).unwrap_or(&program.figures.process)
    }

    /// Processes that are not those of programs.
    pub(crate) fn other_processes(&self) -> impl Iterator<Item = &ProcessTrack> {
        self.processes.iter().filter(|process| !self.programs.iter().any(|program| program.pid == Some(process.pid)))
    }

    /// The system clock's time of a time since the beginning.
    pub(crate) fn clock(&self, at: Duration) -> HostNs {
        self.began.plus_ns(u64::try_from(at.as_nanos()).unwrap_or(u64::MAX))
    }
}

/// Drops the oldest of those that have ended beyond [`MOST_ENDED`].
fn forget<T>(all: &mut Vec<T>, has_ended: impl Fn(&T) -> bool) {
    let mut too_many = all.iter().filter(|one| has_ended(one)).count().saturating_sub(MOST_ENDED);
    all.retain(|one| {
        let goes = too_many > 0 && has_ended(one);
        too_many -= usize::from(goes);
        !goes
    });
}

impl GpuTrack {
    /// Figures of the last reading that it was in.
    pub fn figures(&self) -> &GpuFigures {
        &self.figures
    }

    /// Joules used while it was watched, where the GPU counts them.
    pub fn energy_joules(&self) -> Option<f64> {
        Some(self.figures.energy_joules? - self.energy_before?)
    }
}

impl ProcessTrack {
    /// The last figures that are known.
    pub fn figures(&self) -> &ProcessFigures {
        &self.figures
    }

    /// Its idle periods so far.
    pub fn idle(&self, rule: &IdleRule) -> Vec<Idle> {
        self.idle.periods(rule)
    }

    /// When its end was noticed.
    pub fn ended(&self) -> Option<Duration> {
        self.ended
    }
}

impl ProgramTrack {
    /// The last figures that are known.
    pub fn figures(&self) -> &ProgramFigures {
        &self.figures
    }

    /// When its end was noticed.
    pub fn ended(&self) -> Option<Duration> {
        self.ended
    }
}
