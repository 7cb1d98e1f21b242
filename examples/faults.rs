//! A candle program with everyday faults, each made by a word in the variable `FAULTS`: what findings say of them, and
//! whether mending them brings what was promised.
//!
//! `FAULTS=dump CANDLESCOPE=parquet=runs,stacks=499 cargo run -p candlescope-examples --bin faults`, then
//! `candlescope optimise --run 'FAULTS=dump faults' --try faults --promise hot_overhead`
//!
//! | fault | finding |
//! |---|---|
//! | `dump` | `hot_overhead`: logits are written out as text for a log that nobody reads |
//! | `handed` | `blocked`: each token is handed to a logger, and waits until that has written it |
//! | `scratch` | `page_faults`: a large buffer is taken from the system and given back in each step |
//! | `padding` | `padding`: prompts are batched as they come, not by their lengths (alone; `faults prompts` does the same without) |

use candle_core::{DType, Device, Tensor};
use candle_nn::{VarBuilder, VarMap};
use candle_transformers::models::llama::{Cache, Config, Llama};
use candlescope::llm::{self, Tokens};
use candlescope::{Annotation, annotate};
use std::hint::black_box;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

const FAULTS: [&str; 4] = ["dump", "handed", "scratch", "padding"];
/// Answers, and the tokens of each.
const ANSWERS: usize = 12;
const TOKENS: usize = 48;
/// Bytes of a buffer of which a step uses a quarter. Of more than 32 MiB, the C library gives freed ones back at once.
const SCRATCH: usize = 40 << 20;
/// Of prompts that come in turns, in tokens.
const LENGTHS: [usize; 8] = [8, 64, 8, 64, 8, 64, 8, 64];
/// Prompts that are read at once.
const BATCH: usize = 4;

/// The model, and which faults the program has.
struct Program {
    model: Llama,
    config: Config,
    device: Device,
    faults: String,
    logger: Logger,
    scratch: Vec<u8>,
}

/// A thread that takes a millisecond to write a token down.
struct Logger {
    tokens: SyncSender<u32>,
    written: Receiver<()>,
}

impl Logger {
    fn start() -> Self {
        let (tokens, to_write) = sync_channel::<u32>(TOKENS * ANSWERS);
        let (done, written) = sync_channel(TOKENS * ANSWERS);
        let writes = move || {
            let mut log = Vec::new();
            for token in to_write {
                std::thread::sleep(Duration::from_millis(1));
                log.push(token);
                if done.send(()).is_err() {
                    break;
                }
            }
        };
        std::thread::Builder::new().name("logger".into()).spawn(writes).expect("a thread");
        Self { tokens, written }
    }
}

impl Program {
    fn has(&self, fault: &str) -> bool {
        self.faults.split(',').any(|word| word.trim() == fault)
    }

    fn cache(&self) -> anyhow::Result<Cache> {
        Ok(Cache::new(true, DType::F32, &self.config, &self.device)?)
    }

    /// An answer of so many tokens.
    fn answer(&mut self, prompt: &[u32]) -> anyhow::Result<Vec<u32>> {
        let mut cache = self.cache()?;
        let mut tokens = prompt.to_vec();
        let mut position = 0;
        while tokens.len() < prompt.len() + TOKENS {
            let new = &tokens[position..];
            let _step = match position {
                0 => llm::prefill(Tokens::new(new.len()).context(new.len())),
                _ => llm::decode(Tokens::new(1).context(tokens.len())),
            };
            let input = Tensor::new(new, &self.device)?.unsqueeze(0)?;
            let logits = self.model.forward(&input, position, &mut cache)?.squeeze(0)?;
            position = tokens.len();
            let next = logits.argmax(0)?.to_scalar::<u32>()?;
            self.after(&logits, next)?;
            tokens.push(next);
        }
        Ok(tokens)
    }

    /// What the program does with each token.
    fn after(&mut self, logits: &Tensor, next: u32) -> anyhow::Result<()> {
        if self.has("dump") {
            black_box(format!("{:?}", logits.narrow(0, 0, 2_048)?.to_vec1::<f32>()?));
        }
        if self.has("scratch") {
            self.scratch = vec![0; SCRATCH];
        }
        self.scratch.iter_mut().step_by(4_096).take(SCRATCH / 4_096 / 4).for_each(|byte| *byte = next as u8);
        black_box(&self.scratch);
        self.logger.tokens.send(next)?;
        if self.has("handed") {
            self.logger.written.recv()?;
        }
        Ok(())
    }

    /// Reads prompts of two lengths, several at once, padded to the longest of them.
    fn read_prompts(&self) -> anyhow::Result<()> {
        let mut lengths = LENGTHS.to_vec();
        if !self.has("padding") {
            lengths.sort_unstable();
        }
        for batch in lengths.chunks(BATCH) {
            let longest = *batch.iter().max().expect("not empty");
            let new: usize = batch.iter().sum();
            let _step = llm::prefill(Tokens::new(longest * BATCH).batch(BATCH).context(longest));
            annotate(Annotation::new().new_tokens(new));
            let input = Tensor::zeros((BATCH, longest), DType::U32, &self.device)?;
            self.model.forward(&input, 0, &mut self.cache()?)?;
        }
        Ok(())
    }
}

fn main() -> anyhow::Result<()> {
    let faults = std::env::var("FAULTS").unwrap_or_default();
    if let Some(unknown) = faults.split(',').map(str::trim).find(|word| !word.is_empty() && !FAULTS.contains(word)) {
        anyhow::bail!("FAULTS has `{unknown}`; there are {}", FAULTS.join(", "));
    }
    if faults.contains("padding") && faults.trim() != "padding" {
        anyhow::bail!("`padding` is of a program that only reads prompts: give it alone");
    }
    let _scope = candlescope::init();
    let device = Device::Cpu;
    let config = Config {
        hidden_size: 256,
        intermediate_size: 768,
        vocab_size: 4_096,
        num_hidden_layers: 6,
        num_attention_heads: 4,
        num_key_value_heads: 2,
        max_position_embeddings: 256,
        ..Config::config_7b_v2(false)
    };
    let weights = VarMap::new();
    let vb = VarBuilder::from_varmap(&weights, DType::F32, &device);
    let model = Llama::load(candlescope::observe(vb), &config)?;
    let mut program = Program { model, config, device, faults, logger: Logger::start(), scratch: vec![0; SCRATCH] };
    let mut tokens = 0;
    if program.has("padding") || std::env::args().any(|word| word == "prompts") {
        for _ in 0..ANSWERS {
            program.read_prompts()?;
            tokens += LENGTHS.iter().sum::<usize>();
        }
    } else {
        for first in 0..ANSWERS {
            tokens += program.answer(&[1, 5, 9, 42 + first as u32])?.len();
        }
    }
    println!("{tokens} tokens");
    Ok(())
}
