//! Variants of the embedded model, from its weights to a study's files.
#![allow(missing_docs, reason = "a test")]

use candlescope_lab::method::{CaseError, Engine, InMemory, Method, NoSurroundings, StopReason};
use candlescope_lab::study::{Manifest, Records, State, Study};
use candlescope_lab::variants::{
    Variant, VariantHost, VariantOptions, VariantsSummary, cases, close, read_closing, variant_lines, write_variants,
};
use candlescope_models::LoadOptions;
use std::cell::RefCell;
use std::path::Path;
use std::rc::Rc;

fn options(variants: &[Variant]) -> VariantOptions {
    let mut options = VariantOptions::quick();
    options.choose(variants);
    options
}

fn host(options: &VariantOptions, dir: &Path) -> VariantHost {
    VariantHost::load(options, LoadOptions::default(), &dir.join("files")).unwrap()
}

/// Two pieces of 64 tokens and more, for a model whose tokens are bytes.
fn text(dir: &Path) -> std::path::PathBuf {
    let path = dir.join("text.txt");
    std::fs::write(&path, "The quick brown fox jumps over the lazy dog, and so on. ".repeat(5)).unwrap();
    path
}

fn closed(host: &VariantHost) -> VariantsSummary {
    close(host, Err("no counter in a test".into()), &host_cancel(), &mut |_| {}).unwrap()
}

fn host_cancel() -> candlescope_lab::method::Cancel {
    candlescope_lab::method::Cancel::new()
}

#[test]
fn quality_is_held_against_the_base() {
    let dir = tempfile::tempdir().unwrap();
    let mut options = options(&[Variant::NoCache, Variant::F16, Variant::Q8_0, Variant::Q4_0, Variant::Q4K]);
    options.text = Some(text(dir.path()));
    let closing = closed(&host(&options, dir.path()));
    assert_eq!((closing.pieces, closing.chunk, closing.random_weights), (2, 64, true));
    assert_eq!(closing.text_tokens, Some(281), "281 bytes and a beginning");
    let of = |variant: Variant| closing.variants.iter().find(|own| own.variant == variant).unwrap();

    for base in [Variant::NoCache, Variant::KvCache] {
        assert!(of(base).quality.is_none() && of(base).no_quality.as_deref() == Some("it is the base"));
    }
    let (q8, q4) = (of(Variant::Q8_0), of(Variant::Q4_0));
    let (eight, four) = (q8.quality.as_ref().unwrap(), q4.quality.as_ref().unwrap());
    // The second half of each of two pieces, but for the last position, whose next token is in no piece.
    assert_eq!(eight.positions, 2 * 31);
    assert!(eight.kl.mean.value > 0.0 && eight.kl.mean.value < four.kl.mean.value, "{eight:?} {four:?}");
    assert!(eight.same_top.value >= four.same_top.value && eight.kl.mean.error.unwrap() > 0.0);
    assert_eq!(eight.base_perplexity, four.base_perplexity, "one base");
    assert!(eight.kl.p99.is_none(), "62 positions have no 99th percentile");
    assert_eq!(q8.layers.len(), 4);
    assert!(q8.layers[3].relative.value < q4.layers[3].relative.value);
    assert!(q4.diverges_at.is_some(), "4 bits are off by more than 1 %: {:?}", q4.layers);
    assert_eq!(q8.first_token.as_ref().unwrap().first.len(), 2);

    // The KV cache of 16 + 7 tokens holds 256: 2 · 4 layers · 2 heads · 32 · 256 · 4 bytes.
    assert_eq!(q8.kv_bytes, Some(2 * 4 * 2 * 32 * 256 * 4));
    assert!(q4.weight_bytes < q8.weight_bytes && q8.weight_bytes < of(Variant::F16).weight_bytes);
    assert!(q4.disk_bytes < q8.disk_bytes && q8.disk_bytes > q8.weight_bytes, "a header stands before the weights");
    assert_eq!((q8.energy_mj, closing.energy.as_str()), (None, "no counter in a test"));
    let absent = of(Variant::Q4K).absent.as_deref().unwrap();
    assert!(absent.contains("rows of 128 values") && absent.contains("q4_0 or q8_0"), "{absent}");
}

#[test]
fn a_cache_in_8_bits_has_a_quality_of_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let mut options = options(&[Variant::KvQ8, Variant::Q4_0]);
    options.text = Some(text(dir.path()));
    let closing = closed(&host(&options, dir.path()));
    let of = |variant: Variant| closing.variants.iter().find(|own| own.variant == variant).unwrap();
    let (small, base, four) = (of(Variant::KvQ8), of(Variant::KvCache), of(Variant::Q4_0));
    let (quality, of_four) = (small.quality.as_ref().unwrap(), four.quality.as_ref().unwrap());
    let kl = quality.kl.mean.value;
    assert!(kl > 0.0 && kl < of_four.kl.mean.value, "less than 4 bits of all weights: {quality:?} {of_four:?}");
    assert_eq!((quality.positions, small.layers.len()), (2 * 31, 4));
    // A byte each, and four for the scale of each position and head of 32.
    assert_eq!((base.kv_bytes, small.kv_bytes), (Some(2 * 4 * 2 * 32 * 256 * 4), Some(2 * 4 * 2 * (32 + 4) * 256)));
    assert_eq!(small.weight_bytes, base.weight_bytes);
}

#[test]
fn without_a_text_there_are_errors_of_layers_only() {
    let dir = tempfile::tempdir().unwrap();
    let mut options = options(&[Variant::Q8_0]);
    let closing = closed(&host(&options, dir.path()));
    assert!(closing.no_quality.as_deref().unwrap().contains("random") && !closing.text_is_wrong);
    let q8 = closing.variants.iter().find(|own| own.variant == Variant::Q8_0).unwrap();
    assert!(q8.quality.is_none() && q8.first_token.is_none() && q8.layers.len() == 4);
    assert_eq!(q8.no_quality, closing.no_quality);

    // One that is too short is wrong, and what does not need it is there.
    let short = dir.path().join("short.txt");
    std::fs::write(&short, "Too short.").unwrap();
    options.text = Some(short);
    let closing = closed(&host(&options, dir.path()));
    let why = closing.no_quality.as_deref().unwrap();
    assert!(closing.text_is_wrong && why.contains("short.txt has 11 tokens, and 64 are needed"), "{why}");
    assert!(closing.variants.iter().all(|own| own.weight_bytes.is_some() && own.quality.is_none()));

    options.quality = false;
    let closing = closed(&host(&options, dir.path()));
    assert!(closing.variants.iter().all(|own| own.layers.is_empty()) && !closing.text_is_wrong);
}

#[test]
fn a_study_of_variants_writes_its_files() {
    let dir = tempfile::tempdir().unwrap();
    let options = options(&[Variant::NoCache, Variant::Q8_0, Variant::Q4K]);
    let mut manifest = Manifest::new("variants of embedded", options.case_ids(), &Method::quick().runs(Some(6)));
    manifest.options = serde_json::to_value(&options).unwrap().as_object().unwrap().clone();
    let mut study = Study::create(dir.path().join("s"), manifest).unwrap();
    let host = Rc::new(RefCell::new(host(&options, dir.path())));
    let mut kept = InMemory::default();
    Engine::new(Method::quick().runs(Some(6)), &mut NoSurroundings).run(&mut cases(&host), &mut kept).unwrap();
    let refused = kept.stopped.iter().find(|stop| stop.reason == StopReason::Refused).expect("Q4_K");
    assert!(refused.case.key().contains("variant=q4_k"), "{}", refused.case.key());
    let records = Records { samples: kept.samples, stopped: kept.stopped, ..Records::default() };
    assert_eq!(read_closing(&study).unwrap(), None);
    let closing = closed(&host.borrow());
    study.update(|manifest| manifest.state = State::Done).unwrap();
    let (rows, _) = write_variants(&study, &options, &records, Some(&closing), &["traces/a.json".into()]).unwrap();

    let of = |variant: Variant| rows.iter().find(|row| row.variant == variant).unwrap();
    let cached = of(Variant::KvCache).over_no_cache.as_ref().unwrap();
    assert!(cached.ratio > 0.0 && cached.ci95.is_some(), "{cached:?}");
    assert_eq!(of(Variant::NoCache).over_no_cache.as_ref().unwrap().ratio, 1.0, "itself");
    assert!(
        of(Variant::Q4K).absent().unwrap().starts_with("`lm_head.weight` has rows of 128"),
        "{:?}",
        of(Variant::Q4K).absent()
    );
    let place = study.dir().to_path_buf();
    let read = |name: &str| std::fs::read_to_string(place.join(name)).unwrap();
    let names = |file: &str| -> Vec<String> {
        let json: serde_json::Value = serde_json::from_str(&read(file)).unwrap();
        let all = json["variants"].as_array().unwrap();
        all.iter().map(|own| own["variant"].as_str().unwrap().to_string()).collect()
    };
    assert_eq!(names("baseline_results.json"), ["no_cache", "kv_cache"]);
    assert_eq!(names("quantization_results.json"), ["q8_0", "q4_k"]);
    assert!(names("onnx_results.json").is_empty());
    assert!(read("charts/final_comparison.svg").contains("INT8 (Q8_0)"));
    assert!(std::fs::read(study.dir().join("charts/final_comparison.png")).unwrap().starts_with(b"\x89PNG"));
    let report = read("profiling_report.md");
    for part in
        ["## Speed and size", "Not measured: the weights are random", "## Absent", "`traces/a.json`", "95 % interval"]
    {
        assert!(report.contains(part), "{part} in {report}");
    }
    assert!(read("report.html").contains("<svg") && read("report.html").contains("<h2>Speed and size</h2>"));
    // On a busy machine, one thread is advice to those who have several.
    for (threads, advised) in [(2, true), (1, false)] {
        study
            .update(|manifest| {
                manifest.disturbances = vec!["other processes use 1.0 of 2 cores".into()];
                manifest.options.insert("threads".into(), threads.into());
            })
            .unwrap();
        write_variants(&study, &options, &records, Some(&closing), &[]).unwrap();
        assert_eq!(read("profiling_report.md").contains("--threads 1"), advised, "{threads} threads");
    }
    let table = read("variants.csv");
    assert_eq!(table.lines().count(), 5);
    assert!(table.lines().next().unwrap().starts_with("variant,samples,processes,latency_ms,"));
    let lines = variant_lines(&rows);
    assert!(lines[1].starts_with("f32 with KV cache: ") && lines[1].contains("in this process]"), "{lines:?}");
    assert!(lines[3].starts_with("4 bits (Q4_K): absent; `lm_head."), "{lines:?}");
}

#[test]
fn memory_and_context_refuse_a_variant_and_no_other() {
    let dir = tempfile::tempdir().unwrap();
    let mut options = options(&[Variant::Q8_0]);
    options.memory_limit = Some(1 << 10);
    let host = host(&options, dir.path());
    let refused = host.build(Variant::Q8_0).err().unwrap();
    assert!(matches!(&refused, CaseError::Refused(why) if why.contains("1.0 KiB are available")), "{refused}");
    assert!(host.build(Variant::KvCache).is_ok(), "the base is there already");
    options.memory_limit = None;
    options.output_tokens = 5_000;
    let host = VariantHost::load(&options, LoadOptions::default(), dir.path()).unwrap();
    let mut kept = InMemory::default();
    let mut all = cases(&Rc::new(RefCell::new(host)));
    Engine::new(Method::quick(), &mut NoSurroundings).run(&mut all, &mut kept).unwrap();
    assert!(kept.samples.is_empty());
    assert!(kept.stopped.iter().all(|stop| stop.detail.as_deref().unwrap().contains("context of 2048")));
}
