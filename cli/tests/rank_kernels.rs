//! Folders with the runs of several ranks whose kernels were recorded, as the commands show and export them: made runs, as no GPU is
//! needed to read them.
#![cfg(unix)]
#![allow(missing_docs, reason = "a test")]
mod common;
use candlescope_core::KernelKind;
use candlescope_testkit::ranks::{ALL_REDUCE, ENDS_APART_NS, MadeRank, MadeRanks, as_threads};
use common::*;
use serde_json::{Value, json};
use std::path::Path;
use std::process::Command;

/// The second machine's clock is behind by an hour.
const AHEAD: [i64; 2] = [0, -3_600_001_234_567];

fn kernels(made: &MadeRank) -> usize {
    made.batch.kernels.iter().filter(|kernel| kernel.kind == KernelKind::Kernel).count()
}

#[test]
fn analyze_and_report_name_the_slow_rank_and_what_the_link_carries() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().to_str().unwrap();
    write_ranks(dir.path(), &MadeRanks { large: 20, large_ns: 2_000_000, ..MadeRanks::default() }.make());
    let text = ok(&["analyze", folder]);
    for shown in [
        "Rank 1 takes 5.14 ms of its own a step, the others 4.34 ms (medians): it was the slowest in 40 of 40 steps",
        "Collectives kernels of the devices",
        "All ranks have one machine's clock, which processes read to 20.0 µs. The ends of a collective lie within 600 ns",
        "`straggler_rank`",
        " of a step, confidence high.",
        "`exposed_communication`: Transfers of collectives take 6.3 % of a step, in which the device computes nothing",
        "`bus_bandwidth`: `all_reduce` of 8 MiB and more reaches 134 GB/s on the bus (measured); the link carries 450 GB/s",
        "all_reduce in decode",
        "256 MiB",
    ] {
        assert!(text.contains(shown), "`{shown}` is not in\n{text}");
    }
    let told = json(&ok(&["analyze", folder, "--json"]));
    assert_eq!((&told["source"], &told["steps"], &told["matched"]), (&"kernels".into(), &40.into(), &360.into()));
    let codes: Vec<&Value> = told["findings"].as_array().unwrap().iter().map(|finding| &finding["code"]).collect();
    assert_eq!(codes, ["straggler_rank", "exposed_communication", "bus_bandwidth"], "{told}");
    let [first, _, bus] = &told["findings"].as_array().unwrap()[..] else { panic!("{told}") };
    let bound = |name: &str| first["gain_bounds"][name].as_f64().unwrap();
    assert!(bound("low") > 0.1 && bound("low") < bound("mid") && bound("mid") < bound("high"), "{first}");
    assert_eq!(
        (first["gain"].as_f64().unwrap(), &first["place"]["rank"], &first["steps"]),
        (bound("high"), &1.into(), &40.into())
    );
    assert_eq!((&bus["gain"], &bus["gain_bounds"], &bus["steps"]), (&Value::Null, &Value::Null, &Value::Null), "{bus}");
    // Their rows again: a rank for which the other one waits takes least in collectives, though in the warm-up it was the other one.
    let rows = |finding: &Value| {
        let found = json(&ok(&["query", finding["query"].as_str().unwrap(), folder, "--json"]));
        found["rows"].as_array().unwrap().clone()
    };
    let (of_ranks, large) = (rows(first), rows(bus));
    let (slow, fast) = (&of_ranks[0], &of_ranks[1]);
    // Eight in each of 40 steps, and of four to warm up, which views know by requests that made ranks do not have.
    assert_eq!(
        (of_ranks.len(), &slow["collectives"], &fast["collectives"]),
        (2, &352.into(), &352.into()),
        "{of_ranks:?}"
    );
    assert!(1.4 * slow["collective_ns"].as_f64().unwrap() < fast["collective_ns"].as_f64().unwrap(), "{of_ranks:?}");
    // Two places of each rank.
    assert_eq!((large.len(), large[0]["bytes"].as_f64()), (4, Some(268_435_456.0)), "{large:?}");
    let waiting = |rank: usize| told["ranks"][rank]["exposed_waiting_ns"].as_f64().unwrap();
    assert!((790e3..810e3).contains(&waiting(0)) && waiting(1) < 10e3, "8 times 100 µs: {told}");
    // The same beside the runs, as a page and for programs.
    ok(&["report", folder]);
    let written = json(&std::fs::read_to_string(dir.path().join("ranks.json")).unwrap());
    assert_eq!(written, told);
    assert!(std::fs::read_to_string(dir.path().join("ranks.html")).unwrap().contains("straggler_rank"));
}

#[test]
fn a_perfetto_trace_has_a_process_a_rank_with_its_kernels_by_one_clock() {
    let dir = tempfile::tempdir().unwrap();
    let made = MadeRanks { ahead_ns: AHEAD.to_vec(), steps: 12, ..MadeRanks::default() }.make();
    write_ranks(dir.path(), &made);
    let folder = dir.path().to_str().unwrap();
    let said = json(&ok(&["export", "perfetto", folder, "--json"]));
    let all: usize = made.iter().map(|made| made.batch.kernels.len()).sum();
    assert_eq!((&said["ranks"], &said["kernels"], &said["findings"]), (&2.into(), &all.into(), &json!([])), "{said}");
    let off = said["clocks"]["ahead_ns"][1].as_i64().unwrap() - AHEAD[1];
    assert!(off.abs() <= ENDS_APART_NS, "{said}");
    let trace = dir.path().join("ranks.pftrace");
    let bytes = std::fs::read(&trace).unwrap();
    assert!(bytes.windows(ALL_REDUCE.len()).any(|window| window == ALL_REDUCE.as_bytes()));
    let Some(python) = require(&PYTHON) else { return };
    let expected = dir.path().join("kernels.json");
    let counts = json!({ "candlescope made rank 0": kernels(&made[0]), "candlescope made rank 1": kernels(&made[1]) });
    std::fs::write(&expected, counts.to_string()).unwrap();
    let output = Command::new(python)
        .arg(Path::new(ROOT).join("tests/python/check_perfetto.py"))
        .arg(&trace)
        .arg("--kernels")
        .arg(&expected)
        .args(["--together", &(2 * ENDS_APART_NS).to_string()])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
}

#[test]
fn kineto_has_a_file_a_rank_by_which_other_tools_tell_them_apart() {
    let dir = tempfile::tempdir().unwrap();
    let made = MadeRanks { ahead_ns: AHEAD.to_vec(), steps: 12, ..MadeRanks::default() }.make();
    write_ranks(dir.path(), &made);
    let folder = dir.path().to_str().unwrap();
    let said = json(&ok(&["export", "kineto", folder, "--json"]));
    let all: usize = made.iter().map(|made| made.batch.kernels.len()).sum();
    assert_eq!((&said["ranks"], &said["kernels"]), (&2.into(), &all.into()), "{said}");
    let mut ends: Vec<Vec<f64>> = Vec::new();
    for (rank, made) in made.iter().enumerate() {
        let file = dir.path().join(format!("kineto/rank{rank}.json"));
        assert_eq!(said["files"][rank], file.to_str().unwrap());
        let text = std::fs::read_to_string(&file).unwrap();
        // HolisticTraceAnalysis looks for this with a space, and takes a file without it for that of rank 0.
        assert!(text.contains(&format!("\"rank\": {rank},")), "{}", &text[..600]);
        let trace = json(&text);
        assert_eq!(trace["distributedInfo"], json!({ "rank": rank, "world_size": 2 }));
        let events = trace["traceEvents"].as_array().unwrap();
        let of =
            |category: &'static str| events.iter().filter(move |event| event["cat"] == category && event["ph"] == "X");
        assert_eq!((of("kernel").count(), of("user_annotation").count()), (kernels(made), made.batch.steps.len()));
        let time = |event: &Value, key: &str| event[key].as_f64().unwrap();
        let first = of("user_annotation").map(|event| time(event, "ts")).fold(f64::MAX, f64::min);
        assert!((990.0..1_010.0).contains(&first), "the first step begins {first} µs after the first rank's run");
        let reduces = of("kernel").filter(|event| event["name"] == ALL_REDUCE);
        ends.push(reduces.map(|event| time(event, "ts") + time(event, "dur")).collect());
    }
    // Clocks that are an hour apart are one.
    assert_eq!(ends[0].len(), ends[1].len());
    let apart = ends[0].iter().zip(&ends[1]).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
    assert!(apart <= 2.0 * ENDS_APART_NS as f64 / 1e3, "{apart} µs");
}

#[test]
fn kineto_of_ranks_is_refused_where_one_has_no_kernels() {
    let dir = tempfile::tempdir().unwrap();
    let mut made = MadeRanks { steps: 4, ..MadeRanks::default() }.make();
    made[1].batch.kernels.clear();
    write_ranks(dir.path(), &made);
    let said = fails(&["export", "kineto", dir.path().to_str().unwrap()]);
    assert!(said.contains("rank-1` has no recorded kernels") && said.contains("--cupti"), "{said}");
    assert!(!dir.path().join("kineto").exists());
}

#[test]
fn threads_of_a_run_are_ranks_where_that_is_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let made = MadeRanks { steps: 12, ..MadeRanks::default() }.make();
    let (batch, manifest) = as_threads(&made);
    write_ranks(dir.path(), &[MadeRank { batch, manifest, truth: made[0].truth }]);
    let run_dir = dir.path().join("rank-0");
    let run = run_dir.to_str().unwrap();
    let told = json(&ok(&["analyze", run, "--by-thread", "--json"]));
    hold_against_schemas(&json!({ "analyze-ranks": [&told] }), false);
    assert_eq!((&told["world_size"], &told["steps"], &told["findings"][0]["rank"]), (&2.into(), &12.into(), &1.into()));
    assert_eq!(told["ranks"][1]["thread"], "rank-1", "{told}");
    let text = ok(&["report", run, "--by-thread"]);
    assert!(text.contains("rank 1 (rank-1)") && text.contains("`straggler_rank`"), "{text}");
    assert_eq!(json(&std::fs::read_to_string(run_dir.join("ranks.json")).unwrap()), told);
    // Without it, it is the run that it was.
    assert_eq!(json(&ok(&["analyze", run, "--json"]))["runs"].as_array().unwrap().len(), 1);

    // A file a rank, in which no kernel is twice; numbers of steps are each rank's own.
    let all: usize = made.iter().map(|made| made.batch.kernels.len()).sum();
    let kineto = json(&ok(&["export", "kineto", run, "--by-thread", "--json"]));
    assert_eq!((&kineto["ranks"], &kineto["kernels"]), (&2.into(), &all.into()), "{kineto}");
    let traces =
        [0, 1].map(|rank| json(&std::fs::read_to_string(run_dir.join(format!("kineto/rank{rank}.json"))).unwrap()));
    for (rank, (trace, made)) in traces.iter().zip(&made).enumerate() {
        let events = trace["traceEvents"].as_array().unwrap();
        let on_device = events.iter().filter(|event| event["cat"] == "kernel").count();
        assert_eq!((&trace["distributedInfo"]["rank"], on_device), (&rank.into(), kernels(made)), "{rank}");
    }
    let trace = json(&ok(&["export", "perfetto", run, "--by-thread", "--json"]));
    assert_eq!((&trace["ranks"], &trace["kernels"]), (&2.into(), &all.into()), "{trace}");
    assert!(fails(&["export", "chrome", run, "--by-thread"]).contains("leave out --by-thread"));

    // One run has one thread only, and two runs have no threads together.
    let again = dir.path().join("again");
    let [one, two] = [run, again.to_str().unwrap()];
    write_ranks(&again, &made[..1]);
    let said = fails(&["analyze", again.join("rank-0").to_str().unwrap(), "--by-thread"]);
    assert!(said.contains("has marked phases on 1 thread: ranks are 2 to 64 threads"), "{said}");
    assert!(fails(&["analyze", one, two, "--by-thread"]).contains("--by-thread is about one run"));
    assert!(fails(&["analyze", run, "--by-thread", "--what-if", "graph"]).contains("cannot be used with"));
}

/// What a script for two GPUs says of these ranks, whether it is content, and what it printed.
fn checked(python: &Path, script: &str, command: &mut dyn FnMut(&mut Command)) -> (bool, String) {
    let mut process = Command::new(python);
    process.arg(Path::new(ROOT).join("tests/gpu").join(script)).env("CANDLESCOPE_BINARY", BINARY);
    command(&mut process);
    let output = process.output().unwrap();
    (output.status.success(), text(&output.stdout) + &text(&output.stderr))
}

/// The scripts that judge real ranks read keys of ours: a key that is renamed shows here, and not on two rented GPUs alone.
#[test]
fn the_script_that_checks_two_ranks_holds_for_made_ones_and_finds_what_is_wrong() {
    let Some(python) = require(&PYTHON) else { return };
    let dir = tempfile::tempdir().unwrap();
    let [slow, even] = ["slow", "even"].map(|name| dir.path().join(name));
    write_ranks(&slow, &MadeRanks { large: 20, large_ns: 2_000_000, ..MadeRanks::default() }.make());
    write_ranks(&even, &MadeRanks { slower: vec![1.0, 1.0], noise: 0.02, ..MadeRanks::default() }.make());
    let [told, told_even] = [&slow, &even].map(|folder| ok(&["analyze", folder.to_str().unwrap(), "--json"]));
    let judged = |folder: &Path, told: &str, options: &[&str]| {
        let said = dir.path().join("said.json");
        std::fs::write(&said, told).unwrap();
        checked(&python, "check_ranks.py", &mut |command| {
            command.arg(folder).args(options).stdin(std::fs::File::open(&said).unwrap());
        })
    };
    let [own, own_even] = ["own.json", "own-even.json"].map(|name| dir.path().join(name));
    let [own, own_even] = [&own, &own_even].map(|path| path.to_str().unwrap());

    // Where no rank takes longer than the other, nobody is named.
    let (holds, said) = judged(&even, &told_even, &["--slow", "none", "--keep", own_even]);
    assert!(holds && said.contains("nobody may be named") && !said.contains("WRONG"), "{said}");
    let all = ["--slow", "1", "--share", "0.2", "--bus", "0.2", "--keep", own, "--unslowed", own_even];
    let (holds, said) = judged(&slow, &told, &all);
    assert!(holds && !said.contains("WRONG"), "{said}");
    for shown in ["1 has to be named", "named: [1], slowed: 1", "longer than in 1 of 1 starts"] {
        assert!(said.contains(shown), "`{shown}` is not in\n{said}");
    }
    // It takes longer whether somebody slowed it or not.
    assert!(judged(&slow, &told, &["--slow", "none"]).0);
    for wrong in [
        &["--slow", "0"][..],
        &["--slow", "1", "--bus", "0.9"],
        &["--slow", "1", "--steps", "41"],
        &["--slow", "1", "--source", "spans"],
        &["--slow", "1", "--share", "3"],
        &["--slow", "1", "--ends-us", "0.1"],
        &["--slow", "1", "--unslowed", own],
    ] {
        let (holds, said) = judged(&slow, &told, wrong);
        assert!(!holds && said.contains("WRONG"), "{wrong:?}: {said}");
    }
    assert!(!judged(&even, &told_even, &["--slow", "1"]).0, "it was not slowed");

    // What does not agree with the rows: another rank, none, too large a gain, and one where none is slower.
    let changed = |told: &str, change: &dyn Fn(&mut Vec<Value>)| {
        let mut told = json(told);
        change(told["findings"].as_array_mut().unwrap());
        told.to_string()
    };
    let straggler = json(&told)["findings"][0].clone();
    assert_eq!(straggler["code"], "straggler_rank");
    let large = json!({ "low": 0.3, "mid": 0.4, "high": 0.5 });
    for (folder, said) in [
        (&slow, changed(&told, &|findings| findings[0]["rank"] = 0.into())),
        (&slow, changed(&told, &|findings| drop(findings.remove(0)))),
        (&slow, changed(&told, &|findings| findings[0]["gain_bounds"] = large.clone())),
        (&even, changed(&told_even, &|findings| findings.push(straggler.clone()))),
    ] {
        let (holds, printed) = judged(folder, &said, &["--slow", "none"]);
        assert!(!holds && printed.contains("WRONG"), "{said}: {printed}");
    }
    let (holds, said) = judged(&slow, "no ranks", &all);
    assert!(!holds && said.contains("nothing was said of the ranks"), "{said}");
    let renamed = told.replace("\"transfer_ns\"", "\"transferred_ns\"");
    assert!(renamed != told && !judged(&slow, &renamed, &all).0, "a key has another name");
}

/// Kernels as Nsight Systems' tables have them: of each rank a file, which this script makes of the kernels of the runs.
const AS_NSIGHT: &str = r#"
import csv, io, os, sqlite3, subprocess, sys
folder, factor, left_out = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
sql = "SELECT rank, name, gpu_start_ns, gpu_dur_ns FROM kernels WHERE kind = 'kernel' ORDER BY rank, gpu_start_ns"
rows = subprocess.run([os.environ["CANDLESCOPE_BINARY"], "query", sql, folder, "--format", "csv", "--limit", "0"], check=True, capture_output=True, text=True)
rows = list(csv.DictReader(io.StringIO(rows.stdout)))
for rank, path in enumerate(sys.argv[4:]):
    base = sqlite3.connect(path)
    base.execute("CREATE TABLE StringIds (id INTEGER, value TEXT)")
    base.execute("CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, end INTEGER, demangledName INTEGER)")
    mine = [row for row in rows if int(row["rank"]) == rank][left_out:]
    names = sorted({row["name"] for row in mine})
    base.executemany("INSERT INTO StringIds VALUES (?, ?)", enumerate(names))
    for row in mine:
        start, ns = int(row["gpu_start_ns"]), int(row["gpu_dur_ns"])
        ns = ns if row["name"].startswith("nccl") else round(ns * factor)
        base.execute("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?, ?, ?)", (start, start + ns, names.index(row["name"])))
    base.commit()
"#;

#[test]
fn the_script_that_compares_kernels_with_nsights_holds_for_the_same_ones_and_finds_others() {
    let Some(python) = require(&PYTHON) else { return };
    let dir = tempfile::tempdir().unwrap();
    let runs = dir.path().join("runs");
    let made = MadeRanks { large: 20, large_ns: 2_000_000, ..MadeRanks::default() };
    write_ranks(&runs, &made.make());
    let compared = |name: &str, factor: &str, left_out: &str| {
        let files = [0, 1].map(|rank| dir.path().join(format!("{name}-{rank}.sqlite")));
        let made = Command::new(&python)
            .env("CANDLESCOPE_BINARY", BINARY)
            .args(["-c", AS_NSIGHT, runs.to_str().unwrap(), factor, left_out])
            .args(&files)
            .output()
            .unwrap();
        assert!(made.status.success(), "{}", text(&made.stderr));
        checked(&python, "nsight_totals.py", &mut |command| {
            command.arg(&runs).args(&files);
        })
    };
    let (holds, said) = compared("same", "1", "0");
    assert!(holds && said.contains("large all-reduces of who came last, mean") && said.contains(" 0 differ"), "{said}");
    let (holds, said) = compared("slower", "1.1", "0");
    assert!(!holds && said.contains("WRONG rank 0") && said.contains("WRONG rank 1"), "{said}");
    let (holds, said) = compared("fewer", "1", "40");
    assert!(!holds && said.contains("launches, Nsight has"), "{said}");
}
