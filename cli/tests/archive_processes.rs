//! Archivers as processes: killed at random moments, two at once, beside a program that records, beside one that prunes.
#![cfg(unix)]
#![allow(missing_docs, reason = "a test")]
mod common;
#[path = "common/fleet.rs"]
mod fleet;
use candlescope_sql::SqlValue;
use common::*;
use fleet::*;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::Value;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// How often an archiver is killed; `CANDLESCOPE_KILLS=100` for more.
fn kills() -> u32 {
    std::env::var("CANDLESCOPE_KILLS").ok().and_then(|n| n.parse().ok()).unwrap_or(8)
}

/// Rounds of a race; `CANDLESCOPE_RACES=100` for more.
fn rounds() -> u32 {
    std::env::var("CANDLESCOPE_RACES").ok().and_then(|n| n.parse().ok()).unwrap_or(2)
}

/// A process of the command, which does not outlive the test.
struct Started(Option<Child>);

impl Started {
    fn new(args: &[&str]) -> Self {
        let child = candlescope().args(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        Self(Some(child.unwrap()))
    }

    /// Every run of a place goes into its archive.
    fn archive(place: &Place) -> Self {
        Self::new(&["archive", text_of(&place.dir.path().join("runs")), "--to", text_of(&place.root()), "--json"])
    }

    fn child(&mut self) -> &mut Child {
        self.0.as_mut().unwrap()
    }

    fn runs(&mut self) -> bool {
        self.child().try_wait().unwrap().is_none()
    }

    fn end(mut self) -> Output {
        self.0.take().unwrap().wait_with_output().unwrap()
    }

    /// What it did by the time of the kill; `None` if it was still at it.
    fn kill(mut self) -> Option<Output> {
        self.child().kill().unwrap();
        let output = self.end();
        (output.status.signal() != Some(9)).then_some(output)
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        if let Some(mut child) = self.0.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn text_of(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// What an archiver says that had nothing to complain of.
#[track_caller]
fn said(output: &Output) -> Value {
    let told = text(&output.stderr);
    assert!(output.status.success() && told.is_empty(), "{}{told}", text(&output.stdout));
    json(&text(&output.stdout))
}

/// An archive in which nothing is unfinished, with these contents, and nothing where the runs were.
#[track_caller]
fn assert_whole(place: &Place, expected: &[String], what: &str) {
    assert_eq!(contents(&[&place.root()]), expected, "{what}");
    assert!(ask(&[&place.root()], "SELECT count(*) FROM spans").findings().is_empty(), "{what}");
    let files = names(&place.root());
    let litter = |file: &String| ["inprogress", "journal", ".tmp"].iter().any(|part| file.contains(part));
    assert!(!files.iter().any(litter), "{what}: {files:?}");
    assert_nothing_left(place, what);
}

/// No directory of a run, nor one that was to be removed.
#[track_caller]
fn assert_nothing_left(place: &Place, what: &str) {
    let left: Vec<_> = fs::read_dir(place.dir.path().join("runs")).unwrap().flatten().collect();
    assert!(left.is_empty(), "{what}: {left:?}");
}

#[test]
fn killed_at_random_moments_no_row_is_lost_and_none_doubled() {
    let whole = Place::new();
    let expected = contents(&[&whole.dir.path().join("runs")]);
    let began = Instant::now();
    assert_eq!(said(&Started::archive(&whole).end())["runs"].as_array().unwrap().len(), 3);
    let takes = began.elapsed();
    assert_whole(&whole, &expected, "never killed");
    // The same moments in every run of the test, as far as a machine goes at the same pace.
    let mut random = StdRng::seed_from_u64(1);
    let (mut killed, mut decided, mut finished_another) = (0, 0, 0);
    while killed < kills() {
        let place = Place::new();
        let journal = place.root().join("journal.json");
        // Who is killed again and again may come to its end at last, on a machine that has become slow as well.
        let most = (killed + 6).min(kills());
        let output = loop {
            let mut archiver = Started::archive(&place);
            if killed == most {
                break archiver.end();
            }
            if random.random_bool(0.5) {
                sleep(takes.mul_f64(random.random_range(0.0..1.1)));
            } else if journal.exists() {
                // What was decided is done first.
                sleep(takes.mul_f64(random.random_range(0.0..0.4)));
            } else {
                // Doing takes a small part of the time that preparing takes: few moments out of all would be in it.
                while archiver.runs() && !journal.exists() {
                    sleep(Duration::from_micros(100));
                }
                sleep(Duration::from_micros(random.random_range(0..4_000)));
            }
            match archiver.kill() {
                Some(output) => break output,
                None => (killed, decided) = (killed + 1, decided + u32::from(journal.exists())),
            }
        };
        let done = said(&output);
        finished_another += u32::from(done["finished_another"] == true);
        assert_whole(&place, &expected, &format!("after {killed} kills: {done}"));
    }
    assert!(decided > 0, "none of {killed} was killed between the decision and its end");
    println!("{killed} kills, {decided} after the decision; {finished_another} changes finished by the next one");
}

#[test]
fn of_two_at_once_each_run_is_archived_by_one() {
    let mut waited = 0;
    for round in 0..rounds() {
        let place = Place::new();
        let expected = contents(&[&place.dir.path().join("runs")]);
        let both = [Started::archive(&place), Started::archive(&place)].map(|archiver| said(&archiver.end()));
        let count = |key: &str| both.iter().map(|done| done[key].as_array().unwrap().len()).sum::<usize>();
        assert_eq!((count("runs"), count("left")), (3, 0), "round {round}: {both:?}");
        // The other one waited, and found them in the archive.
        waited += count("known");
        assert_whole(&place, &expected, &format!("round {round}"));
    }
    assert!(waited > 0, "they never met");
}

#[test]
fn a_run_that_is_being_written_stays_and_is_archived_when_it_has_ended() {
    let place = Place::new();
    let (runs, root, open) = (place.dir.path().join("runs"), place.root(), place.run("open"));
    let finished = contents(&[&runs]);
    let profile = ["profile", "--model", "embedded", "--max-new-tokens", "3", "--repeats", "1000000", "--warmup", "1"];
    let mut writer = Started::new(&[&profile[..], &["--no-progress", "--out", text_of(&open)]].concat());
    wait_until(|| open.join("run.json").exists() && open.join("spans").is_dir(), "the run begins");
    for archived in [3, 0] {
        let output = run(&["archive", text_of(&runs), "--to", text_of(&root)]);
        let (said, told) = (text(&output.stdout), text(&output.stderr));
        assert!(output.status.code() == Some(1) && said.contains(&format!("archived {archived} runs")), "{said}{told}");
        assert!(told.contains("/open` is left where it is: it is not finished"), "{told}");
        assert!(told.lines().count() == 1 && open.join("run.json").exists(), "{told}");
        assert!(writer.runs() && contents(&[&root]) == finished, "{told}");
    }
    // It ends while others try: each finds it unfinished, or takes all of it.
    let stopped = Command::new("kill").args(["-INT", &writer.child().id().to_string()]).status().unwrap();
    assert!(stopped.success());
    let mut tries = 0;
    while open.exists() {
        let output = Started::archive(&place).end();
        tries += 1;
        assert!(output.status.code().is_some_and(|code| code < 2) && tries < 200, "{}", text(&output.stderr));
    }
    let ended = writer.end();
    assert!(ended.status.code() == Some(130), "{}{}", text(&ended.stdout), text(&ended.stderr));
    let index = ask(&[&root], "SELECT manifest FROM archived WHERE run = 'open'").rows;
    let [row] = &index[..] else { panic!("{index:?}") };
    let SqlValue::Text(manifest) = &row[0] else { panic!("{row:?}") };
    let manifest = json(manifest);
    let exporters = manifest["exporters"].as_array().unwrap();
    let parquet = exporters.iter().find(|exporter| exporter["name"] == "parquet").unwrap();
    for table in ["spans", "steps", "requests", "samples", "stacks", "stack_samples"] {
        let rows = ask(&[&root], &format!("SELECT count(*) FROM {table} WHERE run = 'open'")).rows;
        let wrote = parquet["exported"][table].as_i64().unwrap();
        assert_eq!(rows, [[SqlValue::Int(wrote)]], "{table}: {parquet}");
        assert!(wrote > 0 || table.starts_with("stack"), "{table}: {parquet}");
    }
    assert_nothing_left(&place, "after its end");
}

#[test]
fn pruned_meanwhile_old_days_go_whole_and_the_others_stay() {
    let mut random = StdRng::seed_from_u64(2);
    let mut pruned = 0;
    for round in 0..rounds() {
        let place = Place::new();
        let (root, [a, b, c, d]) = (place.root(), ["a", "b", "c", "d"].map(|name| place.run(name)));
        let young = contents(&[&a, &b]);
        copy(&b, &d);
        rename(&d, "fourth", "gpu-1", 41);
        ok(&["archive", text_of(&a), text_of(&c), "--to", text_of(&root)]);
        let keep = ["prune", text_of(&root), "--keep", "30d", "--json"];
        let mut archiver = Started::archive(&place);
        while archiver.runs() {
            let pruner = Started::new(&keep);
            // Who only looks needs no turn.
            said(&Started::new(&[&keep[..], &["--dry-run"]].concat()).end());
            let output = if random.random_bool(0.5) {
                sleep(Duration::from_millis(random.random_range(0..500)));
                pruner.kill()
            } else {
                Some(pruner.end())
            };
            pruned += output.map_or(0, |output| said(&output)["runs"].as_array().unwrap().len());
        }
        let done = said(&archiver.end());
        assert!(done["runs"].as_array().unwrap().len() == 2 && done["left"] == serde_json::json!([]), "{done}");
        let last = json(&ok(&keep));
        pruned += last["runs"].as_array().unwrap().len();
        assert_whole(&place, &young, &format!("round {round}: {done}, then {last}"));
        let left = ask(&[&root], "SELECT run FROM archived ORDER BY run").rows;
        assert_eq!(format!("{left:?}"), r#"[[Text("first")], [Text("second")]]"#);
    }
    assert!(pruned > 0, "nothing was pruned by one that lived to say so");
}
