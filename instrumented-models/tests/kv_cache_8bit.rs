//! Keys and values in 8 bits: what a model says with them, what they take, and what they cost.
#![allow(missing_docs, reason = "a test")]
mod common;

use candle_core::{DType, Device, Tensor};
use candlescope_core::{MemoryExporter, Session, SpanRecord, llm};
use candlescope_models::generate::lookup_checks;
use candlescope_models::slots::{SlotDecoder, SlotModel, SlotOptions};
use candlescope_models::weights::random::RandomWeights;
use candlescope_models::{
    CausalLm, Engine, GenerateOptions, Gpt2, Inspect, KvCacheDType, Llama, LoadOptions, LoadedModel, ModelConfig,
    ModelSource, generate,
};
use candlescope_work::input::Input;
use candlescope_work::operation::Cost;
use common::*;
use tracing_subscriber::prelude::*;

fn gpt2() -> ModelConfig {
    let mut config = ModelConfig::named("gpt2").unwrap();
    (config.name, config.vocab_size, config.hidden_size, config.num_layers) = ("small".into(), 96, 64, 2);
    (config.num_heads, config.num_kv_heads, config.head_dim, config.max_context) = (4, 4, 16, 64);
    config.feed_forward = candlescope_models::config::FeedForward::Gelu { intermediate: 128 };
    config
}

fn llama(config: &ModelConfig, dtype: DType, kept_as: KvCacheDType) -> Llama {
    let mut source = RandomWeights::new(config, 7, dtype, &Device::Cpu);
    Llama::load(config, &mut source, dtype, &Device::Cpu).unwrap().kv_cache_dtype(kept_as)
}

fn small_gpt2(kept_as: KvCacheDType) -> Gpt2 {
    let mut source = RandomWeights::new(&gpt2(), 7, DType::F32, &Device::Cpu);
    Gpt2::load(&gpt2(), &mut source, DType::F32, &Device::Cpu).unwrap().kv_cache_dtype(kept_as)
}

/// Logits of every position of a text, a row each.
fn read(model: &mut dyn Inspect, tokens: &Tensor) -> Vec<Vec<f32>> {
    model.inspect(tokens, &mut |_, _| Ok(())).unwrap().get(0).unwrap().to_vec2().unwrap()
}

fn best(row: &[f32]) -> usize {
    (0..row.len()).max_by(|a, b| row[*a].total_cmp(&row[*b])).unwrap()
}

/// Σ p·ln(p/q) over the vocabulary, as `bench variants` has it.
fn divergence(p: &[f32], q: &[f32]) -> f64 {
    let log_softmax = |row: &[f32]| -> Vec<f64> {
        let most = row.iter().fold(f64::NEG_INFINITY, |most, x| most.max(f64::from(*x)));
        let sum: f64 = row.iter().map(|x| (f64::from(*x) - most).exp()).sum();
        row.iter().map(|x| f64::from(*x) - most - sum.ln()).collect()
    };
    log_softmax(p).iter().zip(log_softmax(q)).map(|(p, q)| p.exp() * (p - q)).sum()
}

/// Largest difference of two rows, as a share of the largest magnitude of the first.
fn apart(a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len());
    let largest = a.iter().fold(0f32, |most, x| most.max(x.abs()));
    a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0f32, f32::max) / largest
}

#[test]
fn what_a_model_predicts_with_8_bits_is_near_what_it_predicts_in_full() {
    let embedded = ModelConfig::named("embedded").unwrap();
    let pair = |of: &dyn Fn(KvCacheDType) -> Box<dyn Inspect>| [KvCacheDType::Auto, KvCacheDType::Q8].map(of);
    let models = [
        ("embedded", pair(&|kept_as| Box::new(llama(&embedded, DType::F32, kept_as))), 200),
        ("embedded in bf16", pair(&|kept_as| Box::new(llama(&embedded, DType::BF16, kept_as))), 200),
        ("gpt2", pair(&|kept_as| Box::new(small_gpt2(kept_as))), 60),
    ];
    for (name, [mut full, mut small], count) in models {
        let text = tokens(1, count, 3, full.vocab_size());
        let (full, small) = (read(full.as_mut(), &text), read(small.as_mut(), &text));
        let rows = || full.iter().zip(&small);
        let mean = rows().map(|(full, small)| divergence(full, small)).sum::<f64>() / count as f64;
        assert!((0.0..0.01).contains(&mean), "{name}: a mean KL divergence of {mean}");
        let worst = rows().map(|(full, small)| apart(full, small)).fold(0f32, f32::max);
        assert!(worst > 0.0 && worst < 0.1, "{name}: logits that are {worst} of the largest apart");
        let same = rows().filter(|(full, small)| best(full) == best(small)).count();
        assert!(same * 10 >= count * 6, "{name}: {same} of {count} tokens are the same");
    }
}

/// One code more or less, where another order of sums leads to it.
const NEAR: f32 = 0.02;

#[test]
fn a_text_is_the_same_at_once_in_pieces_token_by_token_and_after_going_back() {
    let models: [Box<dyn Inspect>; 2] =
        [Box::new(llama(&tiny(), DType::F32, KvCacheDType::Q8)), Box::new(small_gpt2(KvCacheDType::Q8))];
    for (family, mut model) in models.into_iter().enumerate() {
        let text = tokens(1, 40, 5, 96);
        let piece = |from: usize, to: usize| text.narrow(1, from, to - from).unwrap().contiguous().unwrap();
        let whole = read(model.as_mut(), &text);
        let near = |found: &Tensor, position: usize, what: &str| {
            let row: Vec<f32> = found.flatten_all().unwrap().to_vec1().unwrap();
            let apart = apart(&whole[position], &row);
            assert!(apart < NEAR, "family {family}, {what}, position {position}: {apart}");
        };
        near(&model.forward(&piece(0, 11), 0).unwrap(), 10, "a piece");
        near(&model.forward(&piece(11, 30), 11).unwrap(), 29, "the next piece");
        // Wrong guesses behind what is known, several times: keys and values of theirs are replaced.
        for position in [30, 33, 34, 38] {
            let wrong = tokens(1, 5, position + 50, 96);
            let guessed = Tensor::cat(&[&piece(position, position + 1), &wrong], 1).unwrap();
            let rows = model.forward_each(&guessed, position).unwrap().unwrap();
            near(&rows.get(0).unwrap(), position, "before guesses that are wrong");
            let next = model.forward(&piece(position + 1, position + 2), position + 1).unwrap();
            near(&next, position + 1, "after guesses that were wrong");
            if position == 30 {
                near(&model.forward(&piece(32, 33), 32).unwrap(), 32, "one more");
            }
            if position == 34 {
                near(&model.forward(&piece(36, 38), 36).unwrap(), 37, "two more");
            }
        }
        model.reset();
        near(&model.forward(&piece(0, 3), 0).unwrap(), 2, "a new text");
    }
}

#[test]
fn tokens_that_are_looked_up_are_checked_in_a_cache_of_8_bits() {
    let options = LoadOptions { kv_cache_dtype: KvCacheDType::Q8, ..LoadOptions::default() };
    let mut loaded = LoadedModel::load(&ModelSource::Embedded, &options).unwrap();
    let prompt = loaded.encode_prompt("to be or not to be or not to be or").unwrap();
    let how = GenerateOptions { max_new_tokens: 60, ignore_eos: true, lookahead: 4, ..GenerateOptions::default() };
    let output = generate(&mut loaded, std::slice::from_ref(&prompt), &how, &mut |_| {}).unwrap();
    let written = &output.sequences[0].tokens;
    assert_eq!(written.len(), 60);
    assert!(lookup_checks(&prompt, written, 4) > 0, "nothing is looked up");
    // Each is what the model predicts of the text before it, or as good as that.
    let config = ModelConfig::named("embedded").unwrap();
    let mut source = RandomWeights::new(&config, options.seed, DType::F32, &Device::Cpu);
    let model = Llama::load(&config, &mut source, DType::F32, &Device::Cpu).unwrap();
    let text = [&prompt[..], &written[..]].concat();
    let text = Tensor::from_vec(text.clone(), (1, text.len()), &Device::Cpu).unwrap();
    let rows = read(&mut model.kv_cache_dtype(KvCacheDType::Q8), &text);
    for (at, token) in written.iter().enumerate() {
        let row = &rows[prompt.len() + at - 1];
        let largest = row.iter().fold(0f32, |most, x| most.max(x.abs()));
        let behind = row[best(row)] - row[*token as usize];
        assert!(behind <= NEAR * largest, "token {at} is {behind} behind the best, of {largest}");
    }
}

#[test]
fn sequences_in_slots_that_come_and_go_are_as_if_alone() {
    let options = SlotOptions { slots: 3, context: Some(64), ..SlotOptions::default() };
    let families: [(Box<dyn Inspect>, Box<dyn SlotModel>); 2] = [
        (
            Box::new(llama(&tiny(), DType::F32, KvCacheDType::Q8)),
            Box::new(llama(&tiny(), DType::F32, KvCacheDType::Q8)),
        ),
        (Box::new(small_gpt2(KvCacheDType::Q8)), Box::new(small_gpt2(KvCacheDType::Q8))),
    ];
    for (family, (mut alone, in_slots)) in families.into_iter().enumerate() {
        let mut decoder = SlotDecoder::new(in_slots, &options).unwrap();
        let texts: Vec<Tensor> = (0..4).map(|n| tokens(1, 40, n * 9, 96)).collect();
        let expected: Vec<Vec<Vec<f32>>> = texts.iter().map(|text| read(alone.as_mut(), text)).collect();
        // Which text is in each slot, and how far it is.
        let mut at: [Option<(usize, usize)>; 3] = [None; 3];
        let near = |text: usize, position: usize, row: &Tensor| {
            let apart = apart(&expected[text][position], &row.to_vec1::<f32>().unwrap());
            assert!(apart < NEAR, "family {family}, text {text}, position {position}: {apart}");
        };
        let join = |decoder: &mut SlotDecoder,
                    at: &mut [Option<(usize, usize)>; 3],
                    slot: usize,
                    text: usize,
                    count: usize| {
            let prompt = texts[text].narrow(1, 0, count).unwrap().contiguous().unwrap();
            let logits = decoder.prefill(slot, &prompt, 0).unwrap();
            near(text, count - 1, &logits.get(0).unwrap());
            at[slot] = Some((text, count));
        };
        let steps = |decoder: &mut SlotDecoder, at: &mut [Option<(usize, usize)>; 3], count: usize| {
            for _ in 0..count {
                let token = |held: &Option<(usize, usize)>| {
                    held.map_or(0, |(text, position)| texts[text].get(0).unwrap().to_vec1::<u32>().unwrap()[position])
                };
                let given = Tensor::from_vec(at.iter().map(token).collect::<Vec<u32>>(), (3, 1), &Device::Cpu).unwrap();
                let slots: Vec<usize> = (0..3).filter(|slot| at[*slot].is_some()).collect();
                let logits = decoder.step(&given, &slots).unwrap();
                for slot in slots {
                    let (text, position) = at[slot].unwrap();
                    near(text, position, &logits.get(slot).unwrap());
                    at[slot] = Some((text, position + 1));
                }
            }
        };
        join(&mut decoder, &mut at, 0, 0, 9);
        steps(&mut decoder, &mut at, 3);
        // A slot in between stays idle.
        join(&mut decoder, &mut at, 2, 1, 5);
        steps(&mut decoder, &mut at, 6);
        join(&mut decoder, &mut at, 1, 2, 17);
        steps(&mut decoder, &mut at, 8);
        // One leaves, and a shorter text takes its place: what the other left must not be attended to.
        join(&mut decoder, &mut at, 0, 3, 2);
        steps(&mut decoder, &mut at, 5);
        // Back by some tokens, and on from there.
        let (text, position) = at[2].unwrap();
        decoder.truncate(2, position - 4);
        at[2] = Some((text, position - 4));
        steps(&mut decoder, &mut at, 3);
    }
}

#[test]
fn a_token_takes_a_byte_for_each_value_and_four_for_each_head() {
    let config = tiny();
    let (heads, features, layers) = (config.num_kv_heads as u64, config.head_dim as u64, config.num_layers as u64);
    let of_8_bits = 2 * layers * heads * (features + 4);
    let options = SlotOptions { slots: 3, context: Some(100), ..SlotOptions::default() };
    for (dtype, width) in [(DType::F32, 4), (DType::BF16, 2)] {
        for (kept_as, of_a_token) in
            [(KvCacheDType::Auto, 2 * layers * heads * features * width), (KvCacheDType::Q8, of_8_bits)]
        {
            let mut model = llama(&config, dtype, kept_as);
            assert_eq!(model.kv_bytes_per_token(), of_a_token, "{dtype:?}, {}", kept_as.as_str());
            model.forward(&tokens(2, 7, 0, 96), 0).unwrap();
            assert_eq!(model.kv_bytes(), 2 * 256 * of_a_token, "256 positions of two sequences");
            let decoder = SlotDecoder::new(Box::new(llama(&config, dtype, kept_as)), &options).unwrap();
            assert_eq!(decoder.kv_bytes(), 3 * 100 * of_a_token);
            let mut held = llama(&config, dtype, kept_as);
            held.hold(3, 100).unwrap();
            assert_eq!(held.kv_bytes(), decoder.kv_bytes(), "what is stated is what is allocated");
            // A share of the memory has to hold what a step widens, too.
            let widened = if kept_as == KvCacheDType::Q8 { 3 * heads * features * width } else { 0 };
            assert_eq!(held.kv_bytes_in_a_step(), of_a_token + widened);
        }
    }
}

/// Sums of what the layers said of a step: FLOPs needed and executed, bytes without and with activations.
fn recorded(mut steps: impl FnMut()) -> Vec<[u64; 4]> {
    let memory = MemoryExporter::new();
    let (layer, session) = Session::builder().exporter(memory.clone()).start().unwrap();
    listening(tracing_subscriber::registry().with(layer), &mut steps);
    assert!(session.finish().verdict.ok);
    let batch = memory.batch();
    let fields: [fn(&SpanRecord) -> Option<u64>; 4] = [|s| s.flops, |s| s.flops_executed, |s| s.bytes, |s| s.io_bytes];
    let of_step = |step: u64| {
        fields.map(|field| batch.spans.iter().filter(|span| span.step == Some(step)).filter_map(field).sum::<u64>())
    };
    batch.steps.iter().map(|step| of_step(step.step)).collect()
}

fn figures(cost: &Cost) -> [u64; 4] {
    [cost.flops, cost.flops_executed(), cost.bytes(), cost.io_bytes()].map(|n| n as u64)
}

#[test]
fn what_layers_say_adds_up_to_the_cost_and_fewer_bytes_of_the_cache_are_read() {
    for dtype in [DType::F32, DType::BF16] {
        let works = [Input::new(2, 9, 0), Input::new(2, 1, 9), Input::new(2, 4, 10), Input::new(1, 1, 0)];
        let (mut full, mut expected) = (Vec::new(), Vec::new());
        let sums = recorded(|| {
            let mut model = llama(&tiny(), dtype, KvCacheDType::Q8);
            for work in works {
                let of = llm::Tokens::new(work.rows() as usize).batch(work.batch as usize);
                let _step = llm::encode(of);
                let [batch, count, position] =
                    [work.batch, work.tokens, work.context - work.tokens].map(|n| n as usize);
                model.forward(&tokens(batch, count, 1, 96), position).unwrap();
                expected.push(model.cost(work));
                full.push(llama(&tiny(), dtype, KvCacheDType::Auto).cost(work));
            }
        });
        assert_eq!(sums, expected.iter().map(figures).collect::<Vec<_>>(), "{dtype:?}");
        for (small, full) in expected.iter().zip(&full) {
            let share = small.kv_bytes / full.kv_bytes;
            let width = dtype.size_in_bytes() as f64;
            assert!((share - (16.0 + 4.0) / (16.0 * width)).abs() < 1e-9, "{dtype:?}: {share}");
            assert!(small.io_bytes() > full.io_bytes(), "candle widens it, which moves more");
            assert_eq!((small.flops, small.weight_bytes), (full.flops, full.weight_bytes));
        }
    }
}

/// candle's operations one by one, of what they read and write.
#[test]
fn a_cache_says_each_byte_that_candle_moves_on_a_cpu() {
    let config = tiny();
    let (heads, features, layers) = (config.num_kv_heads as u64, config.head_dim as u64, config.num_layers as u64);
    for (dtype, width) in [(DType::F32, 4), (DType::BF16, 2)] {
        let memory = MemoryExporter::new();
        let (layer, session) = Session::builder().exporter(memory.clone()).start().unwrap();
        listening(tracing_subscriber::registry().with(layer), || {
            let mut model = llama(&config, dtype, KvCacheDType::Q8);
            model.forward(&tokens(2, 9, 1, 96), 0).unwrap();
            let _step = llm::decode(llm::Tokens::new(2).batch(2));
            model.forward(&tokens(2, 1, 1, 96), 9).unwrap();
        });
        assert!(session.finish().verdict.ok);
        let batch = memory.batch();
        let in_decode = |path: &str| path.starts_with("decode/") && path.ends_with("kv_cache");
        let of_caches = batch.spans.iter().filter(|span| in_decode(&span.path.path));
        let said: Vec<u64> = of_caches.filter_map(|span| span.io_bytes).collect();
        // Keys and values of one new token, and of all ten, of two sequences.
        let (new, all) = (2 * 2 * heads * features, 2 * 2 * heads * 10 * features);
        let (scale, scales) = (new / features, all / features);
        let widens = u64::from(width != 4);
        // To f32; |x|; the largest of each head, which is widened.
        let mut bytes = new * widens * (width + 4) + new * 2 * width;
        bytes += new * width + scale * width + scale * widens * (width + 4);
        // Zero times each in f32, the sum of each head, and its sum with the largest.
        bytes += new * (4 + 4) + (new * 4 + scale * 4) + scale * (4 + 4 + 4);
        // The scales by 127; the quotients; to the nearest step; the codes.
        bytes += scale * (4 + 4) + (new * (4 + 4) + scale * 4) + new * (4 + 4) + new * (4 + 1);
        // Both are read and written into the cache.
        bytes += new * (1 + 1) + scale * (4 + 4);
        // All are read and cast, moved, and multiplied by their scales, which are cast unless they are f32.
        bytes += all * (1 + width) + all * 2 * width + scales * (4 + widens * 2 * width) + all * 2 * width;
        assert_eq!(said, vec![bytes; layers as usize], "{dtype:?}");
    }
}

#[test]
fn a_key_that_is_no_number_makes_logits_that_are_none_in_8_bits_too() {
    let directory = tempfile::tempdir().unwrap();
    write_directory(directory.path(), &tiny(), false);
    let mut all = weights(&tiny());
    let mut keys = all["model.layers.1.self_attn.k_proj.weight"].to_vec2::<f32>().unwrap();
    // One feature of one head, in the middle: a maximum passes over it.
    keys[5][0] = f32::NAN;
    let keys = Tensor::new(keys, &Device::Cpu).unwrap();
    all.insert("model.layers.1.self_attn.k_proj.weight".into(), keys);
    candle_core::safetensors::save(&all, directory.path().join("model.safetensors")).unwrap();
    let source = ModelSource::parse(directory.path().to_str().unwrap()).unwrap();
    for kv_cache_dtype in [KvCacheDType::Auto, KvCacheDType::Q8] {
        for dtype in [DType::F32, DType::BF16] {
            let options = LoadOptions { kv_cache_dtype, dtype: Some(dtype), ..LoadOptions::default() };
            let mut model = LoadedModel::load(&source, &options).unwrap().model;
            let logits =
                model.forward(&tokens(1, 7, 2, 96), 0).unwrap().flatten_all().unwrap().to_vec1::<f32>().unwrap();
            assert!(logits.iter().all(|x| x.is_nan()), "{kv_cache_dtype:?} in {dtype:?}: {:?}", &logits[..4]);
        }
    }
}

#[test]
fn a_model_of_candles_is_refused_with_what_to_do() {
    let options = LoadOptions { engine: Engine::Candle, kv_cache_dtype: KvCacheDType::Q8, ..LoadOptions::default() };
    let message = LoadedModel::load(&ModelSource::Embedded, &options).unwrap_err().to_string();
    for part in ["--kv-cache-dtype q8", "engine `instrumented`", "leave them out"] {
        assert!(message.contains(part), "{message}");
    }
    let ours = LoadOptions { engine: Engine::Auto, ..options };
    let loaded = LoadedModel::load(&ModelSource::Embedded, &ours).unwrap();
    assert_eq!(loaded.info.to_map()["kv_cache_dtype"], "q8");
    let plain = LoadedModel::load(&ModelSource::Embedded, &LoadOptions::default()).unwrap();
    assert!(!plain.info.to_map().contains_key("kv_cache_dtype"), "nothing to say");
}
