//! Many runs as one data set: archived, asked, pruned; stopped at every change, twice at once, on a full disk.
#![allow(missing_docs, reason = "a test")]
mod common;
#[path = "common/fleet.rs"]
mod fleet;
use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use candlescope_archive::disk::Disk;
use candlescope_archive::{ArchiveError, ArchiveOutcome, Keep, Options, archive, prune};
use candlescope_core::numbers::DAY_NS;
use candlescope_reader::ReadLimits;
use candlescope_sql::{Sources, query};
use candlescope_testkit::ranks::{MadeRank, MadeRanks, as_threads};
use common::*;
use fleet::*;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::file::metadata::{PageIndexPolicy, ParquetMetaDataReader};
use std::fs;
use std::path::{Path, PathBuf};

impl Place {
    fn archive(&self, runs: &[PathBuf], disk: Disk) -> Result<ArchiveOutcome, ArchiveError> {
        let mut options = Options::default();
        options.disk = disk;
        archive(runs, &self.root(), &options)
    }
}

#[test]
fn runs_become_one_data_set_and_nothing_is_lost() {
    let place = Place::new();
    let before = contents(&[&place.dir.path().join("runs")]);
    let has_rows = |table: &str| before.iter().any(|of| of.starts_with(table) && !of.ends_with("[]"));
    assert!(has_rows("kernels") && has_rows("perturbations"), "{before:?}");
    // One that is not finished stays, and is told of.
    let open = place.run("open");
    copy(&place.run("a"), &open);
    let mut manifest = json(&fs::read_to_string(open.join("run.json")).unwrap());
    manifest["complete"] = false.into();
    manifest["run_id"] = "open".into();
    fs::write(open.join("run.json"), manifest.to_string()).unwrap();
    let runs = place.dir.path().join("runs");
    let output = run(&["archive", runs.to_str().unwrap(), "--to", place.root().to_str().unwrap()]);
    let (said, told) = (text(&output.stdout), text(&output.stderr));
    assert!(said.starts_with("archived 3 runs with ") && output.status.code() == Some(1), "{said}{told}");
    assert!(told.contains("`") && told.contains("/open` is left where it is: it is not finished"), "{told}");
    assert!(place.runs().is_empty() && open.is_dir(), "the others are moved");
    fs::remove_dir_all(open).unwrap();
    assert_eq!(contents(&[&place.root()]), before);

    let files = names(&place.root());
    let expected = ["spans/date=", "/machine=gpu-1/runs-", "/machine=a%2Fb/runs-", "runs.parquet"];
    assert!(expected.iter().all(|part| files.iter().any(|file| file.contains(part))), "{files:?}");
    assert!(files.iter().all(|file| !file.contains("journal") && !file.contains("inprogress")), "{files:?}");
    // What is asked of many runs at once stands in the index.
    let sql = "SELECT run, requests, ttft_ns > 0, decode_step_ns > 0, decode_tokens_per_s > 0, rows_spans > 0, findings IS NULL OR \
               findings <> '' FROM archived ORDER BY run";
    let index = ask(&[&place.root()], sql);
    let text_of = format!("{:?}", index.rows);
    assert_eq!(index.rows.len(), 3, "{text_of}");
    assert!(!text_of.contains("false") && !text_of.contains("Null") && text_of.contains("third"), "{text_of}");

    // A file of the archive that is damaged is told of, and the others are asked.
    let damaged = place.dir.path().join("damaged");
    copy(&place.root(), &damaged);
    let file = names(&damaged).into_iter().find(|file| file.starts_with("spans/") && file.contains("a%2Fb")).unwrap();
    fs::write(damaged.join(file), "no Parquet").unwrap();
    let asked = ask(&[&damaged], "SELECT count(DISTINCT run) FROM spans");
    assert_eq!((asked.rows.clone(), asked.findings().len()), (vec![vec![candlescope_sql::SqlValue::Int(2)]], 1));
    // A question about runs by name opens no file of another day or machine, through views neither: the damage is not met.
    let of = |root: &Path, table: &str, condition: &str| {
        let rows = ask(&[root], &format!("SELECT count(*), count(DISTINCT run) FROM {table} WHERE {condition}"));
        (format!("{:?}", rows.rows), rows.findings().len())
    };
    for table in ["spans", "measured_spans", "self_time"] {
        for condition in ["run = 'first'", "run IN ('second', 'first')", "run = 'first' OR run = 'second'"] {
            let whole = of(&place.root(), table, condition);
            assert!(whole.1 == 0 && !whole.0.contains("Int(0)"), "{table} {condition}: {whole:?}");
            assert_eq!(of(&damaged, table, condition), whole, "{table} {condition}");
        }
        assert_eq!(of(&damaged, table, "run IN ('first', 'third')").1, 1, "{table}");
        assert_eq!(of(&damaged, table, "run <> 'first'").1, 1, "{table}");
    }
    // The same where several archives are asked, and names of runs begin with theirs.
    let of_both = |name: &str| {
        let condition = format!("run = '{}/{name}'", damaged.display());
        let asked =
            ask(&[&damaged, &place.root()], &format!("SELECT count(DISTINCT run) FROM spans WHERE {condition}"));
        let findings = asked.findings().len();
        (asked.rows, findings)
    };
    assert_eq!(of_both("first"), (vec![vec![candlescope_sql::SqlValue::Int(1)]], 0));
    assert_eq!(of_both("third").1, 1);
    // Without an index that can be read, all files are looked through.
    fs::write(damaged.join("runs.parquet"), b"PAR1abcd\x04\0\0\0PAR1").unwrap();
    let (rows, findings) = of(&damaged, "spans", "run = 'first'");
    assert_eq!(rows, of(&place.root(), "spans", "run = 'first'").0);
    assert!(findings >= 1, "{findings}");
    // Whoever asks for its own rows is told what it is, and not to delete it.
    let place_of = damaged.to_str().unwrap();
    for args in [["query", "SELECT count(*) FROM archived", place_of], ["trend", "tpot", place_of]] {
        let told = fails(&args);
        assert!(told.contains("the index of the archive") && told.contains("do not delete it"), "{told}");
    }
    let told = text(&run(&["query", "SELECT count(*) FROM runs", place_of]).stderr);
    assert!(told.contains("runs.parquet` is damaged (") && told.contains("do not delete it"), "{told}");

    // One run more is written together with the small files of its day, and runs outside are asked with those inside.
    let more = place.run("d");
    record(&more);
    rename(&more, "fourth", "gpu-1", 0);
    let outside = contents(&[&place.root(), &more]);
    let done = place.archive(std::slice::from_ref(&more), Disk::default()).unwrap();
    assert_eq!((done.runs.len(), done.left.len()), (1, 0));
    assert_eq!(contents(&[&place.root()]), outside);
    let of_day =
        names(&place.root()).into_iter().filter(|file| file.starts_with("spans/") && file.contains("gpu-1")).count();
    assert!(of_day <= 2, "files are merged: {of_day}");
}

/// Spans are recorded when they end: a run has them in another order than its archive.
#[test]
fn its_files_are_in_order_of_time_with_an_index_of_their_pages() {
    let place = Place::new();
    let of_run = |dir: &Path| -> Vec<(String, i64)> {
        let files = names(dir).into_iter().filter(|name| name.contains("spans") && name.ends_with(".parquet"));
        files.flat_map(|name| starts(&dir.join(name))).collect()
    };
    let recorded = of_run(&place.run("a"));
    assert!(!recorded.is_sorted_by_key(|(_, start)| *start) && recorded.len() > 50, "{recorded:?}");
    place.archive(&place.runs(), Disk::default()).unwrap();
    let root = place.root();
    let mut spans = 0;
    for name in names(&root).into_iter().filter(|name| name.ends_with(".parquet")) {
        let file = fs::File::open(root.join(&name)).unwrap();
        let footer = ParquetMetaDataReader::new().with_page_index_policy(PageIndexPolicy::Required);
        let footer = footer.parse_and_finish(&file).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(footer.column_index().is_some() && footer.offset_index().is_some(), "{name}");
        for group in footer.row_groups() {
            assert!(
                group.num_rows() <= 122_880 && group.columns().iter().all(|of| of.statistics().is_some()),
                "{name}"
            );
        }
        if name.starts_with("spans/") {
            let rows = starts(&root.join(&name));
            assert!(rows.is_sorted(), "{name}: runs one after the other, each in order of time");
            spans += rows.len();
        }
    }
    assert!(spans > 2 * recorded.len(), "{spans}");
}

/// Run and start of each row of a file of spans.
fn starts(file: &Path) -> Vec<(String, i64)> {
    let reader = ParquetRecordBatchReaderBuilder::try_new(fs::File::open(file).unwrap()).unwrap().build().unwrap();
    let mut all = Vec::new();
    for rows in reader.map(Result::unwrap) {
        let start = rows.column_by_name("host_start_ns").unwrap().as_primitive::<Int64Type>().clone();
        // A run's own files do not say its name.
        let run = rows.column_by_name("run");
        let name = |row: usize| match run.map(|run| (run.as_string_opt::<i32>(), run.as_string_view_opt())) {
            Some((Some(run), _)) => run.value(row).to_string(),
            Some((_, Some(run))) => run.value(row).to_string(),
            _ => String::new(),
        };
        all.extend((0..rows.num_rows()).map(|row| (name(row), start.value(row))));
    }
    all
}

#[test]
fn other_engines_read_it() {
    let place = Place::new();
    place.archive(&place.runs(), Disk::default()).unwrap();
    let sql = "SELECT operator, count(*) AS calls, CAST(sum(self_ns) AS BIGINT) AS ns FROM self_time GROUP BY operator ORDER BY operator";
    let queries = serde_json::json!({"operators": sql, "runs": "SELECT run, model_name FROM runs ORDER BY run"});
    let queries = queries.as_object().unwrap();
    let Some(theirs) = in_other_engines(&[place.root().to_str().unwrap()], queries) else { return };
    for (name, sql) in queries {
        let ours = json(&ok(&["query", sql.as_str().unwrap(), place.root().to_str().unwrap(), "--json"]));
        let columns: Vec<&str> =
            ours["columns"].as_array().unwrap().iter().map(|column| column.as_str().unwrap()).collect();
        let rows = ours["rows"].as_array().unwrap().iter();
        let rows: Vec<serde_json::Value> =
            rows.map(|row| columns.iter().map(|column| row[*column].clone()).collect()).collect();
        assert!(rows.len() >= 3, "{name}");
        for engine in ["duckdb", "spark"] {
            assert_eq!(
                theirs[engine][name]["rows"],
                serde_json::json!(rows),
                "{name} in {engine}: {}",
                theirs[engine][name]
            );
        }
    }
}

/// Whoever is stopped has changed nothing, or the next one finishes what it had decided.
#[test]
fn stopped_at_some_changes_no_row_is_lost_and_none_doubled() {
    stopped(11);
}

/// The same at every change: two minutes.
#[test]
#[ignore = "two minutes: make test-slow"]
fn stopped_at_every_change_no_row_is_lost_and_none_doubled() {
    stopped(1);
}

fn stopped(step: usize) {
    let whole = Place::new();
    let options = Options::default();
    archive(&whole.runs(), &whole.root(), &options).unwrap();
    let (changes, expected) = (options.disk.changes(), contents(&[&whole.root()]));
    assert!(changes > 30, "{changes}");
    let (mut stops, mut finished_another) = (0, 0);
    // Whoever asks before it is finished is told.
    let place = Place::new();
    let told = (0..changes).rev().any(|stop| {
        let _ = place.archive(&place.runs(), Disk::stops_after(stop));
        let asked = run(&["query", "SELECT count(*) FROM runs", place.root().to_str().unwrap()]);
        text(&asked.stderr).contains("was stopped in the middle")
    });
    assert!(told);
    let finished = ok(&["archive", "--to", place.root().to_str().unwrap()]);
    assert!(finished.contains("archived 0 runs") && !place.root().join("journal.json").exists(), "{finished}");
    for stop in (0..changes).step_by(step) {
        let place = Place::new();
        let error = place.archive(&place.runs(), Disk::stops_after(stop)).unwrap_err();
        assert!(error.to_string().contains("stopped for a test"), "{error}");
        // The next one is stopped as well, at the same place from where it begins.
        if place.archive(&place.runs(), Disk::stops_after(stop / 2)).is_ok() {
            assert!(place.runs().is_empty(), "{stop}");
        }
        let left = place.runs();
        let done = place.archive(&left, Disk::default()).unwrap_or_else(|error| panic!("{stop}: {error}"));
        stops += 1;
        finished_another += u32::from(done.finished_another);
        assert!(done.left.iter().all(|(dir, _)| !dir.exists()), "{stop}: {:?}", done.left);
        assert!(place.runs().is_empty(), "{stop}: {:?}", place.runs());
        assert_eq!(contents(&[&place.root()]), expected, "{stop}");
        assert!(
            names(&place.root()).iter().all(|file| !file.contains("inprogress") && !file.contains("journal")),
            "{stop}"
        );
    }
    // Some of the first two got so far that the third had something to finish.
    assert!(finished_another * 10 > stops, "{finished_another} of {stops}");
}

#[test]
fn several_at_once_take_turns() {
    let place = Place::new();
    let before = contents(&[&place.dir.path().join("runs")]);
    let runs = place.runs();
    std::thread::scope(|scope| {
        let all: Vec<_> = (0..3).map(|_| scope.spawn(|| place.archive(&runs, Disk::default()).unwrap())).collect();
        let done: Vec<ArchiveOutcome> = all.into_iter().map(|thread| thread.join().unwrap()).collect();
        assert_eq!(done.iter().map(|done| done.runs.len()).sum::<usize>(), 3, "each run once: {done:?}");
    });
    assert_eq!(contents(&[&place.root()]), before);
}

#[test]
fn what_is_in_the_way_is_told_and_kept() {
    let place = Place::new();
    let (a, b, c) = (place.run("a"), place.run("b"), place.run("c"));
    // A copy of a run, a damaged one, and a file of somebody's beside the rows.
    let twin = place.run("twin");
    copy(&a, &twin);
    let segment = fs::read_dir(b.join("spans")).unwrap().flatten().next().unwrap().path();
    let mut bytes = fs::read(&segment).unwrap();
    let end = bytes.len();
    bytes[4..end / 2].fill(0xAA);
    fs::write(&segment, bytes).unwrap();
    let done = place.archive(&[a.clone(), twin.clone()], Disk::default()).unwrap();
    assert_eq!((done.runs.len(), done.left.len()), (1, 1), "{done:?}");
    assert!(done.left[0].1.contains("copy") && twin.is_dir() && !a.exists());
    let done = place.archive(std::slice::from_ref(&b), Disk::default()).unwrap();
    assert!(done.left.len() == 1 && done.left[0].1.contains("is damaged") && b.is_dir(), "{done:?}");
    assert!(names(&place.root()).iter().all(|file| !file.contains("journal")));
    // The copy is known: it is removed, being what the archive has.
    let done = place.archive(std::slice::from_ref(&twin), Disk::default()).unwrap();
    assert!(done.known == [twin.clone()] && !twin.exists(), "{done:?}");
    // One of the same name and start with other rows is kept.
    fs::remove_dir_all(c.join("requests")).unwrap();
    rename(&c, "first", "gpu-1", -40);
    let done = place.archive(std::slice::from_ref(&c), Disk::default()).unwrap();
    assert!(done.left.len() == 1 && done.left[0].1.contains("it has 0 of the"), "{done:?}");
    let mut manifest = json(&fs::read_to_string(c.join("run.json")).unwrap());
    manifest["exporters"] = serde_json::json!([]);
    fs::write(c.join("run.json"), manifest.to_string()).unwrap();
    // Somebody's file in it would be lost with the directory.
    fs::write(c.join("NOTES.md"), "mine").unwrap();
    let done = place.archive(std::slice::from_ref(&c), Disk::default()).unwrap();
    assert!(done.left.len() == 1 && done.left[0].1.contains("`NOTES.md` in it is no part of a run"), "{done:?}");
    fs::remove_file(c.join("NOTES.md")).unwrap();
    // A journal may not name anything else for removal either.
    let journal = place.root().join("journal.json");
    let crafted = serde_json::json!({"removes": [], "renames": [], "sources": [{"dir": c, "files": [["../b/run.json", 1]], "folders": []}]});
    fs::write(&journal, crafted.to_string()).unwrap();
    let error = place.archive(std::slice::from_ref(&c), Disk::default()).unwrap_err().to_string();
    assert!(error.contains("no part of a run") && b.join("run.json").exists(), "{error}");
    fs::remove_file(journal).unwrap();
    let done = place.archive(std::slice::from_ref(&c), Disk::default()).unwrap();
    assert!(done.left.len() == 1 && done.left[0].1.contains("differs") && c.is_dir(), "{done:?}");
    #[cfg(unix)]
    cannot_be_removed();
    // A disk without room.
    if let Some(small) = SmallDisk::mount("1m") {
        let other = Place::new();
        let before = contents(&[&other.dir.path().join("runs")]);
        let filler = small.path().join("filler");
        let _ = fs::write(&filler, vec![1u8; (1 << 20) - 40_000]);
        let error = archive(&other.runs(), &small.path().join("archive"), &Options::default()).unwrap_err().to_string();
        let root = small.path().join("archive");
        assert!(error.contains("cannot be") && error.contains(root.to_str().unwrap()), "{error}");
        assert_eq!(contents(&[&other.dir.path().join("runs")]), before);
        // What it had written does not stay and keep the disk full for programs that record there.
        assert!(names(&root).iter().all(|file| !file.contains("inprogress")), "{:?}", names(&root));
    }
}

#[cfg(unix)]
fn cannot_be_removed() {
    // A directory that may not be removed stays, and keeps nobody from changing the archive.
    let locked = Place::new();
    let runs = locked.dir.path().join("runs");
    let mode = |mode| fs::set_permissions(&runs, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
    mode(0o555);
    let linked = locked.dir.path().join("link");
    std::os::unix::fs::symlink(locked.run("a"), &linked).unwrap();
    let done = locked.archive(&[linked, locked.run("b")], Disk::default()).unwrap();
    mode(0o755);
    // The superuser may remove anything.
    assert_eq!(done.runs.len(), 2, "{done:?}");
    let again = locked.archive(&locked.runs(), Disk::default()).unwrap();
    assert_eq!((again.runs.len(), locked.runs().len()), (1, 0), "{again:?}");
}

/// One that cannot be archived keeps no other from it.
#[test]
fn one_bad_run_stops_no_other() {
    let place = Place::new();
    let (a, b, c) = (place.run("a"), place.run("b"), place.run("c"));
    // A name that is too long for a folder, and a key that this version does not know.
    let path = a.join("run.json");
    let mut manifest = json(&fs::read_to_string(&path).unwrap());
    manifest["host"] = "h".repeat(300).into();
    manifest["run_id"] = "of/somebody".into();
    manifest["of_another_version"] = 7.into();
    fs::write(&path, manifest.to_string()).unwrap();
    let segment = fs::read_dir(b.join("steps")).unwrap().flatten().next().unwrap().path();
    let mut bytes = fs::read(&segment).unwrap();
    let end = bytes.len();
    bytes[4..end / 2].fill(0xAA);
    fs::write(&segment, bytes).unwrap();
    // Limits of questions are none of archiving.
    let mut options = Options::default();
    options.limits = ReadLimits::default().with(candlescope_reader::Limit::QueryRows, 1);
    let done = archive(&place.runs(), &place.root(), &options).unwrap();
    assert_eq!((done.runs.len(), done.left.len()), (2, 1), "{done:?}");
    assert!(done.left[0].0 == b && done.left[0].1.contains("rows are missing"), "{done:?}");
    assert!(b.is_dir() && !a.exists() && !c.exists());
    let index = ask(
        &[&place.root()],
        "SELECT run, get_json_object(manifest, '$.of_another_version') AS n FROM archived ORDER BY run",
    );
    assert_eq!(format!("{:?}", index.rows), r#"[[Text("of_somebody"), Text("7")], [Text("third"), Null]]"#);

    // A copy that says something else of itself is kept.
    let other = Place::new();
    let again = other.run("c");
    let path = again.join("run.json");
    let mut manifest = json(&fs::read_to_string(&path).unwrap());
    manifest["model"]["name"] = "another".into();
    fs::write(&path, manifest.to_string()).unwrap();
    let done = place.archive(std::slice::from_ref(&again), Disk::default()).unwrap();
    assert!(done.left.len() == 1 && done.left[0].1.contains("run.json is another") && again.is_dir(), "{done:?}");

    // A journal removes no run that the index does not have.
    let stranger = other.run("a");
    let files: Vec<_> = names(&stranger)
        .into_iter()
        .map(|file| {
            let bytes = fs::metadata(stranger.join(&file)).unwrap().len();
            (file, bytes)
        })
        .collect();
    let journal = serde_json::json!({"removes": [], "renames": [], "sources": [{"dir": stranger, "files": files, "folders": []}]});
    fs::write(place.root().join("journal.json"), journal.to_string()).unwrap();
    let done = place.archive(&[], Disk::default()).unwrap();
    assert!(done.finished_another && stranger.join("run.json").exists(), "{done:?}");

    // What an archiver is removing is no run, and a folder of somebody's with such a name is not touched.
    let aside = other.dir.path().join("runs/.somebodys.archived");
    copy(&other.run("b"), &aside);
    assert_eq!(ask(&[&other.dir.path().join("runs")], "SELECT count(*) FROM runs").rows.len(), 1);
    assert!(
        !ok(&["query", "SELECT run FROM runs", other.dir.path().join("runs").to_str().unwrap(), "--json"])
            .contains("somebodys")
    );
    // An archive within a run would go with it.
    let within = archive(&[], &stranger.join("archive"), &Options::default()).unwrap_err().to_string();
    assert!(within.contains("is within the run") && !stranger.join("archive").exists(), "{within}");
    assert!(fails(&["archive", "no/such/runs", "--to", place.root().to_str().unwrap()]).contains("does not exist"));

    // Without its index, nothing says what an archive has: nothing is added, and nothing is doubled.
    let before = names(&place.root());
    fs::rename(place.root().join("runs.parquet"), place.dir.path().join("index")).unwrap();
    let error = place.archive(&[other.run("b")], Disk::default()).unwrap_err().to_string();
    assert!(error.contains("no index") && other.run("b").is_dir(), "{error}");
    fs::write(place.root().join("runs.parquet"), "PAR1 nothing PAR1").unwrap();
    let error = place.archive(&[other.run("b")], Disk::default()).unwrap_err().to_string();
    assert!(error.contains("index of the archive: put it back") && !error.contains("remove it"), "{error}");
    fs::rename(place.dir.path().join("index"), place.root().join("runs.parquet")).unwrap();
    assert_eq!(names(&place.root()), before);

    // A run without rows is removed with its day.
    let empty = other.run("c");
    for table in ["spans", "steps", "requests", "samples", "stacks"] {
        let _ = fs::remove_dir_all(empty.join(table));
    }
    rename(&empty, "empty", "gpu-9", 400);
    let mut manifest = json(&fs::read_to_string(empty.join("run.json")).unwrap());
    manifest["exporters"] = serde_json::json!([]);
    fs::write(empty.join("run.json"), manifest.to_string()).unwrap();
    let done = place.archive(std::slice::from_ref(&empty), Disk::default()).unwrap();
    assert_eq!(done.runs.len(), 1, "{done:?}");
    let said = json(&ok(&["prune", place.root().to_str().unwrap(), "--keep", "300d", "--json"]));
    assert_eq!(said["runs"], serde_json::json!(["empty"]), "{said}");
}

/// Runs of two archives, or of an archive and a directory, may have one name: they stay two.
#[test]
fn names_of_several_places_stay_apart_and_copies_are_told_of() {
    let place = Place::new();
    let (one, two) = (place.dir.path().join("archive-1"), place.dir.path().join("archive-2"));
    let mut options = Options::default();
    options.keep_source = true;
    archive(&[place.run("a")], &one, &options).unwrap();
    archive(&[place.run("a"), place.run("b")], &two, &options).unwrap();
    let sql = "SELECT run, count(*) AS n, min(self_ns) >= 0 AS whole FROM self_time GROUP BY run ORDER BY run";
    let alone = ask(&[&one], sql);
    let both = ask(&[&one, &two], sql);
    assert_eq!((alone.rows.len(), both.rows.len()), (1, 3));
    assert!(both.rows.iter().all(|row| row[2] == candlescope_sql::SqlValue::Bool(true)), "{:?}", both.rows);
    assert_eq!((&both.rows[0][1], &both.rows[1][1]), (&alone.rows[0][1], &alone.rows[0][1]));
    let text_of = format!("{:?}", both.rows);
    assert!(text_of.contains("archive-1/first") && text_of.contains("archive-2/first"), "{text_of}");
    let output = run(&["query", sql, one.to_str().unwrap(), two.to_str().unwrap(), "--json"]);
    assert!(
        text(&output.stderr).contains("are the same run: what is counted over both counts it twice"),
        "{}",
        text(&output.stderr)
    );
    // The same place by another name counts once.
    let link = place.dir.path().join("link");
    #[cfg(unix)]
    std::os::unix::fs::symlink(&one, &link).unwrap();
    #[cfg(not(unix))]
    copy(&one, &link);
    let again = ask(&[&one, &link, &one.join(".")], "SELECT count(*) FROM runs");
    if cfg!(unix) {
        assert_eq!(again.rows, [[candlescope_sql::SqlValue::Int(1)]]);
    }
    // As many archives as there are.
    for n in 0..40 {
        copy(&one, &place.dir.path().join(format!("many/archive-{n}")));
    }
    let many = ask(&[&place.dir.path().join("many")], "SELECT count(DISTINCT run) FROM spans");
    assert_eq!(many.rows, [[candlescope_sql::SqlValue::Int(40)]]);
    // Other engines name them in the same way.
    let queries = serde_json::json!({"runs": sql});
    let Some(theirs) = in_other_engines(&[one.to_str().unwrap(), two.to_str().unwrap()], queries.as_object().unwrap())
    else {
        return;
    };
    let ours: Vec<serde_json::Value> = both.rows.iter().map(|row| serde_json::json!(row)).collect();
    for engine in ["duckdb", "spark"] {
        assert_eq!(theirs[engine]["runs"]["rows"], serde_json::json!(ours), "{engine}: {}", theirs[engine]);
    }
}

/// Whoever is stopped among many runs has those of earlier changes in the archive, each whole.
#[test]
fn many_runs_are_several_changes() {
    let place = Place::new();
    let expected = contents(&[&place.dir.path().join("runs")]);
    let one_by_one = |runs: &[PathBuf], root: &Path, disk: Disk| {
        let mut options = Options::default();
        (options.runs_at_once, options.disk) = (1, disk);
        archive(runs, root, &options).map(|done| (done, options.disk.changes()))
    };
    let of_two = {
        let place = Place::new();
        one_by_one(&place.runs()[..2], &place.root(), Disk::default()).unwrap().1
    };
    // While the third is prepared.
    let stopped = one_by_one(&place.runs(), &place.root(), Disk::stops_after(of_two + 3)).unwrap_err();
    assert!(stopped.to_string().contains("stopped for a test"), "{stopped}");
    let archived = ask(&[&place.root()], "SELECT run FROM archived ORDER BY run");
    assert_eq!(format!("{:?}", archived.rows), r#"[[Text("first")], [Text("second")]]"#);
    assert_eq!(place.runs(), [place.run("c")]);
    let (done, _) = one_by_one(&place.runs(), &place.root(), Disk::default()).unwrap();
    assert!(done.runs.len() == 1 && done.left.is_empty() && place.runs().is_empty(), "{done:?}");
    assert_eq!(contents(&[&place.root()]), expected);
}

/// An archiver writes small files together with new rows, and removes them: who had listed them lists again.
#[test]
fn questions_beside_an_archiver_have_what_was_there_before_or_after() {
    use std::sync::atomic::{AtomicBool, Ordering};
    let place = Place::new();
    let root = place.root();
    place.archive(&[place.run("a")], Disk::default()).unwrap();
    let more: Vec<PathBuf> = (0..6).map(|n| place.run(&format!("more-{n}"))).collect();
    for (n, run) in more.iter().enumerate() {
        copy(&place.run("b"), run);
        rename(run, &format!("more-{n}"), "gpu-1", 0);
    }
    let has_ended = AtomicBool::new(false);
    let sql = "SELECT run, count(*) AS n, sum(host_dur_ns) AS ns FROM spans GROUP BY run ORDER BY run";
    let questions = || {
        let mut answers = Vec::new();
        while !has_ended.load(Ordering::Relaxed) {
            answers.push(ask(&[&root], sql));
        }
        answers
    };
    let answers = std::thread::scope(|scope| {
        let asking: Vec<_> = (0..2).map(|_| scope.spawn(questions)).collect();
        for run in &more {
            place.archive(std::slice::from_ref(run), Disk::default()).unwrap();
        }
        has_ended.store(true, Ordering::Relaxed);
        asking.into_iter().flat_map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
    });
    let last = ask(&[&root], sql).rows;
    assert_eq!(last.len(), 7);
    // In the middle of a change nobody knows what is there: that is told.
    let is_told = |message: &str| message.contains("was stopped in the middle, or is being made");
    let (told, whole): (Vec<_>, Vec<_>) =
        answers.iter().partition(|answer| answer.findings().iter().any(|found| is_told(&found.message())));
    assert!(whole.len() > 6 && whole.len() > told.len(), "{} and {}", whole.len(), told.len());
    for answer in whole {
        assert!(answer.findings().is_empty(), "{:?}", answer.findings());
        assert!(!answer.rows.is_empty() && answer.rows.iter().all(|row| last.contains(row)), "{:?}", answer.rows);
    }
}

/// Whoever asks while it is changed is told, also of a change that began after the archive was opened.
#[test]
fn a_change_that_begins_before_files_are_listed_is_told() {
    let place = Place::new();
    place.archive(&place.runs(), Disk::default()).unwrap();
    let (root, limits) = (place.root(), ReadLimits::default());
    let sources = Sources::open([&root], &limits).unwrap();
    assert_eq!(sources.changing_archives().count(), 0);
    fs::write(root.join("journal.json"), "{}").unwrap();
    let asked = query("SELECT count(*) FROM runs", &sources, &limits, 0).unwrap();
    let [finding] = asked.findings() else { panic!("{:?}", asked.findings()) };
    let told = format!("a change of the archive `{}` was stopped in the middle", root.display());
    assert!(finding.message().starts_with(&told), "{}", finding.message());
    assert_eq!(asked.rows, [[candlescope_sql::SqlValue::Int(3)]]);
}

/// A folder that cannot be listed is not one without rows. The superuser may list any but a link to itself.
#[cfg(unix)]
#[test]
fn a_folder_that_cannot_be_listed_is_told_of() {
    let place = Place::new();
    place.archive(&place.runs(), Disk::default()).unwrap();
    let root = place.root();
    let day = root.join("spans/date=2026-05-03");
    std::os::unix::fs::symlink("date=2026-05-03", &day).unwrap();
    // What is no folder is nobody's rows.
    fs::write(root.join("spans/NOTES.md"), "mine").unwrap();
    let asked = ask(&[&root], "SELECT count(DISTINCT run) FROM spans");
    let [finding] = asked.findings() else { panic!("{:?}", asked.findings()) };
    assert!(finding.message().starts_with(&format!("`{}` cannot be listed (", day.display())), "{}", finding.message());
    assert_eq!(asked.rows, [[candlescope_sql::SqlValue::Int(3)]]);
    assert!(ask(&[&root], "SELECT count(*) FROM steps").findings().is_empty());
    // Nothing is removed by halves.
    let before = names(&root);
    for dry in [&["--dry-run"][..], &[]] {
        let said = fails(&[&["prune", root.to_str().unwrap(), "--keep", "1d"], dry].concat());
        assert!(said.contains("spans/date=2026-05-03` cannot be read"), "{said}");
    }
    assert_eq!(names(&root), before);
}

/// Programs may write into the folder that is the archive.
#[test]
fn a_folder_may_be_the_archive_of_its_own_runs() {
    let place = Place::new();
    let root = place.root();
    for (from, to) in [("a", "date=2026-05-01/machine=gpu-1/run-1"), ("b", "date=2026-05-01/machine=gpu-1/run-2")] {
        copy(&place.run(from), &root.join(to));
    }
    let (expected, root_text) = (contents(&[&root]), root.to_str().unwrap());
    let said = ok(&["archive", root_text, "--to", root_text]);
    assert!(said.starts_with("archived 2 runs with "), "{said}");
    assert_eq!(contents(&[&root]), expected);
    assert!(names(&root).iter().all(|file| !file.starts_with("date=")), "{:?}", names(&root));
    // What came since is asked beside what is archived, and moved the next time.
    copy(&place.run("c"), &root.join("date=2026-05-02/machine=gpu-1/run-3"));
    let runs = |sql: &str| ask(&[&root], sql).rows.len();
    assert_eq!((runs("SELECT run FROM runs"), runs("SELECT run FROM spans GROUP BY run")), (3, 3));
    let with_slash = format!("{root_text}/.");
    assert!(ok(&["archive", &with_slash, "--to", root_text]).starts_with("archived 1 run with "));
    assert!(ok(&["archive", root_text, "--to", root_text]).starts_with("archived 0 runs with "));
    assert_eq!((runs("SELECT run FROM archived"), runs("SELECT run FROM spans GROUP BY run")), (3, 3));
}

/// What commands write into a run's directory is known, and keeps no run from being archived.
#[test]
fn what_commands_made_of_runs_goes_with_them() {
    let dir = tempfile::tempdir().unwrap();
    let (runs, root) = (dir.path().join("runs"), dir.path().join("archive"));
    for name in ["host", "decode"] {
        copy(&Path::new(ROOT).join("cli/tests/recorded/gpu").join(name), &runs.join(name));
    }
    let made = MadeRanks { steps: 12, ..MadeRanks::default() }.make();
    let (batch, manifest) = as_threads(&made);
    write_ranks(&runs, &[MadeRank { batch, manifest, truth: made[0].truth }]);
    let recorded = names(&runs).len();
    let path = |name: &str| runs.join(name).to_str().unwrap().to_string();
    let (host, decode, threads) = (path("host"), path("decode"), path("rank-0"));
    for format in ["chrome", "perfetto", "kineto", "firefox", "pprof", "stacks"] {
        ok(&["export", format, &host]);
    }
    ok(&["report", &host]);
    ok(&["roofline", &decode]);
    ok(&["report", &threads, "--by-thread"]);
    for format in ["perfetto", "kineto"] {
        ok(&["export", format, &threads, "--by-thread"]);
    }
    let files = names(&runs).len() - recorded;
    assert!(files > 18, "{:?}", names(&runs));
    fs::write(runs.join("decode/crash.txt"), "it crashed").unwrap();
    let (runs_text, root_text) = (runs.to_str().unwrap(), root.to_str().unwrap());
    let said = ok(&["archive", runs_text, "--to", root_text]);
    assert!(said.starts_with("archived 3 runs with "), "{said}");
    assert!(said.contains(&format!("{files} files that commands had made of them")), "{said}");
    assert!(!runs.join("host").exists() && !runs.join("rank-0").exists());
    // What nothing makes again comes back.
    let run = ask(&[&root], "SELECT run FROM archived WHERE crash_report IS NOT NULL").rows;
    let [row] = &run[..] else { panic!("{run:?}") };
    let candlescope_sql::SqlValue::Text(name) = &row[0] else { panic!("{run:?}") };
    ok(&["archive", root_text, "--restore", name, "--to", &decode]);
    assert_eq!(fs::read_to_string(runs.join("decode/crash.txt")).unwrap(), "it crashed");
    // A folder or a file of somebody's keeps its run where it is.
    for foreign in ["NOTES.md", "kineto/NOTES.md", "notes/report.html"] {
        let file = runs.join("decode").join(foreign);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(&file, "mine").unwrap();
        let left = run_in(&["archive", runs_text, "--to", root_text]);
        assert!(left.contains("is no part of a run, and would be lost"), "{foreign}: {left}");
        fs::remove_file(&file).unwrap();
    }
}

/// Standard error of a command that fails.
fn run_in(args: &[&str]) -> String {
    let output = run(args);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    text(&output.stderr)
}

/// A file that a later version wrote stays as it is, with what this one does not know of it.
#[test]
fn files_of_another_version_are_not_written_together_with_new_rows() {
    use arrow_array::{ArrayRef, Int64Array, RecordBatch};
    let place = Place::new();
    let root = place.root();
    place.archive(&[place.run("a")], Disk::default()).unwrap();
    let name = names(&root).into_iter().find(|name| name.starts_with("spans/")).unwrap();
    let (file, rows) = (root.join(&name), {
        let file = fs::File::open(root.join(&name)).unwrap();
        let reader = ParquetRecordBatchReaderBuilder::try_new(file).unwrap().build().unwrap();
        reader.map(Result::unwrap).collect::<Vec<RecordBatch>>()
    });
    let newer = |rows: &RecordBatch| {
        let of_later = std::sync::Arc::new(Int64Array::from(vec![7; rows.num_rows()])) as ArrayRef;
        let fields = rows.schema();
        let columns = fields.fields().iter().map(|field| field.name().as_str()).zip(rows.columns().iter().cloned());
        RecordBatch::try_from_iter_with_nullable(
            columns.chain([("of_a_later_version", of_later)]).map(|(name, column)| (name, column, true)),
        )
        .unwrap()
    };
    let rows: Vec<RecordBatch> = rows.iter().map(newer).collect();
    let mut writer = parquet::arrow::ArrowWriter::try_new(fs::File::create(&file).unwrap(), rows[0].schema(), None);
    rows.iter().for_each(|rows| writer.as_mut().unwrap().write(rows).unwrap());
    writer.unwrap().close().unwrap();
    let (bytes, expected) = (fs::read(&file).unwrap(), contents(&[&root, &place.run("b")]));
    let done = place.archive(&[place.run("b")], Disk::default()).unwrap();
    assert_eq!((done.runs.len(), done.left.len()), (1, 0), "{done:?}");
    assert_eq!(contents(&[&root]), expected);
    assert!(fs::read(&file).unwrap() == bytes, "{name} is another");
}

/// Indexes of earlier versions lack columns: these are null, also in scripts for other engines.
#[test]
fn an_index_of_an_earlier_version_is_asked() {
    use arrow_array::RecordBatch;
    use candlescope_sql::{Engine, SqlValue, script};
    let place = Place::new();
    place.archive(&place.runs(), Disk::default()).unwrap();
    let (root, limits) = (place.root(), ReadLimits::default());
    let index = root.join("runs.parquet");
    let reader = ParquetRecordBatchReaderBuilder::try_new(fs::File::open(&index).unwrap()).unwrap().build().unwrap();
    let rows: Vec<RecordBatch> = reader.map(Result::unwrap).collect();
    let schema = rows[0].schema();
    let is_new = |name: &str| ["world_size", "job"].contains(&name);
    let older: Vec<usize> = (0..schema.fields().len()).filter(|at| !is_new(schema.field(*at).name())).collect();
    assert_eq!(older.len() + 2, schema.fields().len());
    let older = rows[0].project(&older).unwrap();
    let file = fs::File::create(&index).unwrap();
    let mut writer = parquet::arrow::ArrowWriter::try_new(file, older.schema(), None).unwrap();
    writer.write(&older).unwrap();
    writer.close().unwrap();
    let asked = ask(&[&root], "SELECT count(*), count(job), count(world_size) FROM runs");
    assert_eq!(asked.rows, [[SqlValue::Int(3), SqlValue::Int(0), SqlValue::Int(0)]]);
    let sources = Sources::open([&root], &limits).unwrap();
    let duckdb = script(Engine::DuckDb, &sources, &limits);
    assert!(duckdb.contains(r#"CAST(NULL AS VARCHAR) AS "job""#), "{duckdb}");
    let spark = script(Engine::Spark, &sources, &limits);
    assert!(spark.contains("CAST(NULL AS BIGINT) AS `world_size`"), "{spark}");
}

/// What a run says, but for the size of its files: its report, and its figures, findings and timeline for programs.
fn told(run: &Path) -> (String, [serde_json::Value; 3]) {
    let run = run.to_str().unwrap();
    let report = ok(&["report", run]);
    let lines = report.lines().filter(|line| !line.contains("on disk"));
    let mut figures = json(&ok(&["report", run, "--json"]));
    figures["run"]["file_bytes"] = serde_json::Value::Null;
    let findings = json(&ok(&["analyze", run, "--json"]));
    let trace = json(&ok(&["export", "perfetto", run, "--json"]));
    (lines.collect::<Vec<_>>().join("\n"), [figures, findings, trace])
}

#[test]
fn a_run_comes_back_as_it_was() {
    let place = Place::new();
    let (root, of_gpu) = (place.root(), place.run("host"));
    let root_text = root.to_str().unwrap();
    copy(&Path::new(ROOT).join("cli/tests/recorded/gpu/host"), &of_gpu);
    let of_gpu_id = json(&fs::read_to_string(of_gpu.join("run.json")).unwrap())["run_id"].as_str().unwrap().to_string();
    let runs = [(place.run("b"), "second"), (of_gpu, of_gpu_id.as_str())];
    let before = runs.each_ref().map(|(run, _)| (fs::read(run.join("run.json")).unwrap(), contents(&[run]), told(run)));
    let all: Vec<PathBuf> = place.runs().into_iter().chain([place.run("host")]).collect();
    assert_eq!(place.archive(&all, Disk::default()).unwrap().runs.len(), 4);
    for ((run, name), (manifest, rows, (report, figures))) in runs.iter().zip(before) {
        assert!(!run.exists());
        let to = run.to_str().unwrap();
        let said = ok(&["archive", root_text, "--restore", name, "--to", to]);
        assert!(said.contains(&format!("wrote the run `{name}` with ")) && said.contains(to), "{said}");
        assert!(fs::read(run.join("run.json")).unwrap() == manifest && contents(&[run]) == rows, "{name}");
        let again = told(run);
        assert_eq!(again.0, report);
        figures.iter().zip(&again.1).for_each(|(before, after)| alike(before, after, name));
        assert!(fails(&["archive", root_text, "--restore", name, "--to", to]).contains("exists: name a directory"));
    }
    let nowhere = place.run("nowhere");
    let none = fails(&["archive", root_text, "--restore", "nobody", "--to", nowhere.to_str().unwrap()]);
    assert!(none.contains("has no run `nobody`") && !nowhere.exists(), "{none}");
    assert!(fails(&["archive", "--restore", "first", "--to", nowhere.to_str().unwrap()]).contains("of one archive"));
}

#[test]
fn a_command_that_wants_a_run_says_how_to_get_one_out_of_an_archive() {
    let place = Place::new();
    assert_eq!(place.archive(&place.runs(), Disk::default()).unwrap().runs.len(), 3);
    let root = place.root();
    let root = root.to_str().unwrap();
    for command in ["report", "analyze", "overview"] {
        let told = fails(&[command, root]);
        assert!(told.contains(&format!("`{root}` is an archive of runs, not a run")), "{command}: {told}");
        assert!(told.contains(&format!("`candlescope archive {root} --restore NAME --to DIR`")), "{command}: {told}");
        assert!(told.contains(&format!("`candlescope summary {root}`")), "{command}: {told}");
    }
    // What it names can be done.
    let names = ok(&["query", "SELECT run FROM archived", root]);
    assert!(["first", "second", "third"].iter().all(|name| names.contains(name)), "{names}");
}

/// The same but for the last digits: rows are in another order.
fn alike(one: &serde_json::Value, other: &serde_json::Value, place: &str) {
    use serde_json::Value;
    match (one, other) {
        (Value::Object(one), Value::Object(other)) => {
            assert_eq!(one.keys().collect::<Vec<_>>(), other.keys().collect::<Vec<_>>(), "{place}");
            one.iter().for_each(|(key, value)| alike(value, &other[key], &format!("{place}/{key}")));
        }
        (Value::Array(one), Value::Array(other)) => {
            assert_eq!(one.len(), other.len(), "{place}");
            one.iter()
                .zip(other)
                .enumerate()
                .for_each(|(at, (one, other))| alike(one, other, &format!("{place}/{at}")));
        }
        (Value::Number(a), Value::Number(b)) => {
            let (a, b) = (a.as_f64().unwrap(), b.as_f64().unwrap());
            assert!((a - b).abs() <= 1e-9 * a.abs().max(b.abs()), "{place}: {a} and {b}");
        }
        (one, other) => assert_eq!(one, other, "{place}"),
    }
}

/// What stands in the help of the command works as it stands there.
#[test]
fn the_example_of_the_help_is_answered() {
    let place = Place::new();
    place.archive(&place.runs(), Disk::default()).unwrap();
    let help = ok(&["archive", "--help"]);
    let (_, example) = help.split_once("candlescope query '").unwrap();
    let (sql, _) = example.split_once('\'').unwrap();
    let sql = sql.split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(ask(&[&place.root()], &sql).rows.len(), 1, "{sql}");
}

/// A server's run is as old as its end, and one whose clock was never set as old as its way into the archive.
#[test]
fn a_run_is_as_old_as_its_end() {
    let place = Place::new();
    // Begun 40 days ago, and ended now; of a clock that was never set; of one that is far ahead; long over.
    let ended = |run: &Path| json(&fs::read_to_string(run.join("run.json")).unwrap())["ended_ns"].as_i64().unwrap();
    let now = ended(&place.run("a"));
    rename(&place.run("a"), "server", "gpu-1", 40);
    change(&place.run("a"), |manifest| manifest["ended_ns"] = now.into());
    copy(&place.run("b"), &place.run("d"));
    for (name, run, started) in [("unset", "b", 5_000_000_000i64), ("ahead", "d", 4_070_908_800_000_000_000)] {
        rename(&place.run(run), name, "gpu-2", 0);
        change(&place.run(run), |manifest| {
            (manifest["started_ns"], manifest["ended_ns"]) = (started.into(), (started + 1_000_000_000).into());
        });
    }
    let runs: Vec<PathBuf> = ["a", "b", "c", "d"].map(|name| place.run(name)).into();
    assert_eq!(place.archive(&runs, Disk::default()).unwrap().runs.len(), 4);
    let root = place.root();
    let pruned = |keep: &str| json(&ok(&["prune", root.to_str().unwrap(), "--keep", keep, "--json"]));
    let kept = pruned("30d");
    assert_eq!(kept["runs"], serde_json::json!(["third"]), "{kept}");
    // The index takes room as well.
    let files = names(&root);
    let on_disk = files.iter().filter(|name| name.ends_with(".parquet"));
    let bytes = on_disk.map(|name| fs::metadata(root.join(name)).unwrap().len()).sum::<u64>();
    let stays = pruned("1GB");
    assert_eq!((&stays["runs"], stays["kept_bytes"].as_u64()), (&serde_json::json!([]), Some(bytes)), "{stays}");
    // In two days all of them are older than today, whatever their clocks say of them.
    let limits = ReadLimits::default();
    let later = prune(&root, Keep::Younger(-2 * DAY_NS), true, &limits, &Disk::default()).unwrap();
    assert_eq!(later.runs.len(), 3, "{later:?}");
}

#[test]
fn the_oldest_days_are_removed() {
    let place = Place::new();
    place.archive(&place.runs(), Disk::default()).unwrap();
    let root = place.root();
    let root_text = root.to_str().unwrap();
    let days = |root: &Path| ask(&[root], "SELECT DISTINCT started_day FROM runs").rows.len();
    let before = names(&root);
    let said = ok(&["prune", root_text, "--keep", "30d", "--dry-run"]);
    assert!(said.contains("would remove") && said.contains(": 1 run, ") && names(&root) == before, "{said}");
    let said = json(&ok(&["prune", root_text, "--keep", "30d", "--json"]));
    assert_eq!((&said["runs"][0], said["days"].as_array().unwrap().len()), (&"third".into(), 1), "{said}");
    assert_eq!((days(&root), ask(&[&root], "SELECT run_id FROM spans GROUP BY run_id").rows.len()), (1, 2));
    assert!(names(&root).iter().all(|file| !file.contains("a%2Fb")), "empty folders go");
    assert!(ok(&["prune", root_text, "--keep", "1GB"]).contains("removed nothing"));
    assert!(ok(&["prune", root_text, "--keep", "0GB"]).contains("2 runs"));
    assert_eq!(ask(&[&root], "SELECT count(*) FROM runs").rows, [[candlescope_sql::SqlValue::Int(0)]]);
    assert!(fails(&["prune", root_text, "--keep", "lots"]).contains("30d, 12h, 20GB"));
    assert!(fails(&["prune", place.dir.path().to_str().unwrap(), "--keep", "1d"]).contains("is no archive"));
    assert_eq!("12h".parse::<Keep>().unwrap(), Keep::Younger(12 * 3_600_000_000_000));
    // Stopped anywhere, it is finished by the next. Each begins with a copy of one archive: making that takes longer than
    // all that is done with it here.
    let whole = Place::new();
    whole.archive(&whole.runs(), Disk::default()).unwrap();
    let again = || {
        let place = tempfile::tempdir().unwrap();
        copy(&whole.root(), place.path());
        place
    };
    let pruned = |place: &tempfile::TempDir, disk: &Disk| {
        prune(place.path(), Keep::Younger(DAY_NS), false, &ReadLimits::default(), disk)
    };
    let disk = Disk::default();
    pruned(&again(), &disk).unwrap();
    for stop in 0..disk.changes() {
        let place = again();
        pruned(&place, &Disk::stops_after(stop)).unwrap_err();
        pruned(&place, &Disk::default()).unwrap();
        let left = ask(&[place.path()], "SELECT DISTINCT run_id FROM spans").rows.len();
        assert_eq!((days(place.path()), left), (1, 2), "{stop}");
    }
}
