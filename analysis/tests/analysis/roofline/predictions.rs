//! Predictions computed by hand.

use candlescope_document::html;
use candlescope_predict::roofline::{Bound, Goal, Outlook, Scenario, StepPrediction};
use candlescope_report::roofline::{static_document, static_json, static_text};
use candlescope_work::devices::{Device, Format, Multiply, Origin, known_device};
use candlescope_work::estimate::Estimate;
use candlescope_work::known_models::known_model;

fn format(name: &str) -> Format {
    Format::named(name).unwrap()
}

/// A device on which nothing is launched and no kernel has a shortest time.
fn plain(flops: f64, bandwidth: f64) -> Device {
    let mut device = known_device("H200").unwrap();
    let f32 = (Multiply::F32, flops);
    device.flops = [f32, (Multiply::Bf16, flops), (Multiply::F16, flops), (Multiply::Int8, 2.0 * flops)].into();
    (device.bandwidth, device.launch, device.kernel_floor) = (bandwidth, None, None);
    device
}

fn mid(step: &StepPrediction) -> f64 {
    step.ns.expect("a time").mid
}

fn near(a: f64, b: f64, share: f64) -> bool {
    (a / b - 1.0).abs() <= share
}

#[test]
fn a_token_takes_the_bytes_it_reads() {
    let shape = known_model("llama-3-8b").unwrap();
    let outlook = Outlook::of(&shape, &plain(1e18, 1e12), &Scenario::new(format("bf16")).context(Some(1000)));
    // All weights but the embedding table, of which one row is read, and 1,000 cached tokens and one written.
    let weights = (8_030_261_248.0 - 128_256.0 * 4096.0 + 4096.0) * 2.0;
    let cache = 131_072.0 * 1001.0;
    assert_eq!(outlook.decode.bytes, weights + cache);
    assert!(near(mid(&outlook.decode), outlook.decode.io_bytes / 1e3, 1e-9), "{}", mid(&outlook.decode));
    assert_eq!(outlook.decode.bound, Some(Bound::Memory));
    assert!(outlook.decode.least_ns.unwrap() < mid(&outlook.decode));
    assert!(near(outlook.decode.least_ns.unwrap(), (weights + cache) / 1e3, 1e-9));
    // The same with so little arithmetic that it is bound by computing.
    let slow = Outlook::of(&shape, &plain(1e9, 1e15), &Scenario::new(format("bf16")).context(Some(1000)));
    assert_eq!(slow.decode.bound, Some(Bound::Compute));
    assert!(near(mid(&slow.decode), slow.decode.flops_executed, 1e-6));
}

/// For each element of a kernel on strided operands, each dimension of each operand: on top of the roof, at a rate that
/// a datasheet's FLOP/s in f32 stand for.
#[test]
fn index_arithmetic_comes_on_top_of_the_roof() {
    let shape = known_model("gpt2").unwrap();
    let scenario = Scenario::new(format("bf16")).batch(8).tokens(512, 64);
    let device = known_device("H200").unwrap();
    let (with, without) = (&device, &Device { index_rate: None, ..device.clone() });
    assert!(near(with.index_rate.unwrap(), 67e12 / 140.0, 1e-9));
    let of = |device: &Device| Outlook::of(&shape, device, &scenario);
    let (with, without) = (of(with), of(without));
    let steps = |step: &StepPrediction, name: &str| {
        let own = step.operations.iter().find(|timed| timed.operation.name == name).unwrap();
        own.operation.index_steps * own.operation.calls
    };
    let (rows, pairs) = (8.0 * 512.0, 8.0 * 12.0 * 512.0 * 512.0);
    // Sums of (batch, tokens, features) with a row, of (batch, heads, tokens, context) with a mask; copies.
    assert_eq!(steps(&with.prefill, "up_proj"), 12.0 * rows * 3072.0 * 2.0 * 3.0);
    assert_eq!(steps(&with.prefill, "embed_tokens"), rows * 768.0 * 2.0 * 3.0);
    assert_eq!(steps(&with.prefill, "softmax"), 12.0 * pairs * 2.0 * 4.0);
    assert_eq!(steps(&with.prefill, "split"), 12.0 * rows * 2.0 * 768.0 * 4.0);
    assert_eq!(steps(&with.prefill, "input_layernorm"), 0.0);
    let all: f64 =
        with.prefill.operations.iter().map(|timed| timed.operation.index_steps * timed.operation.calls).sum();
    let more = with.prefill.device_ns.unwrap() - without.prefill.device_ns.unwrap();
    assert!(near(more, all / (67e12 / 140.0) * 1e9, 1e-6), "{more}");
    assert!(with.prefill.operations.iter().any(|timed| timed.bound == Some(Bound::Overhead)));
    // A row and its bias have one layout, and a token alone needs no mask and no other layout.
    let alone = Outlook::of(&shape, &device, &scenario.clone().batch(1));
    assert!(alone.decode.operations.iter().all(|timed| timed.operation.index_steps + timed.operation.strided == 0.0));
    assert_eq!(steps(&with.decode, "up_proj"), 12.0 * 8.0 * 3072.0 * 2.0 * 3.0);
    assert_eq!(known_device("EPYC-9654").unwrap().index_rate, None, "a processor has no such rate");
}

/// cuBLAS's faster kernels take rows that end on 16 bytes.
#[test]
fn products_of_unaligned_rows_are_told_apart() {
    let device = known_device("H200").unwrap();
    let unaligned = |model: &str, batch: u64, stored: &str| -> Vec<&'static str> {
        let scenario = Scenario::new(format(stored)).batch(batch).tokens(64, 64);
        let outlook = Outlook::of(&known_model(model).unwrap(), &device, &scenario);
        let own = outlook.decode.operations.into_iter().filter(|timed| timed.operation.unaligned);
        own.map(|timed| timed.operation.name).collect()
    };
    assert_eq!(unaligned("gpt2", 8, "bf16"), ["lm_head"], "50,257 rows");
    assert_eq!(unaligned("gpt2", 1, "bf16"), [""; 0], "one row is a product of another kind");
    assert_eq!(unaligned("gpt2", 8, "q8_0"), [""; 0], "candle's own kernels");
    for model in ["smollm2-135m", "tinyllama-1.1b", "qwen2.5-7b", "llama-3-8b"] {
        assert_eq!(unaligned(model, 8, "bf16"), [""; 0], "{model}");
    }
}

/// TPOT = max(Σ launches on the host, Σ max(roof, floor) on the device) + sync.
#[test]
fn a_small_model_is_bound_by_its_launches() {
    let shape = known_model("smollm2-135m").unwrap();
    let device = known_device("NVIDIA H200").unwrap();
    let outlook = Outlook::of(&shape, &device, &Scenario::new(format("bf16")));
    let launches = 695.0 * 7_710.0;
    assert_eq!(outlook.decode.bound, Some(Bound::Host));
    assert!(near(mid(&outlook.decode), launches, 1e-9));
    let ns = outlook.decode.ns.unwrap();
    assert!(ns.low < ns.mid && ns.mid < ns.high);
    // On the device alone, as one CUDA graph would run it: 2.0 ms were measured (docs/measurements/truth.md).
    assert!(near(outlook.decode.device_ns.unwrap(), 2.09e6, 0.05), "{:?}", outlook.decode.device_ns);
    // A wait after each token comes on top.
    let waits = Device { sync: Some(50_000.0), ..device };
    let with_wait = Outlook::of(&shape, &waits, &Scenario::new(format("bf16")));
    assert!(near(mid(&with_wait.decode), launches + 50_000.0, 1e-9));
    // A model of 8 billion parameters in f32 keeps the device busy for longer than its launches take.
    let large =
        Outlook::of(&known_model("llama-3-8b").unwrap(), &known_device("H200").unwrap(), &Scenario::new(format("f32")));
    assert_eq!(large.decode.bound, Some(Bound::Memory));
    assert!(mid(&large.decode) > large.decode.launches_ns.unwrap().mid);
}

#[test]
fn prefill_is_bound_by_computing_and_decode_by_memory() {
    let shape = known_model("llama-2-7b").unwrap();
    let scenario = Scenario::new(format("bf16")).tokens(2048, 128).batch(1);
    let device = Device { launch: None, ..known_device("A100").unwrap() };
    let outlook = Outlook::of(&shape, &device, &scenario);
    let bound_of = |step: &StepPrediction, name: &str| {
        step.operations.iter().find(|timed| timed.operation.name == name).and_then(|timed| timed.bound)
    };
    assert_eq!(bound_of(&outlook.prefill, "gate_proj"), Some(Bound::Compute));
    assert_eq!(bound_of(&outlook.decode, "gate_proj"), Some(Bound::Memory));
    assert_eq!(bound_of(&outlook.decode, "input_layernorm"), Some(Bound::KernelFloor));
    assert!(near(outlook.decode.ridge.unwrap(), 312e12 / 2039e9, 1e-9));
    let shares: f64 = outlook.decode.operations.iter().filter_map(|timed| timed.share).sum();
    assert!(near(shares, 1.0, 1e-9));
}

#[test]
fn the_largest_batch_is_what_memory_holds() {
    let shape = known_model("llama-3-8b").unwrap();
    let scenario = Scenario::new(format("bf16")).tokens(1024, 1024).memory(Some(80e9));
    let outlook = Outlook::of(&shape, &known_device("H100").unwrap(), &scenario);
    let need = outlook.memory;
    assert_eq!(need.weights, 2.0 * 8_030_261_248.0);
    assert_eq!((need.kv_a_token, need.kv_a_sequence), (131_072.0, 131_072.0 * 2048.0));
    // Residual and norm; queries, keys, values; scores in bf16 and twice in f32; logits.
    let attention = 1024.0 * (4096.0 + 2.0 * 1024.0) * 2.0 + 32.0 * 1024.0 * 1024.0 * 10.0;
    assert_eq!(need.activations_a_sequence, 2.0 * 1024.0 * 4096.0 * 2.0 + attention + 128_256.0 * 6.0);
    let each = need.kv_a_sequence + need.activations_a_sequence;
    let most = outlook.largest_batch.unwrap();
    assert_eq!(most, ((72e9 - need.weights) / each) as u64);
    assert!(need.total(most) <= 72e9 && need.total(most + 1) > 72e9);
    // Two devices hold half of everything that is divided.
    let two = Outlook::of(&shape, &known_device("H100").unwrap(), &scenario.clone().devices(2));
    assert_eq!(two.memory.weights, need.weights / 2.0);
    assert_eq!(two.memory.kv_a_token, 65_536.0);
    // What no program can undercut, for each batch: never more than what is predicted, and what a step of it says.
    for row in &outlook.batches {
        let (least, predicted) = (row.tpot_least_ns.unwrap(), row.tpot_ns.unwrap().mid);
        assert!(least > 0.0 && least <= predicted, "{row:?}");
        assert!((row.tokens_per_s_most.unwrap() * least / 1e9 / row.batch as f64 - 1.0).abs() < 1e-12, "{row:?}");
        let alone = Outlook::of(&shape, &known_device("H100").unwrap(), &scenario.clone().batch(row.batch));
        assert_eq!(row.tpot_least_ns, alone.decode.least_ns);
    }
    // A model that is too large has no batch.
    let large = Outlook::of(&known_model("llama-3-70b").unwrap(), &known_device("H100").unwrap(), &scenario);
    assert_eq!((large.largest_batch, large.recommended.batch), (Some(0), None));
    assert!(large.batches.iter().all(|row| row.fits == Some(false)));
}

#[test]
fn the_recommended_batch_keeps_the_goal_and_the_next_one_does_not() {
    let shape = known_model("llama-3-8b").unwrap();
    let device = known_device("H100").unwrap();
    let goal: Goal = "ttft=2s,tpot=9ms".parse().unwrap();
    let scenario = Scenario::new(format("bf16")).tokens(512, 128).goal(goal);
    let batch = Outlook::of(&shape, &device, &scenario).recommended.batch.expect("a batch");
    let at = |batch: u64| Outlook::of(&shape, &device, &scenario.clone().batch(batch));
    let keeps = |outlook: &Outlook| mid(&outlook.prefill) <= 2e9 && mid(&outlook.decode) <= 9e6;
    assert!(batch > 1 && keeps(&at(batch)) && !keeps(&at(batch + 1)), "{batch}");
    let hard = Outlook::of(&shape, &device, &scenario.clone().goal("tpot=1us".parse().unwrap()));
    assert_eq!(hard.recommended.batch, None);
    assert!(hard.recommended.reason.contains("misses the goal"), "{}", hard.recommended.reason);
    for wrong in ["tpot", "tpot=fast", "itl=5ms", "tpot=-1ms", ""] {
        assert!(wrong.parse::<Goal>().is_err(), "{wrong}");
    }
    assert_eq!("ttft=0.2s,tpot=800us".parse(), Ok(Goal { ttft_ns: Some(0.2e9), tpot_ns: Some(800e3) }));
}

#[test]
fn fewer_bits_are_faster_where_memory_bounds() {
    let shape = known_model("llama-3-8b").unwrap();
    let outlook = Outlook::of(&shape, &plain(1e18, 1e12), &Scenario::new(format("bf16")));
    let of = |name: &str| outlook.variants.iter().find(|variant| variant.format == name).unwrap();
    assert_eq!(of("q4_0").weights, 8_030_261_248.0 * 4.5 / 8.0);
    assert!(near(of("bf16").speedup.unwrap(), 1.0, 1e-9));
    let speedup = of("q4_0").speedup.unwrap();
    assert!((2.5..16.0 / 4.5).contains(&speedup), "{speedup}");
    // Where launches bound, it gains nothing, and quantising activations launches more.
    let bound = Outlook::of(
        &known_model("smollm2-135m").unwrap(),
        &known_device("H200").unwrap(),
        &Scenario::new(format("bf16")),
    );
    let quantised = bound.variants.iter().find(|variant| variant.format == "q4_0").unwrap();
    assert!(quantised.speedup.unwrap() < 1.0 && quantised.bound == Some(Bound::Host));
}

#[test]
fn devices_that_share_a_model_pay_for_their_link() {
    let shape = known_model("llama-3-70b").unwrap();
    let device = Device { launch: None, ..known_device("H100").unwrap() };
    let scenario = Scenario::new(format("bf16")).batch(8);
    let one = Outlook::of(&shape, &device, &scenario);
    let four = Outlook::of(&shape, &device, &scenario.clone().devices(4));
    let reduce = four.decode.operations.iter().find(|timed| timed.operation.name == "all_reduce").unwrap();
    // Two sums a layer of 8 × 8,192 values of 2 bytes, of which a ring of four sends three halves.
    assert_eq!(reduce.operation.link_bytes, 1.5 * 8.0 * 8192.0 * 2.0);
    assert_eq!(reduce.operation.calls, 160.0);
    let gain = mid(&one.decode) / mid(&four.decode);
    assert!((2.0..4.0).contains(&gain), "{gain}");
    let unlinked = Outlook::of(&shape, &Device { link: None, ..device }, &scenario.devices(4));
    assert!(unlinked.missing.iter().any(|what| what.contains("no link")), "{:?}", unlinked.missing);
}

#[test]
fn what_a_datasheet_lacks_is_said_and_never_guessed() {
    let shape = known_model("llama-3.2-1b").unwrap();
    // Apple gives no FLOP/s of the M4, and its memory depends on the machine.
    let outlook = Outlook::of(&shape, &known_device("M4").unwrap(), &Scenario::new(format("bf16")));
    assert_eq!((outlook.prefill.ns, outlook.decode.ns, outlook.tokens_per_s), (None, None, None));
    assert_eq!((outlook.usable_memory, outlook.largest_batch), (None, None));
    let said = outlook.missing.join("\n");
    assert!(said.contains("no FLOP/s for bf16") && said.contains("--memory-gb"), "{said}");
    let text = static_text(&outlook, 120);
    assert!(text.contains("not published") && text.contains("–"), "{text}");
    // A T4 has no bf16: f32 stands in, which is said.
    let old = Outlook::of(&shape, &known_device("T4").unwrap(), &Scenario::new(format("bf16")));
    assert!(old.assumptions.iter().any(|line| line.contains("no FLOP/s for bf16") && line.contains("f32")));
    // On a CPU 16-bit floats are widened, and attention's products are in f32.
    let cpu = known_device("EPYC-9654").unwrap();
    let scenario = Scenario::new(format("bf16"));
    assert_eq!((scenario.storage(&cpu).widths.products, cpu.multiplies(Multiply::Bf16)), (4.0, Multiply::F32));
    // A datasheet's int8 is a matrix unit's, which candle does not use; what was measured is what candle reached.
    let mut measured = known_device("EPYC-9654").unwrap();
    measured.origin = Origin::Measured;
    let int8 = Multiply::Int8;
    assert_eq!((cpu.multiplies(int8), measured.multiplies(int8)), (Multiply::F32, Multiply::Int8));
}

#[test]
fn attention_multiplies_the_16_bit_floats_that_the_device_has() {
    let shape = known_model("llama-3-8b").unwrap();
    let mut device = plain(1e12, 1e12);
    device.flops.insert(Multiply::F32, 1e9);
    let prefill = |device: &Device| mid(&Outlook::of(&shape, device, &Scenario::new(format("int8"))).prefill);
    let with_f16 = prefill(&device);
    device.flops.remove(&Multiply::F16);
    assert_eq!(prefill(&device), with_f16, "bf16 instead, not f32");
}

#[test]
fn an_encoder_runs_once_and_its_decoder_reads_it() {
    let shape = known_model("t5-small").unwrap();
    let device = plain(1e12, 1e11);
    let of = |prompt| Outlook::of(&shape, &device, &Scenario::new(format("bf16")).tokens(prompt, 64));
    let (short, long) = (of(128), of(512));
    assert!(long.prefill.flops > 3.9 * short.prefill.flops, "the encoder sees every token");
    // A token of the decoder reads 512 keys and values of each layer's cross-attention instead of 128.
    let more = long.decode.bytes - short.decode.bytes;
    assert_eq!(more, (6 * 2 * 384 * 512 * 2) as f64);
    // The prompt is the encoder's: the decoder keeps its own 64 tokens, far below the 512 it was trained for.
    assert_eq!(long.memory.kv_a_sequence, (64 * 6 * 2 * 512 * 2) as f64);
    assert!(!long.assumptions.iter().any(|line| line.contains("trained for")));
    // It needs them once, but makes them anew.
    let surplus = |outlook: &Outlook| outlook.decode.flops_executed - outlook.decode.flops;
    assert_eq!(surplus(&long) - surplus(&short), 6.0 * 2.0 * 2.0 * 384.0 * 512.0 * 512.0);
}

#[test]
fn every_form_has_the_same_figures() {
    let shape = known_model("meta-llama/Llama-2-7b-hf").unwrap();
    let goal: Goal = "tpot=12ms".parse().unwrap();
    let scenario = Scenario::new(format("bf16")).goal(goal);
    let outlook = Outlook::of(&shape, &known_device("H100").unwrap(), &scenario);
    let json = static_json(&outlook);
    assert_eq!(json["parameters"], 6_738_415_616u64);
    assert_eq!(json["decode"]["ns"]["mid"].as_f64(), outlook.decode.ns.map(|ns: Estimate| ns.mid));
    assert_eq!(json["device"]["origin"], "datasheet");
    assert!(json["assumptions"].as_array().unwrap().len() > 5);
    let (text, page) = (static_text(&outlook, 120), html::page(&static_document(&outlook)));
    let batch = outlook.recommended.batch.expect("a batch").to_string();
    for shown in ["llama-2-7b", "6,738,415,616", "not measured here", &format!("recommended batch: {batch}"), "q4_0"] {
        assert!(text.contains(shown), "{shown} is not in\n{text}");
        assert!(page.contains(shown), "{shown} is not in the page");
    }
    assert!(
        page.contains("<svg class=\"plot wide\"") && !page.contains("src=\"http"),
        "a chart, and nothing from elsewhere"
    );
}
