//! Malicious models: each is refused with an error that names the problem, or runs within bounded time and memory.
#![allow(missing_docs, reason = "a test")]
mod common;
#[path = "common/peak.rs"]
mod peak;

use candle_core::quantized::GgmlDType;
use candle_core::quantized::gguf_file::Value;
use candlescope_models::chat::{ChatError, ChatTemplate, Message};
use candlescope_models::load::{Engine, LoadError, LoadOptions, LoadedModel};
use candlescope_models::{GenerateOptions, ModelConfig, ModelSource, Tokenizer, generate};
use common::*;
use peak::peak_bytes;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::json;
use std::path::Path;
use std::time::{Duration, Instant};

/// Most memory for all tests of this file together; normal loading of the tiny model takes about 3 MB.
const CEILING: usize = 256 << 20;

fn source(path: &Path) -> ModelSource {
    if path.is_dir() { ModelSource::Directory(path.into()) } else { ModelSource::Gguf(path.into()) }
}

fn try_load(path: &Path, engine: Engine) -> Result<LoadedModel, LoadError> {
    let started = Instant::now();
    let loaded = LoadedModel::load(&source(path), &LoadOptions { engine, ..LoadOptions::default() });
    assert!(started.elapsed() < Duration::from_secs(20), "loading took {:?}", started.elapsed());
    assert!(peak_bytes() < CEILING, "{} bytes at once", peak_bytes());
    loaded
}

/// The error with which both engines refuse the model at `path`.
#[track_caller]
fn refused(path: &Path, parts: &[&str]) {
    for engine in [Engine::Instrumented, Engine::Candle] {
        let error = try_load(path, engine).expect_err("it was loaded");
        assert!(!matches!(error, LoadError::Panicked { .. }), "{error}");
        let message = error.to_string();
        for part in parts {
            assert!(message.contains(part), "`{part}` is not in: {message}");
        }
    }
}

/// Chat templates of pieces in random order: those that are rendered in this process are cheap.
#[test]
fn what_a_chat_template_may_do_in_this_process() {
    const PIECES: [&str; 34] = [
        "m",
        "m.content",
        "m.role",
        "m['content']",
        "|upper",
        "|title",
        "|trim",
        ".strip()",
        ".upper()",
        " ~ ",
        " + ",
        " == ",
        " - ",
        "(",
        ")",
        "'é\\\\'",
        "1",
        "0b0or",
        " and ",
        " not ",
        " if ",
        " else ",
        "loop",
        ".first",
        ".index0",
        "messages",
        "[0]",
        "[1:]",
        "[::-1]",
        "bos_token",
        " in ",
        "[",
        "]",
        "|length",
    ];
    let turns = [Message::new("user", &"é".repeat(100_000)), Message::new("assistant", "")];
    let mut random = StdRng::seed_from_u64(1);
    let mut rendered = 0;
    for _ in 0..30_000 {
        let length = random.random_range(1..9);
        let code: String = (0..length).map(|_| PIECES[random.random_range(0..PIECES.len())]).collect();
        let source = format!("{{% for m in messages %}}{{{{ {code} }}}}{{% endfor %}}");
        let started = Instant::now();
        // This test does not call `isolate`.
        rendered +=
            usize::from(!matches!(ChatTemplate::new(&source, "<s>", "").render(&turns, true), Err(ChatError::Host(_))));
        assert!(started.elapsed() < Duration::from_secs(5), "{source}");
        assert!(peak_bytes() < CEILING, "{} bytes at once: {source}", peak_bytes());
    }
    assert!(rendered > 1_000, "{rendered} of 30,000");
}

fn config() -> ModelConfig {
    let mut config = tiny();
    config.rope.interleaved = true;
    config
}

/// A GGUF header written by hand.
struct Raw(Vec<u8>);

impl Raw {
    fn new(tensors: u64, entries: u64) -> Self {
        Self(b"GGUF\x03\0\0\0".to_vec()).u64(tensors).u64(entries)
    }
    fn u32(mut self, value: u32) -> Self {
        self.0.extend(value.to_le_bytes());
        self
    }
    fn u64(mut self, value: u64) -> Self {
        self.0.extend(value.to_le_bytes());
        self
    }
    fn text(self, text: &str) -> Self {
        let mut raw = self.u64(text.len() as u64);
        raw.0.extend(text.as_bytes());
        raw
    }
    fn tensor(self, name: &str, dimensions: &[u64], kind: u32, offset: u64) -> Self {
        let raw = self.text(name).u32(dimensions.len() as u32);
        dimensions.iter().fold(raw, |raw, d| raw.u64(*d)).u32(kind).u64(offset)
    }
    #[track_caller]
    fn refused(mut self, parts: &[&str]) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("model.gguf");
        self.0.resize(self.0.len() + 256, 0);
        std::fs::write(&path, self.0).unwrap();
        refused(&path, &[&["model.gguf"], parts].concat());
    }
}

#[test]
fn alignments_that_cannot_be() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("model.gguf");
    for (value, shown) in [
        (Value::U32(0), "is 0"),
        (Value::U8(0), "is 0"),
        (Value::U32(33), "is 33"),
        (Value::U32(1 << 31), "is 2147483648"),
        (Value::I32(-32), "is -32"),
        (Value::U64(32), "is of type 10"),
        (Value::String("32".into()), "is of type 8"),
    ] {
        let mut metadata = gguf_metadata(&config());
        metadata.push(("general.alignment".into(), value));
        write_gguf(&path, &config(), GgmlDType::Q8_0, &metadata);
        refused(&path, &["model.gguf", "`general.alignment`", shown]);
    }
    let mut metadata = gguf_metadata(&config());
    metadata.push(("general.alignment".into(), Value::U32(32)));
    write_gguf(&path, &config(), GgmlDType::Q8_0, &metadata);
    try_load(&path, Engine::Instrumented).unwrap();
}

#[test]
fn tensors_whose_sizes_overflow() {
    // Products that wrap to 0, products that wrap to a small number, and one of which only the bytes overflow.
    for dimensions in [&[1 << 32, 1 << 32][..], &[(1 << 63) + 1, 2], &[1 << 62, 1], &[0, 5], &[u64::MAX; 4]] {
        Raw::new(1, 0).tensor("token_embd.weight", dimensions, 0, 0).refused(&["tensor `token_embd.weight`"]);
    }
    Raw::new(1, 0).tensor("x", &[33], 8, 0).refused(&["tensor `x`", "[33]", "no whole number of blocks"]);
    Raw::new(1, 0).tensor("x", &[32], 0, u64::MAX - 5).refused(&["truncated: tensor `x`"]);
    Raw::new(1, 0).tensor("x", &[1; 5], 0, 0).refused(&["tensor `x` has 5 dimensions"]);
    let overlapping = (0..40).fold(Raw::new(40, 0), |raw, i| raw.tensor(&format!("t{i}"), &[32], 0, 0));
    overlapping.refused(&["overlap"]);
}

#[test]
fn claims_larger_than_the_file() {
    Raw::new(1 << 60, 0).refused(&["1152921504606846976 tensors", "limit of 65536"]);
    Raw::new(0, u64::MAX).refused(&["metadata entries", "limit of 65536"]);
    Raw::new(60_000, 0).refused(&["truncated: the header"]);
    Raw::new(0, 1).u64(1 << 40).refused(&["metadata entry 0", "limit of 65535"]);
    let entry = |kind| Raw::new(0, 1).text("a.key").u32(kind);
    entry(8).u64(1 << 29).refused(&["truncated: the header (`a.key`)"]);
    entry(8).u64(u64::MAX).refused(&["truncated: the header (`a.key`)"]);
    entry(9).u32(0).u64(1 << 20).refused(&["truncated: the header (`a.key`)"]);
    entry(9).u32(10).u64(u64::MAX).refused(&["`a.key`", "limit of 8388608"]);
    entry(99).refused(&["`a.key`", "unknown type 99"]);
    (0..200).fold(entry(9), |raw, _| raw.u32(9).u64(1)).refused(&["`a.key`", "nests arrays deeper than 8"]);
}

#[test]
fn a_declared_context_costs_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("model.gguf");
    let write = |context: Value| {
        let mut metadata = gguf_metadata(&config());
        metadata.iter_mut().filter(|(k, _)| k == "llama.context_length").for_each(|(_, v)| *v = context.clone());
        write_gguf(&path, &config(), GgmlDType::Q8_0, &metadata);
    };
    write(Value::U32(10_000_000));
    for (engine, longest) in [(Engine::Instrumented, 10_000_000), (Engine::Candle, 4096)] {
        let mut loaded = try_load(&path, engine).unwrap();
        assert_eq!(loaded.info.context_length, longest);
        let options = GenerateOptions { max_new_tokens: 3, ignore_eos: true, ..GenerateOptions::default() };
        let output = generate(&mut loaded, &[vec![3, 4, 5]], &options, &mut |_| {}).unwrap();
        assert_eq!(output.sequences[0].tokens.len(), 3);
    }
    for beyond in [Value::U64(1 << 40), Value::U64((1 << 32) + 300), Value::U32(u32::MAX)] {
        write(beyond);
        refused(&path, &["model.gguf", "context is", "limit of 16777216"]);
    }
    // candle's own dense model makes its tables for the context that its configuration declares.
    let directory = tempfile::tempdir().unwrap();
    write_directory(directory.path(), &ModelConfig { max_context: 10_000_000, ..tiny() }, false);
    for engine in [Engine::Instrumented, Engine::Candle] {
        let mut loaded = try_load(directory.path(), engine).unwrap();
        loaded.model.reserve(40_000);
        loaded.model.forward(&tokens(1, 3, 0, 96), 0).unwrap();
        loaded.model.forward(&tokens(1, 1, 0, 96), 3).unwrap();
    }
    assert!(peak_bytes() < CEILING, "{} bytes at once", peak_bytes());
}

#[test]
fn configurations_beyond_any_model() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    write_directory(path, &tiny(), false);
    for (key, value, shown) in [
        ("num_hidden_layers", json!(1u64 << 60), "layers is 1152921504606846976, more than the limit of 4096"),
        ("vocab_size", json!(u64::MAX), "vocabulary is 18446744073709551615, more than the limit"),
        ("hidden_size", json!(1u64 << 40), "hidden size is"),
        ("intermediate_size", json!(0), "feed-forward width is 0"),
        ("head_dim", json!(1u64 << 62), "head size is"),
        ("num_attention_heads", json!(1u64 << 20), "heads times head size is"),
        ("max_position_embeddings", json!((1u64 << 32) + 1), "context is 4294967297"),
        ("rope_theta", json!(0), "rotary base 0"),
    ] {
        let mut changed = config_json(&tiny());
        changed[key] = value;
        std::fs::write(path.join("config.json"), changed.to_string()).unwrap();
        refused(path, &["config.json", shown]);
    }
    std::fs::write(path.join("config.json"), "[".repeat(1_000_000)).unwrap();
    refused(path, &["config.json is not JSON", "recursion limit"]);
    std::fs::write(path.join("config.json"), " ".repeat((16 << 20) + 1)).unwrap();
    refused(path, &["config.json is larger than the limit of 16777216 bytes"]);
}

#[test]
fn safetensors_that_lie() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    write_directory(path, &tiny(), false);
    let file = path.join("model.safetensors");
    let write = |claimed: u64, header: &str| {
        std::fs::write(&file, [&claimed.to_le_bytes()[..], header.as_bytes(), &[0; 256]].concat()).unwrap();
    };
    let told = |header: &str, parts: &[&str]| {
        write(header.len() as u64, header);
        refused(path, &[&["model.safetensors"], parts].concat());
    };
    let entry = |shape: &str, end: u64| format!(r#"{{"dtype":"F32","shape":{shape},"data_offsets":[0,{end}]}}"#);
    let embedding = |entry: &str| format!(r#"{{"model.embed_tokens.weight":{entry}}}"#);
    told(&embedding(&entry("[96,64]", u64::MAX)), &["truncated: tensor `model.embed_tokens.weight`"]);
    told(&embedding(&entry("[96,64]", 64)), &["`model.embed_tokens.weight` has 64 bytes where its shape needs 24576"]);
    told(&embedding(&entry("[4294967296,4294967296]", 0)), &["[4294967296, 4294967296]"]);
    told(&embedding(&entry("[-1]", 0)), &["entry `model.embed_tokens.weight`"]);
    told(&format!(r#"{{"a":{0},"b":{0}}}"#, entry("[64]", 256)), &["overlap"]);
    told(&format!(r#"{{"a":{}1}}"#, "[".repeat(500)), &["its header cannot be read"]);
    for claimed in [1 << 60, u64::MAX, u64::MAX - 8] {
        write(claimed, "{}");
        refused(path, &["model.safetensors", &format!("its header claims {claimed} bytes")]);
    }
}

/// Opening a pipe waits for a writer.
#[cfg(unix)]
#[test]
fn pipes_in_the_directory() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    for name in ["a.safetensors", "tokenizer.json"] {
        write_directory(path, &tiny(), false);
        let pipe = path.join(name);
        let _ = std::fs::remove_file(&pipe);
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        refused(path, &[name]);
        std::fs::remove_file(pipe).unwrap();
    }
}

#[test]
fn tokenizers_that_pad_without_end() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    write_directory(path, &tiny(), false);
    let mut changed: serde_json::Value = serde_json::from_str(&tokenizer_json()).unwrap();
    changed["padding"] = json!({"strategy": {"Fixed": 1u64 << 40}, "direction": "Right", "pad_to_multiple_of": null,
        "pad_id": 0, "pad_type_id": 0, "pad_token": "a"});
    std::fs::write(path.join("tokenizer.json"), changed.to_string()).unwrap();
    let loaded = try_load(path, Engine::Instrumented).unwrap();
    assert_eq!(loaded.encode_prompt("ab").unwrap().len(), 2);
    std::fs::File::create(path.join("tokenizer.json")).unwrap().set_len((64 << 20) + 1).unwrap();
    refused(path, &["tokenizer.json", "larger than the limit of 67108864 bytes"]);
}

/// A tokenizer.json is a program: what it makes of a text has bounds, when it is read and when it is used.
#[test]
fn tokenizers_that_make_much_of_little() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("tokenizer.json");
    let with = |changes: &[(&str, serde_json::Value)]| {
        let mut json: serde_json::Value = serde_json::from_str(&tokenizer_json()).unwrap();
        changes.iter().for_each(|(field, value)| json[*field] = value.clone());
        std::fs::write(&path, json.to_string()).unwrap();
        Tokenizer::from_file(&path)
    };
    let refused = |changes: &[(&str, serde_json::Value)], part: &str| {
        let error = with(changes).unwrap_err().to_string();
        assert!(error.contains(part) && error.contains("tokenizer.json"), "{part}: {error}");
    };
    let replace =
        |pattern: serde_json::Value, content: &str| json!({"type": "Replace", "pattern": pattern, "content": content});
    let letter = |content: &str| replace(json!({"String": "a"}), content);
    let steps = |kind: &str, of: &str, step: serde_json::Value, n: usize| json!({"type": kind, of: vec![step; n]});
    refused(&[("normalizer", steps("Sequence", "normalizers", letter("aaaa"), 12))], "its normalizer can make a text");
    refused(&[("normalizer", steps("Sequence", "normalizers", json!({"type": "NFC"}), 65))], "has 65 steps");
    refused(&[("decoder", steps("Sequence", "decoders", letter("aaaaaaaaaa"), 8))], "its decoder can make a text");
    let bytes = json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false});
    refused(&[("pre_tokenizer", steps("Sequence", "pretokenizers", bytes, 30))], "pre_tokenizer can make a text");
    let special = json!({"SpecialToken": {"id": "x", "type_id": 0}});
    let text = json!({"Sequence": {"id": "A", "type_id": 0}});
    let template = |single: Vec<serde_json::Value>| {
        json!({"type": "TemplateProcessing", "single": single, "pair": [],
               "special_tokens": {"x": {"id": "x", "ids": [1], "tokens": ["x"]}}})
    };
    let around = [vec![text.clone()], vec![special; 5000]].concat();
    refused(&[("post_processor", template(around))], "puts 5000 tokens around a text");
    refused(&[("post_processor", template(vec![text; 9]))], "stands there 9 times");
    // A table that claims 4 GiB, and words that take the third power of their length.
    let table = json!({"type": "Precompiled", "precompiled_charsmap": "/////w=="});
    refused(&[("normalizer", table)], "claims 4294967295 bytes");
    let mut model: serde_json::Value = serde_json::from_str(&tokenizer_json()).unwrap();
    model["model"] = json!({"type": "WordPiece", "vocab": {"a": 0}, "unk_token": "a",
        "continuing_subword_prefix": "##", "max_input_chars_per_word": 1_000_000});
    refused(&[("model", model["model"].clone())], "words of 1000000 characters");
    // The normalizer runs for each added token.
    let added: Vec<_> = (0..200)
        .map(|id| {
            json!({"id": 96 + id, "content": format!("{id}{}", "a".repeat(100)), "single_word": false, "lstrip": false,
               "rstrip": false, "normalized": true, "special": false})
        })
        .collect();
    let grows = letter(&"a".repeat(2000));
    refused(&[("normalizer", grows.clone()), ("added_tokens", json!(added))], "its added tokens have");
    // A field that is there twice might be read once here and once there.
    let twice = tokenizer_json().replacen('{', "{\"normalizer\":null,", 1);
    std::fs::write(&path, twice).unwrap();
    assert!(Tokenizer::from_file(&path).unwrap_err().to_string().contains("duplicate field"));

    // Each place of a text tries every entry that fits there.
    let entries: Vec<_> = (1..=200).map(|n| json!(["a".repeat(n), -1.0])).collect();
    refused(&[("model", json!({"type": "Unigram", "unk_id": 0, "vocab": entries}))], "entry of 200 characters");
    let prepends = |text: &str| json!({"type": "Prepend", "prepend": text});
    refused(&[("normalizer", prepends(&"a".repeat(8190)))], "puts 8190 bytes before a text");

    // Of few letters no more tokens than would fill some megabytes, also where each part of a text gets letters first.
    let tokenizer = with(&[("normalizer", steps("Sequence", "normalizers", letter(&"a".repeat(1023)), 2))]).unwrap();
    let error = tokenizer.encode("aaa", false).unwrap_err().to_string();
    assert!(error.contains("3 bytes would become more than 262144"), "{error}");
    let stops = json!([{"id": 96, "content": "q", "single_word": false, "lstrip": false, "rstrip": false,
        "normalized": false, "special": true}]);
    let each = json!({"type": "Sequence", "normalizers": [prepends("aaaaaaaaaaaaaaaa"), letter(&"a".repeat(1022))]});
    let tokenizer = with(&[("normalizer", each), ("added_tokens", stops)]).unwrap();
    assert!(tokenizer.encode("aqa", false).unwrap().len() > 30_000);
    let error = tokenizer.encode(&"bq".repeat(2000), false).unwrap_err().to_string();
    assert!(error.contains("4000 bytes would become more than"), "{error}");

    // What is within the limits for any text may still be too much of one.
    let tokenizer = with(&[("normalizer", grows)]).unwrap();
    assert_eq!(tokenizer.encode("ab", false).unwrap().len(), 2001);
    let error = tokenizer.encode(&"a".repeat(10_000), false).unwrap_err().to_string();
    assert!(error.contains("10000 bytes would become more than"), "{error}");
    assert_eq!(tokenizer.encode(&"b".repeat(100_000), false).unwrap().len(), 100_000, "what does not grow is long");
    let tokenizer = with(&[("decoder", letter(&"b".repeat(10_000)))]).unwrap();
    assert_eq!(tokenizer.decode(&[65]).unwrap().len(), 10_000);
    assert!(tokenizer.decode(&[65; 2000]).unwrap_err().to_string().contains("could become"));
    // Llama's normalizer and decoder, with a text that is long.
    let prepend = json!({"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"},
        replace(json!({"String": " "}), "▁")]});
    let decoder = json!({"type": "Sequence", "decoders": [replace(json!({"String": "▁"}), " "), {"type": "ByteFallback"},
        {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]});
    let tokenizer = with(&[("normalizer", prepend), ("decoder", decoder)]).unwrap();
    assert_eq!(tokenizer.encode(&"b ".repeat(100_000), false).unwrap().len(), 100_000);
    assert_eq!(tokenizer.decode(&vec![66; 100_000]).unwrap().len(), 100_000);
}

/// The same mutations on every machine.
struct Dice(StdRng);

impl Dice {
    fn below(&mut self, most: usize) -> usize {
        self.0.random_range(0..most.max(1))
    }

    /// Changes some of the first `within` bytes; sometimes makes a number extreme or truncates the file.
    fn mutate(&mut self, whole: &[u8], within: usize) -> Vec<u8> {
        let mut bytes = whole.to_vec();
        for _ in 0..=self.below(3) {
            let at = self.below(within.min(bytes.len()));
            match self.below(6) {
                0 => bytes.truncate(at),
                1 => bytes.iter_mut().skip(at).take(8).for_each(|b| *b = 0xff),
                2 => bytes.iter_mut().skip(at).take(4).for_each(|b| *b = 0),
                3 => {
                    let (from, count) = (self.below(within.min(bytes.len())), self.below(40));
                    let piece: Vec<u8> = bytes.iter().skip(from).take(count).copied().collect();
                    bytes.splice(at..at, piece);
                }
                4 => bytes.iter_mut().skip(at).take(1).for_each(|b| *b = b"0123456789-{}[]\"eE."[self.below(19)]),
                _ => bytes.iter_mut().skip(at).take(1).for_each(|b| *b ^= 1 << self.below(8)),
            }
            if bytes.is_empty() {
                break;
            }
        }
        bytes
    }
}

/// Loads `rounds` mutations of `file`, which is at `path` or in it. A panic that [`LoadedModel::load`] catches counts
/// too.
///
/// `CANDLESCOPE_FUZZ_TIMES` multiplies the rounds.
fn mutations(path: &Path, file: &Path, seed: u64, within: usize, rounds: usize) {
    let times = std::env::var("CANDLESCOPE_FUZZ_TIMES").ok().and_then(|n| n.parse().ok()).unwrap_or(1);
    let rounds: usize = rounds * times;
    let began = Instant::now();
    let whole = std::fs::read(file).unwrap();
    let mut dice = Dice(StdRng::seed_from_u64(seed));
    let mut refused = 0;
    for round in 0..rounds {
        std::fs::write(file, dice.mutate(&whole, within)).unwrap();
        let engine = if round % 2 == 0 { Engine::Instrumented } else { Engine::Candle };
        match try_load(path, engine) {
            Err(panicked @ LoadError::Panicked { .. }) => panic!("round {round} of {}: {panicked}", file.display()),
            Err(error) => refused += usize::from(!error.to_string().is_empty()),
            Ok(loaded) => drop(loaded.encode_prompt("ab")),
        }
    }
    std::fs::write(file, whole).unwrap();
    try_load(path, Engine::Instrumented).expect("unchanged it loads");
    let (name, peak) = (file.file_name().unwrap_or_default().display(), peak_bytes() >> 20);
    eprintln!("{name}: {rounds} inputs, {refused} refused, at most {peak} MB, {:.1} s", began.elapsed().as_secs_f64());
    assert!(refused > rounds / 10, "only {refused} of {rounds} mutations were noticed: they miss what is read");
}

#[test]
fn mutated_gguf() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("model.gguf");
    write_gguf(&path, &config(), GgmlDType::Q8_0, &gguf_metadata(&config()));
    mutations(&path, &path, 1, 2200, 800);
}

#[test]
fn mutated_safetensors_configurations_and_tokenizers() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    write_directory(path, &tiny(), false);
    for (file, seed, within, rounds) in
        [("model.safetensors", 2, 2500, 500), ("config.json", 3, 600, 500), ("tokenizer.json", 4, 1200, 300)]
    {
        mutations(path, &path.join(file), seed, within, rounds);
    }
}
