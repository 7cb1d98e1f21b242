//! The page that tells what each model shows.

use super::{
    NO_SPANS, Row, SHOWN, TRACED, decoders, encoder_decoders, encoders, full_size, hold_rows, quantised, rows,
    state_space, vision, without_spans,
};
use std::fmt::Write;
use std::path::{Path, PathBuf};

/// A heading and the models below it.
type Family = (&'static str, &'static [fn() -> Row]);

const FAMILIES: &[Family] = &[
    ("Decoders", decoders::MODELS),
    ("Decoders in full size", full_size::MODELS),
    ("Encoders", encoders::MODELS),
    ("Encoders and decoders", encoder_decoders::MODELS),
    ("State-space and recurrent models", state_space::MODELS),
    ("Images", vision::MODELS),
    ("Quantised", quantised::MODELS),
    ("Without spans", without_spans::MODELS),
];

const HEAD: &str = "# What candle's models show

Each model of candle-transformers 0.11.1 below was built with random weights, small where that can be, watched by
`observe` or `observe_gguf`, and run: a prompt and a token, or one pass. Made by `tests/tests/modules/architectures`,
which also holds every name to the weights of that name and every number to the model's configuration;
`UPDATE_DOCS=1 cargo test -p candlescope-tests --test modules` writes it anew.

- *spans named*: spans of the model in the first step that have a module's name, of all. The others compute without
  weights (rotary positions, softmax), or stand around modules that have no name in common.
- *weight FLOPs*: share of the FLOPs with weights (projections, heads, convolutions) that is in spans with a name. Where
  it is not 100 %, it is that of these sizes: a head without a span, for one, weighs more with more words.
- *FLOPs of a step*: whether `flops` of a step are known without anybody saying them, weights and attention together.
";

/// What `tests/without_spans` writes.
const WITH_SPANS: &str = "
## With spans in candle-nn's layers

Models of the tables above that make no spans, once candle-nn's layers have some
([how](instrument.md#models-without-spans)). Written by `UPDATE_DOCS=1 make test-models-without-spans`, which runs the
other models as well: none of them has a span twice, and none loses a name.

";

const COLUMNS: &str =
    "| model | file | spans named | weight FLOPs | FLOPs of a step | remark |\n|---|---|---:|---:|---|---|\n";

const FOOT: &str = "
## Run one

Each of these commands writes a run with its report, of random weights at the published size. With weights of your own,
pass their directory in place of `config:NAME` ([all names and forms](reference.md#models)).

| command | steps of a request |
|---|---|
| `candlescope profile --engine candle --model config:qwen3-0.6b` | `prefill`, `decode` |
| `candlescope profile --engine candle --model config:t5-small` (or `config:t5-base`) | `encode`, `prefill`, `decode` |
| `candlescope profile --engine candle --model config:bert-base` (or `config:minilm`) | `encode` |
| `candlescope profile --engine candle --model .models/all-MiniLM-L6-v2`, which `make models` fetches | `encode` |
| `candlescope profile --engine candle --model config:whisper-tiny` | `encode`, `prefill`, `decode` |
| `candlescope profile --engine candle --model config:paddleocr-vl --image page.png` | `prefill`, `decode`; a `vision` before it |
| `candlescope profile --model config:gpt2`, a wrapped model, as candle-transformers has none | `prefill`, `decode` |

Add `--prompt-tokens 8 --max-new-tokens 4 --repeats 1` for a short one. The other models are run by programs: yours with
a line of `observe` ([how](instrument.md#modules-by-name)), or candle's own examples, two of which are built and run by
`make test-candle-examples`. Models without spans get theirs from `candlescope trace-candle-nn`
([how](instrument.md#models-without-spans)).

## Where the time goes

FLOPs of weights are not time: what candle computes without a span is in the span around it. CPU time of all threads by call stacks
(*sampled*; `tests/models/where_time_goes.py`), of these commands with `--prompt-tokens 32 --max-new-tokens 24`, f32, random weights, on
two processors that had other work, too:

| model | step | CPU time in spans inside the step | most of the rest |
|---|---|---:|---|
| smollm2-135m | `decode` | 100 % | – |
| | `prefill` | 96 % | – |
| qwen2.5-0.5b | `decode` | 94 % | – |
| | `prefill` | 83 % | `Tensor::silu` 7 %, `mul` 5 % |
| qwen3-0.6b | `decode` | 70 to 79 % | `candle_nn::attention::cpu_flash::flash_attn` 13 to 22 % |
| | `prefill` | 84 % | `mul` 4 %, `Tensor::silu` 3 %, `flash_attn` 2 % |
| t5-small, whisper-tiny | all | 100 % | – |
| bert-base, minilm | `encode` | 100 % | – |

In the report of a run, the flame graph and the table of functions go on below each span, by function and line of the model.

## Other models of candle

A model makes spans if its file in candle-transformers uses `with_tracing` or `quantized_nn`, or has a `span!` of its
own. Each such place, and the weights that its span owns, is in
[candle-transformers-0.11.1.txt](../sdk/core/src/modules/candle-transformers-0.11.1.txt). What has no span is in the one
around it: in most models the embedding, rotary positions, the mask and the products of attention, in many the norms.
`attn-rot` is entered twice a pass, for queries and for keys, and an expert only where a token chose it.

Spans stay without modules where all weights are read before anything is built, as candle's `quantized_var_builder` does:
`quantized_t5`, `whisper/quantized_model`, `flux/quantized_model`, `smol/quantized_smollm3`, and `quantized_` with `blip`,
`blip_text`, `llama2_c`, `metavoice`, `mistral`, `mixformer`, `moondream`, `mpt`, `recurrent_gemma`, `rwkv_v5`, `rwkv_v6` and
`stable_lm`.
";

fn page() -> PathBuf {
    let above = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors();
    above.map(|folder| folder.join("docs/models.md")).find(|page| page.exists()).expect("docs/models.md")
}

fn hold(text: &str, how: &str) {
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(page(), text).expect("written");
    }
    let there = std::fs::read_to_string(page()).unwrap_or_default();
    assert!(there == text, "docs/models.md is out of date: UPDATE_DOCS=1 {how}");
}

/// The page, taken apart: before what the other run writes, and that. What stands at the foot may be an older text.
fn parts() -> (String, String) {
    let there = std::fs::read_to_string(page()).expect("the page");
    let foot = FOOT.lines().nth(1).expect("a heading");
    let there = there.split(&format!("\n{foot}\n")).next().unwrap_or_default();
    let at = there.find(WITH_SPANS).unwrap_or(there.len());
    (there[..at].to_owned(), there[at..].to_owned())
}

fn table(text: &mut String, rows: &[&Row]) {
    text.push_str(COLUMNS);
    for row in rows {
        let _ = writeln!(
            text,
            "| {} | `{}` | {} of {} | {:.1} % | {} | {} |",
            row.name,
            row.file,
            row.named,
            row.entered,
            row.share * 100.,
            row.flops,
            row.remark
        );
    }
}

/// With spans in candle-nn's layers: what the models show that make none.
fn with_spans(families: &[(&str, Vec<Row>)]) {
    let mut shown: Vec<&Row> = families.iter().flat_map(|(_, rows)| rows).collect();
    shown.retain(|row| row.remark == NO_SPANS);
    for row in &shown {
        assert!(row.share >= SHOWN, "{}: {}", row.name, row.share);
    }
    let mut text = parts().0 + WITH_SPANS;
    text.push_str("| model | file | spans named | weight FLOPs | FLOPs of a step |\n|---|---|---:|---:|---|\n");
    for row in shown {
        let Row { name, file, named, entered, flops, .. } = row;
        let _ = writeln!(text, "| {name} | `{file}` | {named} of {entered} | {:.1} % | {flops} |", row.share * 100.);
    }
    text.push_str(FOOT);
    hold(&text, "make test-models-without-spans");
}

#[test]
fn it_says_what_the_models_show() {
    // Those in full size and quantised ones are the same, with spans in candle-nn or without.
    let same = ["Decoders in full size", "Quantised"];
    let families = FAMILIES.iter().filter(|(name, _)| !TRACED || !same.contains(name));
    let families: Vec<(&str, Vec<Row>)> = families.map(|(name, models)| (*name, rows(models))).collect();
    families.iter().for_each(|(_, rows)| hold_rows(rows));
    if TRACED {
        return with_spans(&families);
    }
    let files = |is: &dyn Fn(&Row) -> bool| {
        let mut files: Vec<&str> =
            families.iter().flat_map(|(_, rows)| rows).filter(|row| is(row)).map(|row| row.file).collect();
        files.sort_unstable();
        files.dedup();
        files.len()
    };
    let shown = files(&|row| row.counts);
    assert!(shown >= 26, "{shown} models");
    let mut text = String::from(HEAD);
    let _ = write!(
        text,
        "\nOf {} files with models, {shown} have names for at least {:.0} % of their weight FLOPs.\n",
        files(&|_| true),
        SHOWN * 100.
    );
    for (name, rows) in &families {
        let _ = write!(text, "\n## {name}\n\n");
        table(&mut text, &rows.iter().collect::<Vec<_>>());
    }
    text.push_str(&parts().1);
    text.push_str(FOOT);
    hold(&text, "cargo test -p candlescope-tests --test modules");
}
