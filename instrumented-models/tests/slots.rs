//! Sequences in slots give what they give alone, whoever is beside them.
#![allow(missing_docs, reason = "a test")]
mod common;

use candle_core::{DType, Device, Tensor};
use candlescope_core::{MemoryExporter, Phase, Session, SpanRecord, llm};
use candlescope_models::config::GPT2;
use candlescope_models::slots::{EagerCause, SlotDecoder, SlotOptions, SlotStepRun};
use candlescope_models::weights::random::RandomWeights;
use candlescope_models::{
    CausalLm, GenerateOptions, Gpt2, Llama, LoadOptions, LoadedModel, ModelConfig, ModelSource, SamplingOptions,
    generate,
};
use common::*;
use tracing_subscriber::prelude::*;

fn gpt2() -> ModelConfig {
    let mut config = ModelConfig::named("gpt2").unwrap();
    (config.name, config.vocab_size, config.hidden_size, config.num_layers) = ("small".into(), 96, 64, 2);
    (config.num_heads, config.num_kv_heads, config.head_dim, config.max_context) = (4, 4, 16, 64);
    config.feed_forward = candlescope_models::config::FeedForward::Gelu { intermediate: 128 };
    assert_eq!(config.architecture, GPT2);
    config
}

/// The two families, and for each a decoder of so many slots with the same weights.
fn models(slots: usize, context: usize) -> Vec<(&'static str, Box<dyn CausalLm>, SlotDecoder)> {
    models_in(DType::F32, slots, context)
}

fn models_in(dtype: DType, slots: usize, context: usize) -> Vec<(&'static str, Box<dyn CausalLm>, SlotDecoder)> {
    let options = SlotOptions { slots, context: Some(context), ..SlotOptions::default() };
    let source = |config: &ModelConfig| RandomWeights::new(config, 7, dtype, &Device::Cpu);
    let llama = Llama::load(&tiny(), &mut source(&tiny()), dtype, &Device::Cpu).unwrap();
    let gpt2 = Gpt2::load(&gpt2(), &mut source(&gpt2()), dtype, &Device::Cpu).unwrap();
    let (a, b) = (Box::new(llama.clone()), Box::new(gpt2.clone()));
    vec![
        ("llama", a, SlotDecoder::new(Box::new(llama), &options).unwrap()),
        ("gpt2", b, SlotDecoder::new(Box::new(gpt2), &options).unwrap()),
    ]
}

fn best(logits: &Tensor) -> Vec<u32> {
    logits.argmax(1).unwrap().to_vec1().unwrap()
}

/// What a model alone makes of this prompt.
fn alone(model: &mut dyn CausalLm, prompt: &[u32], count: usize) -> Vec<u32> {
    let of = |tokens: &[u32]| Tensor::new(tokens, &Device::Cpu).unwrap().unsqueeze(0).unwrap();
    let mut next = best(&model.forward(&of(prompt), 0).unwrap())[0];
    let mut text = vec![next];
    for position in prompt.len()..prompt.len() + count - 1 {
        next = best(&model.forward(&of(&[next]), position).unwrap())[0];
        text.push(next);
    }
    text
}

/// Texts that grow in slots.
struct Growing {
    texts: Vec<Option<Vec<u32>>>,
}

impl Growing {
    fn begin(&mut self, decoder: &mut SlotDecoder, slot: usize, prompt: &[u32], chunk: usize) {
        let mut logits = None;
        for (n, part) in prompt.chunks(chunk).enumerate() {
            let part = Tensor::new(part, &Device::Cpu).unwrap().unsqueeze(0).unwrap();
            logits = Some(decoder.prefill(slot, &part, n * chunk).unwrap());
        }
        self.texts[slot] = Some(best(&logits.unwrap()));
    }

    fn step(&mut self, decoder: &mut SlotDecoder) {
        let last = |text: &Option<Vec<u32>>| text.as_ref().map_or(0, |text| *text.last().unwrap());
        let tokens: Vec<u32> = self.texts.iter().map(last).collect();
        let tokens = Tensor::from_vec(tokens, (self.texts.len(), 1), &Device::Cpu).unwrap();
        let slots: Vec<usize> = (0..self.texts.len()).filter(|slot| self.texts[*slot].is_some()).collect();
        let next = best(&decoder.step(&tokens, &slots).unwrap());
        for (text, next) in self.texts.iter_mut().zip(next) {
            if let Some(text) = text {
                text.push(next);
            }
        }
    }

    fn end(&mut self, slot: usize) -> Vec<u32> {
        self.texts[slot].take().unwrap()
    }
}

fn prompt(from: u32, count: u32) -> Vec<u32> {
    (0..count).map(|n| (from * 31 + n * 7) % 96).collect()
}

#[test]
fn sequences_that_come_and_go_are_as_if_alone() {
    for (name, mut model, mut decoder) in models(3, 64) {
        let mut expected = |from, count, tokens| alone(model.as_mut(), &prompt(from, count), tokens);
        let (a, b, c) = (expected(1, 9, 20), expected(2, 3, 12), expected(3, 17, 8));
        let mut growing = Growing { texts: vec![None, None, None] };
        growing.begin(&mut decoder, 0, &prompt(1, 9), 4);
        (0..3).for_each(|_| growing.step(&mut decoder));
        // A slot in between stays idle.
        growing.begin(&mut decoder, 2, &prompt(2, 3), 8);
        (0..5).for_each(|_| growing.step(&mut decoder));
        growing.begin(&mut decoder, 1, &prompt(3, 17), 17);
        (0..6).for_each(|_| growing.step(&mut decoder));
        assert_eq!(growing.end(2), b, "{name}");
        growing.step(&mut decoder);
        assert_eq!(growing.end(1), c, "{name}");
        (0..4).for_each(|_| growing.step(&mut decoder));
        assert_eq!(growing.end(0), a, "{name}");
        // A slot that was used before.
        growing.begin(&mut decoder, 1, &prompt(2, 3), 1);
        (0..11).for_each(|_| growing.step(&mut decoder));
        assert_eq!(growing.end(1), b, "{name}, in a slot that another has left");
        assert_eq!(decoder.last_ran(), Some(SlotStepRun::Eager(EagerCause::NoDevice)), "a CPU has no graphs");
    }
}

/// Distance from 1 to the next larger number of bf16, which keeps 8 binary digits.
const BF16_EPSILON: f32 = 1.0 / 128.0;

/// Logits of a prompt's last token and of those that follow it, each the likeliest.
fn logits_alone(model: &mut dyn CausalLm, prompt: &[u32], count: usize) -> Vec<Vec<f32>> {
    let of = |tokens: &[u32]| Tensor::new(tokens, &Device::Cpu).unwrap().unsqueeze(0).unwrap();
    let row = |logits: Tensor| logits.get(0).unwrap().to_vec1::<f32>().unwrap();
    let mut all = vec![row(model.forward(&of(prompt), 0).unwrap())];
    for position in prompt.len()..prompt.len() + count - 1 {
        let (next, _) = lead(all.last().unwrap());
        all.push(row(model.forward(&of(&[next]), position).unwrap()));
    }
    all
}

/// The likeliest token, and by how much its logit leads.
fn lead(logits: &[f32]) -> (u32, f32) {
    let mut order: Vec<usize> = (0..logits.len()).collect();
    order.sort_by(|a, b| logits[*b].total_cmp(&logits[*a]));
    (order[0] as u32, logits[order[0]] - logits[order[1]])
}

/// Sequences side by side are rounded at other places than one alone. The text is given, so that one token that is as likely
/// as another does not end the comparison.
#[test]
fn in_bf16_slots_choose_the_same_tokens_wherever_one_leads_by_more_than_rounding() {
    let (prompts, count) = ([prompt(1, 9), prompt(2, 3), prompt(3, 17)], 24);
    let layers = [tiny().num_layers, gpt2().num_layers];
    for ((name, mut model, mut decoder), layers) in models_in(DType::BF16, 3, 64).into_iter().zip(layers) {
        // What a token becomes is rounded after attention and after the feed-forward part of each layer, and at the end.
        let roundings = (2 * layers + 1) as f32;
        let expected: Vec<_> = prompts.iter().map(|prompt| logits_alone(model.as_mut(), prompt, count)).collect();
        let (mut decided, mut compared) = (0, 0);
        let mut compare = |slot: usize, step: usize, logits: Vec<f32>| {
            let alone = &expected[slot][step];
            let largest = alone.iter().fold(0f32, |most, logit| most.max(logit.abs()));
            let tolerance = roundings * BF16_EPSILON * largest;
            let apart = alone.iter().zip(&logits).map(|(a, b)| (a - b).abs()).fold(0f32, f32::max);
            assert!(apart <= tolerance, "{name}, slot {slot}, step {step}: {apart} of {largest}, within {tolerance}");
            let (token, by) = lead(alone);
            compared += 1;
            if by > 2.0 * tolerance {
                decided += 1;
                assert_eq!(lead(&logits).0, token, "{name}, slot {slot}, step {step}: it leads by {by}");
            }
        };
        for (slot, prompt) in prompts.iter().enumerate() {
            let tokens = Tensor::new(prompt.as_slice(), &Device::Cpu).unwrap().unsqueeze(0).unwrap();
            let logits = decoder.prefill(slot, &tokens, 0).unwrap();
            compare(slot, 0, logits.get(0).unwrap().to_vec1().unwrap());
        }
        for step in 1..count {
            let given: Vec<u32> = expected.iter().map(|alone| lead(&alone[step - 1]).0).collect();
            let tokens = Tensor::from_vec(given, (prompts.len(), 1), &Device::Cpu).unwrap();
            let logits = decoder.step(&tokens, &[0, 1, 2]).unwrap().to_vec2::<f32>().unwrap();
            logits.into_iter().enumerate().for_each(|(slot, logits)| compare(slot, step, logits));
        }
        assert_eq!(compared, prompts.len() * count);
        assert!(decided >= compared / 10, "{name}: {decided} of {compared} say something about tokens");
    }
}

#[test]
fn an_idle_slot_keeps_what_it_holds() {
    for (name, mut model, mut decoder) in models(2, 64) {
        let expected = alone(model.as_mut(), &prompt(4, 10), 6);
        let mut growing = Growing { texts: vec![None, None] };
        growing.begin(&mut decoder, 1, &prompt(4, 10), 10);
        (0..2).for_each(|_| growing.step(&mut decoder));
        let text = growing.texts[1].take().unwrap();
        // Idle while another goes on, then taken up again where it was: its keys and values are still there.
        growing.begin(&mut decoder, 0, &prompt(5, 5), 5);
        (0..9).for_each(|_| growing.step(&mut decoder));
        growing.end(0);
        growing.texts[1] = Some(text.clone());
        (0..3).for_each(|_| growing.step(&mut decoder));
        assert_eq!(growing.end(1), expected, "{name}");
        // Back to where it was.
        decoder.truncate(1, 12);
        growing.texts[1] = Some(text);
        (0..3).for_each(|_| growing.step(&mut decoder));
        assert_eq!(growing.end(1), expected, "{name}, again");
    }
}

#[test]
fn generation_is_the_same_with_and_without_slots() {
    let drawn = SamplingOptions { temperature: Some(0.8), top_k: Some(50), top_p: Some(0.95), ..Default::default() };
    let penalised = SamplingOptions { repeat_penalty: 1.3, ..drawn.clone() };
    for sampling in [SamplingOptions::default(), drawn, penalised] {
        is_the_same_with_and_without_slots(&sampling);
    }
}

fn is_the_same_with_and_without_slots(sampling: &SamplingOptions) {
    let source = ModelSource::parse("embedded").unwrap();
    let text = |slots: Option<SlotOptions>, batch: usize| {
        let mut loaded = LoadedModel::load(&source, &LoadOptions { slots, ..LoadOptions::default() }).unwrap();
        let prompts = vec![loaded.encode_prompt("Once upon a time").unwrap(); batch];
        let options = GenerateOptions {
            max_new_tokens: 40,
            ignore_eos: true,
            seed: 3,
            sampling: sampling.clone(),
            ..Default::default()
        };
        (0..2).map(|_| generate(&mut loaded, &prompts, &options, &mut |_| {}).unwrap().sequences).collect::<Vec<_>>()
    };
    for batch in [1, 3] {
        let slots = SlotOptions { slots: 3, context: Some(128), ..SlotOptions::default() };
        assert_eq!(text(Some(slots), batch), text(None, batch), "batch {batch}");
    }
}

#[test]
fn what_does_not_fit_is_named() {
    let (_, _, mut decoder) = models(2, 20).remove(0);
    let tokens = |batch: usize, count: usize| tokens(batch, count, 0, 96);
    let message = |result: candle_core::Result<Tensor>| result.unwrap_err().to_string();
    assert!(message(decoder.prefill(0, &tokens(3, 4), 0)).contains("3 sequences from slot 0 on do not fit 2 slots"));
    assert!(message(decoder.prefill(0, &tokens(1, 21), 0)).contains("21 tokens exceed the context of 20"));
    assert!(message(decoder.prefill(0, &tokens(1, 2), 3)).contains("position 3 leaves a gap"));
    assert!(message(decoder.step(&tokens(1, 1), &[0])).contains("slot 0 holds 0 of 20"), "nothing is there");
    assert!(message(decoder.step(&tokens(1, 1), &[])).contains("for the slots []"));
    decoder.prefill(1, &tokens(1, 19), 0).unwrap();
    assert!(message(decoder.step(&tokens(1, 1), &[1])).contains("1 tokens for the slots [1] of 2"));
    decoder.step(&tokens(2, 1), &[1]).unwrap();
    assert!(message(decoder.step(&tokens(2, 1), &[1])).contains("leaves when its slot is full"));
    let huge = SlotOptions { slots: 1, context: Some(301), ..SlotOptions::default() };
    let mut source = RandomWeights::new(&tiny(), 7, DType::F32, &Device::Cpu);
    let model = Llama::load(&tiny(), &mut source, DType::F32, &Device::Cpu).unwrap();
    assert!(SlotDecoder::new(Box::new(model), &huge).unwrap_err().to_string().contains("exceed the context of 300"));
}

/// Of a step of these slots, one idle slot before them: FLOPs of attention's products, those executed, and bytes of keys and
/// values.
fn work_of(family: usize, prompts: &[u32]) -> [u64; 3] {
    let memory = MemoryExporter::new();
    let (layer, session) = Session::builder().exporter(memory.clone()).start().unwrap();
    listening(tracing_subscriber::registry().with(layer), || {
        // Spans are made with the model.
        let (_, _, mut decoder) = models(prompts.len() + 1, 64).remove(family);
        let slots: Vec<usize> = (1..=prompts.len()).collect();
        for (slot, count) in slots.iter().zip(prompts) {
            let tokens = Tensor::new(prompt(1, *count), &Device::Cpu).unwrap().unsqueeze(0).unwrap();
            decoder.prefill(*slot, &tokens, 0).unwrap();
        }
        let _step = llm::decode(llm::Tokens::new(prompts.len()));
        decoder.step(&tokens(prompts.len() + 1, 1, 0, 96), &slots).unwrap();
    });
    assert!(session.finish().verdict.ok);
    let batch = memory.batch();
    let of_step = |span: &&SpanRecord| {
        span.phase == Some(Phase::Decode) && ["scores", "context", "kv_cache"].contains(&&*span.path.name)
    };
    let spans: Vec<&SpanRecord> = batch.spans.iter().filter(of_step).collect();
    let sum = |of: fn(&SpanRecord) -> Option<u64>| spans.iter().filter_map(|span| of(span)).sum::<u64>();
    [sum(|span| span.flops), sum(|span| span.flops_executed.or(span.flops)), sum(|span| span.bytes)]
}

#[test]
fn a_step_needs_what_its_sequences_need_alone() {
    for family in 0..2 {
        let ([a, _, read_a], [b, _, read_b]) = (work_of(family, &[10]), work_of(family, &[50]));
        let [needed, executed, read] = work_of(family, &[10, 50]);
        assert_eq!((needed, read), (a + b, read_a + read_b), "family {family}");
        // Three rows, each multiplied with 51 positions, where 11 and 51 are needed.
        assert_eq!(executed * (11 + 51), needed * 3 * 51, "family {family}");
    }
}
