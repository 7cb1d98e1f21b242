//! Peaks fitted to latencies that a known device made.

use candlescope_analysis::devices::{
    Attained, ByClass, Cost, Device, Format, Multiply, OperationClass, known_device, peaks_device,
};
use candlescope_analysis::render::roofline::{calibration_json, calibration_markdown, calibration_text};
use candlescope_analysis::roofline::{
    Calibration, CalibrationRun, Figure, Form, HeldOut, LeftOut, Outlook, Scenario, StepPrediction, calibrate,
    known_model,
};
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
    assert_eq!((found.form, found.runs, found.cases, found.models, found.latencies), (Form::Roof, 5, 5, 4, 10));
    assert_eq!(found.held_out.len(), 30, "fitted, without the case, and without the model");
    let mut errors: Vec<f64> = without(&found, LeftOut::Case).map(|held| held.error.abs()).collect();
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
    assert!(text.contains("bandwidth") && text.contains("10 latencies of 5 runs"), "{text}");
    let table = calibration_markdown(&found);
    assert!(
        table.contains("| time per output token | the model | 5 |") && table.contains("| smollm2-135m x 1 |"),
        "{table}"
    );
}

fn without(found: &Calibration, left_out: LeftOut) -> impl Iterator<Item = &HeldOut> {
    found.held_out.iter().filter(move |held| held.left_out == left_out)
}

#[test]
fn what_runs_do_not_feel_is_not_determined() {
    // Three runs that launches bound: they say nothing of bandwidth.
    let device = truth();
    let runs = ["smollm2-135m", "smollm2-360m", "gpt2"].map(|model| run(model, 1, 8, &device, &mut || 1.0));
    let found = calibrate(&runs, &device).unwrap();
    let of = |kind: &str| found.fitted.iter().find(|fitted| fitted.kind == kind).unwrap();
    assert!(of("launch").determined && (of("launch").value / 6e-6 - 1.0).abs() < 0.05, "{:?}", found.fitted);
    assert!(!of("read").determined && of("read").interval.is_none(), "{:?}", found.fitted);
    assert!(calibration_text(&found, 120).contains("not determined by these runs"));
}

#[test]
fn too_few_cases_are_refused() {
    let device = truth();
    let twice = |model: &str| [1, 2].map(|_| run(model, 1, 8, &device, &mut || 1.0));
    let runs = [twice("smollm2-135m"), twice("gpt2")].concat();
    let message = calibrate(&runs, &device).unwrap_err().to_string();
    assert!(message.starts_with("2 cases") && message.contains("at least 3"), "{message}");
    assert!(calibrate(&[], &device).unwrap_err().to_string().contains("no run has a latency"));
}

/// What kernels of candle were seen to take on an H200, in round numbers.
fn fine_truth() -> Device {
    let attained = Attained {
        bandwidth: ByClass {
            projections: 4.4e12,
            attention: 1.2e12,
            softmax: 0.6e12,
            activations: 1.1e12,
            pointwise: 0.9e12,
        },
        attention_flops: 120e12,
        product_ns: 3_400.0,
        kernel_ns: 1_200.0,
        serial_ns: 260.0,
        product_launch_ns: 4_000.0,
        strided_launch_ns: 5_000.0,
    };
    let mut device = known_device("H200").unwrap();
    device.flops = [(Multiply::Bf16, 640e12)].into();
    device.bandwidth = attained.bandwidth.projections;
    (device.launch, device.sync, device.attained) = (Some(Cost::exact(6_000.0)), Some(40_000.0), Some(attained));
    device
}

/// Latencies, and kernels by kind.
fn recorded(model: &str, batch: u64, prompt: u64, device: &Device, noise: &mut impl FnMut() -> f64) -> CalibrationRun {
    let mut made = run(model, batch, prompt, device, noise);
    let outlook = Outlook::of(&made.shape, device, &made.scenario);
    for class in OperationClass::ALL {
        let of = |step: &StepPrediction| -> f64 {
            let own = step.operations.iter().filter(|timed| timed.operation.class == class);
            own.map(|timed| timed.device_ns.unwrap()).sum()
        };
        made.measured.push((Figure::PrefillOf(class), of(&outlook.prefill) * noise()));
        made.measured.push((Figure::DecodeOf(class), of(&outlook.decode) * noise()));
    }
    made
}

#[test]
fn rates_by_kind_of_operation_are_found_again() {
    let device = fine_truth();
    let mut random = StdRng::seed_from_u64(3);
    let mut noise = move || 1.0 + 0.02 * (random.random::<f64>() - 0.5);
    let models = ["smollm2-135m", "gpt2", "qwen2.5-7b", "llama-3-8b"];
    let asked = [(1, 32), (1, 900), (16, 128)];
    let mut runs: Vec<CalibrationRun> = Vec::new();
    for model in models {
        runs.extend(asked.map(|(batch, prompt)| recorded(model, batch, prompt, &device, &mut noise)));
    }
    // One case again, 10 % slower: a repetition, not a case.
    let mut again = runs[0].clone();
    again.measured.iter_mut().for_each(|(_, ns)| *ns *= 1.1);
    runs.push(again);
    let found = calibrate(&runs, &device).unwrap();
    assert_eq!((found.form, found.runs, found.cases, found.models), (Form::Attained, 13, 12, 4));
    let near = |kind: &str, of: Option<OperationClass>, truth: f64, within: f64| {
        let fitted = found.fitted.iter().find(|fitted| (fitted.kind, fitted.of) == (kind, of)).unwrap();
        assert!(fitted.determined && (fitted.value / truth - 1.0).abs() < within, "{fitted:?} for {truth}");
        let (low, high) = fitted.interval.unwrap();
        assert!(low <= fitted.value && fitted.value <= high, "{fitted:?}");
    };
    near("read", Some(OperationClass::Projections), 4.4e12, 0.05);
    near("flops", None, 640e12, 0.05);
    // What launching a product costs beyond it is fitted beside it: the two share what the latencies tell.
    near("launch", None, 6e-6, 0.20);
    near("product", None, 3.4e-6, 0.10);
    near("serial", None, 260e-9, 0.10);
    let bandwidth = found.fitted.iter().find(|fitted| fitted.of == Some(OperationClass::Projections)).unwrap();
    assert!((bandwidth.share.unwrap() / (bandwidth.value / 4800e9) - 1.0).abs() < 1e-12);
    // The account: each figure of each run three times, the last two from fits that did not know it.
    assert_eq!(found.held_out.len(), 3 * 13 * 12);
    for summary in found.errors.iter().filter(|s| s.model.is_none() && s.figure == Figure::Tpot) {
        assert_eq!(summary.n, 13);
        assert!(summary.median_absolute < 0.05, "{summary:?}");
    }
    let twice: Vec<_> = found.repeats.iter().filter(|repeat| repeat.figure == Figure::Tpot).collect();
    assert!(twice.len() == 1 && twice[0].n == 1 && (twice[0].median - 0.1).abs() < 1e-9, "{twice:?}");

    // The file keeps all of it, and predicts the same.
    let read = peaks_device(&calibration_json(&found).to_string(), None).unwrap();
    let of = |device: &Device| {
        let outlook = Outlook::of(&runs[4].shape, device, &runs[4].scenario);
        [outlook.prefill.ns.unwrap().mid, outlook.decode.ns.unwrap().mid]
    };
    let (again, fitted) = (of(&read), of(&found.device));
    assert!((0..2).all(|at| (again[at] / fitted[at] - 1.0).abs() < 1e-9), "{again:?} {fitted:?}");
    let spoiled = calibration_json(&found).to_string().replace("\"softmax\":", "\"softmax\":-");
    assert!(peaks_device(&spoiled, None).is_err_and(|error| error.to_string().contains("`attained`")), "{spoiled}");
}

/// A model that nothing else is like: whoever left it out cannot know it, and the account has to say so.
#[test]
fn a_model_left_out_is_not_known() {
    let device = truth();
    let mut runs: Vec<CalibrationRun> = [("qwen2.5-7b", 1), ("qwen2.5-7b", 8), ("llama-3-8b", 1), ("llama-2-13b", 1)]
        .map(|(model, batch)| run(model, batch, 512, &device, &mut || 1.0))
        .into();
    runs.push(run("smollm2-135m", 1, 512, &device, &mut || 3.0));
    let found = calibrate(&runs, &device).unwrap();
    let error = |left_out, model: &str| {
        let mut own = without(&found, left_out).filter(|held| held.model == model && held.figure == Figure::Tpot);
        own.next().unwrap().error
    };
    // Large models say no more of launches than that they cannot cost much more than 6 µs; measured was three times that.
    assert!(error(LeftOut::Model, "smollm2-135m") < -0.4, "{}", error(LeftOut::Model, "smollm2-135m"));
    assert!(error(LeftOut::Nothing, "smollm2-135m") > error(LeftOut::Model, "smollm2-135m"));
    assert_eq!(without(&found, LeftOut::Model).count(), 10);
}
