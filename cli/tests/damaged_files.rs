//! Runs of which a file cannot be read, in every form that they go out in and every command that reads them: the file
//! is named, and the rest is there.
#![cfg(unix)]
#![allow(missing_docs, reason = "a test")]
mod common;
use candlescope_testkit::ranks::{MadeRank, MadeRanks, as_threads};
use common::*;
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};

/// A run with every table, its call stacks and kernels among them.
const RECORDED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/recorded/gpu/host");

const FORMATS: [&str; 6] = ["chrome", "perfetto", "kineto", "firefox", "pprof", "stacks"];

/// Cuts the end off a file, as a copy that was stopped has it.
fn cut(file: &Path) {
    let bytes = fs::read(file).unwrap();
    fs::write(file, &bytes[..bytes.len() - 100]).unwrap();
}

/// Puts a file that was cut beside the last one of a table.
fn put_cut(run: &Path, table: &str) -> String {
    let mut parts: Vec<PathBuf> = fs::read_dir(run.join(table)).unwrap().map(|entry| entry.unwrap().path()).collect();
    parts.sort();
    let file = run.join(table).join("part-00009.parquet");
    fs::copy(parts.last().unwrap(), &file).unwrap();
    cut(&file);
    file.to_str().unwrap().to_string()
}

/// The run whole, and the same with two files more that are cut; which these are.
struct Runs {
    _dir: tempfile::TempDir,
    whole: String,
    damaged: String,
    files: [String; 2],
}

impl Runs {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let [whole, damaged] = ["whole", "damaged"].map(|name| dir.path().join(name));
        copy(Path::new(RECORDED), &whole);
        copy(Path::new(RECORDED), &damaged);
        let files = ["spans", "stack_samples"].map(|table| put_cut(&damaged, table));
        let [whole, damaged] = [whole, damaged].map(|run| run.to_str().unwrap().to_string());
        Self { _dir: dir, whole, damaged, files }
    }
}

/// Files that an answer's findings name.
fn named(told: &Value) -> Vec<&str> {
    let findings = told["findings"].as_array().unwrap_or_else(|| panic!("no findings: {told}"));
    findings.iter().map(|finding| finding["place"]["file"].as_str().unwrap_or_default()).collect()
}

/// The answer without what differs between two runs of the same records.
fn rest(mut told: Value) -> Value {
    for key in ["findings", "file", "files"] {
        told.as_object_mut().unwrap().remove(key);
    }
    told
}

/// Runs the command, expects success, and returns standard output and standard error.
#[track_caller]
fn both(args: &[&str]) -> (String, String) {
    let output = run(args);
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{args:?}\n{out}\n{err}");
    (out, err)
}

#[track_caller]
fn assert_warns(args: &[&str], err: &str, files: &[String]) {
    for file in files {
        let told = err.lines().any(|line| line.starts_with("warning: ") && line.contains(file.as_str()));
        assert!(told, "{args:?} does not tell of {file}: {err}");
    }
}

#[test]
fn every_export_names_the_files_it_cannot_read_and_has_the_rest() {
    let runs = Runs::new();
    for format in FORMATS {
        let whole = json(&ok(&["export", format, &runs.whole, "--json"]));
        let damaged = json(&ok(&["export", format, &runs.damaged, "--json"]));
        assert_eq!(whole["findings"], json!([]), "{format}");
        assert_eq!(named(&damaged), runs.files.each_ref().map(String::as_str), "{format}: {damaged}");
        let files = [&whole, &damaged].map(|told| fs::read(told["file"].as_str().unwrap()).unwrap());
        assert!(files[0] == files[1] && files[0].len() > 1_000, "{format}: the rest is not the same");
        assert_eq!(rest(whole), rest(damaged), "{format}");

        let args = ["export", format, &runs.damaged];
        assert_warns(&args, &both(&args).1, &runs.files);
        let (_, err) = both(&["export", format, &runs.whole]);
        assert!(!err.contains("warning"), "{format}: {err}");
    }
}

#[cfg(feature = "otlp")]
#[test]
fn traces_that_are_sent_are_those_of_the_files_that_can_be_read() {
    use candlescope_testkit::collector;
    let runs = Runs::new();
    let (address, _) = collector::serve(collector::ok);
    let endpoint = format!("http://{address}");
    let sent = |run: &str| json(&ok(&["export", "otlp", run, "--endpoint", &endpoint, "--json"]));
    let (whole, damaged) = (sent(&runs.whole), sent(&runs.damaged));
    assert!(whole["spans"].as_u64().unwrap() > 0, "{whole}");
    assert_eq!((&whole["spans"], &whole["findings"]), (&damaged["spans"], &json!([])));
    assert_eq!(named(&damaged), runs.files.each_ref().map(String::as_str));
    let args = ["export", "otlp", &runs.damaged, "--endpoint", &endpoint];
    assert_warns(&args, &both(&args).1, &runs.files);
}

/// What is refused for want of rows may have had them in a file that cannot be read.
#[test]
fn a_refusal_names_the_files_whose_rows_are_wanted() {
    let dir = tempfile::tempdir().unwrap();
    for (table, formats) in [
        ("stack_samples", &["firefox", "pprof", "stacks"][..]),
        ("kernels", &["kineto"]),
        // The intervals of measured steps carry the stacks.
        ("spans", &["stacks"]),
    ] {
        let damaged = dir.path().join(table);
        copy(Path::new(RECORDED), &damaged);
        let mut files = Vec::new();
        for entry in fs::read_dir(damaged.join(table)).unwrap() {
            let file = entry.unwrap().path();
            cut(&file);
            files.push(file.to_str().unwrap().to_string());
        }
        let damaged = damaged.to_str().unwrap();
        for format in formats {
            let args = ["export", format, damaged];
            let err = fails(&args);
            assert!(err.contains("error: ") && err.contains(damaged), "{err}");
            assert_warns(&args, &err, &files);
        }
        // What is left goes out.
        let args = ["export", "perfetto", damaged, "--json"];
        let told = json(&ok(&args));
        let lost = told[if table == "spans" { "spans" } else { "kernels" }].as_u64().unwrap();
        assert_eq!(lost == 0, table != "stack_samples", "{told}");
        assert!(told["kernels"].as_u64().unwrap() + told["spans"].as_u64().unwrap() > 0, "{told}");
        assert_eq!(named(&told).len(), files.len(), "{told}");
    }
}

#[test]
fn exports_of_ranks_name_the_file_of_the_rank_that_it_belongs_to() {
    let dir = tempfile::tempdir().unwrap();
    let folders = ["whole", "damaged"].map(|name| dir.path().join(name));
    let made = MadeRanks { steps: 6, ..MadeRanks::default() }.make();
    folders.iter().for_each(|folder| write_ranks(folder, &made));
    let file = put_cut(&folders[1].join("rank-1"), "spans");
    let [whole, damaged] = folders.each_ref().map(|folder| folder.to_str().unwrap());
    for format in ["perfetto", "kineto"] {
        let [whole, told] = [whole, damaged].map(|folder| json(&ok(&["export", format, folder, "--json"])));
        assert_eq!((&whole["findings"], named(&told)), (&json!([]), vec![file.as_str()]), "{format}: {told}");
        assert_eq!(rest(whole), rest(told), "{format}");
        let args = ["export", format, damaged];
        assert_warns(&args, &both(&args).1, std::slice::from_ref(&file));
    }
}

#[test]
fn what_is_wrong_with_a_run_is_told_once_of_all_its_threads() {
    let dir = tempfile::tempdir().unwrap();
    let made = MadeRanks { steps: 6, ..MadeRanks::default() }.make();
    let (batch, manifest) = as_threads(&made);
    write_ranks(dir.path(), &[MadeRank { batch, manifest, truth: made[0].truth }]);
    let run = dir.path().join("rank-0");
    let exported = |format| json(&ok(&["export", format, run.to_str().unwrap(), "--by-thread", "--json"]));
    let whole = ["perfetto", "kineto"].map(exported);
    let file = put_cut(&run, "spans");
    let told = json(&ok(&["analyze", run.to_str().unwrap(), "--by-thread", "--json"]));
    let [damage] = &told["damage"].as_array().unwrap()[..] else { panic!("{told}") };
    assert_eq!((&damage["place"]["file"], &told["world_size"]), (&json!(file), &json!(2)), "{told}");
    for (format, whole) in ["perfetto", "kineto"].into_iter().zip(whole) {
        let told = exported(format);
        assert_eq!((&whole["findings"], named(&told)), (&json!([]), vec![file.as_str()]), "{format}: {told}");
        assert_eq!(rest(whole), rest(told), "{format}");
    }
}

#[test]
fn every_command_that_reads_a_run_names_the_files_it_cannot_read() {
    let runs = Runs::new();
    let (dir, run) = (tempfile::tempdir().unwrap(), runs.damaged.as_str());
    let out = dir.path().to_str().unwrap();
    // In what they say, on either output.
    for args in
        [&["report", run][..], &["report", run, "--request", "2"], &["analyze", run], &["analyze", run, "--json"]]
    {
        let (said, err) = both(args);
        for file in &runs.files {
            assert!(format!("{said}{err}").replace('\n', " ").contains(file.as_str()), "{args:?}: {said}{err}");
        }
    }
    for args in [
        &["overview", run][..],
        &["report", run, "--request", "2", "--json"],
        &["roofline", run, "--out", out],
        &["roofline", run, "--out", out, "--json"],
    ] {
        assert_warns(args, &both(args).1, &runs.files);
    }
    // A request that is not there may be in one of them.
    let args = ["report", run, "--request", "77"];
    assert_warns(&args, &fails(&args), &runs.files);
}

#[cfg(feature = "lab")]
#[test]
fn comparisons_name_the_files_of_either_side() {
    let runs = Runs::new();
    let (dir, run) = (tempfile::tempdir().unwrap(), runs.damaged.as_str());
    let baseline = dir.path().join("baseline");
    for args in [
        &["compare", run, run][..],
        &["compare", run, run, "--json"],
        // Refused, as one side is whole.
        &["compare", &runs.whole, run],
        &["compare", run, run, "--programs"],
        &["gate", run, "--save", baseline.to_str().unwrap()],
    ] {
        assert_warns(args, &text(&common::run(args).stderr), &runs.files);
    }
}

#[cfg(feature = "query")]
#[test]
fn answers_in_sql_name_the_files_of_the_tables_that_were_asked() {
    let runs = Runs::new();
    let [spans, samples] = &runs.files;
    let run = runs.damaged.as_str();
    let err = |args: &[&str]| both(args).1;
    for sql in ["SELECT count(*) FROM spans", "SELECT count(*) FROM self_time"] {
        for args in [&["query", sql, run][..], &["query", sql, run, "--json"]] {
            let told = err(args);
            assert_warns(args, &told, std::slice::from_ref(spans));
            assert!(!told.contains(samples.as_str()), "{told}");
        }
    }
    let told = err(&["query", "SELECT count(*) FROM requests", run]);
    assert!(!told.contains("part-00009"), "what is asked is whole: {told}");
    let args = ["views", "duckdb", run];
    assert_warns(&args, &err(&args), &runs.files);

    // Figures of many runs stand on steps and requests.
    let steps = put_cut(Path::new(run), "steps");
    for args in [&["summary", run][..], &["summary", run, "--json"], &["trend", "decode_step", run]] {
        assert_warns(args, &err(args), std::slice::from_ref(&steps));
    }
}

/// Cuts every segment of a run.
#[cfg(feature = "query")]
fn cut_all(run: &Path) {
    for table in fs::read_dir(run).unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.is_dir()) {
        fs::read_dir(table).unwrap().for_each(|file| cut(&file.unwrap().path()));
    }
}

/// Runs and reasons that an answer says it left out, in order.
#[cfg(feature = "query")]
fn left_out(told: &Value) -> Vec<(String, String)> {
    let list = told["left_out"].as_array().unwrap_or_else(|| panic!("no runs left out: {told}"));
    let of = |one: &Value| [&one["run"], &one["why"]].map(|text| text.as_str().unwrap().to_string());
    let mut all: Vec<_> = list.iter().map(|one| of(one).into()).collect();
    all.sort();
    all
}

#[cfg(feature = "query")]
#[test]
fn runs_of_a_folder_that_cannot_be_read_are_told_of_and_the_others_asked() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join("runs").join(name);
    let path = |name: &str| at(name).to_str().unwrap().to_string();
    for name in ["whole", "no-manifest", "empty-manifest", "deep/hollow", "newer"] {
        copy(Path::new(RECORDED), &at(name));
    }
    fs::remove_file(at("no-manifest/run.json")).unwrap();
    fs::write(at("empty-manifest/run.json"), "").unwrap();
    fs::write(at("deep/hollow/run.json"), "").unwrap();
    cut_all(&at("deep/hollow"));
    fs::write(at("newer/run.json"), r#"{"schema_version": 1000}"#).unwrap();
    let (runs, unread) = (path(""), [path("deep/hollow"), path("newer")]);
    let runs = runs.trim_end_matches('/');
    let told_of = |args: &[&str], err: &str, all: &[String]| {
        let lines: Vec<&str> = err.lines().filter(|line| line.contains(" is left out: ")).collect();
        assert_eq!(lines.len(), all.len(), "{args:?}: {err}");
        for (line, run) in lines.iter().zip(all) {
            assert!(line.starts_with(&format!("warning: `{run}` is left out: ")), "{args:?}: {err}");
        }
    };

    // What lacks its run.json alone is asked with those that have one.
    let sql = "SELECT count(DISTINCT run) AS runs FROM spans";
    for args in [&["query", sql, runs][..], &["query", sql, runs, "--format", "csv"], &["views", "spark", runs]] {
        let (said, err) = both(args);
        told_of(args, &err, &unread);
        assert!(said.contains('3') || args[0] == "views", "{said}");
    }
    let args = ["query", sql, runs, "--json"];
    let (said, err) = both(&args);
    told_of(&args, &err, &unread);
    let answer = json(&said);
    assert_eq!(answer["rows"], json!([{"runs": 3}]));
    let told = left_out(&answer);
    assert_eq!(told.iter().map(|(run, _)| run.clone()).collect::<Vec<_>>(), unread);
    assert!(told[0].1.contains("nothing in `") && told[0].1.contains("run.json` cannot be read (EOF"), "{told:?}");
    assert!(told[1].1.contains("has schema version 1000"), "{told:?}");

    // Without its run.json a run has no day, and no place in a history.
    let mut without_day = [&unread[..], &[path("empty-manifest"), path("no-manifest")]].concat();
    without_day.sort();
    for args in [&["summary", runs][..], &["trend", "decode_step", runs], &["summary", runs, "--since", "2020-01-01"]] {
        let (said, err) = both(args);
        let lines =
            err.lines().filter(|line| without_day.iter().any(|run| line.contains(&format!("`{run}` is left out"))));
        assert_eq!(lines.count(), 4, "{args:?}: {err}");
        assert!(said.contains("4 runs left out") && !said.contains("1970-"), "{args:?}: {said}");
    }
    let summary = json(&ok(&["summary", runs, "--json"]));
    assert_eq!(summary["runs"], 1, "{summary}");
    assert_eq!(left_out(&summary).into_iter().map(|(run, _)| run).collect::<Vec<_>>(), without_day);
    let page = dir.path().join("summary.html");
    ok(&["summary", runs, "--html", page.to_str().unwrap()]);
    let shown = fs::read_to_string(page).unwrap();
    assert!(without_day.iter().all(|run| shown.contains(run.as_str())), "{shown}");

    // An archive takes what is whole, and says what it leaves.
    let root = dir.path().join("archive");
    let args = ["archive", runs, "--to", root.to_str().unwrap(), "--keep-source"];
    let (archived, again) = (run(&[&args[..], &["--json"]].concat()), run(&args));
    assert_eq!([&archived, &again].map(|output| output.status.code()), [Some(1); 2]);
    let archived = json(&text(&archived.stdout));
    let left = |of: &Value| of.as_array().unwrap().iter().map(|one| one[0].as_str().unwrap().to_string()).collect();
    let (taken, mut left): (Vec<String>, Vec<String>) = (left(&archived["runs"]), left(&archived["left"]));
    left.sort();
    assert_eq!((taken, left), (vec![path("whole")], without_day.clone()), "{archived}");
    let err = text(&again.stderr);
    assert!(without_day.iter().all(|run| err.contains(&format!("warning: `{run}` is left where it is: "))), "{err}");
    hold_against_schemas(&json!({"query": [answer], "summary": [summary], "archive": [archived]}), false);

    // A folder of which nothing can be read is no answer.
    let deep = path("deep");
    for args in
        [&["query", sql, &deep][..], &["query", sql, &deep, "--json"], &["summary", &deep], &["trend", "tpot", &deep]]
    {
        let err = fails(args);
        let expected =
            format!("`{deep}` holds no run that can be read (1 cannot). Of the first: nothing in `{}`", unread[0]);
        assert!(err.contains(&expected), "{args:?}: {err}");
    }
    let err = fails(&["summary", runs, &deep]);
    assert!(err.contains(&format!("`{deep}` holds no run that can be read")), "one of several folders: {err}");

    // Of many the first are named.
    for n in 0..12 {
        fs::create_dir_all(at(&format!("many/{n:02}"))).unwrap();
        fs::write(at(&format!("many/{n:02}/run.json")), "").unwrap();
    }
    let (_, err) = both(&["query", sql, runs]);
    assert_eq!(err.lines().filter(|line| line.contains(" is left out: ")).count(), 10, "{err}");
    assert!(err.contains("warning: 4 more are left out: --json names all"), "{err}");
    assert_eq!(left_out(&json(&ok(&["query", sql, runs, "--json"]))).len(), 14);
}

/// Whoever archives a disk again and again goes by the status.
#[cfg(feature = "query")]
#[test]
fn what_lies_beside_runs_is_told_of_and_no_failure_of_an_archiver() {
    let dir = tempfile::tempdir().unwrap();
    let runs = dir.path().join("runs");
    let (killed, root) = (runs.join("killed"), dir.path().join("archive"));
    copy(Path::new(RECORDED), &runs.join("others/whole"));
    copy(Path::new(RECORDED), &killed);
    fs::remove_file(killed.join("run.json")).unwrap();
    // Files of another program, above a run.
    fs::create_dir(runs.join("others/samples")).unwrap();
    fs::write(runs.join("others/samples/part-00000-8f1c2d.c000.snappy.parquet"), "PAR1").unwrap();
    // A folder that cannot be listed, by the superuser neither: its path is too long for the system.
    let long = |name: &str| (0..12).fold(runs.join(name), |dir, _| dir.join("x".repeat(200)));
    let is_linux = cfg!(target_os = "linux");
    if is_linux {
        fs::create_dir_all(long("deep")).unwrap();
        fs::create_dir_all(long("deeper")).unwrap();
        fs::rename(runs.join("deeper"), long("deep").join("deeper")).unwrap();
    }
    let killed = killed.to_str().unwrap();
    let args = ["archive", runs.to_str().unwrap(), "--to", root.to_str().unwrap()];
    let (said, err) = both(&args);
    assert!(said.starts_with("archived 1 run with "), "{said}{err}");
    assert!(err.contains(&format!("warning: `{killed}` is left where it is: it has no readable run.json")), "{err}");
    assert_eq!(err.contains("cannot list `"), is_linux, "{err}");
    assert_eq!(err.lines().count(), 1 + usize::from(is_linux), "{err}");
    let told = json(&ok(&[&args[..], &["--json"]].concat()));
    assert_eq!(told["left"].as_array().unwrap().len(), 1 + usize::from(is_linux), "{told}");
    assert_eq!(told["left"][0][0], killed, "{told}");
    hold_against_schemas(&json!({"archive": [told]}), false);
    // Whoever names a run wants that run.
    let named = run(&["archive", killed, "--to", root.to_str().unwrap()]);
    assert_eq!(named.status.code(), Some(1), "{}", text(&named.stderr));
}

#[cfg(feature = "query")]
#[test]
fn a_damaged_run_json_above_runs_is_told_of_and_they_are_asked() {
    let dir = tempfile::tempdir().unwrap();
    let (runs, root) = (dir.path().join("runs"), dir.path().join("archive"));
    copy(Path::new(RECORDED), &runs.join("2026-05/whole"));
    fs::write(runs.join("run.json"), "").unwrap();
    let (runs, root) = (runs.to_str().unwrap(), root.to_str().unwrap());
    let nothing = format!("nothing in `{runs}` can be read: `{runs}/run.json` cannot be read (EOF");
    let asked = ["query", "SELECT count(DISTINCT run) AS runs FROM spans", runs, "--json"];
    let (said, err) = both(&asked);
    assert!(err.contains(&format!("warning: `{runs}` is left out: {nothing}")), "{err}");
    let answer = json(&said);
    assert_eq!(answer["rows"], json!([{"runs": 1}]));
    let told = left_out(&answer);
    assert!(told.len() == 1 && told[0].0 == runs && told[0].1.starts_with(&nothing), "{told:?}");
    let archived = ["archive", runs, "--to", root];
    let (said, err) = both(&archived);
    assert!(said.starts_with("archived 1 run with "), "{said}{err}");
    assert!(err.contains(&format!("warning: `{runs}` is left where it is: {nothing}")), "{err}");
    // Alone it is a run of which nothing is left.
    assert!(fails(&asked).contains(&nothing));
    let alone = run(&archived);
    assert!(alone.status.code() == Some(1) && text(&alone.stderr).contains(&nothing), "{}", text(&alone.stderr));
}

#[cfg(feature = "query")]
#[test]
fn a_damaged_run_json_in_a_folder_hides_no_run_below_it() {
    // Above a folder that has runs it is a run of which nothing is left, and told of; directly above runs it is none.
    for (damaged, told) in
        [(&["2026-05"][..], &["2026-05"][..]), (&["2026-05", "2026-05/01"], &[]), (&["2026-05/01"], &[])]
    {
        let dir = tempfile::tempdir().unwrap();
        let (runs, root) = (dir.path().join("runs"), dir.path().join("archive"));
        let whole = runs.join("2026-05/01/whole");
        copy(Path::new(RECORDED), &whole);
        damaged.iter().for_each(|folder| fs::write(runs.join(folder).join("run.json"), "").unwrap());
        let told: Vec<String> = told.iter().map(|folder| runs.join(folder).display().to_string()).collect();
        let (runs, root) = (runs.to_str().unwrap(), root.to_str().unwrap());
        let (said, err) = both(&["query", "SELECT count(DISTINCT run) AS runs FROM spans", runs, "--json"]);
        let answer = json(&said);
        assert_eq!(answer["rows"], json!([{"runs": 1}]), "{damaged:?}: {err}");
        let left: Vec<String> = left_out(&answer).into_iter().map(|(run, _)| run).collect();
        assert_eq!(left, told, "{damaged:?}: {answer}");
        let (said, err) = both(&["archive", runs, "--to", root]);
        assert!(said.starts_with("archived 1 run with ") && !whole.exists(), "{damaged:?}: {said}{err}");
        for folder in &told {
            assert!(err.contains(&format!("warning: `{folder}` is left where it is: nothing in `{folder}`")), "{err}");
        }
        assert_eq!(err.lines().count(), told.len(), "{damaged:?}: {err}");
    }
}
