//! Made-up runs with known utilisation against their roofs.

use crate::common::{self, path, request, span, step, write_run};
use candlescope_document::html;
use candlescope_figures::Analysis;
use candlescope_figures::KernelLaunch;
use candlescope_predict::roofline::{
    Bound, CalibrationRun, Figure, Grade, Point, PointKind, RunRoofline, Status, Thresholds, batch_and_context,
};
use candlescope_reader::Run;
use candlescope_report::roofline::{dynamic_document, dynamic_json, dynamic_text};
use candlescope_schema::run::{GpuAccount, GpuDeviceAccount, RunManifest};
use candlescope_schema::{Batch, PathInfo, Phase};
use candlescope_work::devices::{Multiply, known_device};
use candlescope_work::shape::ModelShape;
use serde_json::{Value, json};
use std::path::Path;

const MS: u64 = 1_000_000;

/// Ten decoding steps of 10 ms, each with two layers of one product: 40 MFLOP and 40 MB in 4 ms each. The machine has 1
/// TFLOP/s and 20 GB/s, so a product reaches 10 of 20 GB/s.
fn batch() -> Batch {
    let mut batch = Batch::default();
    let mut asked = request(1, 0, 105 * MS);
    (asked.prompt_tokens, asked.output_tokens, asked.batch) = (Some(8), Some(11), Some(1));
    (asked.ttft_ns, asked.last_token_ns) = (Some(5 * MS), Some(105 * MS));
    batch.requests.push(asked);
    for at in 0..10u64 {
        let start = (5 + 10 * at) as i64 * MS as i64;
        let mut made = step(at, "decode", start, 10 * MS);
        (made.phase, made.request, made.context_len, made.batch) =
            (Some(Phase::Decode), Some(1), Some(9 + at as u32), Some(1));
        (made.tokens, made.flops, made.bytes, made.io_bytes) =
            (Some(1), Some(80_000_000), Some(70_000_000), Some(80_000_000));
        batch.steps.push(made);
        let mut whole = span(10 * at, None, "decode", start, 10 * MS);
        (whole.step, whole.phase) = (Some(at), Some(Phase::Decode));
        batch.spans.push(whole);
        for layer in 0..2u64 {
            let name = format!("decode/block[{layer}]/down_proj");
            let begin = start + (layer * 5 * MS) as i64;
            let mut product = span(10 * at + layer + 1, Some(10 * at), &name, begin, 4 * MS);
            (product.step, product.phase) = (Some(at), Some(Phase::Decode));
            (product.flops, product.bytes) = (Some(40_000_000), Some(35_000_000));
            product.io_bytes = Some(40_000_000);
            batch.spans.push(product);
        }
    }
    batch
}

fn manifest(peaks: Value) -> RunManifest {
    let mut manifest = common::manifest(&batch());
    manifest.environment.insert("peaks".into(), peaks);
    manifest.environment.insert("cpu_model".into(), "a processor".into());
    let model = json!({
        "name": "embedded", "architecture": "llama", "quantization": "f32", "dtype": "f32", "compute_dtype": "f32",
        "vocab_size": 259, "hidden_size": 128, "intermediate_size": 384, "layers": 4, "heads": 4, "kv_heads": 2,
        "head_dim": 32, "context_length": 2048, "parameters": 853_888,
    });
    manifest.model = model.as_object().unwrap().clone().into_iter().collect();
    manifest
}

fn machine() -> Value {
    json!([
        { "kind": "flops", "value": 1e12, "label": "measured", "source": "made up", "dtype": "f32" },
        { "kind": "bandwidth", "value": 20e9, "label": "measured", "source": "made up" },
        { "kind": "flops", "value": 2e12, "label": "datasheet", "source": "paper", "dtype": "f32" },
        { "kind": "bandwidth", "value": 40e9, "label": "datasheet", "source": "paper" },
    ])
}

fn open(dir: &Path, batch: &Batch, manifest: &RunManifest) -> (Run, Analysis) {
    write_run(dir, batch, manifest, 1000);
    let run = Run::open(dir).unwrap();
    let analysis = Analysis::of(&run);
    (run, analysis)
}

fn find<'a>(measured: &'a RunRoofline, kind: PointKind, name: &str) -> &'a Point {
    let found = measured.points.iter().find(|point| point.kind == kind && point.name == name);
    found.unwrap_or_else(|| panic!("no {name} in {:#?}", measured.points))
}

fn near(a: Option<f64>, b: f64) -> bool {
    a.is_some_and(|a| (a / b - 1.0).abs() < 1e-6)
}

#[test]
fn points_stand_where_their_work_and_time_put_them() {
    let dir = tempfile::tempdir().unwrap();
    let (run, analysis) = open(dir.path(), &batch(), &manifest(machine()));
    let measured = RunRoofline::of(&run, &analysis, None, &Thresholds::default());
    let product = find(&measured, PointKind::Operator, "decode/block/down_proj");
    assert!(near(product.flops_per_s, 10e9) && near(product.bytes_per_s, 10e9) && near(product.intensity, 1.0));
    assert_eq!((product.calls, product.over, product.ns), (20, "host", Some(4e6)));
    let [by_measure, by_paper] = product.under.as_slice() else { panic!("{:?}", product.under) };
    assert!(near(by_measure.utilisation, 0.5) && near(by_paper.utilisation, 0.25));
    assert!(near(by_measure.ridge, 50.0) && near(by_measure.attainable_flops, 20e9));
    assert_eq!((by_measure.bound, &by_measure.status), (Some(Bound::Memory), &Status::Ok));
    let phase = find(&measured, PointKind::Phase, "decode");
    assert!(near(phase.utilisation(), 0.4), "{:?}", phase.under);
    assert_eq!(measured.bottlenecks[0].bound, Some(Bound::Overhead), "40 % of the roof");
    assert!(measured.bottlenecks[0].evidence.contains("mostly that of memory"), "{:?}", measured.bottlenecks);
    let mut low = machine();
    low[1]["value"] = json!(10e9);
    let (run_low, of_low) = open(&dir.path().join("low"), &batch(), &manifest(low));
    let low = RunRoofline::of(&run_low, &of_low, None, &Thresholds::default());
    assert_eq!(low.bottlenecks[0].bound, Some(Bound::Memory), "80 %");
    // Ratings: 5 ms, 10 ms, no use of a GPU, 11 tokens in 105 ms.
    let grades: Vec<Grade> = measured.ratings.iter().map(|rating| rating.grade).collect();
    assert_eq!(grades, [Grade::Good, Grade::Good, Grade::Unknown, Grade::Bad]);
    let strict = Thresholds::default().with("ttft=1,6").unwrap().with("throughput=104,50").unwrap();
    let grades: Vec<Grade> = RunRoofline::of(&run, &analysis, None, &strict).ratings.iter().map(|r| r.grade).collect();
    assert_eq!(grades[0], Grade::Fair);
    assert_eq!(grades[3], Grade::Good);
    for wrong in ["ttft", "ttft=5", "ttft=9,5", "speed=1,2", "throughput=1,2", "utilisation=0.5,7"] {
        assert!(Thresholds::default().with(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn only_a_phase_has_the_roof_of_all_devices() {
    let dir = tempfile::tempdir().unwrap();
    let mut manifest = manifest(machine());
    let devices = vec![GpuDeviceAccount::default(), GpuDeviceAccount::default()];
    manifest.gpu = Some(GpuAccount { devices, ..GpuAccount::default() });
    let (run, analysis) = open(dir.path(), &batch(), &manifest);
    let measured = RunRoofline::of(&run, &analysis, None, &Thresholds::default());
    assert_eq!(measured.roofs[0].devices(), 2);
    assert!(near(find(&measured, PointKind::Phase, "decode").utilisation(), 0.2));
    assert!(near(find(&measured, PointKind::Operator, "decode/block/down_proj").utilisation(), 0.5));
    assert!(near(measured.layers[0].cells[0][0].and_then(|cell| cell.utilisation), 0.5));
}

#[test]
fn above_the_roof_is_invalid_and_never_clipped() {
    let dir = tempfile::tempdir().unwrap();
    let low = json!([
        { "kind": "flops", "value": 1e12, "label": "measured", "source": "made up", "dtype": "f32" },
        { "kind": "bandwidth", "value": 5e9, "label": "measured", "source": "made up" },
    ]);
    let (run, analysis) = open(dir.path(), &batch(), &manifest(low));
    let measured = RunRoofline::of(&run, &analysis, None, &Thresholds::default());
    let product = find(&measured, PointKind::Operator, "decode/block/down_proj");
    assert!(near(product.under[0].utilisation, 2.0));
    assert_eq!(product.status(), Status::Invalid("2.00 times what the measured roof allows".into()));
    assert_eq!(product.utilisation(), None, "nobody takes it for a figure");
    let cells: Vec<f64> = measured.layers[0].cells.iter().flatten().flatten().filter_map(|c| c.utilisation).collect();
    assert!(cells.iter().all(|share| (share - 2.0).abs() < 1e-6), "{cells:?}");
    let page = html::page(&dynamic_document(std::slice::from_ref(&measured), None));
    assert!(page.contains("200.0 %") && page.contains("invalid: 2.00 times"), "shown as it is");
}

#[test]
fn what_a_run_lacks_is_said() {
    let dir = tempfile::tempdir().unwrap();
    // Without peaks.
    let (run, analysis) = open(&dir.path().join("a"), &batch(), &manifest(json!([])));
    let bare = RunRoofline::of(&run, &analysis, None, &Thresholds::default());
    let product = find(&bare, PointKind::Operator, "decode/block/down_proj");
    assert!(matches!(product.status(), Status::DataMissing(why) if why.contains("--gpu")), "{product:?}");
    assert!(bare.outlook_missing.as_deref().is_some_and(|why| why.contains("--peaks")), "{:?}", bare.outlook_missing);
    assert!(bare.layers[0].cells[0][0].is_some_and(|cell| cell.utilisation.is_none() && cell.ns == 4e6));
    // A device by its datasheet.
    let named = RunRoofline::of(&run, &analysis, Some(&known_device("EPYC-7763").unwrap()), &Thresholds::default());
    assert!(near(find(&named, PointKind::Operator, "decode/block/down_proj").utilisation(), 10e9 / 204.8e9));
    // Without activations, without the type's FLOP/s, without work at all.
    let mut thin = batch();
    thin.spans.iter_mut().filter(|s| s.seq % 10 == 1).for_each(|s| s.io_bytes = None);
    let (run, analysis) = open(&dir.path().join("b"), &thin, &manifest(machine()));
    let thin = RunRoofline::of(&run, &analysis, None, &Thresholds::default());
    let why = find(&thin, PointKind::Operator, "decode/block/down_proj").status();
    assert!(matches!(&why, Status::DataMissing(why) if why.contains("activations")), "{why:?}");
    let other = json!([
        { "kind": "flops", "value": 1e12, "label": "measured", "source": "made up", "dtype": "bf16" },
        { "kind": "bandwidth", "value": 20e9, "label": "measured", "source": "made up" },
    ]);
    let (run, analysis) = open(&dir.path().join("c"), &batch(), &manifest(other));
    let other = RunRoofline::of(&run, &analysis, None, &Thresholds::default());
    let why = find(&other, PointKind::Operator, "decode/block/down_proj").status();
    assert!(matches!(&why, Status::DataMissing(why) if why.contains("no FLOP/s for f32")), "{why:?}");
    let mut idle = batch();
    idle.spans.iter_mut().for_each(|s| (s.flops, s.bytes, s.io_bytes) = (None, None, None));
    let (run, analysis) = open(&dir.path().join("d"), &idle, &manifest(machine()));
    let idle = RunRoofline::of(&run, &analysis, None, &Thresholds::default());
    let why = find(&idle, PointKind::Operator, "decode/block/down_proj").status();
    assert!(matches!(&why, Status::DataMissing(why) if why.contains("neither FLOPs nor bytes")), "{why:?}");
    assert!(idle.layers.is_empty());
    // Dimensions that do not make the parameters.
    let mut wrong = manifest(machine());
    wrong.model.insert("parameters".into(), json!(5));
    let (run, analysis) = open(&dir.path().join("e"), &batch(), &wrong);
    let wrong = RunRoofline::of(&run, &analysis, None, &Thresholds::default());
    assert!(wrong.outlook_missing.as_deref().is_some_and(|why| why.contains("853888")), "{:?}", wrong.outlook_missing);
}

/// Quantised weights are multiplied in 8 bits, of which a processor's measured roof says nothing.
#[test]
fn wider_types_stand_in_for_eight_bits() {
    let dir = tempfile::tempdir().unwrap();
    let product = |name: &str, f32: f64| {
        let mut quantised = manifest(json!([
            { "kind": "flops", "value": f32, "label": "measured", "source": "made up", "dtype": "f32" },
            { "kind": "bandwidth", "value": 20e9, "label": "measured", "source": "made up" },
        ]));
        quantised.model.insert("compute_dtype".into(), json!("int8"));
        let (run, analysis) = open(&dir.path().join(name), &batch(), &quantised);
        let measured = RunRoofline::of(&run, &analysis, None, &Thresholds::default());
        find(&measured, PointKind::Operator, "decode/block/down_proj").under[0].clone()
    };
    // One FLOP a byte: below the ridge of 50 memory decides, above that of 0.625 those of f32 do.
    let below = product("below", 1e12);
    assert!(near(below.utilisation, 0.5) && near(below.ridge, 50.0), "{below:?}");
    assert_eq!((below.bound, below.stands_in), (Some(Bound::Memory), Some(Multiply::F32)));
    let above = product("above", 12.5e9);
    assert!(near(above.utilisation, 0.8) && near(above.ridge, 0.625), "{above:?}");
    assert_eq!(
        (above.bound, above.multiply, above.stands_in),
        (Some(Bound::Compute), Some(Multiply::Int8), Some(Multiply::F32))
    );
    // Eight bits may be faster, which is no error of measurement.
    let faster = product("faster", 5e9);
    assert!(
        matches!(&faster.status, Status::DataMissing(why) if why.contains("more than those for f32")),
        "{faster:?}"
    );
}

#[test]
fn a_prediction_stands_beside_the_measurement() {
    let dir = tempfile::tempdir().unwrap();
    let (run, analysis) = open(dir.path(), &batch(), &manifest(machine()));
    let measured = RunRoofline::of(&run, &analysis, None, &Thresholds::default());
    let outlook = measured.outlook.as_ref().expect("the run has dimensions and peaks");
    assert_eq!((outlook.scenario.prompt, outlook.scenario.output, outlook.scenario.batch), (8, 11, 1));
    assert_eq!((outlook.scenario.context, outlook.device.name.as_str()), (Some(14), "a processor"));
    assert_eq!(outlook.device.bandwidth, 20e9);
    // Keys and values in 8 bits: heads of 32 take 36 bytes, where f32 takes 128.
    let mut in_8_bits = manifest(machine());
    in_8_bits.model.insert("kv_cache_dtype".into(), json!("q8"));
    let (other, of_other) = open(&dir.path().join("8_bits"), &batch(), &in_8_bits);
    let small =
        RunRoofline::of(&other, &of_other, None, &Thresholds::default()).outlook.expect("the same, but for these");
    assert!(near(Some(small.memory.kv_a_token), outlook.memory.kv_a_token * 36.0 / 128.0), "{:?}", small.memory);
    assert_eq!(small.memory.weights, outlook.memory.weights);
    let tpot = measured.comparisons.iter().find(|c| c.figure == "time per output token").unwrap();
    assert_eq!(tpot.measured_ns, 10e6);
    assert!((tpot.error - (tpot.predicted_ns.mid / 10e6 - 1.0)).abs() < 1e-12);
    let product = find(&measured, PointKind::Operator, "decode/block/down_proj");
    // 384 × 128 f32 weights, 384 values in and 128 out, at 20 GB/s.
    assert!(near(product.predicted_ns, (384.0 * 128.0 + 512.0) * 4.0 / 20.0), "{:?}", product.predicted_ns);
}

/// In a run an encoder is a phase of its own; in a prediction it is within the prefill.
#[test]
fn kernels_of_a_prefill_are_nothing_to_fit_an_encoder_with() {
    let scenario = common::scenario::Scenario { recorded: 60, ..common::scenario::Scenario::on_gpu() };
    let figures = |architecture: &str| -> Vec<Figure> {
        let (batch, mut manifest) = common::scenario::make(&scenario);
        // With the kernels of four layers recorded, no step of one layer is a part of one.
        let shape = ModelShape::decoder("a model", (259, 128, 1), (4, 4, 32), 384).built_as(architecture);
        let model = json!({
            "name": "a model", "architecture": architecture, "quantization": "bf16", "dtype": "bf16",
            "vocab_size": 259, "hidden_size": 128, "intermediate_size": 384, "layers": 1, "heads": 4, "kv_heads": 4,
            "head_dim": 32, "parameters": shape.parameters(),
        });
        manifest.model = model.as_object().unwrap().clone().into_iter().collect();
        let dir = tempfile::tempdir().unwrap();
        let (_, analysis) = open(dir.path(), &batch, &manifest);
        let (run, _) = CalibrationRun::of("a run", &analysis).unwrap();
        let whole = |figure: &Figure| !matches!(figure, Figure::PrefillOf(_) | Figure::DecodeOf(_));
        let figures: Vec<Figure> = run.measured.into_iter().map(|(figure, _)| figure).collect();
        let of_prefill = figures.iter().any(|figure| matches!(figure, Figure::PrefillOf(_)));
        assert_eq!(of_prefill, architecture == "llama", "by kind of operation as well");
        figures.into_iter().filter(whole).collect()
    };
    let launches = [Figure::Launch(KernelLaunch::Plain), Figure::Launch(KernelLaunch::Product)];
    let all = [Figure::Ttft, Figure::Tpot, Figure::PrefillKernels, Figure::DecodeKernels];
    assert_eq!(figures("llama"), [&all[..], &launches].concat());
    assert_eq!(figures("t5"), [&[Figure::Ttft, Figure::Tpot, Figure::DecodeKernels][..], &launches].concat());
}

#[test]
fn maps_of_layers_and_of_batches_and_contexts() {
    let dir = tempfile::tempdir().unwrap();
    let mut by_module = batch();
    for span in &mut by_module.spans {
        let layer = span.seq % 10;
        if layer > 0 {
            let plain = path(&format!("decode/linear[{layer}]"));
            let mut named =
                PathInfo::new(1_000 + layer as u32, plain.path.clone(), plain.name.clone(), plain.target.clone());
            (named.rollup, named.rollup_id) = ("decode/model.layers.*.mlp.down_proj".into(), 1_000);
            named.module = Some(format!("model.layers.{}.mlp.down_proj", layer - 1).into());
            span.path = named.into();
        }
    }
    for (name, batch) in [("paths", batch()), ("modules", by_module)] {
        let (run, analysis) = open(&dir.path().join(name), &batch, &manifest(machine()));
        let measured = RunRoofline::of(&run, &analysis, None, &Thresholds::default());
        let [map] = measured.layers.as_slice() else { panic!("{name}: {:?}", measured.layers) };
        assert_eq!((map.title.as_str(), map.rows.as_slice()), ("decode", &["0".to_string(), "1".to_string()][..]));
        let expected = if name == "paths" { "down_proj" } else { "mlp.down_proj" };
        assert_eq!(map.columns, [expected]);
        let cell = map.cells[1][0].unwrap();
        assert!(cell.n == 10 && near(cell.utilisation, 0.5), "{cell:?}");
    }
    // A second run with four sequences and longer contexts.
    let mut wide = batch();
    for step in &mut wide.steps {
        (step.batch, step.context_len) = (Some(4), Some(100));
    }
    let (one, of_one) = open(&dir.path().join("paths"), &batch(), &manifest(machine()));
    let (four, of_four) = open(&dir.path().join("four"), &wide, &manifest(machine()));
    let measure = |run: &Run, analysis: &Analysis| RunRoofline::of(run, analysis, None, &Thresholds::default());
    let (a, b) = (measure(&one, &of_one), measure(&four, &of_four));
    let map = batch_and_context(&[(&one, &of_one, &a), (&four, &of_four, &b)]).expect("decoding steps");
    assert_eq!(map.rows, ["1", "4"]);
    assert_eq!(map.columns, ["8–15", "16–31", "64–127"]);
    assert_eq!(map.cells[0][0].map(|cell| cell.n), Some(7));
    assert_eq!(map.cells[0][1].map(|cell| cell.n), Some(3));
    assert!(map.cells[0][2].is_none() && near(map.cells[1][2].unwrap().utilisation, 0.4));

    let runs = [a, b];
    let json = dynamic_json(&runs, Some(&map));
    assert_eq!(json["runs"].as_array().map(Vec::len), Some(2));
    assert_eq!(json["runs"][0]["points"][0]["under"][0]["status"], "ok");
    assert_eq!(json["batch_and_context"]["rows"], json!(["1", "4"]));
    let (text, page) = (dynamic_text(&runs, Some(&map), 120), html::page(&dynamic_document(&runs, Some(&map))));
    assert!(text.contains("Bottleneck") && text.contains("neither: overhead") && text.contains("50.0 %"), "{text}");
    assert!(page.contains("Batch × context") && page.contains("mlp") || page.contains("down_proj"));
}

#[test]
fn on_a_gpu_the_device_s_time_counts_and_not_the_host_s() {
    let dir = tempfile::tempdir().unwrap();
    let (batch, manifest) = common::scenario::make(&common::scenario::Scenario::on_gpu());
    let (run, analysis) = open(dir.path(), &batch, &manifest);
    let measured = RunRoofline::of(&run, &analysis, None, &Thresholds::default());
    let of = |kind: PointKind| measured.points.iter().filter(move |point| point.kind == kind);
    let decode: Vec<&str> = of(PointKind::Phase).filter(|p| p.name == "decode").map(|p| p.over).collect();
    assert_eq!(decode, ["kernels", "stream elapsed", "wall"], "the closest to the work first");
    assert!(of(PointKind::Operator).count() > 3 && of(PointKind::Operator).all(|point| point.over != "host"));
    assert!(of(PointKind::Kernels).any(|point| point.name.starts_with("decode/") && point.name.contains(": ")));
    let used = measured.ratings.iter().find(|rating| rating.figure == "utilisation").unwrap();
    assert!(used.value.is_some_and(|share| share > 0.0 && share <= 1.0), "{used:?}");
    assert_eq!(measured.roofs.len(), 1, "the datasheet of the run; no GPU of this name is known");
    let [bound] = measured.bottlenecks.iter().filter(|b| b.phase == "decode").collect::<Vec<_>>()[..] else {
        panic!("{:?}", measured.bottlenecks)
    };
    assert!(bound.bound.is_some() || !bound.evidence.is_empty());
    // Cells of the map are of the device's time, too.
    for cell in measured.layers.iter().flat_map(|map| map.cells.iter().flatten().flatten()) {
        assert!(cell.n > 0 && cell.ns > 0.0);
    }
}
