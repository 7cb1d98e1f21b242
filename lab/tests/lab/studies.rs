//! A study's files, and what becomes of them after a crash.

use crate::scripted::{Log, case};
use arrow_array::{Array, Int64Array, StringArray};
use candlescope_core::study_files::JOURNAL_FILE;
use candlescope_lab::method::*;
use candlescope_lab::study::*;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use std::fs::{self, File};
use std::path::Path;

const MS: u64 = 1_000_000;

fn ids(names: &[&str]) -> Vec<CaseId> {
    names.iter().map(|name| CaseId::new("scripted").param("name", *name)).collect()
}

fn manifest(names: &[&str]) -> Manifest {
    Manifest::new("a study", ids(names), &Method::default()).option("size", 3)
}

fn round(study: &Study, names: &[&str], process: u32, script: &[Result<u64, CaseError>]) {
    let records = study.records().unwrap();
    let log = Log::default();
    let mut cases: Vec<Box<dyn Case>> = names.iter().map(|name| case(name, &log, script)).collect();
    Engine::new(Method::default().runs(Some(3)), &mut NoSurroundings)
        .place(process, 0)
        .skip(records.done(0, false, 0))
        .run(&mut cases, &mut study.journal().unwrap())
        .unwrap();
}

fn parquet(dir: &Path) -> arrow_array::RecordBatch {
    let file = File::open(dir.join("results.parquet")).unwrap();
    let mut reader = ParquetRecordBatchReaderBuilder::try_new(file).unwrap().build().unwrap();
    reader.next().unwrap().unwrap()
}

#[test]
fn tables_have_the_columns_of_the_contract() {
    let dir = tempfile::tempdir().unwrap();
    let mut study = Study::create(dir.path().join("s"), manifest(&["a", "b"])).unwrap();
    round(&study, &["a"], 0, &[Ok(MS)]);
    let refused = Err(CaseError::Refused("needs 9 GiB, \"7\" are there".into()));
    round(&study, &["b"], 1, &[refused]);
    study.finish(State::Done).unwrap();

    let batch = parquet(study.dir());
    let schema = batch.schema();
    let names: Vec<&str> = schema.fields().iter().map(|f| f.name().as_str()).collect();
    for name in FIXED_COLUMNS.iter().chain(&["name", "half_ns"]) {
        assert_eq!(names.iter().filter(|n| n == &name).count(), 1, "{name} in {names:?}");
    }
    assert_eq!(names[..4], ["study", "case", "suite", "name"], "parameters stand behind the suite");
    assert_eq!(batch.num_rows(), 4, "three samples, and a row for what gave none");
    let text = |name: &str| batch.column_by_name(name).unwrap().as_any().downcast_ref::<StringArray>().unwrap().clone();
    let int = |name: &str| batch.column_by_name(name).unwrap().as_any().downcast_ref::<Int64Array>().unwrap().clone();
    assert_eq!((text("case").value(0), text("verdict").value(0)), ("scripted/name=a", "ok"));
    assert_eq!((int("host_ns").value(0), text("stop_reason").value(0)), (MS as i64, "runs_reached"));
    assert!(int("device_ns").is_null(0), "absent stays absent");
    assert_eq!((text("verdict").value(3), int("process").value(3)), ("refused", 1));
    assert!(int("host_ns").is_null(3) && text("detail").value(3).contains("9 GiB"));

    let csv = fs::read_to_string(study.dir().join("results.csv")).unwrap();
    assert_eq!(csv.lines().count(), 5);
    assert_eq!(csv.lines().next().unwrap(), names.join(","));
    assert!(csv.contains("\"needs 9 GiB, \"\"7\"\" are there\""), "{csv}");
    let json: serde_json::Value = serde_json::from_slice(&fs::read(study.dir().join("results.json")).unwrap()).unwrap();
    assert_eq!(json["rows"][0]["host_ns"], MS);
    assert_eq!(json["rows"][3]["host_ns"], serde_json::Value::Null);
    let kept = Study::open(study.dir()).unwrap();
    assert_eq!((kept.manifest().state, kept.manifest().stops.len()), (State::Done, 2));
}

#[test]
fn a_line_that_a_crash_cut_off_costs_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let study = Study::create(dir.path().join("s"), manifest(&["a", "b"])).unwrap();
    round(&study, &["a"], 0, &[Ok(MS)]);
    let path = study.dir().join(JOURNAL_FILE);
    let whole = fs::read(&path).unwrap();
    // Into the last line, which is the end of the case: its samples stay, and it is measured anew.
    fs::write(&path, &whole[..whole.len() - 7]).unwrap();
    let records = study.records().unwrap();
    assert_eq!((records.samples.len(), records.stopped.len(), records.damaged), (3, 0, 1));
    assert_eq!(records.next_process(), 1);

    let mut study = Study::resume(study.dir(), &manifest(&["a", "b"])).unwrap();
    round(&study, &["a", "b"], 1, &[Ok(2 * MS)]);
    let records = study.finish(State::Done).unwrap();
    assert_eq!((records.samples.len(), records.stopped.len(), records.damaged), (9, 2, 1));
    assert_eq!(parquet(study.dir()).num_rows(), 9);
    // Nothing is left to do.
    assert_eq!(records.done(0, false, 0).len(), 2);
    assert!(records.done(1, false, 0).is_empty());
}

/// The end of a case in a process start that measured a round.
fn stop(name: &str, process: u32, round: u32, reason: StopReason) -> CaseEnd {
    CaseEnd {
        case: ids(&[name]).remove(0),
        process,
        round,
        profiled: false,
        reason,
        detail: (reason == StopReason::Failed).then(|| "no more handles".to_string()),
        samples: 1,
        warmup: 2,
        warmup_settled: true,
    }
}

#[test]
fn a_cancelled_case_is_gone_on_with_and_one_that_did_not_fit_is_not() {
    let stopped = vec![
        stop("a", 0, 0, StopReason::Cancelled),
        stop("b", 0, 0, StopReason::TimeLimit),
        stop("c", 0, 0, StopReason::OutOfMemory),
    ];
    let records = Records { stopped, ..Records::default() };
    let done = |round| records.done(round, false, 0).into_iter().collect::<std::collections::BTreeSet<_>>();
    assert_eq!(done(0), ["scripted/name=b".to_string(), "scripted/name=c".to_string()].into());
    assert_eq!(done(1), ["scripted/name=c".to_string()].into());
}

#[test]
fn a_case_that_failed_is_tried_again_when_the_study_is_gone_on_with() {
    let failed = vec![stop("a", 0, 0, StopReason::Failed), stop("b", 0, 0, StopReason::RunsReached)];
    let mut records = Records { stopped: failed, ..Records::default() };
    let done = |records: &Records, round, first| records.done(round, false, first).contains("scripted/name=a");
    assert!(done(&records, 0, 0) && done(&records, 1, 0), "not at once, nor in the next round");
    assert!(!done(&records, 0, 1) && !done(&records, 1, 1));
    assert_eq!(summaries(&ids(&["a"]), &records)[0].outcome(), Some(StopReason::Failed));
    records.stopped.push(stop("a", 1, 0, StopReason::RunsReached));
    assert!(done(&records, 0, 1) && !done(&records, 1, 1));
    let summary = summaries(&ids(&["a"]), &records).remove(0);
    assert_eq!((summary.outcome(), summary.stops, summary.detail), (None, vec![StopReason::RunsReached], None));
    // A failure of another round is not made good by that.
    records.stopped.push(stop("a", 2, 1, StopReason::Failed));
    assert_eq!(summaries(&ids(&["a"]), &records)[0].outcome(), Some(StopReason::Failed));
}

#[test]
fn what_is_there_is_not_overwritten() {
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path().join("s");
    let message = |error: StudyError| error.to_string();
    assert!(message(Study::resume(&at, &manifest(&["a"])).unwrap_err()).contains("holds no study"));
    Study::create(&at, manifest(&["a"])).unwrap();
    let error = message(Study::create(&at, manifest(&["a"])).unwrap_err());
    assert!(error.contains("--out") && error.contains("--resume"), "{error}");
    let error = message(Study::resume(&at, &manifest(&["b"])).unwrap_err());
    assert!(error.contains("its cases"), "{error}");
    let error = message(Study::resume(&at, &manifest(&["a"]).option("size", 4)).unwrap_err());
    assert!(error.contains("size was 3, and now is 4"), "{error}");
    let error = message(Study::create(dir.path().join("t"), manifest(&["a", "a"])).unwrap_err());
    assert!(error.contains("scripted/name=a"), "{error}");
    fs::write(dir.path().join("file"), "").unwrap();
    let error = message(Study::create(dir.path().join("file/s"), manifest(&["a"])).unwrap_err());
    assert!(error.contains("cannot write") && error.contains("file/s"), "{error}");
}

/// A study, of which the journal says this of the machine, is not gone on with on another one.
#[test]
fn samples_of_two_machines_are_not_one_study() {
    let planned = |facts: &[(&str, serde_json::Value)]| {
        let mut planned = manifest(&["a", "b"]);
        planned.environment.extend(facts.iter().map(|(key, value)| (key.to_string(), value.clone())));
        planned
    };
    let gpu = |id: &str| serde_json::json!([{ "name": "NVIDIA H200", "uuid": id }]);
    let here: [(&str, serde_json::Value); 4] = [
        ("cpu_model", "This CPU".into()),
        ("gpus", gpu("GPU-1")),
        ("nvidia_driver", "580.1".into()),
        ("pid", 1.into()),
    ];
    for (fact, there) in [
        ("cpu_model", "Another CPU".into()),
        ("gpus", gpu("GPU-2")),
        ("nvidia_driver", "570.2".into()),
        ("candle", "0.1.0".into()),
        // What changes from start to start, and what is not known here, is no other machine.
        ("pid", 2.into()),
        ("compute_threads", 3.into()),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let study = Study::create(dir.path().join("s"), manifest(&["a", "b"])).unwrap();
        let mut environment: serde_json::Map<_, _> =
            here.iter().map(|(key, value)| (key.to_string(), value.clone())).collect();
        environment.insert(fact.to_string(), there);
        let facts = Facts { environment, ..Facts::default() };
        study.journal().unwrap().facts(facts).unwrap();
        // As long as nothing was measured, nothing can be mixed.
        Study::resume(study.dir(), &planned(&here)).unwrap();
        round(&study, &["a"], 0, &[Ok(MS)]);
        let before = fs::read(study.dir().join("study.json")).unwrap();
        match (fact, Study::resume(study.dir(), &planned(&here))) {
            ("pid" | "compute_threads", resumed) => assert_eq!(resumed.unwrap().manifest().cases.len(), 2),
            (_, resumed) => {
                let error = resumed.unwrap_err().to_string();
                assert!(error.contains(&format!("begun elsewhere ({fact} was ")), "{error}");
                assert!(error.contains("--out") && error.contains(&study.dir().display().to_string()), "{error}");
            }
        }
        assert_eq!(fs::read(study.dir().join("study.json")).unwrap(), before, "nothing is written");
    }
}

/// A directory that came from others, such as a repository, may hold a link or a pipe in place of the journal.
#[cfg(unix)]
#[test]
fn a_journal_that_is_a_link_or_a_pipe_is_refused() {
    for pipe in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let study = Study::create(dir.path().join("s"), manifest(&["a"])).unwrap();
        round(&study, &["a"], 0, &[Ok(MS)]);
        let (journal, target) = (study.dir().join("journal.jsonl"), dir.path().join("target"));
        fs::rename(&journal, &target).unwrap();
        let before = fs::read(&target).unwrap();
        match pipe {
            true => assert!(std::process::Command::new("mkfifo").arg(&journal).status().unwrap().success()),
            false => std::os::unix::fs::symlink(&target, &journal).unwrap(),
        }
        let error = study.journal().unwrap_err().to_string();
        let wanted = if pipe { "a named pipe" } else { "a symbolic link" };
        assert!(error.contains(wanted) && error.contains("journal.jsonl"), "{error}");
        assert!(error.contains("take away what stands in its place") && !error.contains("free space"), "{error}");
        assert!(!pipe || study.records().unwrap_err().to_string().contains("a named pipe"));
        assert_eq!(fs::read(&target).unwrap(), before, "nothing is written through it");
    }
}

/// Loses something of the study in a directory.
type Lose = fn(&Path);

/// Results are made of the journal: without it, going on would replace them by those of nothing.
#[test]
fn a_study_that_lost_its_journal_keeps_its_results() {
    let files = |dir: &Path| {
        ["results.csv", "results.json", "results.parquet", "study.json"].map(|name| fs::read(dir.join(name)).unwrap())
    };
    let losses: &[(&str, Lose)] = &[
        ("is not there", |_| ()),
        ("holds no sample", |journal| fs::write(journal, "").unwrap()),
        ("is no regular file", |journal| fs::create_dir(journal).unwrap()),
        #[cfg(unix)]
        ("is a symbolic link", |journal| std::os::unix::fs::symlink("elsewhere", journal).unwrap()),
    ];
    for (reason, put) in losses {
        let dir = tempfile::tempdir().unwrap();
        let mut study = Study::create(dir.path().join("s"), manifest(&["a"])).unwrap();
        round(&study, &["a"], 0, &[Ok(MS)]);
        study.finish(State::Cancelled).unwrap();
        let journal = study.dir().join(JOURNAL_FILE);
        let kept = dir.path().join("kept");
        fs::rename(&journal, &kept).unwrap();
        put(&journal);
        let before = files(study.dir());
        let resumed = Study::resume(study.dir(), &manifest(&["a"])).unwrap_err();
        for error in [resumed, study.finish(State::Done).unwrap_err()] {
            let text = error.to_string();
            assert!(text.contains("journal.jsonl") && text.contains(reason), "{text}");
            assert!(text.contains("Nothing was written") && text.contains("--out"), "{text}");
        }
        assert!(files(study.dir()) == before, "{reason}: what was measured stays");
        // With the journal in its place it goes on.
        let _ = fs::remove_file(&journal).or_else(|_| fs::remove_dir(&journal));
        fs::rename(&kept, &journal).unwrap();
        let mut study = Study::resume(study.dir(), &manifest(&["a"])).unwrap();
        assert_eq!(study.finish(State::Done).unwrap().samples.len(), 3);
    }
    // One in which nothing was measured has none to lose.
    let dir = tempfile::tempdir().unwrap();
    Study::create(dir.path().join("s"), manifest(&["a"])).unwrap().finish(State::Failed).unwrap();
    Study::resume(dir.path().join("s"), &manifest(&["a"])).unwrap();
}

/// A process that was killed before its first file was whole has measured nothing: what it left is in nobody's way.
#[cfg(unix)]
#[test]
fn what_is_left_of_a_study_that_never_began_is_taken_away() {
    let mut ended = std::process::Command::new("true").spawn().unwrap();
    let number = ended.id();
    ended.wait().unwrap();
    for resumed in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let left = dir.path().join(format!("study.json.{number}-0.tmp"));
        fs::write(&left, "{\"half").unwrap();
        let study = match resumed {
            true => Study::resume(dir.path(), &manifest(&["a"])),
            false => Study::create(dir.path(), manifest(&["a"])),
        };
        assert_eq!((study.unwrap().manifest().cases.len(), left.exists()), (1, false));
    }
    // Somebody else's files stay, and in their directory no study begins.
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("study.json.old.tmp"), "theirs").unwrap();
    assert!(
        Study::resume(dir.path(), &manifest(&["a"])).is_err() && Study::create(dir.path(), manifest(&["a"])).is_err()
    );
    assert!(dir.path().join("study.json.old.tmp").exists());
}
