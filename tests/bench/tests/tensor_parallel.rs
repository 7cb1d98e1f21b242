//! Ranks that compute a model's layers together, on a machine without a GPU: they sum through the host.
#![cfg(feature = "model")]
#![allow(missing_docs, reason = "a test")]

use candlescope_ranks::{CollectiveKind, Ranks, Source, analyse};
use candlescope_reader::ReadLimits;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// So many that most of the time goes into them, not into the large exchanges.
const TOKENS: usize = 240;
const LAYERS: usize = 4;
/// All-reduces of a step.
const REDUCES: usize = 2 * LAYERS;

fn start(dir: &Path, rank: usize, world: usize, options: &[&str]) -> Child {
    Command::new(env!("CARGO_BIN_EXE_tensor_parallel"))
        .args(["--device", "cpu", "--host-collectives", "--shape", "small", "--exchange", "1"])
        .args(["--layers", &LAYERS.to_string(), "--tokens", &TOKENS.to_string(), "--context", "70"])
        .arg("--meet")
        .arg(dir.join(format!("meet-{world}")))
        .args(options)
        .env("RANK", rank.to_string())
        .env("WORLD_SIZE", world.to_string())
        // As many threads as it has work for, beside the other rank.
        .env("RAYON_NUM_THREADS", "1")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// What a rank printed.
fn said(child: Child) -> String {
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}");
    text
}

/// Each of them computes on all processors: one at a time.
fn alone() -> std::sync::MutexGuard<'static, ()> {
    static ONE: std::sync::Mutex<()> = std::sync::Mutex::new(());
    ONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

#[test]
fn ranks_that_sum_through_the_host_compute_what_one_does_and_the_slow_one_is_found() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let runs = dir.path().join("runs");
    let run = |rank: usize| runs.join(format!("rank-{rank}")).to_str().unwrap().to_string();
    let slow = ["--slow-rank", "1", "--slow-share", "3.0", "--out"];
    let both: Vec<Child> =
        (0..2).map(|rank| start(dir.path(), rank, 2, &[&slow[..], &[&run(rank)]].concat())).collect();
    let texts: Vec<String> = both.into_iter().map(said).collect();
    // Two parts of a sum are not rounded as the whole is, which changes no token here.
    let alone = said(start(dir.path(), 0, 1, &[]));
    let token = |text: &str| text.rsplit_once("last token ").unwrap().1.trim().to_string();
    assert_eq!([token(&texts[0]), token(&texts[1])], [token(&alone), token(&alone)]);
    assert!(texts[1].contains("rank 1 computes") && !texts[0].contains("computes"), "{texts:?}");

    let found = analyse(&Ranks::open(&runs, &ReadLimits::default()).unwrap());
    // The prompt is a warm-up.
    assert_eq!((found.source, found.phase.as_str(), found.damage.len()), (Source::Host, "decode", 0), "{found:?}");
    assert_eq!((found.steps, found.odd_steps), (TOKENS, 0), "{found:?}");
    let of = |phase: &str| found.collectives.iter().find(|of| of.phase == phase).unwrap();
    let (small, large) = (of("decode"), of("encode"));
    assert_eq!((small.kind, small.count, small.bytes), (CollectiveKind::AllReduce, TOKENS * REDUCES, Some(1024.0)));
    assert_eq!((large.count, large.bytes), (20, Some(f64::from(1 << 20))));
    let [fast, slow] = &found.ranks[..] else { panic!("{:?}", found.ranks) };
    // A step takes four times as long: most of it the fast rank waits, whatever else the machine does.
    assert!(fast.waiting_ns > 0.2 * fast.step_ns && slow.waiting_ns < 0.8 * fast.waiting_ns, "{fast:?} {slow:?}");
    let straggler = found.findings.iter().find(|finding| finding.code.as_str() == "straggler_rank");
    assert_eq!(straggler.map(|finding| finding.place.rank), Some(Some(1)), "{:?}", found.findings);
}

#[test]
fn threads_compute_what_processes_do_and_the_slow_one_is_found() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let run = dir.path().join("run");
    let options = ["--threads", "2", "--slow-rank", "1", "--slow-share", "3.0", "--out", run.to_str().unwrap()];
    let text = said(start(dir.path(), 0, 2, &options));
    let alone = said(start(dir.path(), 0, 1, &[]));
    let tokens = |text: &str| -> Vec<String> {
        let lines = text.lines().filter_map(|line| line.rsplit_once("last token "));
        lines.map(|(_, token)| token.trim().to_string()).collect()
    };
    assert_eq!(tokens(&text), [tokens(&alone), tokens(&alone)].concat(), "{text}");

    let found = analyse(&Ranks::of_threads(&run, &ReadLimits::default()).unwrap());
    assert_eq!((found.source, found.phase.as_str(), found.damage.len()), (Source::Host, "decode", 0), "{found:?}");
    assert_eq!((found.steps, found.odd_steps), (TOKENS, 0), "{found:?}");
    let of = |phase: &str| found.collectives.iter().find(|of| of.phase == phase).unwrap();
    assert_eq!((of("decode").count, of("encode").count), (TOKENS * REDUCES, 20));
    let [fast, slow] = &found.ranks[..] else { panic!("{:?}", found.ranks) };
    assert_eq!((fast.thread.as_deref(), slow.thread.as_deref()), (Some("rank-0"), Some("rank-1")));
    assert!(fast.waiting_ns > 0.2 * fast.step_ns && slow.waiting_ns < 0.8 * fast.waiting_ns, "{fast:?} {slow:?}");
    let straggler = found.findings.iter().find(|finding| finding.code.as_str() == "straggler_rank");
    assert_eq!(straggler.map(|finding| finding.place.rank), Some(Some(1)), "{:?}", found.findings);
}

#[test]
fn a_build_without_nccl_says_what_to_do() {
    if cfg!(feature = "nccl") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_tensor_parallel"))
        .args(["--device", "cpu", "--shape", "small", "--meet"])
        .arg(dir.path().join("meet"))
        .env("RANK", "0")
        .env("WORLD_SIZE", "2")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("--features nccl, or give --host-collectives"), "{said}");
}
