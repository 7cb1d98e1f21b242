//! Predictions from measured kernels.

use candlescope_predict::roofline::{KernelStudy, Outlook, Scenario, TimeSource};
use candlescope_report::roofline::{static_json, static_text};
use candlescope_work::devices::{Device, Format, known_device};
use candlescope_work::known_models::known_model;
use serde_json::{Value, json};

/// A kernel that took so many nanoseconds.
fn row(op: &str, dtype: &str, shape: &str, ns: f64, flops: Option<f64>, bytes: f64) -> Value {
    json!({ "op": op, "dtype": dtype, "shape": shape, "cache": "flushed", "median_ns": ns + 2000.0, "kernel_ns": ns,
        "flops": flops, "io_bytes": bytes })
}

/// A product that reads weights at 2 TB/s after 3 µs.
fn linear(m: u64, n: u64, k: u64) -> Value {
    let bytes = 2.0 * (m * k + k * n + m * n) as f64;
    row("linear", "bf16", &format!("m={m} n={n} k={k}"), 3000.0 + bytes / 2e3, Some(2.0 * (m * n * k) as f64), bytes)
}

/// Every kernel of a token of SmolLM2 with 1,000 of context, but for products of its head.
fn kernels(context: &[u64]) -> Vec<Value> {
    let mut all: Vec<Value> =
        [(576, 576), (192, 576), (1536, 576), (576, 1536)].iter().map(|(n, k)| linear(1, *n, *k)).collect();
    let small = |op: &str, dtype: &str, shape: &str| row(op, dtype, shape, 1500.0, None, 4096.0);
    all.extend([
        small("rmsnorm", "bf16", "rows=1 width=576"),
        small("embedding", "bf16", "tokens=1 vocab=49152 width=576"),
        small("rotary", "bf16", "batch=1 heads=9 tokens=1 head=64"),
        small("rotary", "bf16", "batch=1 heads=3 tokens=1 head=64"),
        small("swiglu", "bf16", "rows=1 width=1536"),
        small("add", "bf16", "rows=1 width=576"),
        small("argmax", "f32", "batch=1 vocab=49152"),
    ]);
    for c in context {
        let (shape, bytes) = (format!("batch=1 heads=9 kv_heads=3 head=64 tokens=1 context={c}"), (c * 400) as f64);
        let flops = Some((c * 1152) as f64);
        all.push(row("attention_scores", "bf16", &shape, 10.0 * *c as f64, flops, bytes));
        all.push(row("attention_context", "bf16", &shape, 10.0 * *c as f64, flops, bytes));
        let shape = format!("batch=1 heads=9 tokens=1 context={c}");
        all.push(row("attention_softmax", "bf16", &shape, 20.0 * *c as f64, None, (c * 54) as f64));
    }
    all
}

fn study(rows: Vec<Value>) -> KernelStudy {
    let text = json!({ "format": "candlescope-kernels", "format_version": 1, "rows": rows }).to_string();
    KernelStudy::read(&text, Some(r#"{ "environment": { "device": { "name": "NVIDIA H200" } } }"#)).unwrap()
}

fn outlook(device: &Device, rows: Vec<Value>, context: u64) -> Outlook {
    let scenario = Scenario::new(Format::named("bf16").unwrap()).tokens(8, 8).context(Some(context));
    Outlook::of(&known_model("smollm2-135m").unwrap(), device, &scenario).with_kernels(&study(rows))
}

fn on_device() -> Device {
    Device { launch: None, ..known_device("H200").unwrap() }
}

#[test]
fn a_token_takes_what_its_kernels_took() {
    let mut rows = kernels(&[1000]);
    rows.push(linear(1, 49_152, 576));
    let told = outlook(&on_device(), rows.clone(), 1000);
    let found = told.from_kernels.as_ref().unwrap();
    let bytes = |n: f64, k: f64| 2.0 * (k + k * n + n);
    let product = |n, k| 3000.0 + bytes(n, k) / 2e3;
    let layer = 2.0 * product(576.0, 576.0) + 2.0 * product(192.0, 576.0) + 2.0 * product(1536.0, 576.0)
        + product(576.0, 1536.0)
        // Scores, softmax, context; two norms, two rotations, the activation, two sums.
        + 40_000.0 + 7.0 * 1500.0;
    let measured = 30.0 * layer + product(49_152.0, 576.0) + 3.0 * 1500.0;
    let by_name = |name: &str| found.decode.operations.iter().find(|time| time.operation == name).unwrap();
    // The cache and the type of the logits are nowhere measured: they stay at their roofs, and the share is told.
    let at_roof = ["kv_cache", "logits"].map(|name| by_name(name).ns.unwrap()).iter().sum::<f64>();
    assert!((found.decode.device_ns.unwrap() / (measured + at_roof) - 1.0).abs() < 1e-9, "{found:?}");
    assert!((found.decode.measured_share.unwrap() - measured / (measured + at_roof)).abs() < 1e-9);
    assert_eq!((&by_name("q_proj").source, &by_name("kv_cache").source), (&TimeSource::Measured, &TimeSource::Roof));
    // Launches on the host come on top, as with roofs.
    let launched = outlook(&known_device("H200").unwrap(), rows, 1000);
    let both = (launched.from_kernels.unwrap().decode.ns.unwrap().mid, launched.decode.launches_ns.unwrap().mid);
    assert_eq!(both.0, both.1, "a small model is bound by its launches");
    let written = static_json(&told);
    assert_eq!(written["from_kernels"]["decode"]["operations"][1]["from"], "measured");
}

#[test]
fn a_shape_between_two_measured_ones_is_interpolated_along_one_size() {
    let with = |contexts: &[u64], asked: u64| {
        let mut rows = kernels(contexts);
        rows.push(linear(1, 49_152, 576));
        outlook(&on_device(), rows, asked).from_kernels.unwrap()
    };
    // Time grows with the bytes, so that between two measured contexts it is what it was measured to be.
    let (exact, between) = (with(&[1000], 1000), with(&[250, 4000], 1000));
    let source = |found: &candlescope_predict::roofline::FromKernels, name: &str| {
        let own = found.decode.operations.iter().find(|time| time.operation == name).unwrap();
        (own.ns, own.source.clone())
    };
    for name in ["scores", "softmax", "context"] {
        let ((a, _), (b, how)) = (source(&exact, name), source(&between, name));
        assert!((a.unwrap() / b.unwrap() - 1.0).abs() < 1e-9, "{name}: {a:?} {b:?}");
        assert!(matches!(&how, TimeSource::Interpolated(along) if along.ends_with("along context")), "{how:?}");
    }
    // Outside, on one side only, or off in two sizes at once: no time, no sum, and the command that measures it.
    for (contexts, asked) in [(&[250, 500][..], 1000), (&[2000, 4000], 1000), (&[2000], 1000)] {
        let found = with(contexts, asked);
        let (ns, how) = source(&found, "softmax");
        assert!(ns.is_none() && matches!(how, TimeSource::Missing(_)), "{contexts:?}: {how:?}");
        assert_eq!((found.decode.ns, found.decode.device_ns, found.decode.measured_share), (None, None, None));
        let command = "candlescope bench kernels --ops attention_softmax --dtype bf16 --sizes \
                       'batch=1;heads=9;tokens=1;context=1000'";
        assert!(found.to_measure.iter().any(|line| line == command), "{:?}", found.to_measure);
    }
}

#[test]
fn what_was_not_measured_has_no_time() {
    // Without the head's product.
    let told = outlook(&on_device(), kernels(&[1000]), 1000);
    let found = told.from_kernels.as_ref().unwrap();
    assert_eq!(found.decode.ns, None);
    assert!(found.to_measure.iter().any(|line| line.contains("--ops linear --dtype bf16 --sizes 'm=1;n=49152;k=576'")));
    // So wide that the sentence stays on one line.
    let text = static_text(&told, usize::MAX);
    assert!(text.contains("From measured kernels") && text.contains("was not measured at m=1 n=49152 k=576"), "{text}");
    // A type that was not measured says so.
    let f32 = Scenario::new(Format::named("f32").unwrap());
    let shape = known_model("smollm2-135m").unwrap();
    let other = Outlook::of(&shape, &on_device(), &f32).with_kernels(&study(kernels(&[1000]))).from_kernels.unwrap();
    let head = other.decode.operations.iter().find(|time| time.operation == "lm_head").unwrap();
    assert_eq!(head.source, TimeSource::Missing("no `linear` in f32 was measured".to_string()));
}

#[test]
fn what_is_missing_is_one_command() {
    let told = outlook(&known_device("H200").unwrap(), kernels(&[1000]), 1000).asked_as("smollm2-135m", false);
    let found = told.from_kernels.as_ref().unwrap();
    let command = "candlescope bench kernels --for smollm2-135m --batch 1 --prompt 8 --context 1000 --dtype bf16 --device \
                   cuda:0";
    assert_eq!(found.measure_all.as_deref(), Some(command));
    let text = static_text(&told, 200);
    assert!(text.contains(command) && !text.contains("--ops"), "{text}");
    assert!(found.to_measure.len() > 10, "each by itself stays in the JSON");
    // The shapes of the model are those of the steps: what was measured, and what was not.
    let all = told.kernels();
    let named: Vec<String> = all
        .iter()
        .map(|kernel| {
            let sizes: Vec<String> = kernel.sizes.iter().map(|(name, value)| format!("{name}={value}")).collect();
            format!("--ops {} --dtype {} --sizes '{}'", kernel.op, kernel.dtype, sizes.join(";"))
        })
        .collect();
    for missing in &found.to_measure {
        assert!(named.iter().any(|name| missing.ends_with(name.as_str())), "{missing} is not in {named:?}");
    }
    let norm = named.iter().filter(|name| name.contains("rmsnorm") && name.ends_with("'rows=1;width=576'")).count();
    assert_eq!(norm, 1, "each shape once, the measured ones too");
    // A file with a space in its name, a run, and nothing missing.
    let odd = outlook(&on_device(), kernels(&[1000]), 1000).asked_as("it's mine/config.json", true);
    let command = odd.from_kernels.unwrap().measure_all.unwrap();
    assert_eq!(command, "candlescope bench kernels --for \"it's mine/config.json\" --device cuda:0");
}

#[test]
fn studies_of_one_device_are_joined() {
    let head = linear(1, 49_152, 576);
    let whole = study([kernels(&[1000]), vec![head.clone()]].concat());
    let joined = study(kernels(&[1000])).joined(study(vec![head.clone()])).unwrap();
    assert_eq!(joined.len(), whole.len());
    let (shape, scenario) = (known_model("smollm2-135m").unwrap(), Scenario::new(Format::named("bf16").unwrap()));
    let scenario = scenario.tokens(8, 8).context(Some(1000));
    let of = |study: &KernelStudy| {
        Outlook::of(&shape, &on_device(), &scenario).with_kernels(study).from_kernels.unwrap().decode.device_ns
    };
    assert!(of(&joined).is_some() && of(&joined) == of(&whole));
    // Of a shape that both have, the later one counts.
    let mut slow = head;
    slow["kernel_ns"] = 1e9.into();
    assert!(of(&joined.clone().joined(study(vec![slow])).unwrap()).unwrap() > 1e9);
    let other = json!({ "rows": [linear(1, 2, 3)] }).to_string();
    let other = KernelStudy::read(&other, Some(r#"{ "environment": { "device": { "name": "NVIDIA L4" } } }"#)).unwrap();
    assert!(joined.joined(other).unwrap_err().to_string().contains("NVIDIA L4"));
}

#[test]
fn warm_caches_stand_behind_flushed_ones() {
    let mut rows = kernels(&[1000]);
    rows.push(linear(1, 49_152, 576));
    let plain = outlook(&on_device(), rows.clone(), 1000).from_kernels.unwrap().decode.device_ns;
    let mut warm = linear(1, 49_152, 576);
    (warm["cache"], warm["kernel_ns"]) = ("warm".into(), 1.0.into());
    rows.insert(0, warm);
    assert_eq!(outlook(&on_device(), rows, 1000).from_kernels.unwrap().decode.device_ns, plain);
}

#[test]
fn a_study_that_cannot_be_used_is_named() {
    let says = |text: &str| KernelStudy::read(text, None).unwrap_err().to_string();
    assert!(says("nonsense").contains("not JSON"));
    assert!(says("{}").contains("no table of kernels"));
    assert!(says(r#"{ "rows": [ { "case": 1 } ] }"#).contains("`op`"));
    let failed = r#"{ "rows": [ { "op": "linear", "dtype": "bf16", "shape": "m=1", "median_ns": null } ] }"#;
    assert!(says(failed).contains("no kernel with a time"));
    let unknown = KernelStudy::read(&json!({ "rows": [linear(1, 2, 3)] }).to_string(), Some("{}")).unwrap();
    assert!(unknown.device().is_none() && unknown.device_name().is_none() && unknown.len() == 1);
    assert_eq!(study(kernels(&[10])).device().unwrap().name, known_device("H200").unwrap().name);
}
