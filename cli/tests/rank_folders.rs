//! Folders with the runs of several ranks, as the commands take them.
#![allow(missing_docs, reason = "a test")]
mod common;
use common::*;
use std::path::Path;
use std::process::{Command, Stdio};

/// Two processes at once, as a launcher starts them.
fn record(dir: &Path) {
    let start = |rank: u32| {
        Command::new(env!("CARGO_BIN_EXE_candlescope"))
            .args([
                "profile",
                "--model",
                "embedded",
                "--max-new-tokens",
                "60",
                "--repeats",
                "3",
                "--no-progress",
                "--out",
            ])
            .arg(dir.join(format!("rank-{rank}")))
            .env("RANK", rank.to_string())
            .env("WORLD_SIZE", "2")
            .stdout(Stdio::null())
            .spawn()
            .unwrap()
    };
    for mut process in [start(0), start(1)] {
        assert!(process.wait().unwrap().success());
    }
}

#[test]
fn a_folder_of_ranks_is_one_run_for_every_command() {
    let dir = tempfile::tempdir().unwrap();
    record(dir.path());
    let folder = dir.path().to_str().unwrap();
    let manifest = json(&std::fs::read_to_string(dir.path().join("rank-1/run.json")).unwrap());
    assert_eq!((&manifest["rank"], &manifest["world_size"]), (&1.into(), &2.into()));
    let analysis = json(&ok(&["analyze", folder, "--json"]));
    assert_eq!((&analysis["world_size"], analysis["ranks"].as_array().unwrap().len()), (&2.into(), 2), "{analysis}");
    assert!(analysis["steps"].as_u64().unwrap() >= 16, "{analysis}");
    // Nobody waits for anybody.
    assert_eq!((&analysis["findings"], &analysis["matched"]), (&serde_json::json!([]), &0.into()), "{analysis}");
    let text = ok(&["report", folder]);
    assert!(!text.contains("-0 ns"), "{text}");
    assert!(text.contains("rank 1") && text.contains("No collective was recorded by all ranks"), "{text}");
    let page = std::fs::read_to_string(dir.path().join("ranks.html")).unwrap();
    assert!(page.contains("rank 0") && dir.path().join("ranks.json").is_file());

    // One trace with both processes, whose counts are those of the runs together.
    let exported = json(&ok(&["export", "perfetto", folder, "--json"]));
    let spans = |rank: u32| {
        let run = dir.path().join(format!("rank-{rank}"));
        json(&ok(&["query", "SELECT count(*) AS n FROM spans", run.to_str().unwrap(), "--json"]))["rows"][0]["n"]
            .as_u64()
            .unwrap()
    };
    assert_eq!(exported["spans"].as_u64().unwrap(), spans(0) + spans(1));
    let trace = std::fs::read(dir.path().join("ranks.pftrace")).unwrap();
    let has = |text: &str| trace.windows(text.len()).any(|window| window == text.as_bytes());
    assert!(has("rank 0") && has("rank 1"));
    assert!(fails(&["export", "kineto", folder]).contains("no recorded kernels"));
    assert!(fails(&["export", "chrome", folder]).contains("name the run of one rank"));
    // Ranks as SQL sees them.
    let sql = "SELECT count(DISTINCT rank) AS ranks FROM steps";
    assert_eq!(json(&ok(&["query", sql, folder, "--json"]))["rows"][0]["ranks"], 2);
}
