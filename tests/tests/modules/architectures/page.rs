//! The page that tells what each model shows.

use super::{
    Row, SHOWN, decoders, encoder_decoders, encoders, full_size, hold_rows, quantised, rows, state_space, vision,
};
use std::fmt::Write;
use std::path::Path;

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

const FOOT: &str = "
Which spans each of candle's models makes, also of those that are not here, stands in [candle-spans.md](candle-spans.md).
";

fn hold(name: &str, text: &str) {
    let path = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs")).join(name);
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, text).expect("written");
    }
    let there = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(there == text, "docs/{name} is out of date: UPDATE_DOCS=1 cargo test -p candlescope-tests --test modules");
}

#[test]
fn it_says_what_the_models_show() {
    let families: Vec<(&str, Vec<Row>)> = FAMILIES.iter().map(|(name, models)| (*name, rows(models))).collect();
    families.iter().for_each(|(_, rows)| hold_rows(rows));
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
        let _ = write!(
            text,
            "\n## {name}\n\n| model | file | spans named | weight FLOPs | FLOPs of a step | remark |\n\
             |---|---|---:|---:|---|---|\n"
        );
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
    text.push_str(FOOT);
    hold("models.md", &text);
}
