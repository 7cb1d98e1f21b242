//! The language model of a program, where the user says which one it is: what its steps do.

use crate::claim::Settings;
use crate::patterns::PassedBefore;
use candlescope_core::run::model_key;
use candlescope_core::{Annotation, Handle, Phase};
use candlescope_work::devices::Format;
use candlescope_work::input::{Input, Widths};
use candlescope_work::operation::Cost;
use candlescope_work::shape::ModelShape;
use candlescope_work::step::step;
use std::cell::Cell;

/// Bytes of a 32-bit float, and of those of 16 bits in which all other models compute.
const WIDE: f64 = 4.0;
const NARROW: f64 = 2.0;
/// The largest config.json that is read: a thousand times what one holds.
const MOST_BYTES: u64 = 16 << 20;

/// What the user says of a program's model.
#[derive(Debug)]
pub(crate) struct Model {
    shape: ModelShape,
    dtype: String,
    widths: Widths,
    batch: u64,
    /// Tokens of each prompt, if they are always as many.
    prompt: Option<u64>,
}

thread_local! {
    /// Tokens that the sequences of this thread have; 0 before the first, [`LOST`] if that is not known any more.
    static CONTEXT: Cell<u64> = const { Cell::new(0) };
}

/// Steps passed that nobody saw.
const LOST: u64 = u64::MAX;

impl Model {
    /// The one that the settings of the recording name, if they do.
    ///
    /// # Errors
    /// What is wrong with them.
    pub(crate) fn told(settings: &Settings) -> Result<Option<Self>, String> {
        let Some(file) = &settings.model else { return Ok(None) };
        let text = candlescope_core::files::read_text_limited(std::path::Path::new(file), MOST_BYTES)
            .map_err(|error| format!("{}: {error}", file.display()))?;
        Self::of(&text, &settings.work).map(Some)
    }

    /// `work`: `batch=1,prompt=64,dtype=bf16`, each of which may be missing.
    pub(crate) fn of(config: &str, work: &str) -> Result<Self, String> {
        let shape = ModelShape::from_config_text("the program's model", config).map_err(|error| error.to_string())?;
        let said = candlescope_core::injected::Work::parse(work)?;
        let dtype = said.dtype.unwrap_or_else(|| "bf16".into());
        let format = Format::named(&dtype).map_err(|error| error.to_string())?;
        let weights = format.bytes(1.0);
        let width = if weights >= WIDE { WIDE } else { NARROW };
        let widths =
            Widths { weights, activations: width, cached: width, products: width, in_blocks: weights < NARROW };
        Ok(Self { shape, dtype, widths, batch: said.batch.unwrap_or(1), prompt: said.prompt })
    }

    /// Its layers, each of which launches a kernel at least.
    pub(crate) fn layers(&self) -> u32 {
        u32::try_from(self.shape.layers).unwrap_or(u32::MAX)
    }

    /// Has the run say which model it is.
    pub(crate) fn tell(&self, handle: &Handle) {
        let shape = &self.shape;
        let sizes = [
            (model_key::VOCAB_SIZE, shape.vocab),
            (model_key::HIDDEN_SIZE, shape.hidden),
            (model_key::LAYERS, shape.layers),
            (model_key::HEADS, shape.heads),
            (model_key::KV_HEADS, shape.kv_heads),
            (model_key::HEAD_DIM, shape.head_dim),
            (model_key::INTERMEDIATE_SIZE, shape.feed_forward.intermediate()),
            (model_key::PARAMETERS, shape.parameters()),
        ];
        sizes.into_iter().for_each(|(key, value)| handle.set_model(key.name(), value));
        handle.set_model(model_key::ARCHITECTURE.name(), shape.architecture.clone());
        handle.set_model(model_key::DTYPE.name(), self.dtype.clone());
        if let Some(longest) = shape.max_context {
            handle.set_model(model_key::CONTEXT_LENGTH.name(), longest);
        }
    }

    /// Nobody saw what this thread did until now: how many tokens its sequences have is known by their next prompt.
    pub(crate) fn lose(&self) {
        let _ = CONTEXT.try_with(|context| context.set(LOST));
    }

    /// Tokens of this thread are known as such from here on; before them came this.
    pub(crate) fn recognises(&self, passed: PassedBefore) {
        let Some(prompt) = self.prompt else { return };
        let _ = CONTEXT.try_with(|context| match (passed, context.get()) {
            (PassedBefore::Prompt(tokens), _) => context.set(prompt.saturating_add(tokens)),
            (PassedBefore::Repetitions(tokens), has) if has != 0 && has != LOST => {
                context.set(has.saturating_add(tokens));
            }
            _ => context.set(LOST),
        });
    }

    /// A step of this phase has ended on this thread: what it did, if that follows from what is known.
    pub(crate) fn did(&self, phase: Phase) -> Option<Annotation> {
        let has = CONTEXT.try_with(Cell::get).ok()?;
        let count = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
        if (phase, has) == (Phase::Decode, LOST) {
            return Some(Annotation::new().tokens(count(self.batch)).batch(count(self.batch)));
        }
        let input = match (phase, self.prompt) {
            (Phase::Prefill, Some(prompt)) => Input::prompt(self.batch, prompt),
            (Phase::Decode, _) if has > 0 => Input::token(self.batch, has + 1),
            // The first range of a token, of a program that makes none around its prompt. Of its own steps
            // [`recognises`](Self::recognises) said before what came.
            (Phase::Decode, Some(prompt)) => Input::token(self.batch, prompt + 1),
            _ => return None,
        };
        CONTEXT.set(input.context);
        let cost: Cost = step(&self.shape, input, self.widths, 1).iter().map(|of| of.cost * of.calls).sum();
        let tokens = count(self.batch * input.tokens);
        Some(Annotation::from(cost).tokens(tokens).batch(count(self.batch)).context_len(count(input.context)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONFIG: &str = r#"{"model_type": "llama", "vocab_size": 100, "hidden_size": 64, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 128, "tie_word_embeddings": true}"#;

    #[test]
    fn tokens_follow_their_prompt() {
        let model = Model::of(CONFIG, "batch=2,prompt=8,dtype=f32").expect("a model");
        assert_eq!(model.widths.weights, 4.0);
        let prompt = model.did(Phase::Prefill).expect("known");
        let token = model.did(Phase::Decode).expect("known");
        let same =
            |input| -> Cost { step(&model.shape, input, model.widths, 1).iter().map(|of| of.cost * of.calls).sum() };
        assert_eq!(prompt, Annotation::from(same(Input::prompt(2, 8))).tokens(16).batch(2).context_len(8));
        assert_eq!(token, Annotation::from(same(Input::token(2, 9))).tokens(2).batch(2).context_len(9));
        assert_eq!(
            model.did(Phase::Decode).expect("known"),
            Annotation::from(same(Input::token(2, 10))).tokens(2).batch(2).context_len(10)
        );
        assert_eq!(model.did(Phase::Sample), None);
        // What was not seen is not made up, until the next prompt.
        model.lose();
        let tokens = Annotation::new().tokens(2).batch(2);
        assert_eq!([model.did(Phase::Decode), model.did(Phase::Decode)], [Some(tokens), Some(tokens)]);
        assert_eq!(model.did(Phase::Prefill).expect("known"), prompt);
        assert_eq!(model.did(Phase::Decode).expect("known"), token);
    }

    #[test]
    fn tokens_that_are_known_late_have_the_context_of_those_before_or_none() {
        let model = Model::of(CONFIG, "batch=1,prompt=8").expect("a model");
        let token = |model: &Model| model.did(Phase::Decode).expect("tokens at least");
        model.recognises(PassedBefore::Prompt(3));
        let same: Cost =
            step(&model.shape, Input::token(1, 12), model.widths, 1).iter().map(|of| of.cost * of.calls).sum();
        assert_eq!(token(&model), Annotation::from(same).tokens(1).batch(1).context_len(12));
        // Three of another pattern, and the fifth token after it was known.
        model.recognises(PassedBefore::Repetitions(3));
        let same: Cost =
            step(&model.shape, Input::token(1, 16), model.widths, 1).iter().map(|of| of.cost * of.calls).sum();
        assert_eq!(token(&model), Annotation::from(same).tokens(1).batch(1).context_len(16));
        model.recognises(PassedBefore::Unknown);
        assert_eq!(token(&model), Annotation::new().tokens(1).batch(1), "neither context nor work");
        let without_prompt = Model::of(CONFIG, "batch=1").expect("a model");
        let other = std::thread::spawn(move || {
            without_prompt.recognises(PassedBefore::Prompt(3));
            without_prompt.did(Phase::Decode)
        });
        assert_eq!(other.join().expect("a thread"), None);
    }

    #[test]
    fn what_nobody_said_is_not_made_up() {
        let model = Model::of(CONFIG, "").expect("a model");
        assert_eq!((model.batch, model.dtype.as_str()), (1, "bf16"));
        let other = std::thread::spawn(move || (model.did(Phase::Prefill), model.did(Phase::Decode)));
        assert_eq!(other.join().expect("a thread"), (None, None));
        for (config, work, part) in [
            ("{}", "", "model_type"),
            (CONFIG, "batch=0", "batch"),
            (CONFIG, "dtype=f17", "f17"),
            (CONFIG, "tokens=4", "tokens"),
        ] {
            let error = Model::of(config, work).expect_err("it is wrong");
            assert!(error.contains(part), "{error}");
        }
    }
}
