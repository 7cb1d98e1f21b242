//! Folders with the runs of several ranks, as the commands take them.
#![allow(missing_docs, reason = "a test")]
mod common;
use candlescope_testkit::ranks::MadeRanks;
use common::*;
use std::path::{Path, PathBuf};

/// The file of a table.
fn segment(run: &Path, table: &str) -> PathBuf {
    let files: Vec<PathBuf> = std::fs::read_dir(run.join(table)).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(files.len(), 1, "{files:?}");
    files[0].clone()
}

#[test]
fn a_folder_of_ranks_is_one_run_for_every_command() {
    let dir = tempfile::tempdir().unwrap();
    record_ranks(dir.path());
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
    // What is about one run is not ignored.
    let rank = dir.path().join("rank-0");
    let of_a_run: [&[&str]; 10] = [
        &["report", folder, "--request", "5"],
        &["report", folder, "--nsys", "a.sqlite"],
        &["report", folder, "--price-per-hour", "2"],
        &["report", folder, "--top", "15"],
        &["analyze", folder, "--what-if", "graph"],
        &["analyze", folder, "--unobserved"],
        &["analyze", folder, "--top", "10"],
        &["analyze", folder, "--launch-overhead", "1.5"],
        &["analyze", folder, "--with-warmup"],
        &["analyze", folder, "--with-warmup", "--json"],
    ];
    for args in of_a_run {
        let told = fails(args);
        assert!(told.contains(&format!("{} is about one run", args[2])), "{args:?}: {told}");
        assert!(told.contains(rank.to_str().unwrap()), "{args:?}: {told}");
    }
    assert!(fails(&["export", "kineto", folder]).contains("no recorded kernels"));
    assert!(fails(&["export", "chrome", folder]).contains("name the run of one rank"));
    // Ranks as SQL sees them.
    let sql = "SELECT count(DISTINCT rank) AS ranks FROM steps";
    assert_eq!(json(&ok(&["query", sql, folder, "--json"]))["rows"][0]["ranks"], 2);
    stragglers(dir.path());
}

/// The first run of each rank's program, and the rank, as SQL puts them together.
fn ranks_of(folders: &[&Path]) -> Vec<(String, u64)> {
    let sql = "SELECT first_run, rank, steps, longest FROM stragglers WHERE phase = 'decode' ORDER BY first_run, rank";
    let folders: Vec<&str> = folders.iter().map(|folder| folder.to_str().unwrap()).collect();
    let answer = json(&ok(&[&["query", sql, "--json"], &folders[..]].concat()));
    let rows = answer["rows"].as_array().unwrap().iter();
    rows.map(|row| {
        assert!(row["steps"].as_u64() > Some(100) && row["longest"].as_u64() <= row["steps"].as_u64(), "{row}");
        (row["first_run"].as_str().unwrap().to_string(), row["rank"].as_u64().unwrap())
    })
    .collect()
}

/// Runs of one start of a program are compared, whatever they are called, and no others.
fn stragglers(folder: &Path) {
    let of = |folder: &Path| [0u64, 1].map(|rank| (folder.join("rank-0").to_str().unwrap().to_string(), rank));
    assert_eq!(ranks_of(&[folder]), of(folder));
    let summary = json(&ok(&["summary", folder.to_str().unwrap(), "--json"]));
    assert_eq!((&summary["runs"], &summary["groups"][0]["processes"]), (&1.into(), &2.into()), "{summary}");
    // The same name every day, or for two starts at once: their time tells them apart, or what launchers call the job.
    let elsewhere = tempfile::tempdir().unwrap();
    let copied = |name: &str, days: i64, job: Option<&str>| {
        let to = elsewhere.path().join(name);
        for rank in ["rank-0", "rank-1"] {
            copy(&folder.join(rank), &to.join(rank));
            let path = to.join(rank).join("run.json");
            let mut manifest = json(&std::fs::read_to_string(&path).unwrap());
            manifest["run_id"] = "nightly".into();
            for time in ["started_ns", "ended_ns"] {
                manifest[time] = (manifest[time].as_i64().unwrap() - days * 86_400_000_000_000).into();
            }
            job.into_iter().for_each(|job| manifest["job"] = job.into());
            std::fs::write(path, manifest.to_string()).unwrap();
        }
        to
    };
    let (today, yesterday) = (copied("today", 0, None), copied("yesterday", 1, None));
    assert_eq!(ranks_of(&[&today, &yesterday]), [of(&today), of(&yesterday)].concat());
    let again = copied("again", 0, None);
    assert_eq!(ranks_of(&[&today, &again, &yesterday]), of(&yesterday), "who belongs to whom is not known");
    let jobs = ["4711/0", "4712/0"].map(|job| copied(&job.replace('/', "-"), 0, Some(job)));
    assert_eq!(ranks_of(&[&jobs[0], &jobs[1], &yesterday]), [of(&jobs[0]), of(&jobs[1]), of(&yesterday)].concat());
    // A folder with both is one of ranks of one of them.
    let both = elsewhere.path().join("both");
    for (job, rank) in [(0, "rank-0"), (0, "rank-1"), (1, "rank-0"), (1, "rank-1")] {
        copy(&jobs[job].join(rank), &both.join(format!("{job}-{rank}")));
    }
    let analysis = json(&ok(&["analyze", both.to_str().unwrap(), "--json"]));
    assert_eq!((&analysis["world_size"], analysis["ranks"].as_array().unwrap().len()), (&2.into(), 2), "{analysis}");
}

/// Programs of several machines write into one folder by day and machine, and a start may go past midnight.
#[test]
fn ranks_below_days_and_machines_are_one_run() {
    let dir = tempfile::tempdir().unwrap();
    let (made, shared) = (dir.path().join("made"), dir.path().join("shared"));
    write_ranks(&made, &MadeRanks { steps: 12, ..MadeRanks::default() }.make());
    for (rank, folder) in [("rank-0", "date=2026-11-27/machine=a"), ("rank-1", "date=2026-11-28/machine=b")] {
        copy(&made.join(rank), &shared.join(folder).join(rank));
    }
    let analyzed = |folder: &Path| json(&ok(&["analyze", folder.to_str().unwrap(), "--json"]));
    let (together, apart) = (analyzed(&made), analyzed(&shared));
    assert_eq!((&apart["steps"], apart["ranks"].as_array().unwrap().len()), (&12.into(), 2), "{apart}");
    assert_eq!((&apart["clocks"], &apart["matched"]), (&together["clocks"], &together["matched"]), "{apart}");
    // A folder without runs is none of ranks.
    std::fs::create_dir_all(dir.path().join("empty/date=2026-11-27")).unwrap();
    assert!(fails(&["analyze", dir.path().join("empty").to_str().unwrap()]).contains("holds no run"));
}

#[test]
fn files_of_ranks_that_are_damaged_are_named() {
    let dir = tempfile::tempdir().unwrap();
    write_ranks(dir.path(), &MadeRanks { steps: 12, ..MadeRanks::default() }.make());
    let folder = dir.path().to_str().unwrap();
    let whole = json(&ok(&["analyze", folder, "--json"]));
    assert_eq!((&whole["steps"], &whole["damage"]), (&12.into(), &serde_json::json!([])), "{whole}");
    // One lacks its end, which is seen when the run is opened; of the other one the first page is broken, which is seen when its rows
    // are read.
    let steps = segment(&dir.path().join("rank-1"), "steps");
    let bytes = std::fs::read(&steps).unwrap();
    std::fs::write(&steps, &bytes[..bytes.len() / 2]).unwrap();
    let spans = segment(&dir.path().join("rank-0"), "spans");
    let mut bytes = std::fs::read(&spans).unwrap();
    bytes[4..36].fill(0xff);
    std::fs::write(&spans, bytes).unwrap();
    let told = json(&ok(&["analyze", folder, "--json"]));
    hold_against_schemas(&serde_json::json!({ "analyze-ranks": [&told] }), false);
    assert_eq!(told["steps"], 0, "{told}");
    let (damage, text) = (told["damage"].as_array().unwrap(), ok(&["report", folder]));
    assert_eq!(damage.len(), 2, "{told}");
    for (found, (file, why)) in damage.iter().zip([(spans, "is damaged ("), (steps, "is not a readable Parquet file")])
    {
        let message = found["message"].as_str().unwrap();
        assert!(message.starts_with(&format!("`{}` {why}", file.display())), "{message}");
        assert!(text.contains(message), "`{message}` is not in\n{text}");
    }
}

#[test]
fn a_rank_that_cannot_be_read_is_named_with_the_reason() {
    let dir = tempfile::tempdir().unwrap();
    write_ranks(dir.path(), &MadeRanks { slower: vec![1.0, 1.2, 1.0], steps: 12, ..MadeRanks::default() }.make());
    let folder = dir.path().to_str().unwrap();
    // Without a description a run says no rank, and its files are not opened.
    std::fs::write(dir.path().join("rank-2/run.json"), "{").unwrap();
    let told = json(&ok(&["analyze", folder, "--json"]));
    hold_against_schemas(&serde_json::json!({ "analyze-ranks": [&told] }), false);
    assert_eq!((&told["missing"], told["ranks"].as_array().unwrap().len()), (&serde_json::json!([2]), 2), "{told}");
}
