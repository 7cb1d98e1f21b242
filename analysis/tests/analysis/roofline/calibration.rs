//! Peaks fitted to latencies that a known device made.

use candlescope_analysis::devices::{Cost, Device, Format, Multiply, known_device, peaks_device};
use candlescope_analysis::render::roofline::{calibration_json, calibration_text};
use candlescope_analysis::roofline::{CalibrationRun, Figure, Outlook, Scenario, calibrate, known_model};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

fn run(model: &str, batch: u64, prompt: u64, device: &Device, noise: &mut impl FnMut() -> f64) -> CalibrationRun {
    let shape = known_model(model).unwrap();
    let scenario = Scenario::new(Format::named("bf16").unwrap()).batch(batch).tokens(prompt, 64);
    let outlook = Outlook::of(&shape, device, &scenario);
    let measured = vec![
        (Figure::Ttft, outlook.prefill.ns.unwrap().mid * noise()),
        (Figure::Tpot, outlook.decode.ns.unwrap().mid * noise()),
    ];
    CalibrationRun { name: format!("{model} x {batch}"), shape, scenario, measured }
}

/// A device that reaches 70 % of the H200's bandwidth and 60 % of its FLOP/s.
fn truth() -> Device {
    let mut device = known_device("H200").unwrap();
    device.bandwidth *= 0.7;
    device.flops = [(Multiply::Bf16, 600e12)].into();
    (device.launch, device.kernel_floor) = (Some(Cost::exact(6_000.0)), Some(4_000.0));
    device
}

#[test]
fn known_peaks_are_found_again() {
    let device = truth();
    let mut random = StdRng::seed_from_u64(11);
    let mut noise = move || 1.0 + 0.02 * (random.random::<f64>() - 0.5);
    let runs: Vec<CalibrationRun> = [
        ("smollm2-135m", 1, 64),
        ("qwen2.5-7b", 1, 512),
        ("qwen2.5-7b", 32, 1024),
        ("llama-3-8b", 1, 2048),
        ("llama-2-13b", 4, 1024),
    ]
    .into_iter()
    .map(|(model, batch, prompt)| run(model, batch, prompt, &device, &mut noise))
    .collect();
    let found = calibrate(&runs, &device).unwrap();
    let near = |kind: &str, truth: f64| {
        let fitted = found.fitted.iter().find(|fitted| fitted.kind == kind).unwrap();
        assert!(fitted.determined && (fitted.value / truth - 1.0).abs() < 0.05, "{fitted:?} for {truth}");
        let (low, high) = fitted.interval.expect("five runs");
        assert!(low <= fitted.value && fitted.value <= high, "{fitted:?}");
    };
    near("read", 4800e9 * 0.7);
    near("flops", 600e12);
    near("launch", 6e-6);
    assert!(found.residual < 0.02, "{}", found.residual);
    assert_eq!((found.runs, found.latencies, found.held_out.len()), (5, 10, 10));
    let mut errors: Vec<f64> = found.held_out.iter().map(|held| held.error.abs()).collect();
    errors.sort_by(f64::total_cmp);
    assert!(errors[5] < 0.05, "{errors:?}");
    for held in &found.held_out {
        assert_eq!(held.error, held.predicted_ns / held.measured_ns - 1.0);
    }

    // The file is one that `--peaks` takes.
    let file = calibration_json(&found).to_string();
    let read = peaks_device(&file, None).unwrap();
    assert!((read.bandwidth / (4800e9 * 0.7) - 1.0).abs() < 0.05);
    let launch = read.launch.unwrap();
    assert!(launch.low <= launch.mid && launch.mid <= launch.high && (launch.mid / 6_000.0 - 1.0).abs() < 0.05);
    let text = calibration_text(&found, 120);
    assert!(text.contains("bandwidth") && text.contains("n 10") && text.contains("smollm2-135m x 1"), "{text}");
}

#[test]
fn what_runs_do_not_feel_is_not_determined() {
    // Two runs that launches bound: they say nothing of bandwidth.
    let device = truth();
    let runs = ["smollm2-135m", "smollm2-360m"].map(|model| run(model, 1, 8, &device, &mut || 1.0));
    let found = calibrate(&runs, &device).unwrap();
    let of = |kind: &str| found.fitted.iter().find(|fitted| fitted.kind == kind).unwrap();
    assert!(of("launch").determined && (of("launch").value / 6e-6 - 1.0).abs() < 0.05, "{:?}", found.fitted);
    assert!(!of("read").determined && of("read").interval.is_none(), "{:?}", found.fitted);
    assert!(found.held_out.is_empty(), "two runs leave too little");
    assert!(calibration_text(&found, 120).contains("not determined by these runs"));
    assert!(calibrate(&[], &device).unwrap_err().to_string().contains("no run has a latency"));
}
