//! Energy by hand: the curve, its bounds, and what is too short to measure.

use crate::common::scenario::{GPU, Scenario, make};
use crate::common::{T0, write_run};
use candlescope_analysis::passes::sensor::Sensor;
use candlescope_analysis::{Analysis, Run};
use candlescope_core::{HostNs, SampleRecord};
use proptest::prelude::*;
use tempfile::tempdir;

const MS: i64 = 1_000_000;
const S: i64 = 1_000 * MS;

/// Ten seconds, a sample every 50 ms: 100 W before the fifth second, 300 W from there on.
///
/// By trapezoids 100 · 4.95 + 200 · 0.05 + 300 · 5 = 2005 J.
fn step_up() -> Vec<(i64, f64)> {
    (0..=200).map(|i| (i * 50 * MS, if i < 100 { 100.0 } else { 300.0 })).collect()
}

fn near(a: f64, b: f64) -> bool {
    (a - b).abs() < 1e-6 * b.abs().max(1.0)
}

#[test]
fn power_is_integrated_with_its_bound() {
    let sensor = Sensor::of(step_up(), Vec::new()).unwrap();
    assert!(!sensor.has_counter && sensor.check.is_none());
    assert_eq!(sensor.period_ns, 100 * MS as u64, "too few changes to tell: what is known of such sensors");
    let e = sensor.energy(&[(2 * S, 8 * S)]).unwrap();
    // 100 · 2.95 + 200 · 0.05 + 300 · 3.
    assert!(near(e.joules, 1205.0), "{e:?}");
    // A sample up to 100 ms late misplaces 100 ms of the 200 W between least and most.
    assert!(near(e.low, 1185.0) && near(e.high, 1225.0), "{e:?}");
    assert!(!e.below_resolution);
    assert!(near(e.watts().unwrap(), 1205.0 / 6.0));
    assert_eq!(e.time_ns, 6 * S as u64);
}

#[test]
fn the_counter_is_believed_and_power_gives_the_shape() {
    // The counter says twice what power does, from 7000 J on.
    let counter: Vec<(i64, f64)> = vec![(0, 7000.0), (4 * S, 7800.0), (10 * S, 7000.0 + 4010.0)];
    let sensor = Sensor::of(step_up(), counter).unwrap();
    let check = sensor.check.unwrap();
    assert!(
        near(check.counter_joules, 4010.0) && near(check.power_joules, 2005.0) && near(check.ratio().unwrap(), 0.5)
    );
    assert!((check.ratio().unwrap() - 1.0).abs() > check.tolerance());
    let energy = |from: i64, to: i64| sensor.energy(&[(from, to)]).unwrap().joules;
    assert!(near(energy(0, 10 * S), 4010.0));
    assert!(near(energy(0, 4 * S), 800.0), "exactly what it says at its readings");
    assert!(near(energy(0, 2 * S), 400.0));
    // Between 4 s and 10 s it rose by 3210 J where power integrates to 1605 J, of which 1500 J come after the fifth second.
    assert!(near(energy(5 * S, 10 * S), 3000.0));
    // Misplaced by one period at full power.
    let e = sensor.energy(&[(0, 10 * S)]).unwrap();
    assert!(near(e.low, 4010.0 - 30.0), "{e:?}");
}

#[test]
fn short_windows_are_below_resolution() {
    let sensor = Sensor::of(step_up(), Vec::new()).unwrap();
    let short = sensor.energy(&[(7 * S, 7 * S + 300 * MS)]).unwrap();
    assert!(short.below_resolution);
    assert!(near(short.joules, 90.0), "power × time");
    assert!(near(short.low, 30.0) && near(short.high, 90.0), "anything between least and most power: {short:?}");
    let just = sensor.energy(&[(7 * S, 7 * S + 500 * MS)]).unwrap();
    assert!(!just.below_resolution, "five periods");
    let steps =
        |gap: i64| (0..40).map(|i| (S + i * (50 * MS + gap), S + i * (50 * MS + gap) + 50 * MS)).collect::<Vec<_>>();
    let dense = sensor.energy(&steps(10 * MS)).unwrap();
    assert!(!dense.below_resolution, "the sensors see one stretch of 2.39 s");
    assert_eq!(dense.time_ns, 2_000 * MS as u64);
    assert!(near(dense.joules, 200.0));
    let sparse = sensor.energy(&steps(150 * MS)).unwrap();
    assert!(sparse.below_resolution, "each stands alone");
}

#[test]
fn what_the_samples_do_not_cover_has_no_energy() {
    let sensor = Sensor::of(step_up(), Vec::new()).unwrap();
    assert!(sensor.energy(&[(-5 * S, 5 * S)]).is_none());
    assert!(sensor.energy(&[(20 * S, 25 * S)]).is_none());
    assert!(sensor.energy(&[]).is_none());
    let edge = sensor.energy(&[(8 * S, 10 * S + 60 * MS)]).unwrap();
    assert!(near(edge.joules, 300.0 * 2.06), "two samples' worth at the end is within the bound: {edge:?}");
    assert!(Sensor::of(vec![(0, 100.0)], Vec::new()).is_none(), "one sample is no time");
    assert!(Sensor::of(Vec::new(), Vec::new()).is_none());
}

#[test]
fn a_gpu_without_power_has_its_counter_and_one_without_counter_its_power() {
    let sensor = Sensor::of(Vec::new(), vec![(0, 10.0), (S, 210.0), (2 * S, 610.0)]).unwrap();
    assert!(sensor.has_counter);
    assert_eq!(sensor.period_ns, S as u64, "nothing is known between two readings");
    let e = sensor.energy(&[(0, 2 * S)]).unwrap();
    assert!(near(e.joules, 600.0) && e.below_resolution, "two readings resolve nothing");
    assert!(near(e.low, 400.0) && near(e.high, 800.0));
    // A counter that falls was reset; not-a-number is no reading.
    let reset = Sensor::of(step_up(), vec![(0, 5000.0), (5 * S, 3.0), (10 * S, 500.0)]).unwrap();
    assert!(!reset.has_counter && reset.check.is_none());
    let mut noisy = step_up();
    noisy.push((3 * S + 1, f64::NAN));
    noisy.push((4 * S + 1, -7.0));
    assert_eq!(Sensor::of(noisy, Vec::new()), Sensor::of(step_up(), Vec::new()));
}

#[test]
fn idle_power_is_taken_clear_of_steps() {
    let power = step_up();
    let mut sensor = Sensor::of(power.clone(), Vec::new()).unwrap();
    // Clear of 1 s to 9 s by a period: 0 to 0.85 s at 100 W, 9.15 s to 10 s at 300 W, 18 samples each.
    sensor.learn_idle(&power, &[(S, 9 * S)]);
    let idle = sensor.idle.unwrap();
    assert_eq!((idle.watts, idle.outside_steps), (200.0, 36));
    let e = sensor.energy(&[(2 * S, 8 * S)]).unwrap();
    assert!(near(e.net.unwrap(), 1205.0 - 200.0 * 6.0));
    sensor.learn_idle(&power, &[(-S, 4 * S), (4 * S + 250 * MS, 11 * S)]);
    let idle = sensor.idle.unwrap();
    assert_eq!((idle.watts, idle.outside_steps), (100.0, 0), "the one sample between is too few: the smallest of all");
}

#[test]
fn the_sensors_own_period_is_found() {
    let moving: Vec<(i64, f64)> = (0..100).map(|i| (i * 50 * MS, 100.0 + ((i / 5) % 2) as f64)).collect();
    assert_eq!(Sensor::of(moving, Vec::new()).unwrap().period_ns, 250 * MS as u64, "five samples to a change");
}

#[test]
fn a_run_has_energy_for_its_phases_and_tokens() {
    let dir = tempdir().unwrap();
    let (mut batch, manifest) = make(&Scenario::on_gpu());
    // Another GPU of the machine, which the run did not use.
    let mut others: Vec<SampleRecord> = batch.samples.iter().filter(|s| &*s.device == GPU).cloned().collect();
    others.iter_mut().for_each(|s| s.device = "GPU-99999999-0000-0000-0000-000000000000".into());
    batch.samples.extend(others);
    let mut manifest = manifest;
    manifest.exporters.clear();
    write_run(dir.path(), &batch, &manifest, 100_000);
    let analysis = Analysis::of(&Run::open(dir.path()).unwrap());
    let energy = &analysis.energy;
    assert_eq!(energy.sensors.iter().map(|(uuid, _)| uuid.as_str()).collect::<Vec<_>>(), [GPU], "only what it used");
    assert_eq!(analysis.devices.len(), 2, "both are shown");
    let sensor = &energy.sensors[0].1;
    assert!(near(sensor.check.unwrap().ratio().unwrap(), 1.0), "the counter was made from power");
    let requests = energy.requests.unwrap();
    let tokens = energy.output_tokens.unwrap();
    assert_eq!(tokens, 5 * 48);
    let (gross, net) = energy.per_output_token().unwrap();
    assert!(near(gross, requests.joules / 240.0));
    assert!(near(net.unwrap(), (requests.joules - 100.0 * requests.time_ns as f64 / 1e9) / 240.0), "100 W idle");
    let phases: f64 = energy.phases.iter().map(|p| p.energy.joules).sum();
    let run = energy.run.unwrap();
    assert!(
        phases < run.joules && phases > run.joules * 0.98,
        "steps are nearly all of the run: {phases} of {}",
        run.joules
    );
    for phase in &energy.phases {
        assert!(phase.energy.low <= phase.energy.joules && phase.energy.joules <= phase.energy.high);
        assert_eq!(phase.joules_per_token().is_none(), phase.energy.below_resolution, "{}", phase.name);
    }
    assert_eq!(analysis.manifest.gpu.as_ref().unwrap().devices[0].uuid, GPU);
}

#[test]
fn devices_show_what_was_sampled_and_nothing_else() {
    let sample = |at: i64, metric, value, unit| SampleRecord {
        time: HostNs(T0 + at * MS),
        device: "GPU-x".into(),
        metric,
        value,
        unit,
    };
    let (mut batch, _) = make(&Scenario { requests: 1, warmup: 0, ..Scenario::default() });
    for (i, share) in [0.0, 1.0, 1.0, 0.0].into_iter().enumerate() {
        let at = i as i64 * 100;
        batch.samples.push(sample(at, "candlescope_gpu_throttled_sw_power_cap", share, "count"));
        batch.samples.push(sample(at, "candlescope_gpu_throttled_gpu_idle", 1.0, "count"));
        batch.samples.push(sample(at, "hw_gpu_utilization_ratio", share / 2.0, "ratio"));
        batch.samples.push(sample(at, "candlescope_cuda_pool_used_bytes", 100.0 * share, "bytes"));
        batch.samples.push(sample(at, "candlescope_cuda_pool_used_high_bytes", 170.0, "bytes"));
    }
    let dir = tempdir().unwrap();
    write_run(dir.path(), &batch, &crate::common::manifest(&batch), 100_000);
    let analysis = Analysis::of(&Run::open(dir.path()).unwrap());
    let [device] = &analysis.devices[..] else { panic!("{:?}", analysis.devices) };
    assert_eq!(device.utilisation, Some((0.25, 0.5)));
    assert_eq!(device.throttled, [("sw_power_cap".to_string(), 0.5)], "idle is no throttling");
    assert_eq!(device.pool_bytes, (Some(170.0), None), "the high-water mark sees what samples miss");
    assert_eq!((device.power_watts, device.memory_bytes, device.celsius, &device.name), (None, None, None, &None));
    assert!(analysis.verdict.findings.iter().any(|f| f.code == "gpu_throttled" && f.message.contains("50.0 %")));
    assert_eq!(analysis.energy, candlescope_analysis::passes::Energy::default());
}

proptest! {
    /// Energy of two windows that meet is that of both together, and every estimate lies within its bound.
    #[test]
    fn energy_adds_up(
        watts in prop::collection::vec(0.0f64..1_000.0, 20..80),
        counter in prop::collection::vec(0.0f64..500.0, 0..6),
        cuts in (0i64..1_000, 0i64..1_000, 0i64..1_000),
    ) {
        let power: Vec<(i64, f64)> = watts.iter().enumerate().map(|(i, w)| (i as i64 * 50 * MS, *w)).collect();
        let end = power[power.len() - 1].0;
        let mut sum = 0.0;
        let counter: Vec<(i64, f64)> = counter.iter().enumerate().map(|(i, j)| { sum += j; (i as i64 * 700 * MS, sum) }).collect();
        let sensor = Sensor::of(power, counter).unwrap();
        let mut at = [cuts.0, cuts.1, cuts.2].map(|c| c * (end / 1_000));
        at.sort_unstable();
        let energy = |from: i64, to: i64| if to > from { sensor.energy(&[(from, to)]) } else { None };
        let parts: Vec<_> = [(at[0], at[1]), (at[1], at[2]), (at[0], at[2])].iter().map(|w| energy(w.0, w.1)).collect();
        for e in parts.iter().flatten() {
            prop_assert!(e.low <= e.joules + 1e-9 && e.joules <= e.high + 1e-9, "{e:?}");
            prop_assert!(e.joules >= -1e-9);
        }
        if let [Some(a), Some(b), Some(whole)] = &parts[..] {
            prop_assert!((a.joules + b.joules - whole.joules).abs() < 1e-6, "{a:?} {b:?} {whole:?}");
        }
    }
}
