//! What each request caused: its share of the time of the steps that worked for it, of the device's, and of the energy.
//! The shares of all requests, the steps that work for none and the time in which no step ran add up to what the
//! sensors counted.
//!
//! Both divisions, that of a step among requests and that of energy among steps, are those of
//! [`candlescope_schema::accounts`], by which a session has accounts while it goes on.

use super::energy::together;
use super::sensor::{Joules, Sensor};
use super::step_rows::{StepRow, outermost, windows};
use candlescope_schema::RequestRecord;
use candlescope_schema::accounts::{Division, WorkShares, divided, kv_bytes_of_a_token};
use candlescope_schema::run::RunManifest;
use std::collections::BTreeMap;

/// One request's part of all.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct RequestShare {
    /// Number of the request.
    pub request: u64,
    /// Whether it is of the warm-up.
    pub warmup: bool,
    /// Time of its steps on the host, of shared ones its share, nanoseconds.
    pub step_ns: f64,
    /// Time of its steps on the device likewise; `None` unless it is known of each of them.
    pub device_ns: Option<f64>,
    /// Energy of its steps likewise, in joules; `None` without sensors.
    pub joules: Option<f64>,
    /// Whether the sensors cover its steps; if not, their energy is only that of the time that they do.
    pub is_covered: bool,
    /// Lowest and highest that it may be, by the sensors' period and accuracy over the time in which its steps ran.
    pub bound: Option<(f64, f64)>,
    /// Its steps are too short for the sensors: only the bound means something.
    pub below_resolution: bool,
}

/// What the sensors counted, divided among requests, steps that work for none, and the time without a step.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Shares {
    /// Of each request with steps, in order of number.
    pub requests: Vec<RequestShare>,
    /// Energy of steps that work for no request, in joules.
    pub other_steps: Option<f64>,
    /// Energy while no step ran, loading included, in joules. Where steps have no record, theirs is here, too.
    pub outside: Option<f64>,
    /// What the sensors counted from their first reading to the last.
    pub counted: Option<Joules>,
}

impl Shares {
    /// A request's share; `None` if it has no steps.
    pub fn of_request(&self, request: u64) -> Option<&RequestShare> {
        let at = self.requests.binary_search_by_key(&request, |share| share.request).ok()?;
        self.requests.get(at)
    }

    /// The sum of all shares, in joules.
    pub fn sum(&self) -> Option<f64> {
        Some(self.of_requests()? + self.other_steps? + self.outside?)
    }

    /// The sum of the requests' shares, in joules; `None` without sensors.
    pub fn of_requests(&self) -> Option<f64> {
        self.counted?;
        // The sum of none is −0.
        Some(self.requests.iter().filter_map(|share| share.joules).fold(0.0, |sum, joules| sum + joules))
    }

    /// Shares of steps, which are in order of start, and of what these sensors counted.
    pub fn of(
        manifest: &RunManifest,
        requests: &[RequestRecord],
        steps: &[StepRow],
        warm: &dyn Fn(u64) -> bool,
        sensors: &[(String, Sensor)],
    ) -> Self {
        let steps = outermost(steps);
        let energy = StepEnergy::of(&steps, sensors);
        let mut work = work_shares(manifest, requests, &steps);
        let mut all: BTreeMap<u64, (RequestShare, Vec<&StepRow>)> = BTreeMap::new();
        let mut other = 0.0;
        for (at, step) in steps.iter().enumerate() {
            let joules = energy.as_ref().map(|energy| energy.found.each[at]);
            let shares = work.of_step(step.request, &step.serves, step.work.bytes);
            if shares.is_empty() {
                other += joules.unwrap_or(0.0);
            }
            for (request, share) in shares {
                let first = RequestShare {
                    request,
                    warmup: warm(request),
                    device_ns: Some(0.0),
                    joules: joules.map(|_| 0.0),
                    ..RequestShare::default()
                };
                let (sum, own) = all.entry(request).or_insert_with(|| (first, Vec::new()));
                sum.step_ns += step.dur_ns as f64 * share;
                sum.device_ns = sum.device_ns.zip(step.gpu_ns).map(|(sum, ns)| sum + ns as f64 * share);
                sum.joules = sum.joules.zip(joules).map(|(sum, joules)| sum + joules * share);
                own.push(step);
            }
        }
        let bounded = |(mut share, own): (RequestShare, Vec<&StepRow>)| {
            let over = (!sensors.is_empty()).then(|| together(sensors, &windows(own))).flatten();
            share.is_covered = over.is_some();
            if let (Some(joules), Some(over)) = (share.joules, over.filter(|over| over.joules > 0.0)) {
                // What holds of the power while its steps ran holds of its part of it.
                share.bound = Some((joules * over.low / over.joules, joules * over.high / over.joules));
                share.below_resolution = over.below_resolution;
            }
            share
        };
        Self {
            requests: all.into_values().map(bounded).collect(),
            other_steps: energy.as_ref().map(|_| other),
            outside: energy.as_ref().map(|energy| energy.found.outside),
            counted: energy.and_then(|energy| together(sensors, &[energy.over])),
        }
    }
}

/// Energy of each step: what the sensors counted while it was open, divided evenly among the steps that were open with it.
struct StepEnergy {
    /// In joules, in order of the steps, and while none was open.
    found: Division,
    /// The time that all sensors cover.
    over: (i64, i64),
}

impl StepEnergy {
    /// `None` without sensors.
    fn of(steps: &[&StepRow], sensors: &[(String, Sensor)]) -> Option<Self> {
        let covers = || sensors.iter().filter_map(|(_, sensor)| sensor.covers());
        let over = (covers().map(|(first, _)| first).max()?, covers().map(|(_, last)| last).min()?);
        if over.0 >= over.1 {
            return None;
        }
        let counted = |from: i64, to: i64| sensors.iter().map(|(_, sensor)| sensor.counted(from, to)).sum::<f64>();
        let steps: Vec<_> = steps.iter().map(|step| step.window()).collect();
        Some(Self { found: divided(&steps, over, counted), over })
    }
}

/// Shares by work, before the first step.
fn work_shares(manifest: &RunManifest, requests: &[RequestRecord], steps: &[&StepRow]) -> WorkShares {
    let mut prompt: BTreeMap<u64, (u64, bool)> = BTreeMap::new();
    for served in steps.iter().flat_map(|step| &step.serves) {
        let (passed, is_whole) = prompt.entry(served.request).or_default();
        if !*is_whole {
            *passed += u64::from(served.tokens);
            *is_whole = served.output_tokens > 0;
        }
    }
    let mut shares = WorkShares::new(kv_bytes_of_a_token(&manifest.model));
    for request in requests {
        let Some((passed, is_whole)) = prompt.get(&request.request) else { continue };
        if let Some(tokens) = request.prompt_tokens.filter(|_| *is_whole) {
            shares.begin_with(request.request, tokens.saturating_sub(*passed));
        }
    }
    shares
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stated_work::StatedWork;
    use candlescope_schema::{HostNs, PathInfo, Served, StepRecord, ThreadInfo, TraceId};
    use std::sync::Arc;

    const MS: i64 = 1_000_000;

    /// A step of a thread, from one millisecond to another.
    fn step(thread: u32, from: i64, to: i64, serves: &[Served]) -> StepRow {
        let (path, thread) = (PathInfo::new(0, "decode", "decode", ""), ThreadInfo::new(thread, 0, "main"));
        let (start, ns) = (HostNs(from * MS), (to - from) as u64 * MS as u64);
        let step = StepRecord::new(0, 0, TraceId(1), Arc::new(path), Arc::new(thread), start, ns);
        StepRow { serves: serves.to_vec(), ..StepRow::of(&step) }
    }

    /// 100 W for ten seconds, sampled every 50 ms, with a counter.
    fn sensor() -> (String, Sensor) {
        let times = (0..=200).map(|n| n * 50 * MS);
        let power = times.clone().map(|t| (t, 100.0)).collect();
        ("GPU-0".into(), Sensor::of(power, vec![(0, 5.0), (10_000 * MS, 1005.0)]).unwrap())
    }

    fn near(a: Option<f64>, b: f64) -> bool {
        a.is_some_and(|a| (a - b).abs() < 1e-6 * b.abs().max(1.0))
    }

    #[test]
    fn all_shares_add_up_to_the_counter() {
        let steps = [
            // Two threads at once from 2 s to 3 s, and a step inside a step.
            step(0, 1000, 3000, &[Served::new(1, 1, 1)]),
            step(0, 1500, 2500, &[Served::new(9, 1, 1)]),
            step(1, 2000, 4000, &[Served::new(2, 3, 0), Served::new(3, 1, 1)]),
            step(0, 5000, 6000, &[]),
            // Beyond what the sensor has seen.
            step(0, 9500, 12_000, &[Served::new(1, 1, 1)]),
        ];
        let shares = Shares::of(&RunManifest::default(), &[], &steps, &|request| request == 3, &[sensor()]);
        let of = |request: u64| shares.requests.iter().find(|share| share.request == request);
        // The sensor does not cover its last step, of which it has what was counted.
        assert!(near(of(1).unwrap().joules, 150.0 + 50.0) && !of(1).unwrap().is_covered && of(2).unwrap().is_covered);
        assert_eq!(of(1).unwrap().bound, None);
        assert!(near(of(2).unwrap().joules, 0.75 * 150.0), "{shares:?}");
        assert!(near(of(3).unwrap().joules, 0.25 * 150.0) && of(3).unwrap().warmup);
        assert!(of(9).is_none(), "a step inside another is not counted twice");
        assert!(near(shares.other_steps, 100.0) && near(shares.outside, 550.0), "{shares:?}");
        let counted = shares.counted.unwrap();
        assert!(near(Some(counted.joules), 1000.0));
        assert!(near(shares.sum(), 1000.0), "{:?}", shares.sum());
        let (low, high) = of(2).unwrap().bound.unwrap();
        assert!(low < 112.5 && 112.5 < high && !of(2).unwrap().below_resolution);
    }

    #[test]
    fn steps_without_duration_and_sensors_that_never_meet_upset_nothing() {
        let steps = [step(0, 1000, 1000, &[Served::new(1, 1, 1)]), step(0, 2000, 3000, &[Served::new(2, 1, 1)])];
        let shares = Shares::of(&RunManifest::default(), &[], &steps, &|_| false, &[sensor()]);
        assert!(near(shares.sum(), 1000.0) && near(shares.outside, 900.0), "{shares:?}");
        let later = (0..=20).map(|n| (100_000 * MS + n * 50 * MS, 80.0)).collect();
        let two = [sensor(), ("GPU-1".into(), Sensor::of(later, Vec::new()).unwrap())];
        let shares = Shares::of(&RunManifest::default(), &[], &steps, &|_| false, &two);
        assert_eq!((shares.sum(), shares.requests.len(), shares.requests[0].joules), (None, 2, None));
    }

    #[test]
    fn two_gpus_are_added_up() {
        let steps = [step(0, 1000, 3000, &[Served::new(1, 1, 1)])];
        let (_, other) = sensor();
        let shares = Shares::of(&RunManifest::default(), &[], &steps, &|_| false, &[sensor(), ("GPU-1".into(), other)]);
        assert!(near(shares.requests[0].joules, 400.0) && near(shares.sum(), 2000.0), "{shares:?}");
    }

    #[test]
    fn a_long_context_costs_more_than_a_short_one() {
        let mut manifest = RunManifest::default();
        for (key, value) in
            [("layers", 2.into()), ("kv_heads", 1.into()), ("head_dim", 8.into()), ("dtype", "f32".into())]
        {
            let _: Option<serde_json::Value> = manifest.model.insert(key.to_string(), value);
        }
        // 128 bytes a token: of 10 kB that the step reads, 40 × 128 are keys and values, three quarters of them the first's.
        let prompts = step(0, 0, 1, &[Served::new(1, 29, 1)]);
        let others = step(0, 1, 2, &[Served::new(2, 9, 1)]);
        let work = StatedWork { bytes: Some(10_240), ..StatedWork::default() };
        let shared = StepRow { work, ..step(0, 10, 20, &[Served::new(1, 1, 1), Served::new(2, 1, 1)]) };
        let shares = Shares::of(&manifest, &[], &[prompts, others, shared], &|_| false, &[]);
        let ms = |request: u64| shares.requests[request as usize - 1].step_ns / MS as f64 - 1.0;
        assert!((ms(1) - 10.0 * (0.5 * 0.5 + 0.5 * 0.75)).abs() < 1e-9, "{shares:?}");
        assert!((ms(1) + ms(2) - 10.0).abs() < 1e-9);
        assert_eq!((shares.requests[0].joules, shares.requests[0].device_ns, shares.sum()), (None, None, None));
    }
}
