//! The sentences of the gallery are those that this program says of the recorded runs. `UPDATE_DOCS=1` writes them anew.
#![allow(missing_docs, reason = "a test")]
mod common;
use common::*;
use std::fmt::Write as _;
use std::path::Path;

/// A finding of a recorded run, and what was recorded.
const FINDINGS: [(&str, &str, &str); 5] = [
    ("gpu/unmodified", "launch_bound", "candle's own Qwen2.5-0.5B in f32 on an H200"),
    (
        "gpu/threads",
        "contended_launches",
        "four threads, each decoding SmolLM2-135M with candle's own Llama on one H200",
    ),
    ("gpu/replays", "unfused", "SmolLM2-135M as CUDA graphs over 1,200 tokens on an H200"),
    ("gpu/decode", "upcast", "SmolLM2-135M in bf16, step by step, on an H200"),
    ("gpu/host", "host_of_launches", "the built-in model in bf16 on an H200, with call stacks"),
];

const BEGIN: &str = "<!-- made by `cargo test -p candlescope-cli --test gallery` with UPDATE_DOCS=1 -->\n";
const END: &str = "<!-- end -->";

fn percent(share: &serde_json::Value) -> String {
    format!("{:.0} %", share.as_f64().unwrap() * 100.0)
}

fn section() -> String {
    let mut text = String::new();
    for (run, code, what) in FINDINGS {
        let folder = format!("cli/tests/recorded/{run}");
        let analysis = json(&ok(&["analyze", Path::new(ROOT).join(&folder).to_str().unwrap(), "--json"]));
        let all = analysis["findings"].as_array().unwrap();
        let found = all.iter().find(|found| found["code"] == code).unwrap_or_else(|| panic!("{run}: no {code}"));
        let (gain, level) = (&found["gain"], found["confidence"]["level"].as_str().unwrap());
        let bounds = format!("{} to {}", percent(&gain["low"]), percent(&gain["high"]));
        let (message, remedy) = (found["message"].as_str().unwrap(), found["remedy"].as_str().unwrap());
        let _ = write!(
            text,
            "\n### `{code}`: {what}\n\n> {message}.\n>\n> → {remedy}.\n>\n> Gains {} of a step ({bounds}), confidence {level}.\n\n\
             `candlescope analyze {folder}`\n",
            percent(&gain["mid"])
        );
    }
    let [candle, torch] = ["candle", "torch"].map(|name| format!("cli/tests/recorded/programs/{name}"));
    let [a, b] = [&candle, &torch].map(|run| Path::new(ROOT).join(run).display().to_string());
    let said = ok(&["compare", &a, &b]);
    let sentence = said.lines().next().unwrap();
    let _ = write!(
        text,
        "\n### Two programs: candle and PyTorch, the same shape on the same H200\n\n> {sentence}\n\n`candlescope compare {candle} {torch}`\n\n"
    );
    text
}

#[test]
fn the_gallery_says_what_the_program_says() {
    let page = Path::new(ROOT).join("docs/gallery/README.md");
    let text = std::fs::read_to_string(&page).unwrap();
    let (before, rest) = text.split_once(BEGIN).expect("where the sentences begin");
    let (said, after) = rest.split_once(END).expect("where they end");
    let expected = section();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&page, format!("{before}{BEGIN}{expected}{END}{after}")).unwrap();
        return;
    }
    assert_eq!(said, expected, "UPDATE_DOCS=1 writes it anew");
}

/// Everything that the page shows lies beside it, and what a page of ours is looks like one.
#[test]
fn what_the_gallery_shows_is_there() {
    let folder = Path::new(ROOT).join("docs/gallery");
    let size = |file: &str| folder.join(file).metadata().unwrap_or_else(|why| panic!("{file}: {why}")).len();
    for file in ["cpu/report.html", "gpu/report.html", "study/report.html", "comparison/compare.html"] {
        assert!(size(file) > 10_000, "{file}");
        let page = std::fs::read_to_string(folder.join(file)).unwrap();
        assert!(page.trim_start().to_ascii_lowercase().starts_with("<!doctype html>"), "{file}");
    }
    assert!(size("gpu/trace.pftrace.gz") > 10_000);
    // Without its samples a study is compared with none.
    assert!(size("study/journal.jsonl") > 1_000);
    // The run opens as any other.
    let overview = json(&ok(&["overview", folder.join("cpu").to_str().unwrap(), "--json"]));
    assert_eq!(overview["what"]["model"], "embedded", "{overview}");
}
