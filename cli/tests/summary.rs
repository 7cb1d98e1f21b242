//! What changed over time in many runs, of an archive and of a folder: from runs that were recorded, on days of the test's choice.
#![allow(missing_docs, reason = "a test")]
mod common;
use candlescope_core::numbers::DAY_NS;
use common::*;
use std::fs;
use std::path::Path;

/// Records a run of a model that does more the more tokens it is asked, and gives it a day.
fn record(dir: &Path, prompt: &str, tokens: &str, days_before: i64) {
    let args = [
        "profile",
        "--model",
        "embedded",
        "--max-new-tokens",
        tokens,
        "--repeats",
        "3",
        "--warmup",
        "1",
        "--no-progress",
    ];
    ok(&[&args[..], &["--prompt", prompt, "--out", dir.to_str().unwrap()]].concat());
    moved(dir, dir.file_name().unwrap().to_str().unwrap(), days_before);
}

fn moved(dir: &Path, id: &str, days_before: i64) {
    let path = dir.join("run.json");
    let mut manifest = json(&fs::read_to_string(&path).unwrap());
    manifest["run_id"] = id.into();
    manifest["started_ns"] = (manifest["started_ns"].as_i64().unwrap() - days_before * DAY_NS).into();
    fs::write(path, manifest.to_string()).unwrap();
}

/// The notebook's figures are those of the summary.
fn notebook(archive: &Path) {
    let Some(python) = require(&PYTHON) else { return };
    let output = std::process::Command::new(python)
        .arg(Path::new(ROOT).join("tests/python/run_notebook.py"))
        .arg(Path::new(ROOT).join("examples/notebooks/fleet.ipynb"))
        .env("CANDLESCOPE_ARCHIVE", archive)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let said = json(&text(&output.stdout));
    assert_eq!(said["plots"].as_array().map(Vec::len), Some(2), "{said}");
    let summary = json(&ok(&["summary", archive.to_str().unwrap(), "--json"]));
    let trends = summary["groups"][0]["trends"].as_array().unwrap();
    assert_eq!(said["figures"]["runs"], summary["runs"]);
    for name in ["ttft_ns", "tpot_ns"] {
        let trend = trends.iter().find(|trend| trend["figure"]["name"] == name).unwrap();
        let days = trend["days"].as_array().unwrap();
        assert_eq!(said["figures"]["days"].as_array().map(Vec::len), Some(days.len()));
        for day in days {
            let found = said["figures"][name][day["day"].as_str().unwrap()].as_f64().unwrap();
            let expected = day["median"].as_f64().unwrap() * 1e6;
            assert!((found / expected - 1.0).abs() < 1e-9, "{name} on {}: {found} and {expected}", day["day"]);
        }
    }
    assert!(said["figures"]["operators"].as_u64() > Some(5), "{said}");
}

#[test]
fn a_change_shows_with_its_day_and_leads_to_its_runs() {
    let dir = tempfile::tempdir().unwrap();
    let runs = dir.path().join("runs");
    // A prompt of one word, and one that is much longer: the first token takes several times as long.
    let (short, long) = (dir.path().join("short"), dir.path().join("long"));
    record(&short, "one", "6", 0);
    record(&long, &"many words that have to be read first ".repeat(12), "7", 0);
    for day in 0..12 {
        for n in 0..2 {
            let to = runs.join(format!("day-{day:02}-{n}"));
            copy(if day < 6 { &short } else { &long }, &to);
            moved(&to, &format!("day-{day:02}-{n}"), 12 - day);
        }
    }
    let archive = dir.path().join("archive");
    ok(&["archive", runs.to_str().unwrap(), "--to", archive.to_str().unwrap(), "--keep-source"]);
    let page = dir.path().join("summary.html");
    for place in [&archive, &runs] {
        let place = place.to_str().unwrap();
        let summary = json(&ok(&["summary", place, "--json"]));
        let group = &summary["groups"][0];
        assert_eq!((&group["runs"], summary["groups"].as_array().unwrap().len()), (&24.into(), 1), "{summary}");
        assert_eq!(group["keys"][0][0], "model");
        let trend = |name: &str| {
            let trends = group["trends"].as_array().unwrap();
            trends.iter().find(|trend| trend["figure"]["name"] == name).unwrap_or_else(|| panic!("{name}: {summary}"))
        };
        let ttft = trend("ttft_ns");
        let [change] = &ttft["changes"].as_array().unwrap()[..] else { panic!("{ttft}") };
        assert_eq!((&change["day"], &change["worse"]), (&ttft["days"][6]["day"], &true.into()), "{ttft}");
        let run = change["runs"][0].as_str().unwrap();
        assert!(run.ends_with("day-06-0"), "{run}");
        // The same figure by hand, from the run that it leads to.
        let sql = "SELECT median(ttft_ns) / 1e6 AS ms FROM request_latency WHERE run LIKE '%day-06-0'";
        let by_hand = json(&ok(&["query", sql, place, "--json"]))["rows"][0]["ms"].as_f64().unwrap();
        let shown = ttft["days"][6]["median"].as_f64().unwrap();
        assert!((shown / by_hand - 1.0).abs() < 1e-9, "{shown} {by_hand}");
        let text = ok(&["summary", place, "--html", page.to_str().unwrap()]);
        assert!(text.contains("worse") && text.contains("day-06-0") && text.contains("Time to first token"), "{text}");
        assert!(fs::read_to_string(&page).unwrap().matches("<svg").count() > 3);
        let trend = ok(&["trend", "ttft", place]);
        assert_eq!(trend.matches("day-").count(), 24, "every run of every day is named: {trend}");
        // Told apart by what they were asked for, nothing changes.
        let apart = json(&ok(&["summary", place, "--by", "model,model,option.max-new-tokens", "--json"]));
        let groups = apart["groups"].as_array().unwrap();
        assert_eq!((groups.len(), groups[0]["keys"].as_array().unwrap().len()), (2, 2), "{apart}");
        let trends = || groups.iter().flat_map(|group| group["trends"].as_array().unwrap());
        assert!(trends().count() > 6 && trends().all(|trend| trend["changes"] == serde_json::json!([])), "{apart}");
        // A run has a finding once, however often it is there.
        let analysed: u64 = group["analysed"].as_array().unwrap().iter().map(|n| n.as_u64().unwrap()).sum();
        let found = group["findings"].as_object().unwrap().values();
        let most = found.map(|sides| sides[0].as_u64().unwrap() + sides[1].as_u64().unwrap()).max().unwrap_or(0);
        assert!(most <= analysed, "{group}");
        let since = json(&ok(&["summary", place, "--since", ttft["days"][6]["day"].as_str().unwrap(), "--json"]));
        assert_eq!(since["runs"], 12);
    }
    notebook(&archive);
    let archive = archive.to_str().unwrap();
    assert!(fails(&["trend", "speed", archive]).contains("decode_tokens_per_s"));
    assert!(fails(&["summary", archive, "--by", "option.colour"]).contains("no run has the option `colour`"));
    assert!(fails(&["summary", archive, "--by", "colour"]).contains("option.NAME"));
    assert!(fails(&["summary", archive, "--since", "May"]).contains("2026-05-01"));
    assert!(fails(&["summary", archive, "--since", "2999-01-01"]).contains("earlier --since"));
    assert!(fails(&["trend", "energy_mj_per_token", archive]).contains("no run has the figure"));
}
