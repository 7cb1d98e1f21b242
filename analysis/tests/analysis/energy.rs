//! Energy computed by hand: the curve, its bounds, and windows that are too short to measure.

use crate::common::scenario::{GPU, Scenario, make};
use crate::common::{T0, write_run};
use candlescope_figures::Analysis;
use candlescope_figures::sensor::{Idle, IdleFrom, Sensor};
use candlescope_reader::Run;
use candlescope_schema::{HostNs, SampleRecord};
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
    // A sample up to 100 ms late misplaces 100 ms of the 200 W between least and most; the sensor may be off by 5 %.
    assert!(near(e.by_period.0, 20.0) && near(e.by_period.1, 20.0) && near(e.by_accuracy, 60.25), "{e:?}");
    assert!(near(e.low, 1205.0 - 80.25) && near(e.high, 1205.0 + 80.25), "{e:?}");
    assert!(!e.below_resolution);
    assert!(near(e.watts().unwrap(), 1205.0 / 6.0));
    assert_eq!(e.time_ns, 6 * S as u64);
}

#[test]
fn the_counter_is_believed_and_power_gives_the_shape() {
    // From the fourth second on the counter, which starts at 7000 J, rises by four fifths of the integral of power.
    let counter: Vec<(i64, f64)> = vec![(0, 7000.0), (4 * S, 7400.0), (10 * S, 7400.0 + 1284.0)];
    let sensor = Sensor::of(step_up(), counter).unwrap();
    let check = sensor.check.unwrap();
    assert!(near(check.counter_joules, 1684.0) && near(check.power_joules, 2005.0), "{check:?}");
    assert!((check.ratio().unwrap() - 1.0).abs() > check.tolerance());
    let energy = |from: i64, to: i64| sensor.energy(&[(from, to)]).unwrap().joules;
    assert!(near(energy(0, 10 * S), 1684.0));
    assert!(near(energy(0, 4 * S), 400.0), "exactly what it says at its readings");
    assert!(near(energy(0, 2 * S), 200.0));
    // Between 4 s and 10 s it rose by 1284 J where power integrates to 1605 J, of which 700 J come from 4.5 s to 7 s:
    // 100 · 0.45 + 200 · 0.05 + 300 · 2 = 655 J.
    assert!(near(energy(4 * S + 500 * MS, 7 * S), 0.8 * 655.0));
    // Misplaced by one period at full power, and 5 %.
    let e = sensor.energy(&[(0, 10 * S)]).unwrap();
    assert!(near(e.low, 1684.0 - 30.0 - 84.2), "{e:?}");
}

#[test]
fn mean_power_is_never_above_the_highest_sample_nor_net_energy_below_zero() {
    // At most 128 W were sampled while the counter rose by 130 W all the time: mean power used to be printed as 130 W.
    let power: Vec<(i64, f64)> = (0..=100).map(|i| (i * 50 * MS, if i % 2 == 0 { 128.0 } else { 126.0 })).collect();
    let mut sensor = Sensor::of(power, vec![(0, 1_000.0), (5 * S, 1_650.0)]).unwrap();
    let e = sensor.energy(&[(S, 4 * S)]).unwrap();
    assert!(near(e.watts().unwrap(), 128.0), "{e:?}");
    assert!(e.high > 390.0, "the bound holds what the counter says: {e:?}");
    // Idle power, sampled after the run while the GPU kept its clocks up, is above what the steps drew: net energy is
    // unknown, not −5.92 J.
    let power: Vec<(i64, f64)> = (0..=200).map(|i| (i * 50 * MS, if i < 100 { 128.0 } else { 140.0 })).collect();
    sensor = Sensor::of(power, Vec::new()).unwrap();
    sensor.learn_idle(&[(0, 5 * S)], true);
    assert_eq!(sensor.idle, Some(Idle { watts: 140.0, from: IdleFrom::Between(98) }));
    let e = sensor.energy(&[(S, 4 * S)]).unwrap();
    assert_eq!((e.net, e.idle_above_mean), (None, true), "unknown, and it says why");
}

#[test]
fn short_windows_are_below_resolution() {
    let sensor = Sensor::of(step_up(), Vec::new()).unwrap();
    let short = sensor.energy(&[(7 * S, 7 * S + 300 * MS)]).unwrap();
    assert!(short.below_resolution);
    assert!(near(short.joules, 90.0), "power × time");
    // Anything between lowest and highest power, and 5 % of 90 J.
    assert!(near(short.low, 30.0 - 4.5) && near(short.high, 90.0 + 4.5), "{short:?}");
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
    assert!(near(e.low, 400.0 - 30.0) && near(e.high, 800.0 + 30.0));
    // A counter that falls was reset; NaN is not a reading.
    let reset = Sensor::of(step_up(), vec![(0, 5000.0), (5 * S, 3.0), (10 * S, 500.0)]).unwrap();
    assert!(!reset.has_counter && reset.check.is_none());
    let mut noisy = step_up();
    noisy.push((3 * S + 1, f64::NAN));
    noisy.push((4 * S + 1, -7.0));
    assert_eq!(Sensor::of(noisy, Vec::new()), Sensor::of(step_up(), Vec::new()));
}

#[test]
fn idle_power_is_taken_clear_of_steps_and_not_while_loading() {
    let mut sensor = Sensor::of(step_up(), Vec::new()).unwrap();
    // After the steps (1 s to 9 s), and a period away from them: 9.15 s to 10 s, 18 samples of 300 W. Samples before
    // the first step are of loading.
    sensor.learn_idle(&[(S, 9 * S)], true);
    assert_eq!(sensor.idle, Some(Idle { watts: 300.0, from: IdleFrom::Between(18) }));
    let e = sensor.energy(&[(2 * S, 8 * S)]).unwrap();
    assert_eq!((e.net, e.idle_above_mean), (None, true), "300 W idle and a mean of 201 W cannot both be");
    // Steps without a record may have run in these gaps: idle power is at most the lowest level that three samples had
    // outside steps.
    sensor.learn_idle(&[(S, 9 * S)], false);
    assert_eq!(sensor.idle, Some(Idle { watts: 100.0, from: IdleFrom::Lowest }));
    let e = sensor.energy(&[(2 * S, 8 * S)]).unwrap();
    assert!(near(e.net.unwrap(), 1205.0 - 100.0 * 6.0), "{e:?}");
    sensor.learn_idle(&[(-S, 4 * S), (4 * S + 250 * MS, 11 * S)], true);
    assert_eq!(sensor.idle, None, "the one sample between is too few: idle power was not seen");
    assert_eq!(sensor.energy(&[(2 * S, 8 * S)]).unwrap().net, None);
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
    assert!((phases / run.joules - 1.0).abs() < 0.02, "phases are all of the steps: {phases} of {}", run.joules);
    let measured: u64 =
        analysis.phases.rows.iter().map(|r| r.duration.as_ref().map_or(0.0, |d| d.mean * d.n as f64) as u64).sum();
    assert!(run.time_ns.abs_diff(measured) < 1_000, "warm-up is not in it: {} {measured}", run.time_ns);
    for phase in &energy.phases {
        assert!(phase.energy.low <= phase.energy.joules && phase.energy.joules <= phase.energy.high);
        assert_eq!(phase.joules_per_token().is_none(), phase.energy.below_resolution, "{}", phase.name);
    }
    assert_eq!(analysis.manifest.gpu.as_ref().unwrap().devices[0].uuid, GPU);
}

#[test]
fn a_gpu_that_rests_beside_a_run_on_processors_is_none_of_its_energy() {
    let energy = |options: &[(&str, &str)]| {
        let dir = tempdir().unwrap();
        let (mut batch, mut manifest) = make(&Scenario::default());
        batch.samples.clear();
        for at in 0..400 {
            batch.samples.push(SampleRecord::new(HostNs(T0 + at * 50 * MS), GPU, "hw_power_watts", 75.0, "watts"));
        }
        manifest.options = options.iter().map(|(key, value)| (key.to_string(), serde_json::json!(value))).collect();
        write_run(dir.path(), &batch, &manifest, 100_000);
        let analysis = Analysis::of(&Run::open(dir.path()).unwrap());
        assert_eq!(analysis.devices[0].power_watts, Some((75.0, 75.0)), "the GPU is shown as it is");
        analysis.energy
    };
    assert_eq!(energy(&[("device", "cpu")]), candlescope_figures::Energy::default());
    // Nothing says where a program ran that has no such option.
    assert_eq!(energy(&[]).sensors.len(), 1);
    assert_eq!(energy(&[("device", "cuda:0")]).sensors.len(), 1);
}

/// A synthetic run: 75 W for a second, ten seconds of loading at 300 W, a request of warm-up and four that are
/// measured, each of a second at 500 W (the warm-up at 450 W) with 200 output tokens, with half a second between them.
fn loads_then_works(between: f64) -> Analysis {
    let dir = tempdir().unwrap();
    let scenario = Scenario { layers: 1, requests: 5, warmup: 1, output: 3, ..Scenario::default() };
    let (mut batch, mut manifest) = make(&scenario);
    let starts: Vec<i64> = (0..5).map(|i| 11 * S + i * 1_500 * MS).collect();
    batch.requests.iter_mut().zip(&starts).for_each(|(request, start)| {
        request.host_start = HostNs(T0 + start);
        (request.host_dur_ns, request.output_tokens, request.ttft_ns) = (S as u64, Some(200), Some(400 * MS as u64));
    });
    // A prefill of 0.4 s and two decodes of 0.3 s, one after the other.
    for (i, step) in batch.steps.iter_mut().enumerate() {
        let (at, dur) = [(0, 400), (400, 300), (700, 300)][i % 3];
        (step.host_start, step.host_dur_ns) = (HostNs(T0 + starts[i / 3] + at * MS), dur as u64 * MS as u64);
    }
    batch.samples.clear();
    for at in (0..20 * S).step_by(50 * MS as usize) {
        let inside = starts.iter().position(|start| (*start..start + S).contains(&at));
        let value = match inside {
            Some(0) => 450.0,
            Some(_) => 500.0,
            None if at < S => 75.0,
            None if at < 11 * S => 300.0,
            None => between,
        };
        let mut sample = |metric, value, unit| {
            let device = GPU;
            batch.samples.push(SampleRecord::new(HostNs(T0 + at), device, metric, value, unit));
        };
        sample("hw_power_watts", value, "watts");
        sample("candlescope_gpu_throttled_sw_power_cap", f64::from(u8::from(inside.is_some_and(|i| i > 0))), "count");
        sample("hw_gpu_memory_usage_bytes", if inside.is_some() { 1e9 } else { 3e9 }, "bytes");
    }
    (manifest.started_ns, manifest.exporters, manifest.options) =
        (T0, Vec::new(), [("warmup".to_string(), serde_json::json!(1))].into());
    write_run(dir.path(), &batch, &manifest, 100_000);
    Analysis::of(&Run::open(dir.path()).unwrap())
}

#[test]
fn loading_is_neither_idle_nor_part_of_the_run() {
    let about = |value: f64, truth: f64| assert!((value / truth - 1.0).abs() < 0.04, "{value} for {truth}");
    // 75 W between requests: net (500 − 75) W for 1 s of 200 tokens is 2.125 J a token. With 300 W of loading as idle
    // it was 1.00 J.
    let analysis = loads_then_works(75.0);
    let energy = &analysis.energy;
    assert_eq!(energy.sensors[0].1.idle.unwrap().watts, 75.0);
    assert!(matches!(energy.sensors[0].1.idle.unwrap().from, IdleFrom::Between(_)));
    let (gross, net) = energy.per_output_token().unwrap();
    about(gross, 2.5);
    about(net.unwrap(), 2.125);
    // The run is its measured steps: 4 s at 500 W, no warm-up at 450 W, no loading, no pauses.
    let run = energy.run.unwrap();
    assert_eq!(run.time_ns, 4 * S as u64);
    about(run.joules, 2_000.0);
    assert!(run.watts().unwrap() <= 500.0);
    about(energy.warmup.unwrap().joules, 450.0);
    let loading = energy.loading.unwrap();
    assert_eq!(loading.time_ns, 11 * S as u64);
    about(loading.joules, 75.0 + 10.0 * 300.0);
    let phases: Vec<(&str, u64, f64)> =
        energy.phases.iter().map(|p| (p.name.as_str(), p.energy.time_ns, p.energy.joules)).collect();
    let [("prefill", 1_600_000_000, prefill), ("decode", 2_400_000_000, decode)] = phases[..] else {
        panic!("{phases:?}")
    };
    about(prefill, 800.0);
    about(decode, 1_200.0);
    // The devices' figures agree: 500 W, throttled all the time, not 405 W beside 500 W. Memory is the maximum of the
    // whole run.
    let [device] = &analysis.devices[..] else { panic!("{:?}", analysis.devices) };
    assert_eq!(device.power_watts, Some((500.0, 500.0)));
    assert_eq!(device.throttled, [("sw_power_cap".to_string(), 1.0)]);
    assert_eq!((device.memory_bytes, device.whole_run), (Some(3e9), false));
    // Samples count as measurements: 20 in each of four seconds.
    assert_eq!(energy.samples, device.power_samples);
    assert_eq!(energy.samples, 80);
    assert_eq!(energy.measured_requests, 4);
}

#[test]
fn a_gpu_that_never_idles_after_loading_has_its_lowest_level() {
    // Requests keep it at 490 W between them; the 75 W before loading are the lowest that were seen outside steps.
    let analysis = loads_then_works(490.0);
    let idle = analysis.energy.sensors[0].1.idle.unwrap();
    assert!(matches!(idle.from, IdleFrom::Between(_)) && idle.watts == 490.0, "what it draws while it waits: {idle:?}");
    let metrics = candlescope_report::json::metrics(&analysis);
    assert_eq!(metrics["energy"]["sensors"][0]["idle_from"], "between_steps");
    assert_eq!(metrics["figures"]["energy_per_token"]["n"], 4, "requests, not tokens");
    assert_eq!(metrics["figures"]["power"]["n"], analysis.energy.samples);
    assert_eq!(metrics["figures"]["power"]["value"].as_f64(), analysis.energy.run.unwrap().watts());
    let e = &metrics["energy"]["run"];
    let get = |key: &str| e[key].as_f64().unwrap();
    assert!((get("by_accuracy") - 0.05 * get("joules")).abs() < 1e-9);
    let low = e["by_period"][0].as_f64().unwrap() + get("by_accuracy");
    assert!((get("joules") - get("low") - low).abs() < 1e-6, "both terms make the bound");
}

#[test]
fn devices_show_what_was_sampled_and_nothing_else() {
    let sample = |at: i64, metric, value, unit| SampleRecord::new(HostNs(T0 + at * MS), "GPU-x", metric, value, unit);
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
    // The first sample is from before the first step, which starts 0.2 ms into the run.
    assert_eq!(device.utilisation, Some((1.0 / 3.0, 0.5)));
    assert_eq!(device.throttled, [("sw_power_cap".to_string(), 2.0 / 3.0)], "idle is no throttling");
    assert_eq!(device.pool_bytes, (Some(170.0), None), "the high-water mark sees what samples miss");
    assert_eq!((device.power_watts, device.memory_bytes, device.celsius, &device.name), (None, None, None, &None));
    assert!(analysis.verdict.findings.iter().any(|f| f.code == "gpu_throttled" && f.message().contains("66.7 %")));
    assert_eq!(analysis.energy, candlescope_figures::Energy::default());
}

proptest! {
    /// The energies of two adjacent windows add up to that of both together if no counter contradicts power, and every
    /// estimate lies within its bound and below the highest sample.
    #[test]
    fn energy_adds_up(
        watts in prop::collection::vec(0.0f64..1_000.0, 20..80),
        counter in prop::collection::vec(0.0f64..500.0, 0..6),
        cuts in (0i64..1_000, 0i64..1_000, 0i64..1_000),
    ) {
        let power: Vec<(i64, f64)> = watts.iter().enumerate().map(|(i, w)| (i as i64 * 50 * MS, *w)).collect();
        let end = power[power.len() - 1].0;
        let mut sum = 0.0;
        let most = watts.iter().copied().fold(0.0, f64::max);
        let by_power = counter.len() < 2;
        let counter: Vec<(i64, f64)> = counter.iter().enumerate().map(|(i, j)| { sum += j; (i as i64 * 700 * MS, sum) }).collect();
        let sensor = Sensor::of(power, counter).unwrap();
        let mut at = [cuts.0, cuts.1, cuts.2].map(|c| c * (end / 1_000));
        at.sort_unstable();
        let energy = |from: i64, to: i64| if to > from { sensor.energy(&[(from, to)]) } else { None };
        let parts: Vec<_> = [(at[0], at[1]), (at[1], at[2]), (at[0], at[2])].iter().map(|w| energy(w.0, w.1)).collect();
        for e in parts.iter().flatten() {
            prop_assert!(e.low <= e.joules + 1e-9 && e.joules <= e.high + 1e-9, "{e:?}");
            prop_assert!(e.joules >= -1e-9);
            let sampled = e.time_ns >= 50 * MS as u64;
            prop_assert!(!sampled || e.watts().unwrap() <= most + 1e-6, "{e:?}, {most} W at most");
        }
        if let ([Some(a), Some(b), Some(whole)], true) = (&parts[..], by_power) {
            // At a window's edge the curve leans towards the next sample; the mean, which must not exceed the highest
            // sample, is cut there.
            let off = (a.joules + b.joules - whole.joules).abs();
            prop_assert!(off <= whole.by_period.0.max(whole.by_period.1) + 1e-6, "{a:?} {b:?} {whole:?}");
        }
    }
}
