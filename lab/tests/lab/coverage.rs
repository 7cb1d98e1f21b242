//! The interval that a study claims holds the true median as often as it says, with the engine's own stopping.

use candlescope_lab::method::*;
use candlescope_lab::study::{Records, summaries};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

/// Samples around 100 µs: log-normal noise, and a factor that each process start has of its own.
struct Noisy {
    id: CaseId,
    random: StdRng,
    process: f64,
}

fn normal(random: &mut StdRng) -> f64 {
    let (u, v): (f64, f64) = (random.random(), random.random());
    (-2.0 * (1.0 - u).ln()).sqrt() * (std::f64::consts::TAU * v).cos()
}

impl Case for Noisy {
    fn id(&self) -> &CaseId {
        &self.id
    }

    fn run(&mut self, _: Mode) -> Result<Measurement, CaseError> {
        let factor = (0.03 * normal(&mut self.random)).exp() * self.process;
        Ok(Measurement::new((100_000.0 * factor) as u64))
    }
}

/// The share of `repetitions` simulated studies whose interval holds the true median.
fn coverage(processes: u32, drift: f64, repetitions: u64) -> f64 {
    let method = Method::default().processes(processes).warmup_max(0);
    let id = CaseId::new("noisy");
    let held = (0..repetitions).filter(|seed| {
        let mut random = StdRng::seed_from_u64(*seed * 7_919 + 1);
        let mut kept = InMemory::default();
        for process in 0..processes {
            let factor = (drift * normal(&mut random)).exp();
            let noise = StdRng::seed_from_u64(random.random());
            let mut cases: Vec<Box<dyn Case>> =
                vec![Box::new(Noisy { id: id.clone(), random: noise, process: factor })];
            let mut unknown = NoSurroundings;
            let engine = Engine::new(method.round(process), &mut unknown).place(process, process);
            engine.run(&mut cases, &mut kept).unwrap();
        }
        let records = Records { samples: kept.samples, ..Records::default() };
        let summary = summaries(std::slice::from_ref(&id), &records).remove(0);
        let (low, high) = summary.host_ns().unwrap().median_ci95.expect("an interval is claimed");
        (low..=high).contains(&100_000.0)
    });
    held.count() as f64 / repetitions as f64
}

#[test]
fn over_process_starts_that_differ() {
    let held = coverage(6, 0.02, 200);
    assert!(held >= 0.90, "{held}");
    let held = coverage(8, 0.05, 200);
    assert!(held >= 0.90, "{held}");
}

#[test]
fn within_one_process() {
    // Stopping where the interval happens to be narrow costs some of its 95 %.
    let held = coverage(1, 0.0, 400);
    assert!(held >= 0.90, "{held}");
}

#[test]
fn samples_of_one_process_say_nothing_of_others() {
    // This is why a single start claims no interval over starts.
    let held = coverage(1, 0.05, 200);
    assert!(held < 0.60, "{held}");
}
