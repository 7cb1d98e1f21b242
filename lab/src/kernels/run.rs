//! A kernel as a case of the measuring engine.

use super::kernel::PreparedKernel;
use super::list::KernelCase;
use super::recording::Recording;
use crate::hardware::{CacheFlush, DeviceTimer, case_error, free_memory};
use crate::method::{Case, CaseError, CaseId, Measurement, Mode};
use crate::operands::Inputs;
use candle_core::Device;
use std::cell::RefCell;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Instant;

/// How kernels are run.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct RunOptions {
    device: Device,
    warm: bool,
    seed: u64,
    pool: usize,
    runs: Option<PathBuf>,
}

impl RunOptions {
    /// On `device`, with caches flushed between repetitions and three sets of random inputs.
    pub fn new(device: Device) -> Self {
        Self { device, warm: false, seed: 42, pool: 3, runs: None }
    }

    /// Leaves the caches as a repetition left them.
    #[must_use]
    pub fn warm(mut self, warm: bool) -> Self {
        self.warm = warm;
        self
    }

    /// Seed of the inputs.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Sets of inputs, which repetitions take in turns; at least one.
    #[must_use]
    pub fn pool(mut self, sets: usize) -> Self {
        self.pool = sets.max(1);
        self
    }

    /// Where the runs of recorded repetitions go: a directory for each case in this one.
    #[must_use]
    pub fn runs(mut self, directory: impl Into<PathBuf>) -> Self {
        self.runs = Some(directory.into());
        self
    }
}

/// The cases for the engine.
pub fn engine_cases(cases: &[KernelCase], options: &RunOptions) -> Vec<Box<dyn Case>> {
    let flush = Rc::new(RefCell::new(None));
    let case = |case: &KernelCase| -> Box<dyn Case> {
        Box::new(KernelRun {
            id: case_id(case, options),
            case: case.clone(),
            options: options.clone(),
            flush: flush.clone(),
            ready: None,
            recording: None,
        })
    };
    cases.iter().map(case).collect()
}

/// The name of a case: its kernel, type, whether the caches are cold, and sizes.
pub fn case_id(case: &KernelCase, options: &RunOptions) -> CaseId {
    let id = CaseId::new("kernels")
        .param("op", case.kernel.name())
        .param("dtype", case.element.name())
        .param("cache", if options.warm { "warm" } else { "flushed" });
    case.shape.iter().fold(id, |id, (name, value)| id.param(name, value))
}

struct KernelRun {
    case: KernelCase,
    id: CaseId,
    options: RunOptions,
    /// One buffer for all cases of a process.
    flush: Rc<RefCell<Option<CacheFlush>>>,
    ready: Option<ReadyKernel>,
    recording: Option<Recording>,
}

struct ReadyKernel {
    pool: Vec<PreparedKernel>,
    next: usize,
    timer: Option<DeviceTimer>,
}

impl KernelRun {
    /// How many sets of inputs fit into an eighth of what is free: several cases are prepared at once.
    fn sets(&self) -> Result<usize, CaseError> {
        let need = self.case.work.memory_bytes;
        let Some(free) = free_memory(&self.options.device) else { return Ok(self.options.pool) };
        if need > free / 10 * 9 {
            let (need, free) = (need as f64 / 1e9, free as f64 / 1e9);
            return Err(CaseError::Refused(format!("it needs {need:.2} GB, and {free:.2} GB are free")));
        }
        Ok(((free / 8 / need.max(1)) as usize).clamp(1, self.options.pool))
    }

    /// Empties the caches, or fills the device's queue so that it does not wait for the host within the measured time.
    fn before(&self, prepared: &PreparedKernel) -> candle_core::Result<()> {
        if let Some(flush) = self.flush.borrow_mut().as_mut() {
            flush.flush()?;
        } else if !self.options.device.is_cpu() {
            prepared.run()?;
            prepared.run()?;
        }
        // Where the operation itself waits for the device, it must not wait for this.
        if self.case.kernel.ends_on_host() {
            self.options.device.synchronize()?;
        }
        Ok(())
    }

    fn once(
        &self,
        prepared: &PreparedKernel,
        timer: Option<&DeviceTimer>,
        mode: Mode,
    ) -> candle_core::Result<Measurement> {
        self.before(prepared)?;
        if let Some(timer) = timer {
            timer.begin()?;
        }
        let began = Instant::now();
        let output = match (mode, &self.recording) {
            (Mode::Profiled, Some(recording)) => recording.step(&self.case, || prepared.run())?,
            _ => prepared.run()?,
        };
        let launched = began.elapsed();
        let device_ns = match timer {
            Some(timer) => {
                timer.end()?;
                Some(timer.elapsed_ns()?)
            }
            None => None,
        };
        drop(std::hint::black_box(output));
        let host_ns = launched.as_nanos().max(1) as u64;
        let seconds = device_ns.unwrap_or(host_ns) as f64 / 1e9;
        let rate = |work: Option<u64>| work.filter(|_| seconds > 0.0).map(|work| work as f64 / seconds);
        Ok(Measurement::new(host_ns)
            .device_ns(device_ns)
            .figure("flops_per_s", rate(self.case.work.flops))
            .figure("bytes_per_s", rate(Some(self.case.work.io_bytes))))
    }
}

impl Case for KernelRun {
    fn id(&self) -> &CaseId {
        &self.id
    }

    fn prepare(&mut self) -> Result<(), CaseError> {
        let device = &self.options.device;
        if !self.options.warm && self.flush.borrow().is_none() {
            let flush = CacheFlush::new(device).map_err(|error| case_error(&error))?;
            *self.flush.borrow_mut() = Some(flush);
        }
        let sets = self.sets()?;
        let mut inputs = Inputs::new(self.options.seed, device);
        let pool = (0..sets).map(|_| self.case.kernel.prepare(&self.case.shape, self.case.element, &mut inputs));
        let pool = pool.collect::<candle_core::Result<Vec<_>>>().map_err(|error| case_error(&error))?;
        let timer = DeviceTimer::new(device).map_err(|error| case_error(&error))?;
        device.synchronize().map_err(|error| case_error(&error))?;
        self.ready = Some(ReadyKernel { pool, next: 0, timer });
        Ok(())
    }

    fn begin_recording(&mut self, _: u32) -> Result<(), CaseError> {
        if let Some(runs) = &self.options.runs {
            let on_gpu = !self.options.device.is_cpu();
            self.recording = Some(Recording::begin(&runs.join(self.id.slug()), on_gpu)?);
        }
        Ok(())
    }

    fn end_recording(&mut self) -> Result<(), CaseError> {
        if let Some(recording) = self.recording.take() {
            recording.end();
        }
        Ok(())
    }

    fn run(&mut self, mode: Mode) -> Result<Measurement, CaseError> {
        let Some(mut ready) = self.ready.take() else {
            return Err(CaseError::Failed("it was not prepared".to_string()));
        };
        let at = ready.next % ready.pool.len();
        ready.next = at + 1;
        let measured = self.once(&ready.pool[at], ready.timer.as_ref(), mode).map_err(|error| case_error(&error));
        self.ready = Some(ready);
        let run =
            self.recording.as_ref().filter(|_| mode == Mode::Profiled).map(|_| format!("runs/{}", self.id.slug()));
        measured.map(|measurement| Measurement { run, ..measurement })
    }

    fn release(&mut self) {
        self.ready = None;
    }
}
