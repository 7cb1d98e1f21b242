//! How far a graph's logits are from those of the model called by itself, and that they choose another token only where two
//! are as good as equal. A graph attends to the whole context that it was captured for, so that its sums are added up in another
//! order, and in 16 bits another order is another rounding.

use super::{SlotDecoder, SlotModel, SlotOptions, SlotStepRun, capturable_device};
use crate::config::ModelConfig;
use crate::gpt2::Gpt2;
use crate::llama::Llama;
use crate::tokenizer::Tokenizer;
use crate::weights::gguf::{GgufFile, GgufWeights};
use crate::weights::random::RandomWeights;
use candle_core::{DType, Device, Tensor};
use std::path::Path;

/// How near the two best logits have to be for rounding to choose between them: in spacings of 16-bit numbers (bf16, 8 digits)
/// of the size of the best.
const NEAR: f32 = 4.0;

/// How far any logit of a graph in bf16 may be from the model's own, in spacings of the best: 5.0 was the most with random weights.
const APART: f32 = 8.0;

/// Tokens of the prompt and of the text.
const PROMPT: usize = 64;
const TEXT: usize = 200;

/// A trained Llama in a GGUF file, whose weights are widened, is looked at as well.
const TRAINED: &str = "CANDLESCOPE_TRAINED_GGUF";
/// What it is asked to go on with.
const BEGUN: &str = "A profiler tells where the time of a program goes. It does so in one of two ways: it asks the program, many times \
                     in a second, where it is, or it makes the program say when it enters and leaves each part. Both ways cost \
                     something, and whoever measures has to know how much. Let us look at the two, one after the other, and ask what";

fn model(name: &str, dtype: DType, device: &Device) -> Box<dyn SlotModel> {
    if name.ends_with(".gguf") {
        let mut file = GgufFile::open(Path::new(name)).unwrap();
        let mut config = file.config().unwrap();
        let mut weights = GgufWeights::dequantized(&mut file, &mut config, dtype, device);
        return Box::new(Llama::load(&config.clone(), &mut weights, dtype, device).unwrap());
    }
    let config = ModelConfig::named(name).expect("a name that there is");
    let mut weights = RandomWeights::new(&config, 42, dtype, device);
    match name {
        "gpt2" => Box::new(Gpt2::load(&config, &mut weights, dtype, device).unwrap()),
        _ => Box::new(Llama::load(&config, &mut weights, dtype, device).unwrap()),
    }
}

/// The place of the largest logit, it, and the largest of the others.
fn best(logits: &[f32]) -> (usize, f32, f32) {
    let (mut place, mut first, mut second) = (0, f32::NEG_INFINITY, f32::NEG_INFINITY);
    for (n, logit) in logits.iter().enumerate() {
        if *logit > first {
            (place, first, second) = (n, *logit, first);
        } else if *logit > second {
            second = *logit;
        }
    }
    (place, first, second)
}

fn say(text: &str) {
    candlescope_core::diagnostics::print(&format!("{text}\n"));
}

/// Distance of a bf16 number of this size from the next.
fn spacing(of: f32) -> f32 {
    (of.abs().log2().floor() - 7.0).exp2()
}

/// What a model writes by its own choice, call by call.
struct ByCalls {
    prompt: Vec<u32>,
    text: Vec<u32>,
    /// The logits that each token was chosen from, and those after the last.
    logits: Vec<Vec<f32>>,
}

fn tokens(ids: &[u32], rows: usize, device: &Device) -> Tensor {
    Tensor::new(ids, device).unwrap().unsqueeze(0).unwrap().repeat((rows, 1)).unwrap()
}

fn by_calls(name: &str, dtype: DType, device: &Device) -> ByCalls {
    let mut prompt: Vec<u32> = (0..PROMPT as u32).map(|n| (17 + 31 * n) % 1000).collect();
    if name.ends_with(".gguf") {
        prompt = Tokenizer::from_gguf(&GgufFile::open(Path::new(name)).unwrap()).unwrap().encode(BEGUN, false).unwrap();
        prompt.truncate(PROMPT);
    }
    let mut model = model(name, dtype, device);
    let mut pass = |ids: &[u32], at| {
        model.forward(&tokens(ids, 1, device), at).unwrap().squeeze(0).unwrap().to_vec1::<f32>().unwrap()
    };
    let (mut logits, mut text) = (vec![pass(&prompt, 0)], Vec::new());
    for position in prompt.len()..prompt.len() + TEXT {
        let token = best(&logits[logits.len() - 1]).0 as u32;
        text.push(token);
        logits.push(pass(&[token], position));
    }
    ByCalls { prompt, text, logits }
}

/// Decodes that text as a graph, in as many slots at once; the gaps, in spacings, at which the graph would have chosen
/// another token, of all slots.
fn gaps(name: &str, dtype: DType, device: &Device, slots: usize, by_calls: &ByCalls) -> Vec<f32> {
    let ByCalls { prompt, text, logits } = by_calls;
    let options = SlotOptions { slots, context: Some(1024), ..SlotOptions::default() };
    let mut as_graph = SlotDecoder::new(model(name, dtype, device), &options).unwrap();
    for slot in 0..slots {
        let begun = as_graph.prefill(slot, &tokens(prompt, 1, device), 0).unwrap().to_vec2::<f32>().unwrap();
        assert_eq!(best(&begun[0]).0 as u32, text[0], "the prompt's pass is the same calls");
    }
    let all: Vec<usize> = (0..slots).collect();
    let (mut found, mut apart) = (Vec::new(), 0.0f32);
    for (n, (token, by_calls)) in text.iter().zip(&logits[1..]).enumerate() {
        let rows = as_graph.step(&tokens(&[*token], slots, device), &all).unwrap().to_vec2::<f32>().unwrap();
        for (slot, row) in rows.iter().take(slots).enumerate() {
            let ((place, first, second), (other, ..)) = (best(by_calls), best(row));
            let most = row.iter().zip(by_calls).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            apart = apart.max(most / spacing(first));
            if place != other {
                let gap = (first - by_calls[other]) / spacing(first);
                say(&format!(
                    "{name} {dtype:?}, slot {slot} of {slots}: token {n}: {place} by calls ({first}, the next {second}), {other} as a \
                     graph ({} by calls, {gap:.2} spacings less); logits differ by up to {most}",
                    by_calls[other]
                ));
                found.push(gap);
            }
        }
    }
    assert!(matches!(as_graph.last_ran(), Some(SlotStepRun::Replay { .. })), "{:?}", as_graph.last_ran());
    say(&format!(
        "{name} {dtype:?}: {} of {slots} times {TEXT} tokens differ, logits by up to {apart:.2} spacings",
        found.len()
    ));
    assert!(dtype != DType::BF16 || apart <= APART, "{name}: logits differ by up to {apart} spacings, {APART} at most");
    found
}

#[test]
#[ignore = "needs a CUDA device"]
fn a_graph_chooses_what_the_model_chooses_unless_two_tokens_are_as_good_as_equal() {
    let device = capturable_device(0).expect("a CUDA device");
    let trained = std::env::var(TRAINED).ok();
    for name in ["smollm2-135m", "gpt2"].into_iter().chain(trained.as_deref()) {
        for dtype in [DType::F32, DType::BF16] {
            let by_calls = by_calls(name, dtype, &device);
            for slots in [1, 8] {
                let gaps = gaps(name, dtype, &device, slots, &by_calls);
                let most = if dtype == DType::F32 { 0.0 } else { NEAR };
                assert!(gaps.iter().all(|gap| *gap <= most && most > 0.0), "{name} {dtype:?} in {slots}: {gaps:?}");
            }
        }
    }
}
