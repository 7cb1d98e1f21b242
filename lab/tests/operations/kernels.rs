use crate::reference::{attention, layernorm_gelu, near, product, rms, softmax, values};
use candle_core::{DType, Device};
use candlescope_lab::kernels::*;
use candlescope_lab::method::*;
use candlescope_lab::operands::{Element, Inputs};
use candlescope_lab::study::{Manifest, Study};
use candlescope_work::devices::Roof;
use candlescope_work::input::{Input, Widths};
use candlescope_work::operation::Heads;

/// The case of a kernel's quick run.
fn quick(name: &str, element: Element) -> KernelCase {
    let kernel = by_name(name).unwrap();
    let all = cases(&[kernel], &Sizes::default(), &[element], false, true).unwrap();
    assert_eq!(all.len(), 1, "{name}: a quick run has one shape");
    all.into_iter().next().unwrap()
}

fn prepared(case: &KernelCase) -> PreparedKernel {
    case.kernel.prepare(&case.shape, case.element, &mut Inputs::new(7, &Device::Cpu)).unwrap()
}

/// FLOPs and bytes, by hand from the shapes of the quick runs.
#[test]
fn work_is_what_the_formulas_say() {
    let by_hand = [
        ("gemm", Element::F32, Some(2 * 8 * 32 * 16), (8 * 16 + 16 * 32 + 8 * 32) * 4),
        ("gemm", Element::BF16, Some(8192), 1792),
        ("linear", Element::F32, Some(2 * 4 * 32 * 16), 2816),
        ("qmatmul", Element::Q4K, Some(2 * 2 * 16 * 256), 16 * 144 + (2 * 256 + 2 * 16) * 4),
        ("qmatmul", Element::Q8_0, Some(16_384), 16 * 8 * 34 + 2176),
        ("conv2d", Element::F32, Some(2 * 4 * 36 * 3 * 9), (3 * 36 + 4 * 3 * 9 + 4 * 36) * 4),
        ("lstm", Element::F32, Some(2 * 2 * 3 * 4 * 5 * (4 + 5)), (2 * 3 * 4 + 4 * 5 * 9 + 2 * 4 * 5 + 2 * 3 * 5) * 4),
        ("layernorm_gelu", Element::F32, Some(12 * 4 * 16), (2 * 4 * 16 + 2 * 16) * 4),
        ("layernorm", Element::F32, Some(7 * 4 * 16), (2 * 4 * 16 + 2 * 16) * 4),
        ("rmsnorm", Element::F32, Some(4 * 4 * 16), (2 * 4 * 16 + 16) * 4),
        ("softmax", Element::F32, Some(5 * 4 * 16), 2 * 4 * 16 * 4),
        // 6·6 − 6·5/2 = 21 positions attended to.
        ("attention_prefill", Element::F32, Some(4 * 4 * 8 * 21), (2 * 4 * 6 * 8 + 2 * 2 * 6 * 8) * 4),
        ("attention_decode", Element::F32, Some(2 * 4 * 4 * 8 * 6), (2 * 2 * 4 * 8 + 2 * 2 * 2 * 6 * 8) * 4),
        ("attention_scores", Element::F32, Some(2 * 2 * 4 * 3 * 6 * 8), (2 * 4 * 3 * 8 + 2 * 2 * 6 * 8 + 144) * 4),
        ("attention_softmax", Element::BF16, Some(5 * 144), 144 * 6),
        ("attention_context", Element::F32, Some(2 * 2 * 4 * 3 * 6 * 8), (2 * 4 * 3 * 8 + 2 * 2 * 6 * 8 + 144) * 4),
        ("add", Element::F32, Some(64), 3 * 64 * 4),
        ("add_bias", Element::F32, Some(64), (2 * 64 + 16) * 4),
        ("gelu", Element::F32, Some(8 * 64), 2 * 64 * 4),
        ("swiglu", Element::F32, Some(5 * 64), 3 * 64 * 4),
        ("rotary", Element::F32, Some(3 * 2 * 3 * 4 * 8), (2 * 2 * 3 * 4 * 8 + 2 * 4 * 4) * 4),
        ("embedding", Element::F32, None, 5 * 4 + 2 * 5 * 16 * 4),
        ("argmax", Element::F32, None, 2 * 64 * 4 + 2 * 4),
        ("sampling", Element::F32, None, 2 * 64 * 4 + 2 * 4),
    ];
    for (name, element, flops, io_bytes) in by_hand {
        let work = quick(name, element).work;
        assert_eq!((work.flops, work.io_bytes), (flops, io_bytes), "{name} {element}");
        assert!(work.memory_bytes >= work.io_bytes || name == "embedding", "{name}");
    }
    assert!(all().iter().all(|kernel| by_hand.iter().any(|(name, ..)| *name == kernel.name())), "each kernel is here");
}

#[test]
fn attention_costs_what_the_models_say_it_does() {
    let dims = Heads::new(4, 2, 8);
    for (name, work) in [("attention_prefill", Input::new(1, 6, 0)), ("attention_decode", Input::new(2, 1, 5))] {
        let model = dims.scores(work, Widths::of(4)) + dims.context(work, Widths::of(4));
        assert_eq!(quick(name, Element::F32).work.flops, Some(model.flops as u64), "{name}");
    }
}

#[test]
fn each_kernel_runs_in_each_of_its_types() {
    let mut unsupported = Vec::new();
    for kernel in all() {
        for element in kernel.elements() {
            let case = quick(kernel.name(), *element);
            match prepared(&case).run() {
                Ok(output) => {
                    let dtype = match kernel.name() {
                        "argmax" | "sampling" => DType::U32,
                        "attention_softmax" => DType::F32,
                        _ => element.activations(),
                    };
                    assert_eq!(output.dtype(), dtype, "{case:?}");
                    assert!(output.elem_count() > 0);
                }
                Err(error) => {
                    let text = candlescope_models::candle_message(&error);
                    assert!(text.contains("unsupported dtype"), "{case:?}: {text}");
                    unsupported.push((kernel.name(), *element));
                }
            }
        }
    }
    // What candle itself does not have on a CPU.
    assert_eq!(unsupported, [("conv2d", Element::BF16)]);
}

#[test]
fn results_are_those_of_a_naive_computation() {
    let run = |name: &str| {
        let prepared = prepared(&quick(name, Element::F32));
        let inputs: Vec<Vec<f64>> = prepared.inputs().iter().map(values).collect();
        (inputs, prepared.run().unwrap())
    };
    let rows = |flat: &[f64], f: &dyn Fn(&[f64]) -> Vec<f64>| flat.chunks(16).flat_map(f).collect::<Vec<_>>();

    let (xs, out) = run("gemm");
    near(&out, &product(&xs[0], &xs[1], (8, 32, 16), false), 1e-5);
    let (xs, out) = run("linear");
    near(&out, &product(&xs[0], &xs[1], (4, 32, 16), true), 1e-5);
    let (xs, out) = run("softmax");
    near(&out, &rows(&xs[0], &softmax), 1e-5);
    let (xs, out) = run("rmsnorm");
    near(&out, &rows(&xs[0], &|row| rms(row, &xs[1])), 1e-4);
    let (xs, out) = run("layernorm_gelu");
    near(&out, &rows(&xs[0], &|row| layernorm_gelu(row, &xs[1], &xs[2])), 1e-3);
    let (xs, out) = run("add");
    near(&out, &xs[0].iter().zip(&xs[1]).map(|(a, b)| a + b).collect::<Vec<_>>(), 1e-6);
    let (xs, out) = run("add_bias");
    near(&out, &rows(&xs[0], &|row| row.iter().zip(&xs[1]).map(|(a, b)| a + b).collect()), 1e-6);
    let (xs, out) = run("swiglu");
    near(&out, &xs[0].iter().zip(&xs[1]).map(|(x, up)| x / (1.0 + (-x).exp()) * up).collect::<Vec<_>>(), 1e-5);
    let (xs, out) = run("gelu");
    let gelu = |x: &f64| 0.5 * x * (1.0 + (0.797_884_560_8 * (x + 0.044_715 * x.powi(3))).tanh());
    near(&out, &xs[0].iter().map(gelu).collect::<Vec<_>>(), 1e-5);
    let (xs, out) = run("layernorm");
    let norm = |row: &[f64]| -> Vec<f64> {
        let mean = row.iter().sum::<f64>() / 16.0;
        let spread = (row.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / 16.0 + 1e-5).sqrt();
        row.iter().zip(&xs[1]).zip(&xs[2]).map(|((x, w), b)| (x - mean) / spread * w + b).collect()
    };
    near(&out, &rows(&xs[0], &norm), 1e-4);
    let (xs, out) = run("attention_prefill");
    near(&out, &attention(&xs[0], &xs[1], &xs[2], [1, 4, 2, 8, 6, 6]), 1e-4);
    let (xs, out) = run("attention_decode");
    near(&out, &attention(&xs[0], &xs[1], &xs[2], [2, 4, 2, 8, 1, 6]), 1e-4);
    let (xs, out) = run("embedding");
    let looked_up = xs[0].iter().flat_map(|id| xs[1][*id as usize * 16..][..16].to_vec());
    near(&out, &looked_up.collect::<Vec<_>>(), 0.0);
    let (xs, out) = run("rotary");
    let turned = (0..2 * 3 * 4).flat_map(|row| {
        let (x, angle) = (&xs[0][row * 8..][..8], row % 4 * 4);
        let (cos, sin) = (&xs[1][angle..][..4], &xs[2][angle..][..4]);
        let low = (0..4).map(|i| x[i] * cos[i] - x[i + 4] * sin[i]);
        low.chain((0..4).map(|i| x[i + 4] * cos[i] + x[i] * sin[i])).collect::<Vec<_>>()
    });
    near(&out, &turned.collect::<Vec<_>>(), 1e-5);
    let (xs, out) = run("argmax");
    let largest = |row: &[f64]| (0..64).max_by(|a, b| row[*a].total_cmp(&row[*b])).unwrap() as f64;
    near(&out, &xs[0].chunks(64).map(largest).collect::<Vec<_>>(), 0.0);
    // Weights of 4 bits: a few percent of the largest value off.
    let case = quick("qmatmul", Element::Q8_0);
    let prepared = prepared(&case);
    let mut again = Inputs::new(7, &Device::Cpu);
    let (x, w) = (again.values((2, 256), Element::F32).unwrap(), again.values((16, 256), Element::F32).unwrap());
    near(&prepared.run().unwrap(), &product(&values(&x), &values(&w), (2, 16, 256), true), 0.05);
}

/// Three new tokens at positions 3 to 5; query heads 0 and 1 share key head 0.
#[test]
fn the_steps_of_attention_are_those_of_a_naive_computation() {
    let run = |name: &str| {
        let prepared = prepared(&quick(name, Element::F32));
        let inputs: Vec<Vec<f64>> = prepared.inputs().iter().map(values).collect();
        (inputs, prepared.run().unwrap())
    };
    let every = || (0..2).flat_map(|b| (0..4).flat_map(move |h| (0..3).map(move |t| (b, h, t))));
    let key_row = |b: usize, h: usize, c: usize| ((b * 2 + h / 2) * 6 + c) * 8;
    let (xs, out) = run("attention_scores");
    let score = |(b, h, t): (usize, usize, usize), c: usize| -> f64 {
        let (q, k) = (&xs[0][((b * 4 + h) * 3 + t) * 8..][..8], &xs[1][key_row(b, h, c)..][..8]);
        q.iter().zip(k).map(|(q, k)| q * k).sum::<f64>() / 8f64.sqrt()
    };
    let scores: Vec<f64> = every().flat_map(|at| (0..6).map(move |c| (at, c))).map(|(at, c)| score(at, c)).collect();
    near(&out, &scores, 1e-5);
    let (xs, out) = run("attention_softmax");
    let masked = xs[0].chunks(6).enumerate().flat_map(|(row, scores)| {
        let seen = 4 + row % 3;
        let mut weights = softmax(&scores[..seen]);
        weights.resize(6, 0.0);
        weights
    });
    near(&out, &masked.collect::<Vec<_>>(), 1e-5);
    let (xs, out) = run("attention_context");
    // In the layout of the projections: tokens before heads.
    let turned = (0..2).flat_map(|b| (0..3).flat_map(move |t| (0..4).map(move |h| (b, h, t))));
    let sums = turned.flat_map(|(b, h, t)| {
        let weights = xs[0][((b * 4 + h) * 3 + t) * 6..][..6].to_vec();
        let values = &xs[1];
        (0..8).map(move |d| weights.iter().enumerate().map(|(c, w)| w * values[key_row(b, h, c) + d]).sum::<f64>())
    });
    near(&out, &sums.collect::<Vec<_>>(), 1e-5);
}

#[test]
fn the_same_seed_gives_the_same_inputs_and_sets_differ() {
    let case = quick("gemm", Element::F32);
    let mut source = Inputs::new(7, &Device::Cpu);
    let first = values(&case.kernel.prepare(&case.shape, case.element, &mut source).unwrap().inputs()[0]);
    let second = values(&case.kernel.prepare(&case.shape, case.element, &mut source).unwrap().inputs()[0]);
    assert_eq!(first, values(&prepared(&case).inputs()[0]));
    assert_ne!(first, second);
    assert!(first.iter().all(|x| (-1.0..1.0).contains(x)));
}

#[test]
fn the_engine_measures_kernels_cold_and_warm() {
    for warm in [false, true] {
        let options = RunOptions::new(Device::Cpu).warm(warm);
        let all = [quick("gemm", Element::F32), quick("embedding", Element::F32)];
        let mut kept = InMemory::default();
        let method = Method::quick().runs(Some(2)).warmup_max(1);
        Engine::new(method, &mut NoSurroundings).run(&mut engine_cases(&all, &options), &mut kept).unwrap();
        assert_eq!(kept.samples.len(), 4);
        for sample in &kept.samples {
            let cache = sample.case.get("cache").unwrap().to_string();
            assert_eq!(cache, if warm { "warm" } else { "flushed" });
            assert_eq!(sample.measurement.device_ns, None, "a CPU has no clock of its own");
            let seconds = sample.measurement.host_ns as f64 / 1e9;
            let figures = &sample.measurement.figures;
            let gemm = sample.case.get("op").unwrap().to_string() == "gemm";
            assert_eq!(figures.get("flops_per_s").copied(), gemm.then(|| 8192.0 / seconds));
            assert_eq!(figures["bytes_per_s"], if gemm { 3584.0 } else { 660.0 } / seconds);
        }
    }
}

#[test]
fn times_between_marks_are_called_stream_elapsed() {
    let dir = tempfile::tempdir().unwrap();
    let (all, options) = ([quick("layernorm_gelu", Element::F32)], RunOptions::new(Device::Cpu));
    let case = case_id(&all[0], &options);
    let measurement = Measurement::new(900).device_ns(1500);
    for (measurement, clock, median) in [(measurement, STREAM_ELAPSED, 1500.0), (Measurement::new(900), "host", 900.0)]
    {
        let manifest = Manifest::new("kernels", vec![case.clone()], &Method::quick());
        let study = Study::create(dir.path().join(clock), manifest).unwrap();
        let sample = Sample {
            case: case.clone(),
            process: 0,
            repetition: 0,
            mode: Mode::Plain,
            ended_ns: 0,
            measurement,
            reading: Reading::default(),
            verdict: SampleVerdict::Ok,
        };
        study.journal().unwrap().sample(&sample).unwrap();
        let rows = table(&all, &options, &study, &study.records().unwrap(), &Roof::new([])).json();
        assert_eq!((rows[0]["clock"].as_str(), rows[0]["median_ns"].as_f64()), (Some(clock), Some(median)));
    }
    assert_eq!(STREAM_ELAPSED, "stream elapsed");
}

#[test]
fn what_does_not_fit_into_memory_is_not_tried() {
    let sizes = Sizes::parse("m=1048576;n=1048576;k=1048576").unwrap();
    let all = cases(&[by_name("gemm").unwrap()], &sizes, &[Element::F32], false, false).unwrap();
    let mut kept = InMemory::default();
    let options = RunOptions::new(Device::Cpu).warm(true);
    Engine::new(Method::quick(), &mut NoSurroundings).run(&mut engine_cases(&all, &options), &mut kept).unwrap();
    assert_eq!((kept.samples.len(), kept.stopped[0].reason), (0, StopReason::Refused));
    assert!(kept.stopped[0].detail.as_ref().unwrap().contains("13194.14 GB"), "{:?}", kept.stopped[0].detail);
}

#[test]
fn a_case_is_named_by_its_kernel_type_and_sizes_in_any_order() {
    let case = KernelCase::named("linear", "bf16", &[("k", 16), ("m", 4), ("n", 32)]).unwrap();
    let swept =
        cases(&[by_name("linear").unwrap()], &Sizes::parse("m=4;n=32;k=16").unwrap(), &[Element::BF16], false, false);
    assert_eq!((case.name(), case.work), (swept.unwrap()[0].name(), case.work));
    let says = |op, dtype, sizes: &[(&str, u64)], part: &str| {
        let message = KernelCase::named(op, dtype, sizes).unwrap_err().to_string();
        assert!(message.contains(part), "{message}");
    };
    says("gem", "f32", &[], "kernels are gemm");
    says("linear", "q4_k", &[("m", 1), ("n", 1), ("k", 1)], "name a type among f32, f16, bf16");
    says("linear", "f32", &[("rows", 1)], "linear's, which are m, n, k");
    says("linear", "f32", &[("m", 1), ("n", 1)], "`k=?`");
    says("linear", "f32", &[("m", 0), ("n", 1), ("k", 1)], "`m=0`");
}
