//! The collector over scripted GPUs, and over real ones if there are any.

use super::gpu_source::Failure;
use super::script::{Script, machine};
use super::*;
use candlescope_core::HostNs;

type Round = Vec<(String, &'static str, f64)>;

fn collector(gpus: impl IntoIterator<Item = Script>) -> NvmlCollector {
    NvmlCollector::of(machine(gpus), NvmlCollector::builder()).expect("GPUs")
}

fn run(ask: impl FnOnce(&mut Samples<'_>) -> Result<(), CollectError>) -> (Round, Result<(), String>) {
    let mut out = Vec::new();
    let outcome = ask(&mut Samples::new(HostNs(1), &mut out)).map_err(|e| e.to_string());
    (out.into_iter().map(|s| (s.device.to_string(), s.metric, s.value)).collect(), outcome)
}

/// A round at so many milliseconds.
fn round(collector: &mut NvmlCollector, millis: u64) -> (Round, Result<(), String>) {
    let now = Duration::from_millis(millis);
    let due = collector.schedule.round(now);
    run(|out| collector.take(due, now, out))
}

fn value(round: &Round, metric: &str) -> Option<f64> {
    round.iter().find(|(_, name, _)| *name == metric).map(|(.., value)| *value)
}

#[test]
fn energy_is_read_in_the_first_and_in_the_last_round() {
    let mut collector = collector([Script::default()]);
    let (first, _) = round(&mut collector, 0);
    assert_eq!(first[0], ("GPU-0".to_string(), "hw_energy_joules_total", 1.0), "before anything else");
    let (between, _) = round(&mut collector, 50);
    assert_eq!(value(&between, "hw_energy_joules_total"), None);
    assert_eq!(value(&between, "hw_power_watts"), Some(300.0));
    let (last, outcome) = run(|out| collector.last(out));
    assert_eq!((value(&last, "hw_energy_joules_total"), outcome), (Some(2.0), Ok(())));
}

#[test]
fn what_is_not_supported_is_asked_once_and_stays_absent() {
    let script = Script::default().missing(Query::Temperature, "not available").missing(Query::Energy, "not available");
    let mut collector = collector([script.clone()]);
    for millis in [0, 300, 1_200, 9_000] {
        let (samples, outcome) = round(&mut collector, millis);
        assert_eq!(outcome, Ok(()));
        assert_eq!(value(&samples, "hw_temperature_celsius"), None, "absent, not zero");
        assert_eq!(value(&samples, "hw_gpu_utilization_ratio"), Some(0.5), "the others go on");
    }
    assert_eq!((script.asked(Query::Temperature), script.asked(Query::Energy)), (1, 1));
    assert_eq!(script.asked(Query::Memory), 4);
}

#[test]
fn the_plain_power_call_stands_in_for_the_field_and_only_then() {
    let (new, old) = (Script::default(), Script::default().missing(Query::PowerInstant, "unknown field"));
    let mut collector = collector([new.clone(), old.clone()]);
    let (samples, _) = round(&mut collector, 0);
    let power: Vec<_> = samples.iter().filter(|(_, metric, _)| *metric == "hw_power_watts").collect();
    assert_eq!(
        power.iter().map(|(device, _, v)| (device.as_str(), *v)).collect::<Vec<_>>(),
        [("GPU-0", 300.0), ("GPU-1", 250.0)]
    );
    assert_eq!((new.asked(Query::PowerUsage), old.asked(Query::PowerUsage)), (0, 1));
}

#[test]
fn what_fails_for_the_moment_is_asked_again_ever_less_often() {
    let script = Script::default();
    let mut collector = collector([script.clone()]);
    script.fails(Query::Memory, Failure::Transient("timeout".into()));
    for n in 0..1_200 {
        let (samples, outcome) = round(&mut collector, n * 50);
        assert_eq!((value(&samples, "hw_gpu_memory_usage_bytes"), outcome), (None, Ok(())));
    }
    let asked = script.asked(Query::Memory);
    assert!((10..=20).contains(&asked), "a minute of failures: asked {asked} times");
    script.recovers();
    assert_eq!(value(&round(&mut collector, 60_000 + 10_000).0, "hw_gpu_memory_usage_bytes"), Some(10.0));
    assert_eq!(value(&round(&mut collector, 70_050).0, "hw_gpu_memory_usage_bytes"), Some(10.0), "at full pace again");
}

#[test]
fn the_last_round_gives_a_waiting_counter_another_chance() {
    let script = Script::default();
    let mut collector = collector([script.clone()]);
    script.fails(Query::Energy, Failure::Transient("timeout".into()));
    assert_eq!(round(&mut collector, 0).1, Ok(()));
    let (failed, outcome) = run(|out| collector.last(out));
    assert_eq!((value(&failed, "hw_energy_joules_total"), outcome), (None, Ok(())));
    script.recovers();
    assert_eq!(value(&run(|out| collector.last(out)).0, "hw_energy_joules_total"), Some(1.0));
}

#[test]
fn a_lost_gpu_is_reported_once_and_the_others_go_on() {
    let (lost, kept) = (Script::default(), Script::default());
    let mut collector = collector([lost.clone(), kept.clone()]);
    assert_eq!(round(&mut collector, 0).1, Ok(()));
    lost.falls_off();
    let (samples, outcome) = round(&mut collector, 50);
    let told = outcome.expect_err("it is reported");
    assert!(told.contains("GPU-0 is lost (fell off the bus)") && told.contains("dmesg"), "{told}");
    assert!(!samples.is_empty() && samples.iter().all(|(device, ..)| device == "GPU-1"), "{samples:?}");
    let asked = lost.asked(Query::PowerInstant);
    assert_eq!(round(&mut collector, 100).1, Ok(()), "once");
    assert_eq!(lost.asked(Query::PowerInstant), asked, "and left in peace");
    kept.falls_off();
    assert!(round(&mut collector, 150).1.is_err());
    assert_eq!(round(&mut collector, 200), (Vec::new(), Ok(())));
}

#[test]
fn a_gpu_that_is_lost_before_the_first_round_is_reported_then() {
    let script = Script::default();
    let mut collector = collector([script.clone()]);
    script.falls_off();
    assert_eq!(collector.describe()["gpus"][0]["missing"]["hw_power_watts"], "the GPU is lost");
    assert!(round(&mut collector, 0).1.is_err());
    assert_eq!(round(&mut collector, 50).1, Ok(()));
}

#[test]
fn a_round_without_any_answer_is_an_error() {
    let script = Script::default();
    Query::ALL.into_iter().for_each(|query| script.fails(query, Failure::Transient("in use".into())));
    let told = round(&mut collector([script]), 0).1.expect_err("nothing was read");
    assert!(told.contains("in use"), "{told}");
}

#[test]
fn the_machine_is_described() {
    let script = Script::default().missing(Query::Energy, "not available");
    let mut collector = collector([Script::default(), script.clone()]);
    let facts = collector.describe();
    assert_eq!((&facts["nvidia_driver"], &facts["cuda_driver_version"]), (&json!("580.82.07"), &json!("13.0")));
    assert_eq!(facts["gpus"][1]["uuid"], "GPU-1");
    assert_eq!(facts["gpus"][1]["index"], 1);
    assert_eq!(facts["gpus"][1]["missing"]["hw_energy_joules_total"], "not available");
    assert!(facts["gpus"][0].get("memory_bytes").is_none(), "what is not known is left out");
    assert!(
        facts["peaks"].as_array().is_some_and(|all| all.iter().any(|p| p["dtype"] == "bf16" && p["value"] == 989e12))
    );
    assert_eq!(round(&mut collector, 0).1, Ok(()));
    assert_eq!(script.asked(Query::Energy), 1, "what the description found missing is not asked again");
}

#[test]
fn peaks_are_told_only_where_they_hold_for_every_gpu() {
    let described = |change: fn(&mut GpuFacts)| {
        let mut machine = machine([Script::default(), Script::default()]);
        change(&mut machine.gpus[1].0);
        NvmlCollector::of(machine, NvmlCollector::builder()).expect("GPUs").describe().contains_key("peaks")
    };
    assert!(described(|_| {}));
    assert!(!described(|facts| facts.name = Some("NVIDIA B200".into())), "which of the two did the work?");
    assert!(!described(|facts| facts.mig = Some(true)));
    assert!(!described(|facts| facts.name = None));
}

#[test]
fn only_the_gpus_asked_for_are_sampled() {
    let scripts = [Script::default(), Script::default(), Script::default()];
    let options = NvmlCollector::builder().only(["GPU-2"]).only([0]);
    let mut collector = NvmlCollector::of(machine(scripts.clone()), options).expect("they are there");
    assert_eq!(collector.gpus().map(|facts| facts.index).collect::<Vec<_>>(), [0, 2]);
    let (samples, _) = round(&mut collector, 0);
    let devices: std::collections::BTreeSet<_> = samples.into_iter().map(|(device, ..)| device).collect();
    assert_eq!(devices.into_iter().collect::<Vec<_>>(), ["GPU-0", "GPU-2"]);
    assert_eq!(scripts[1].asked(Query::PowerInstant), 0);
    let error = NvmlCollector::of(machine(scripts), NvmlCollector::builder().only(["GPU-7"])).expect_err("no such GPU");
    assert!(matches!(error, Unavailable::NotThatGpu { several: false, .. }), "{error}");
}

/// Without NVML the error has to say what to do; with NVML its figures have to be plausible. Which of the two is tested
/// depends on the machine.
#[test]
fn this_machine_is_sampled_or_says_why_not() {
    let loads = nvml_wrapper::Nvml::init();
    let mut collector = match (loads, NvmlCollector::new()) {
        (Err(_), outcome) => {
            let text = outcome.expect_err("NVML does not load").to_string();
            assert_eq!(probe().expect_err("nor here").to_string(), text);
            assert!(text.contains(": ") && !text.contains('\n'), "a cause and a remedy in one line: {text}");
            return;
        }
        (Ok(_), Err(error)) => {
            assert!(matches!(error, Unavailable::NoGpu(_)), "{error}");
            return;
        }
        (Ok(_), Ok(collector)) => collector,
    };
    let report = probe().expect("the same GPUs");
    assert_eq!(report.gpus.len(), collector.gpus().count());
    assert!(report.gpus.iter().all(|gpu| gpu.facts.uuid.starts_with("GPU-")), "{report:?}");
    let (first, outcome) = run(|out| collector.sample(out));
    assert_eq!(outcome, Ok(()));
    let (last, _) = run(|out| collector.last(out));
    for (device, metric, value) in first.iter().chain(&last) {
        let plausible = match *metric {
            "hw_power_watts" => 1.0..5_000.0,
            "hw_temperature_celsius" => 1.0..130.0,
            "hw_gpu_utilization_ratio" | "candlescope_gpu_memory_busy_ratio" => 0.0..1.000_1,
            "candlescope_gpu_clock_hertz_sm" | "candlescope_gpu_clock_hertz_memory" => 1e7..1e11,
            "hw_gpu_memory_limit_bytes" => 1e8..1e13,
            _ => 0.0..1e15,
        };
        assert!(plausible.contains(value), "{device} {metric} {value}");
    }
    let told: Vec<&str> = last.iter().map(|(_, metric, _)| *metric).collect();
    for gpu in report.gpus {
        let blocking = |name: &&&str| name.contains("pcie_throughput");
        for name in gpu.available.iter().filter(|name| !blocking(name)) {
            assert!(told.contains(name), "{name} is available and was not sampled");
        }
    }
}
