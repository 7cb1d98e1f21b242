//! Energy of the run, of each phase and of each output token.
//!
//! From the counter of total energy, shaped by power between its readings and cross-checked against the integral of power; gross,
//! and less what the GPU draws while nothing runs. Every figure has its bound, and a window too short for the sensors says so.

use super::kernels::Kernels;
use super::latency::Latency;
use super::phases::Phases;
use super::sensor::{Joules, Sensor};
use super::step_rows::StepRow;
use candlescope_core::run::RunManifest;
use candlescope_core::{RequestRecord, SampleRecord};
use std::collections::{BTreeMap, BTreeSet};

/// Counter of energy used, in joules.
pub const ENERGY: &str = "hw_energy_joules_total";
/// Power drawn now, in watts.
pub const POWER: &str = "hw_power_watts";

/// Energy of the GPUs that the run worked on, together.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Energy {
    /// The sensors of each GPU, by UUID.
    pub sensors: Vec<(String, Sensor)>,
    /// From the first start to the last end of steps and requests.
    pub run: Option<Joules>,
    /// The same for each GPU, in the order of `sensors`.
    pub run_by_device: Vec<Option<Joules>>,
    /// By phase or name of outermost steps, in the order of [`Phases::rows`].
    pub phases: Vec<PhaseEnergy>,
    /// From the first measured request's start to the last one's end.
    pub requests: Option<Joules>,
    /// Output tokens of these.
    pub output_tokens: Option<u64>,
}

/// Energy of the steps of one phase or name.
#[derive(Debug, Clone, PartialEq)]
pub struct PhaseEnergy {
    /// The phase, or the steps' name.
    pub name: String,
    /// While at least one of its steps ran.
    pub energy: Joules,
    /// Tokens they processed, where all tell.
    pub tokens: Option<u64>,
}

impl PhaseEnergy {
    /// Joules for each token that was processed; not of windows below resolution.
    pub fn joules_per_token(&self) -> Option<f64> {
        per_token(&self.energy, self.tokens).map(|(gross, _)| gross)
    }
}

impl Energy {
    /// Joules for each output token: gross, and less idle power. `None` where the requests took too short for the sensors.
    pub fn per_output_token(&self) -> Option<(f64, Option<f64>)> {
        per_token(self.requests.as_ref()?, self.output_tokens)
    }
}

fn per_token(energy: &Joules, tokens: Option<u64>) -> Option<(f64, Option<f64>)> {
    let tokens = tokens.filter(|&n| n > 0 && !energy.below_resolution)? as f64;
    Some((energy.joules / tokens, energy.net.map(|net| net / tokens)))
}

/// What energy is attributed to. Requests and steps are in order of start.
#[derive(Debug)]
pub struct Around<'a> {
    /// All requests.
    pub requests: &'a [RequestRecord],
    /// All steps.
    pub steps: &'a [StepRow],
    /// These by phase.
    pub phases: &'a Phases,
    /// Tokens of the measured requests.
    pub latency: &'a Latency,
    /// Requests that warmed up.
    pub warmup: &'a BTreeSet<u64>,
    /// GPUs the run worked on, by UUID. Where none of them was sampled, or none is known, all sampled ones count.
    pub used: BTreeSet<String>,
}

/// GPUs that the run is known to have worked on.
pub fn used_devices(manifest: &RunManifest, kernels: &Kernels) -> BTreeSet<String> {
    let marked = manifest.gpu.iter().flat_map(|gpu| &gpu.devices).map(|device| device.uuid.clone());
    marked.chain(kernels.devices.iter().map(|uuid| uuid.to_string())).collect()
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
    /// Takes one sample.
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
    pub fn finish(mut self, around: &Around<'_>) -> Energy {
        let Around { requests, steps, phases, latency, warmup, used } = around;
        if self.devices.keys().any(|device| used.contains(device)) {
            self.devices.retain(|device, _| used.contains(device));
        }
        let in_steps = merged(steps.iter().map(|s| (s.start_ns, s.end_ns())));
        let mut sensors: Vec<(String, Sensor)> = Vec::new();
        for (device, readings) in self.devices {
            let power = readings.power.clone();
            if let Some(mut sensor) = Sensor::of(readings.power, readings.counter) {
                sensor.learn_idle(&power, &in_steps);
                sensors.push((device, sensor));
            }
        }
        if sensors.is_empty() {
            return Energy::default();
        }
        let span = |r: &RequestRecord| (r.host_start.0, r.host_start.plus_ns(r.host_dur_ns).0);
        let whole = hull(steps.iter().map(|s| (s.start_ns, s.end_ns())).chain(requests.iter().map(span)));
        let measured = hull(requests.iter().filter(|r| !warmup.contains(&r.request)).map(span));
        // Steps in steps are part of them: their energy would count twice.
        let outermost = phases.rows.iter().filter(|row| row.inside.is_none());
        let by_phase = outermost.filter_map(|row| {
            let windows = merged(steps.iter().filter(|s| s.group() == row.name).map(|s| (s.start_ns, s.end_ns())));
            Some(PhaseEnergy { name: row.name.clone(), energy: together(&sensors, &windows)?, tokens: row.tokens })
        });
        Energy {
            run: whole.and_then(|window| together(&sensors, &[window])),
            run_by_device: sensors.iter().map(|(_, sensor)| sensor.energy(&[whole?])).collect(),
            phases: by_phase.collect(),
            requests: measured.and_then(|window| together(&sensors, &[window])),
            output_tokens: latency.output_tokens,
            sensors,
        }
    }
}

/// Energy of all GPUs over the same windows; `None` where one of them does not cover them.
fn together(sensors: &[(String, Sensor)], windows: &[(i64, i64)]) -> Option<Joules> {
    let mut all = sensors.iter().map(|(_, sensor)| sensor.energy(windows));
    let first = all.next()??;
    all.try_fold(first, |sum, one| Some(sum.plus(one?)))
}

/// Windows in order, overlapping ones made one.
pub(crate) fn merged(windows: impl Iterator<Item = (i64, i64)>) -> Vec<(i64, i64)> {
    let mut list: Vec<(i64, i64)> = windows.filter(|(start, end)| end > start).collect();
    list.sort_unstable();
    let mut out: Vec<(i64, i64)> = Vec::new();
    for (start, end) in list {
        match out.last_mut() {
            Some(last) if start <= last.1 => last.1 = last.1.max(end),
            _ => out.push((start, end)),
        }
    }
    out
}

fn hull(windows: impl Iterator<Item = (i64, i64)>) -> Option<(i64, i64)> {
    windows.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1))).filter(|(start, end)| end > start)
}
