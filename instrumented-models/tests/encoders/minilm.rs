//! A real BERT with its own tokenizer: all-MiniLM-L6-v2, trained to give texts of like meaning like vectors.

use super::*;
use candlescope_testkit::tools::{MINILM, require};

#[test]
fn minilm_tells_meanings_apart() {
    let Some(weights) = require(&MINILM) else { return };
    let directory = weights.parent().unwrap();
    let texts = ["A man is eating food.", "Someone has a meal.", "The stock market fell sharply on Monday."];
    let (batch, vectors) = record(|| {
        let AnyModel::Encoder(model) = AnyModel::load(&at(directory), &candle()).unwrap() else {
            panic!("BERT only encodes")
        };
        // The published size; what the pooler would have is not read.
        assert_eq!(model.info.parameters, 30522 * 384 + 512 * 384 + 2 * 384 + 2 * 384 + 6 * 1_774_464);
        texts.map(|text| {
            let tokens = model.encode_prompt(text).unwrap();
            // Its tokenizer pads to 128, for training.
            assert!(tokens.len() < 16 && tokens[0] == 101 && tokens.last() == Some(&102), "{tokens:?}");
            encode(&model, &[tokens]).unwrap().vectors.remove(0)
        })
    });
    let cosine = |a: &[f32], b: &[f32]| {
        let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(x, y)| x * y).sum::<f32>();
        dot(a, b) / (dot(a, a) * dot(b, b)).sqrt()
    };
    let [near, far] = [cosine(&vectors[0], &vectors[1]), cosine(&vectors[0], &vectors[2])];
    assert!(near > 0.5 && far < 0.2, "{near} {far}");
    assert_eq!(batch.steps.len(), 3);
    let modules: Vec<_> = batch.spans.iter().filter_map(|span| span.path.module.as_deref()).collect();
    assert!(modules.contains(&"encoder.layer.5.output.dense"), "{modules:?}");
    assert!(batch.steps.iter().all(|step| step.flops.is_some()));
}
