//! Energy of the run, of loading, of each phase and of each output token.
//!
//! Figures of the run and of its phases are over the time in which a measured step ran: loading and warm-up have rows
//! of their own. Energy comes from the counter of total energy, interpolated by power between its readings and
//! cross-checked against the integral of power. It is given gross, and net of what the GPU draws while nothing runs.
//! Every figure has an error bound, and windows too short for the sensors are marked.

use super::chosen_device::ChosenDevice;
use super::kernel_sums::Kernels;
use super::latency::Latency;
use super::phases::Phases;
use super::sensor::{Joules, Sensor};
use super::stats::total_if_known;
use super::step_rows::{StepRow, windows};
use super::warmup::Warmup;
use candlescope_schema::metric;
use candlescope_schema::run::RunManifest;
use candlescope_schema::stretches::{difference, merged};
use candlescope_schema::{RequestRecord, SampleRecord};
use std::collections::{BTreeMap, BTreeSet};

/// Counter of energy used, in joules.
pub const ENERGY: &str = metric::GPU_ENERGY;
/// Power drawn now, in watts.
pub const POWER: &str = metric::GPU_POWER;

/// Energy of the GPUs that the run worked on, together.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Energy {
    /// The sensors of each GPU, by UUID.
    pub sensors: Vec<(String, Sensor)>,
    /// While at least one measured step ran.
    pub run: Option<Joules>,
    /// The same for each GPU, in the order of `sensors`.
    pub run_by_device: Vec<Option<Joules>>,
    /// Samples of power taken in that time, of all GPUs.
    pub samples: u64,
    /// From the session's start, or the first sample, to the first step's start.
    pub loading: Option<Joules>,
    /// While at least one step of a warm-up request ran.
    pub warmup: Option<Joules>,
    /// By phase or name of outermost measured steps, in the order of [`Phases::rows`].
    pub phases: Vec<PhaseEnergy>,
    /// While at least one measured request was open, whether its steps were recorded or not.
    pub requests: Option<Joules>,
    /// Number of these requests.
    pub measured_requests: u64,
    /// Output tokens of these requests.
    pub output_tokens: Option<u64>,
}

/// Energy of the steps of one phase or name.
#[derive(Debug, Clone, PartialEq)]
pub struct PhaseEnergy {
    /// The phase, or the steps' name.
    pub name: String,
    /// While at least one of its steps ran.
    pub energy: Joules,
    /// Tokens they processed, of sequences that go on; `None` unless all steps say.
    pub tokens: Option<u64>,
}

impl PhaseEnergy {
    /// Joules per processed token; `None` for windows below resolution.
    pub fn joules_per_token(&self) -> Option<f64> {
        per_token(&self.energy, self.tokens).map(|(gross, _)| gross)
    }
}

impl Energy {
    /// Joules for each output token: gross, and less idle power. `None` if the requests were too short for the sensors.
    pub fn per_output_token(&self) -> Option<(f64, Option<f64>)> {
        per_token(self.requests.as_ref()?, self.output_tokens)
    }
}

fn per_token(energy: &Joules, tokens: Option<u64>) -> Option<(f64, Option<f64>)> {
    let tokens = tokens.filter(|&n| n > 0 && !energy.below_resolution)? as f64;
    Some((energy.joules / tokens, energy.net.map(|net| net / tokens)))
}

/// What energy is attributed to. Requests and steps are ordered by start.
#[derive(Debug)]
pub struct EnergyScope<'a> {
    /// All requests of the run, warm-up included, without those that an experiment made slower.
    pub requests: &'a [RequestRecord],
    /// When experiments went on: a GPU does not rest then.
    pub experiments: &'a [(i64, i64)],
    /// All recorded steps of the model, those of the warm-up included.
    pub steps: &'a [StepRow],
    /// Measured steps by phase or name; each row that is not inside another one gets its energy.
    pub phases: &'a Phases,
    /// Tokens of the measured requests.
    pub latency: &'a Latency,
    /// Which requests and steps are warm-up, and when nothing else ran.
    pub warmup: &'a Warmup,
    /// When the session began, Unix nanoseconds, where known.
    pub started_ns: Option<i64>,
    /// Whether steps are known to be missing; these ran while no recorded step did.
    pub steps_missing: bool,
    /// GPUs the run worked on, by UUID; `None` if it is known to have worked on none. If none of them was sampled, or the
    /// set is empty because nothing says which, all sampled GPUs count.
    pub used: Option<BTreeSet<String>>,
}

/// GPUs that the run is known to have worked on; `None` if it is known to have worked on none: it was told to use the
/// processors, and no device has marks or kernels of it.
pub fn used_devices(manifest: &RunManifest, kernels: &Kernels) -> Option<BTreeSet<String>> {
    let marked = manifest.gpu.iter().flat_map(|gpu| &gpu.devices).map(|device| device.uuid.clone());
    let used: BTreeSet<String> = marked.chain(kernels.devices.iter().map(|uuid| uuid.to_string())).collect();
    (ChosenDevice::of(manifest) != ChosenDevice::Cpu || !used.is_empty()).then_some(used)
}

/// Collects the two sensors' samples.
#[derive(Debug, Default)]
pub struct EnergyPass {
    devices: BTreeMap<String, Readings>,
}

#[derive(Debug, Default)]
struct Readings {
    power: Vec<(i64, f64)>,
    counter: Vec<(i64, f64)>,
}

impl EnergyPass {
    /// Takes one sample of [`POWER`] or [`ENERGY`]; those of other metrics are ignored.
    pub fn add(&mut self, sample: &SampleRecord) {
        if sample.metric != ENERGY && sample.metric != POWER {
            return;
        }
        if !self.devices.contains_key(&*sample.device) {
            self.devices.insert(sample.device.to_string(), Readings::default());
        }
        let Some(readings) = self.devices.get_mut(&*sample.device) else { return };
        let list = if sample.metric == ENERGY { &mut readings.counter } else { &mut readings.power };
        list.push((sample.time.0, sample.value));
    }

    /// The figures, once every sample was added.
    pub fn finish(mut self, around: &EnergyScope<'_>) -> Energy {
        let EnergyScope { requests, experiments, steps, phases, latency, warmup, started_ns, steps_missing, used } =
            around;
        // What a GPU draws while it rests is no energy of a program that does not use it.
        let Some(used) = used else { return Energy::default() };
        if self.devices.keys().any(|device| used.contains(device)) {
            self.devices.retain(|device, _| used.contains(device));
        }
        let span = |r: &RequestRecord| (r.host_start.0, r.host_start.plus_ns(r.host_dur_ns).0);
        let of_rows = steps.iter().map(|s| (s.start_ns, s.end_ns())).chain(requests.iter().map(span));
        let busy = merged(of_rows.chain(experiments.iter().copied()));
        let mut sensors: Vec<(String, Sensor)> = Vec::new();
        for (device, readings) in self.devices {
            if let Some(mut sensor) = Sensor::of(readings.power, readings.counter) {
                sensor.learn_idle(&busy, !steps_missing);
                sensors.push((device, sensor));
            }
        }
        if sensors.is_empty() {
            return Energy::default();
        }
        let first = match steps_missing {
            true => busy.first().map(|(start, _)| *start),
            false => steps.first().map(|step| step.start_ns),
        };
        // A step around warm-up, such as a program's `main`, does not count as measured during the warm-up.
        let warm = windows(steps.iter().filter(|s| !s.is_measured(warmup.requests())));
        let counted = |windows: Vec<(i64, i64)>| difference(&windows, warmup.alone());
        let measured = counted(windows(steps.iter().filter(|s| s.is_measured(warmup.requests()))));
        let measured_requests = || requests.iter().filter(|r| !warmup.requests().contains(&r.request));
        let in_requests = merged(measured_requests().map(span));
        // Steps inside steps are left out: their energy would count twice.
        let outermost = phases.rows.iter().filter(|row| row.inside.is_none());
        let by_phase = outermost.filter_map(|row| {
            let of_row = || steps.iter().filter(|s| s.group() == row.name && s.is_measured(warmup.requests()));
            let tokens = total_if_known(of_row().map(|s| s.counted_tokens().map(u64::from)));
            Some(PhaseEnergy {
                name: row.name.clone(),
                energy: together(&sensors, &counted(windows(of_row())))?,
                tokens,
            })
        });
        Energy {
            run: together(&sensors, &measured),
            run_by_device: sensors.iter().map(|(_, sensor)| sensor.energy(&measured)).collect(),
            samples: sensors.iter().map(|(_, sensor)| sensor.samples_within(&measured)).sum(),
            // Steps without a record, and without a request, may have run before the first recorded step.
            loading: first
                .filter(|_| !steps_missing || !requests.is_empty())
                .and_then(|end| loading(&sensors, *started_ns, end)),
            warmup: together(&sensors, &warm),
            phases: by_phase.collect(),
            requests: together(&sensors, &in_requests),
            measured_requests: measured_requests().count() as u64,
            output_tokens: latency.output_tokens,
            sensors,
        }
    }
}

/// Energy before the first step. Sampling begins a little after the session, so this covers the part that was sampled.
fn loading(sensors: &[(String, Sensor)], started_ns: Option<i64>, end: i64) -> Option<Joules> {
    let sampled = sensors.iter().filter_map(|(_, sensor)| sensor.covers()).map(|(first, _)| first).max()?;
    let start = sampled.max(started_ns.unwrap_or(sampled));
    (end > start).then(|| together(sensors, &[(start, end)]))?
}

/// Energy of all GPUs over the same windows; `None` if one of the GPUs was not sampled throughout.
pub(super) fn together(sensors: &[(String, Sensor)], windows: &[(i64, i64)]) -> Option<Joules> {
    let mut all = sensors.iter().map(|(_, sensor)| sensor.energy(windows));
    let first = all.next()??;
    all.try_fold(first, |sum, one| Some(sum.plus(one?)))
}
