//! Our ranges under the real Nsight Systems, on a machine with or without a GPU.
//!
//! `make nsys` puts one into `.nsys`; without it, and without one on the PATH or in `CANDLESCOPE_NSYS`, these tests say
//! so and pass, unless all tools are required.
#![allow(missing_docs, reason = "a test")]
use candlescope_core::{RecordKind, SpanRecord};
use candlescope_figures::KernelsByPath;
use candlescope_figures::nsys::Profile;
use candlescope_reader::Run;
use candlescope_testkit::tools::{NSYS, require};
use rusqlite::Connection;
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use tempfile::tempdir;

/// Forwards on each thread.
const N: usize = 6;
/// Linear layers of the model: seven in each of three layers, and the head.
const LINEARS: usize = 3 * 7 + 1;

/// One at a time: the tests' machines are small, and a profiler under load drops events.
static ONE: Mutex<()> = Mutex::new(());

/// Runs the program with `args` under nsys; returns the SQLite export of the recording.
fn profile(nsys: &Path, dir: &Path, args: &[&str]) -> PathBuf {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let out = dir.join("profile");
    let run = |command: &mut Command| {
        let output = command.output().expect("nsys starts");
        let text = [output.stdout, output.stderr].map(|b| String::from_utf8_lossy(&b).into_owned()).concat();
        assert!(output.status.success(), "{command:?}: {text}");
    };
    run(Command::new(nsys)
        .args(["profile", "-t", "nvtx", "--sample=none", "--cpuctxsw=none", "--force-overwrite", "true", "-o"])
        .arg(&out)
        .arg(env!("CARGO_BIN_EXE_nvtx_llama"))
        .args(args));
    let report = out.with_extension("nsys-rep");
    assert!(report.is_file(), "nsys imported what it recorded");
    let sqlite = out.with_extension("sqlite");
    run(Command::new(nsys)
        .args(["export", "--type", "sqlite", "--force-overwrite", "true", "-o"])
        .arg(&sqlite)
        .arg(report));
    sqlite
}

fn spans(run: &Path) -> Vec<SpanRecord> {
    let run = Run::open(run).unwrap();
    run.table(RecordKind::Span).flat_map(|batch| batch.spans).collect()
}

/// Payload → (text, payload of the range around it), from where ranges start and end on their threads.
fn range_tree(profile: &Profile, sqlite: &Path) -> HashMap<u64, (String, Option<u64>)> {
    let file = Connection::open(sqlite).unwrap();
    let mut texts = file
        .prepare(
            "SELECT e.uint64Value, s.value FROM NVTX_EVENTS e JOIN StringIds s ON s.id = e.textId WHERE e.eventType = 59",
        )
        .unwrap();
    let texts: HashMap<u64, String> = texts
        .query_map([], |row| Ok((row.get::<_, i64>(0)? as u64, row.get(1)?)))
        .unwrap()
        .map(Result::unwrap)
        .collect();
    let mut tree = HashMap::new();
    let mut open: HashMap<i64, Vec<(u64, i64)>> = HashMap::new();
    for range in &profile.ranges {
        let stack = open.entry(range.thread).or_default();
        while stack.pop_if(|(_, end)| *end <= range.start).is_some() {}
        let end = range.end.expect("every range has ended");
        assert!(stack.last().is_none_or(|(_, around)| end <= *around), "ranges of a thread nest");
        let before = tree.insert(range.span, (texts[&range.span].clone(), stack.last().map(|(span, _)| *span)));
        assert!(before.is_none(), "a payload is one range's");
        stack.push((range.span, end));
    }
    tree
}

#[test]
fn n_forwards_are_n_ranges_of_every_layer_nested_as_recorded() {
    let Some(nsys) = require(&NSYS) else { return };
    let dir = tempdir().unwrap();
    let run = dir.path().join("run");
    let sqlite = profile(&nsys, dir.path(), &["ours", run.to_str().unwrap(), &N.to_string()]);
    let profile = Profile::open(&sqlite).unwrap();
    let spans = spans(&run);

    // Ours is the reference: a forward is 1 + 14 × 3 + 2 intervals, on each of two threads.
    assert_eq!(spans.len(), 2 * N * (1 + 14 * 3 + 2));
    assert_eq!(profile.ranges.len(), spans.len(), "one range for every interval");
    let ids: HashMap<u64, u64> = spans.iter().map(|s| (s.seq, s.span_id.0)).collect();
    let recorded: HashMap<u64, (String, Option<u64>)> =
        spans.iter().map(|s| (s.span_id.0, (s.path.name.to_string(), s.parent_seq.map(|p| ids[&p])))).collect();
    assert_eq!(range_tree(&profile, &sqlite), recorded, "the same names, the same parents, by payload");

    // Every single layer, not only their sum.
    let paths: HashMap<u64, &str> = spans.iter().map(|s| (s.span_id.0, s.path.path.as_str())).collect();
    let mut ranges_of: BTreeMap<&str, usize> = BTreeMap::new();
    profile.ranges.iter().for_each(|range| *ranges_of.entry(paths[&range.span]).or_default() += 1);
    assert_eq!(ranges_of.len(), 1 + 14 * 3 + 2);
    assert!(ranges_of.contains_key("decode/block[2]/mlp/linear[1]"), "{ranges_of:?}");
    for (path, ranges) in ranges_of {
        assert_eq!(ranges, 2 * N, "ranges of {path}");
    }

    // A range is slightly longer than the interval that it represents.
    let host: u64 = spans.iter().filter(|s| s.depth == 0).map(|s| s.host_dur_ns).sum();
    let steps: HashMap<u64, ()> = spans.iter().filter(|s| s.depth == 0).map(|s| (s.span_id.0, ())).collect();
    let ranges: i64 =
        profile.ranges.iter().filter(|r| steps.contains_key(&r.span)).map(|r| r.end.unwrap() - r.start).sum();
    assert!(ranges as f64 > 0.99 * host as f64, "{ranges} ns of ranges, {host} ns of steps");

    // The phase is the category, by name.
    let file = Connection::open(&sqlite).unwrap();
    let categories: Vec<String> = file
        .prepare(
            "SELECT DISTINCT c.text FROM NVTX_EVENTS e JOIN NVTX_EVENTS c \
             ON c.eventType = 33 AND c.category = e.category AND c.domainId = e.domainId WHERE e.eventType = 59",
        )
        .unwrap()
        .query_map([], |row| row.get(0))
        .unwrap()
        .map(Result::unwrap)
        .collect();
    assert_eq!(categories, ["decode"]);

    // The report's join finds all of it, and says that there were no kernels.
    let by_path = KernelsByPath::of(&Run::open(&run).unwrap(), &profile, &Default::default());
    assert_eq!((by_path.ranges, by_path.matched, by_path.all.kernels), (spans.len() as u64, spans.len() as u64, 0));
    assert_eq!(by_path.findings().iter().map(|f| f.code.as_str()).collect::<Vec<_>>(), ["nsys_no_kernels"]);
}

/// Why we have a tap of our own. If this fails with a newer `nvtx`, its layer supports re-entered spans now: update the
/// docs.
#[test]
fn the_layer_of_the_nvtx_crate_shows_one_range_instead_of_n() {
    let Some(nsys) = require(&NSYS) else { return };
    let dir = tempdir().unwrap();
    let sqlite = profile(&nsys, dir.path(), &["peer", &N.to_string()]);
    let file = Connection::open(&sqlite).unwrap();
    let linears: i64 = file
        .query_row(
            "SELECT COUNT(*) FROM NVTX_EVENTS e LEFT JOIN StringIds s ON s.id = e.textId \
             WHERE e.eventType IN (59, 60) AND COALESCE(e.text, s.value) = 'linear'",
            [],
            |row| row.get(0),
        )
        .unwrap();
    assert_eq!(linears as usize, LINEARS, "ranges of {N} forwards, where {} are right", N * LINEARS);
}

#[test]
fn an_interval_stays_cheap_under_a_tool() {
    let Some(nsys) = require(&NSYS) else { return };
    let dir = tempdir().unwrap();
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let cost = |command: &mut Command| -> serde_json::Value {
        let output = command.arg("cost").output().expect("starts");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let line = text.lines().find(|line| line.starts_with('{')).unwrap_or_else(|| panic!("{text}"));
        serde_json::from_str(line).unwrap()
    };
    let program = env!("CARGO_BIN_EXE_nvtx_llama");
    let alone = cost(&mut Command::new(program));
    let under = cost(
        Command::new(&nsys)
            .args(["profile", "-t", "nvtx", "--sample=none", "--cpuctxsw=none", "--force-overwrite", "true", "-o"])
            .arg(dir.path().join("cost"))
            .arg(program),
    );
    println!("no tool: {alone}\nnsys:    {under}");
    assert_eq!((alone["attached"].as_bool(), under["attached"].as_bool()), (Some(false), Some(true)));
    let ns = |value: &serde_json::Value, key: &str| value[key].as_f64().unwrap();
    // Far above the measured figures of about 2 ns and half a microsecond, but low enough that a lock or a system call
    // would show.
    assert!(ns(&alone, "tap_ns") < 100.0, "{alone}");
    assert!(ns(&under, "tap_ns") < 20_000.0, "{under}");
}
