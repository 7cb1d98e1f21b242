//! The engine: repeats cases, interleaved, until each has been repeated often enough.

use super::cancel::Cancel;
use super::case::{Case, CaseError, CaseId, Measurement, Mode};
use super::options::Method;
use super::sample::{CaseEnd, Sample, SampleVerdict, Sink, SinkError};
use super::settling::SettlingRule;
use super::stop_reason::StopReason;
use super::surroundings::{Reading, Surroundings};
use super::warm_up::{Warm, WarmUp};
use candlescope_core::HostNs;
use rand::rngs::StdRng;
use rand::{SeedableRng, seq::SliceRandom};
use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

/// What happens, as it happens.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event<'a> {
    /// What disturbs the machine, before anything is measured.
    Disturbed(&'a [String]),
    /// A repetition begins. It may take minutes, in which nothing else is told.
    Begins {
        /// The case that is measured.
        case: &'a CaseId,
        /// Whether it is the case's first one in this process.
        first: bool,
    },
    /// A warm-up repetition ended.
    WarmedUp {
        /// The case that is measured.
        case: &'a CaseId,
        /// How many it has had.
        repetitions: u32,
        /// How long this one took.
        took: Duration,
    },
    /// A sample was taken.
    Sampled {
        /// The sample, with its case and figures.
        sample: &'a Sample,
        /// How much of this process's work is done, from 0 to 1: by the number of samples where it is given, else by
        /// the time limit, which most cases do not need.
        share: f64,
    },
    /// A case ended in this process, whatever the reason.
    Stopped {
        /// Which case, and what ended it.
        stopped: &'a CaseEnd,
        /// As for [`Event::Sampled`].
        share: f64,
    },
}

/// How a measurement ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MeasurementEnd {
    /// All cases ended, those that failed or did not fit into memory included.
    Done,
    /// It was cancelled; what was taken until then is kept.
    Cancelled,
}

/// What the end of a case says whose only repetition is its sample.
const COLD: &str = "its sample is its first repetition, cold: that took as long as the case may";

type Observer<'a> = Box<dyn FnMut(&Event<'_>) + 'a>;

/// Repeats cases in turns, in random order, until each has samples enough, and hands every sample on.
pub struct Engine<'a> {
    method: Method,
    surroundings: &'a mut dyn Surroundings,
    process: u32,
    round: u32,
    cancel: Cancel,
    observe: Observer<'a>,
    skip: HashSet<String>,
    taken: HashMap<String, u32>,
}

impl std::fmt::Debug for Engine<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine").field("method", &self.method).field("process", &self.process).finish_non_exhaustive()
    }
}

impl<'a> Engine<'a> {
    /// An engine that measures by `method`, which is taken as it is: [`Method::round`] gives a process its part.
    pub fn new(method: Method, surroundings: &'a mut dyn Surroundings) -> Self {
        Self {
            method,
            surroundings,
            process: 0,
            round: 0,
            cancel: Cancel::new(),
            observe: Box::new(|_| {}),
            skip: HashSet::new(),
            taken: HashMap::new(),
        }
    }

    /// Says which start of the process this is, and which round of the plan: samples carry it.
    #[must_use]
    pub fn place(mut self, process: u32, round: u32) -> Self {
        (self.process, self.round) = (process, round);
        self
    }

    /// Stops between two repetitions when `cancel` is set. A case that looks at the flag itself may cut a repetition
    /// short, with [`CaseError::Cancelled`].
    #[must_use]
    pub fn cancel(mut self, cancel: &Cancel) -> Self {
        self.cancel = cancel.clone();
        self
    }

    /// Calls `observe` as things happen, between repetitions.
    #[must_use]
    pub fn observe(mut self, observe: impl FnMut(&Event<'_>) + 'a) -> Self {
        self.observe = Box::new(observe);
        self
    }

    /// Leaves out the cases with these keys: they have been measured before.
    #[must_use]
    pub fn skip(mut self, keys: impl IntoIterator<Item = String>) -> Self {
        self.skip.extend(keys);
        self
    }

    /// Numbers plain repetitions of the cases with these keys from here: this process has measured them before.
    #[must_use]
    pub fn after(mut self, taken: impl IntoIterator<Item = (String, u32)>) -> Self {
        self.taken.extend(taken);
        self
    }

    /// Measures `cases` and hands each sample to `sink` before the next one is taken.
    ///
    /// A case that fails ends; the others go on.
    ///
    /// # Errors
    /// When a sample cannot be kept.
    pub fn run(mut self, cases: &mut [Box<dyn Case + '_>], sink: &mut dyn Sink) -> Result<MeasurementEnd, SinkError> {
        let sentences = self.surroundings.disturbances();
        if !sentences.is_empty() {
            sink.disturbed(self.process, &sentences)?;
            (self.observe)(&Event::Disturbed(&sentences));
        }
        let mut order = StdRng::seed_from_u64(self.method.seed);
        let mut todo: Vec<&mut Box<dyn Case + '_>> =
            cases.iter_mut().filter(|case| !self.skip.contains(&case.id().key())).collect();
        todo.shuffle(&mut order);
        if self.round == 0 {
            // Whoever stops a long study early has the small cases then, and the long ones have been told of.
            todo.sort_by_key(|case| case.size());
        }
        let (all, mut ended) = (todo.len(), 0);
        while !todo.is_empty() {
            let group = todo.len().min(self.method.interleave.max(1) as usize);
            let group: Vec<State<'_, '_>> =
                todo.drain(..group).map(|case| State::new(case.as_mut(), &self.taken)).collect();
            ended += group.len();
            let done = Group { engine: &mut self, states: group, all, before: ended }.run(&mut order, sink)?;
            if done == MeasurementEnd::Cancelled {
                return Ok(MeasurementEnd::Cancelled);
            }
        }
        Ok(MeasurementEnd::Done)
    }
}

/// A case in the middle of being measured.
struct State<'c, 'd> {
    case: &'c mut (dyn Case + 'd),
    warm_up: WarmUp,
    warmup_settled: bool,
    /// Whether its first repetition is its sample.
    cold: bool,
    settling: SettlingRule,
    /// Numbers of the next plain and of the next profiled repetition.
    repetitions: [u32; 2],
    spent: Duration,
    retaken: u32,
    slowed: u32,
    ended: bool,
}

impl<'c, 'd> State<'c, 'd> {
    fn new(case: &'c mut (dyn Case + 'd), taken: &HashMap<String, u32>) -> Self {
        let before = taken.get(&case.id().key()).copied().unwrap_or(0);
        Self {
            case,
            warm_up: WarmUp::default(),
            warmup_settled: false,
            cold: false,
            settling: SettlingRule::default(),
            repetitions: [before, 0],
            spent: Duration::ZERO,
            retaken: 0,
            slowed: 0,
            ended: false,
        }
    }

    /// How much of the case is done, from 0 to 1.
    fn share(&self, method: &Method) -> f64 {
        let share = match method.runs {
            _ if self.ended => 1.0,
            Some(runs) => f64::from(self.settling.samples()) / f64::from(runs.max(1)),
            None => self.spent.as_secs_f64() / method.time_limit.as_secs_f64().max(1e-9),
        };
        share.clamp(0.0, 1.0)
    }

    /// One repetition, and the time it took of this case's limit: at least what it states, which in a test is more than
    /// what it takes.
    fn run(&mut self, mode: Mode) -> Result<(Measurement, Duration), CaseError> {
        let begun = Instant::now();
        let measurement = self.case.run(mode)?;
        let spent = begun.elapsed().max(Duration::from_nanos(measurement.host_ns));
        if mode != Mode::WarmUp {
            self.spent += spent;
        }
        Ok((measurement, spent))
    }
}

/// Cases that are interleaved.
struct Group<'g, 'a, 'c, 'd> {
    engine: &'g mut Engine<'a>,
    states: Vec<State<'c, 'd>>,
    /// Cases in all.
    all: usize,
    /// Cases of this group and of those before.
    before: usize,
}

impl Group<'_, '_, '_, '_> {
    fn run(&mut self, order: &mut StdRng, sink: &mut dyn Sink) -> Result<MeasurementEnd, SinkError> {
        let outcome = self.measure(order, sink);
        if !matches!(outcome, Ok(MeasurementEnd::Done)) {
            for place in 0..self.states.len() {
                match outcome {
                    _ if self.states[place].ended => {}
                    Ok(_) => self.end(place, StopReason::Cancelled, None, sink)?,
                    Err(_) => self.release(place),
                }
            }
        }
        outcome
    }

    fn measure(&mut self, order: &mut StdRng, sink: &mut dyn Sink) -> Result<MeasurementEnd, SinkError> {
        for place in 0..self.states.len() {
            if self.warm_up(place, sink)? == MeasurementEnd::Cancelled {
                return Ok(MeasurementEnd::Cancelled);
            }
        }
        loop {
            let mut open: Vec<usize> = (0..self.states.len()).filter(|place| !self.states[*place].ended).collect();
            if open.is_empty() {
                return Ok(MeasurementEnd::Done);
            }
            open.shuffle(order);
            for place in open {
                if self.engine.cancel.is_cancelled() {
                    return Ok(MeasurementEnd::Cancelled);
                }
                self.advance(place, sink)?;
            }
        }
    }

    fn warm_up(&mut self, place: usize, sink: &mut dyn Sink) -> Result<MeasurementEnd, SinkError> {
        if let Err(error) = self.states[place].case.prepare() {
            self.fail(place, &error, sink)?;
            return Ok(MeasurementEnd::Done);
        }
        loop {
            if self.engine.cancel.is_cancelled() {
                return Ok(MeasurementEnd::Cancelled);
            }
            let state = &mut self.states[place];
            match state.warm_up.state(&self.engine.method) {
                Warm::NotYet if self.engine.method.warmup_max > 0 => {}
                warm => {
                    state.warmup_settled = warm == Warm::Settled;
                    state.spent += state.warm_up.spent(&self.engine.method);
                    // A slow case has a figure before the next one is warmed up, and so has each where the next ones are
                    // larger: whoever stops it has something.
                    let sorted = self.engine.round == 0 && state.case.size() > 0;
                    return match warm {
                        _ if sorted => self.advance(place, sink).map(|()| MeasurementEnd::Done),
                        Warm::OutOfTime => self.advance(place, sink).map(|()| MeasurementEnd::Done),
                        _ => Ok(MeasurementEnd::Done),
                    };
                }
            }
            let first = state.warm_up.repetitions() == 0;
            (self.engine.observe)(&Event::Begins { case: state.case.id(), first });
            if first {
                self.engine.surroundings.before();
            }
            match state.run(Mode::WarmUp) {
                Ok((measurement, spent)) => {
                    state.warm_up.add(measurement.decisive_ns(), spent);
                    let (case, repetitions) = (state.case.id(), state.warm_up.repetitions());
                    (self.engine.observe)(&Event::WarmedUp { case, repetitions, took: spent });
                    let method = &self.engine.method;
                    // Another one would take as much again as the case may take in all.
                    if first && method.runs.is_none() && spent >= method.time_limit {
                        state.cold = true;
                        let reading = self.engine.surroundings.after();
                        self.keep(place, Mode::Plain, measurement, reading, SampleVerdict::Cold, sink)?;
                    }
                }
                Err(error) => {
                    self.fail(place, &error, sink)?;
                    return Ok(MeasurementEnd::Done);
                }
            }
        }
    }

    /// One more plain sample, or the end of the case.
    fn advance(&mut self, place: usize, sink: &mut dyn Sink) -> Result<(), SinkError> {
        let state = &mut self.states[place];
        if let Some(reason) = state.settling.verdict(&self.engine.method, state.spent) {
            return self.finish(place, reason, sink);
        }
        match self.sample(place, Mode::Plain, sink)? {
            Ok(()) => Ok(()),
            Err(error) => self.fail(place, &error, sink),
        }
    }

    /// Takes a sample and hands it on. The inner error is the case's.
    fn sample(&mut self, place: usize, mode: Mode, sink: &mut dyn Sink) -> Result<Result<(), CaseError>, SinkError> {
        let Engine { method, surroundings, observe, .. } = &mut *self.engine;
        let state = &mut self.states[place];
        let first = state.warm_up.repetitions() == 0 && state.settling.samples() == 0;
        observe(&Event::Begins { case: state.case.id(), first });
        surroundings.before();
        let (measurement, _) = match state.run(mode) {
            Ok(taken) => taken,
            Err(error) => return Ok(Err(error)),
        };
        let reading = surroundings.after();
        let slowed = reading.throttled == Some(true);
        let again = slowed && mode == Mode::Plain && state.retaken < method.retakes;
        let verdict = if again { SampleVerdict::Retaken } else { SampleVerdict::Ok };
        self.keep(place, mode, measurement, reading, verdict, sink).map(Ok)
    }

    /// Hands a sample on.
    fn keep(
        &mut self,
        place: usize,
        mode: Mode,
        measurement: Measurement,
        reading: Reading,
        verdict: SampleVerdict,
        sink: &mut dyn Sink,
    ) -> Result<(), SinkError> {
        let Engine { method, surroundings, process, .. } = &mut *self.engine;
        let state = &mut self.states[place];
        let slowed = reading.throttled == Some(true);
        let number = &mut state.repetitions[usize::from(mode == Mode::Profiled)];
        let sample = Sample {
            case: state.case.id().clone(),
            process: *process,
            repetition: *number,
            mode,
            ended_ns: HostNs::now().0,
            measurement: with_reading(measurement, &reading),
            reading,
            verdict,
        };
        *number += 1;
        sink.sample(&sample)?;
        if verdict == SampleVerdict::Retaken {
            state.retaken += 1;
            surroundings.recover(method.recovery);
        } else if mode == Mode::Plain {
            state.slowed += u32::from(slowed);
            state.settling.add(sample.measurement.decisive_ns(), method);
        }
        let share = self.share();
        (self.engine.observe)(&Event::Sampled { sample: &sample, share });
        Ok(())
    }

    /// Ends a case: the recorded repetitions, then its row.
    fn finish(&mut self, place: usize, reason: StopReason, sink: &mut dyn Sink) -> Result<(), SinkError> {
        let recorded = self.engine.method.profiled_runs;
        let mut failed = None;
        if recorded > 0 {
            failed = self.states[place].case.begin_recording(recorded).err();
            for _ in 0..recorded {
                if failed.is_none() && !self.engine.cancel.is_cancelled() {
                    failed = self.sample(place, Mode::Profiled, sink)?.err();
                }
            }
            let written = self.states[place].case.end_recording();
            failed = failed.or_else(|| written.err());
        }
        match failed {
            Some(error) => self.fail(place, &error, sink),
            None if recorded > 0 && self.engine.cancel.is_cancelled() => {
                self.end(place, StopReason::Cancelled, None, sink)
            }
            None => {
                let slowed = self.states[place].slowed;
                let slowed = (slowed > 0).then(|| {
                    format!("{slowed} samples were taken while the device was slowed down: it did not recover")
                });
                let cold = self.states[place].cold.then(|| COLD.to_string());
                self.end(place, reason, slowed.or(cold), sink)
            }
        }
    }

    fn fail(&mut self, place: usize, error: &CaseError, sink: &mut dyn Sink) -> Result<(), SinkError> {
        let (reason, detail) = match error {
            CaseError::OutOfMemory(detail) => (StopReason::OutOfMemory, Some(detail)),
            CaseError::Refused(detail) => (StopReason::Refused, Some(detail)),
            CaseError::Failed(detail) => (StopReason::Failed, Some(detail)),
            CaseError::Cancelled => (StopReason::Cancelled, None),
        };
        self.end(place, reason, detail.cloned(), sink)
    }

    fn release(&mut self, place: usize) {
        self.states[place].ended = true;
        self.states[place].case.release();
    }

    fn end(
        &mut self,
        place: usize,
        reason: StopReason,
        detail: Option<String>,
        sink: &mut dyn Sink,
    ) -> Result<(), SinkError> {
        self.release(place);
        let (process, round) = (self.engine.process, self.engine.round);
        let state = &self.states[place];
        let stopped = CaseEnd {
            case: state.case.id().clone(),
            process,
            round,
            profiled: self.engine.method.profiled_runs > 0,
            reason,
            detail,
            samples: state.settling.samples(),
            warmup: state.warm_up.repetitions() - u32::from(state.cold),
            warmup_settled: state.warmup_settled,
        };
        sink.stopped(&stopped)?;
        let share = self.share();
        (self.engine.observe)(&Event::Stopped { stopped: &stopped, share });
        Ok(())
    }

    fn share(&self) -> f64 {
        let here: f64 = self.states.iter().map(|state| state.share(&self.engine.method)).sum();
        ((self.before - self.states.len()) as f64 + here) / self.all.max(1) as f64
    }
}

/// Adds what was read beside a measurement, where the case did not: energy, and the cycles that a device's time at the
/// clock amounts to.
fn with_reading(mut measurement: Measurement, reading: &Reading) -> Measurement {
    if measurement.cycles.is_none() {
        let cycles = measurement.device_ns.zip(reading.clock_mhz).map(|(ns, mhz)| (ns as f64 * mhz / 1e3) as u64);
        measurement.cycles = cycles;
    }
    measurement.energy_mj = measurement.energy_mj.or(reading.energy_mj);
    measurement
}
