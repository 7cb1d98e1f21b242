//! Kernels without a GPU: a program launches them on a driver and a CUPTI that only play
//! (`record_programs/scripted_driver.c`), and end it where NVIDIA's would crash.

use super::*;
use std::time::{Duration, Instant};

/// The folder of the driver and the program, if there are NVTX's headers.
pub(super) fn device() -> Option<&'static Path> {
    static DEVICE: OnceLock<Option<tempfile::TempDir>> = OnceLock::new();
    let made = DEVICE.get_or_init(|| {
        let include = headers()?;
        let dir = tempfile::tempdir().unwrap();
        compile(dir.path(), "libcuda.so.1", "scripted_driver.c", &["-shared", "-fPIC", "-Wl,-soname,libcuda.so.1"]);
        let driver = dir.path().join("libcuda.so.1");
        let found = format!("-Wl,-rpath,{}", dir.path().display());
        compile(dir.path(), "launches", "launches.c", &[&include, driver.to_str().unwrap(), &found]);
        compile(dir.path(), "late_driver", "late_driver.c", &[&include]);
        Some(dir)
    });
    made.as_ref().map(tempfile::TempDir::path)
}

/// What became of a program under `record`.
struct RecordOutcome {
    run: PathBuf,
    status: Option<i32>,
    err: String,
    /// By its own account.
    kernels: i64,
    copies: i64,
    /// How long making its context took; none where its threads make some.
    context: Option<Duration>,
    /// From start to end.
    took: Duration,
    _dir: tempfile::TempDir,
}

/// Runs it so; `script`: how the driver behaves.
fn launched(device: &Path, script: &[(&str, &str)], options: &[&str], arguments: &[&str]) -> RecordOutcome {
    let dir = tempfile::tempdir().unwrap();
    let run = dir.path().join("run");
    let (driver, program) = (device.join("libcuda.so.1"), device.join("launches"));
    let variables = [script, &[("CANDLESCOPE_CUPTI", driver.to_str().unwrap())]].concat();
    let begun = Instant::now();
    let command = [&[program.to_str().unwrap()][..], arguments].concat();
    let output = record_with(&variables, &run, options, &command);
    let (took, out, err) = (begun.elapsed(), text(&output.stdout), text(&output.stderr));
    let number = |before: &str, after: &str| -> Option<i64> {
        out.split_once(before)?.1.split_once(after)?.0.rsplit(' ').next()?.parse().ok()
    };
    println!("{arguments:?} {options:?} {script:?}: {took:?}, {out}{err}");
    RecordOutcome {
        // The last one is launched after it has told.
        kernels: number("launched ", " kernels").unwrap_or_else(|| panic!("{out}{err}")) + 1,
        copies: number(" kernels, ", " copies").unwrap(),
        context: number("context after ", " ms").map(|ms| Duration::from_millis(ms.unsigned_abs())),
        status: output.status.code(),
        run,
        err,
        took,
        _dir: dir,
    }
}

impl RecordOutcome {
    /// Kernels and copies with their path, each with how many there are, in order.
    fn found(&self) -> Vec<(String, String, i64)> {
        let sql = "SELECT path, kind, count(*) AS n FROM kernels GROUP BY path, kind ORDER BY path, kind";
        let rows = rows(&self.run, sql);
        let text = |value: &serde_json::Value| value.as_str().unwrap_or("none").to_string();
        let row = |row: &serde_json::Value| (text(&row["path"]), text(&row["kind"]), row["n"].as_i64().unwrap());
        rows.as_array().unwrap().iter().map(row).collect()
    }

    fn of_kind(&self, kind: &str) -> i64 {
        self.found().iter().filter(|(_, of, _)| of == kind).map(|(.., n)| n).sum()
    }
}

/// A context takes its time here, as a first one does, and so does switching records.
const SLOW: [(&str, &str); 2] = [("SCRIPTED_CONTEXT_MS", "50"), ("SCRIPTED_SWITCH_MS", "5")];

#[test]
fn all_kernels_from_the_first_launch_on_are_in_the_run_with_their_ranges() {
    let Some(device) = device() else { return };
    let done = launched(device, &SLOW, &[], &["ranges", "exit", "20"]);
    assert_eq!(done.status, Some(3), "{}", done.err);
    assert_eq!((done.kernels, done.copies), (20 * 7 + 1, 20));
    let row = |path: &str, kind: &str, n| (path.to_string(), kind.to_string(), n);
    let expected = [
        row("decode", "kernel", 20),
        row("decode", "memcpy", 20),
        row("decode/block 0", "kernel", 60),
        row("decode/block 1", "kernel", 60),
        row("program", "kernel", 1),
    ];
    assert_eq!(done.found(), expected);
    let names = rows(&done.run, "SELECT DISTINCT name FROM kernels WHERE path = 'decode/block 1' ORDER BY name");
    let names: Vec<_> = names.as_array().unwrap().iter().map(|row| row["name"].clone()).collect();
    assert_eq!(names, ["add(float*)", "linear(float*)", "norm(float*)"]);
    let manifest = manifest(&done.run);
    let kernels = &manifest["gpu"]["kernels"];
    assert_eq!((&kernels["error"], &kernels["dropped"], &kernels["unattributed"]), (&().into(), &0.into(), &0.into()));
    assert!(manifest["environment"]["cupti_library"].as_str().is_some_and(|file| file.ends_with("/libcuda.so.1")));
    assert_eq!(manifest["complete"], true);
}

#[test]
fn kernels_are_whole_where_the_program_ends_right_after_its_last_launch() {
    let Some(device) = device() else { return };
    for (end, status) in [("exit", 3), ("_exit", 4), ("return", 5)] {
        let done = launched(device, &[], &[], &["plain", end, "3"]);
        assert_eq!(done.status, Some(status), "{}", done.err);
        assert_eq!((done.of_kind("kernel"), done.of_kind("memcpy")), (done.kernels, done.copies), "{end}");
        assert!(done.found().iter().all(|(path, ..)| path != "none"), "each has an interval: {:?}", done.found());
        assert_eq!(manifest(&done.run)["complete"], true);
    }
}

/// CUPTI 12.9 ended the program that did (SIGSEGV): so does the scripted one, with a line.
#[test]
fn no_context_is_made_while_records_are_switched() {
    let Some(device) = device() else { return };
    for _ in 0..3 {
        let done = launched(device, &SLOW, &[], &["threads", "exit", "5"]);
        assert_eq!(done.status, Some(3), "{}", done.err);
        assert_eq!((done.of_kind("kernel"), done.of_kind("memcpy")), (done.kernels, done.copies));
    }
    windows_beside_contexts(device, &[]);
}

/// The end of a call within one that makes a context is not the end of that one.
#[test]
fn no_records_are_switched_before_the_outermost_call_that_makes_a_context_has_ended() {
    let Some(device) = device() else { return };
    windows_beside_contexts(device, &[("SCRIPTED_NESTED", "1")]);
}

/// Windows switch records again and again, beside a thread that makes contexts and ends them.
fn windows_beside_contexts(device: &Path, script: &[(&str, &str)]) {
    let script = [script, &[("SCRIPTED_CONTEXT_MS", "2"), ("SCRIPTED_SWITCH_MS", "2")]].concat();
    let done = launched(device, &script, &["--cupti", "5/1s"], &["contexts", "exit", "350", "10"]);
    assert_eq!(done.status, Some(3), "{}", done.err);
    let found = done.of_kind("kernel");
    assert!(found > 0 && found < done.kernels / 2, "those of some steps: {found} of {}", done.kernels);
    let manifest = manifest(&done.run);
    let windows = manifest["gpu"]["kernels"]["windows"].as_i64().unwrap();
    assert!(windows >= 2, "{windows}");
    // What the recorder has to report is in the run, and the command says it.
    let said = "cupti: this program ends CUDA contexts while kernels are recorded, so CUPTI stays attached from now on";
    let problems = manifest["environment"]["recorder_problems"].as_array().unwrap();
    assert!(problems.iter().any(|text| text.as_str().unwrap().starts_with(said)), "{problems:?}");
    assert!(done.err.contains(&format!("note: {said}")), "{}", done.err);
}

/// A session that takes longer to start than a program is to wait.
#[test]
fn a_program_is_not_held_for_long_while_the_recorder_starts() {
    let Some(device) = device() else { return };
    let slow = [("SCRIPTED_BUFFERS_MS", "60000")];
    let waited = launched(device, &slow, &[], &["plain", "exit"]);
    let context = waited.context.unwrap();
    assert!(context >= Duration::from_millis(1_900) && context < Duration::from_millis(3_500), "{context:?}");
    assert_eq!(waited.status, Some(3), "{}", waited.err);
    assert!(waited.took < Duration::from_secs(15), "{:?}", waited.took);
    // Where no kernels are asked for there is nobody to wait for.
    let off = launched(device, &slow, &["--cupti", "off"], &["plain", "exit"]);
    assert!(off.context < Some(Duration::from_secs(1)) && off.status == Some(3), "{:?}: {}", off.context, off.err);
}

#[test]
fn where_another_tool_has_cupti_that_is_said_and_the_rest_recorded() {
    let Some(device) = device() else { return };
    let script = [("SCRIPTED_SUBSCRIBE", "39"), ("SCRIPTED_CONTEXT_MS", "50")];
    let done = launched(device, &script, &[], &["ranges", "exit", "20"]);
    assert_eq!(done.status, Some(3), "{}", done.err);
    assert!(done.err.contains("0 kernels (kernels were not recorded: CUPTI refused"), "{}", done.err);
    assert!(done.err.contains("another tool records this process"), "{}", done.err);
    assert!(done.context < Some(Duration::from_secs(1)), "nobody holds it: {:?}", done.context);
    let manifest = manifest(&done.run);
    assert_eq!((&manifest["complete"], &manifest["gpu"]["kernels"]["recorded"]), (&true.into(), &0.into()));
    let decodes = paths(&done.run).into_iter().filter(|(path, _)| path.starts_with("decode"));
    assert_eq!(decodes.collect::<Vec<_>>().len(), 3, "ranges are intervals as without kernels");
}

/// Nothing holds the program until the recording has begun then, which takes longer than the program: its run is ended
/// all the same.
#[test]
fn a_program_that_ends_before_its_recording_has_begun_has_a_run_that_is_ended() {
    let Some(device) = device() else { return };
    let script = [("SCRIPTED_SUBSCRIBE", "39"), ("SCRIPTED_VERSION_MS", "400")];
    for (end, status) in [("exit", 3), ("_exit", 4), ("return", 5), ("quick_exit", 6)] {
        let done = launched(device, &script, &[], &["plain", end, "3"]);
        assert_eq!(done.status, Some(status), "{}", done.err);
        assert_eq!(manifest(&done.run)["complete"], true, "{end}: {}", done.err);
        let said = ["another tool records this process", "the program ended before recording had begun"];
        assert!(said.iter().any(|said| done.err.contains(said)), "{end}: {}", done.err);
        assert!(done.took < Duration::from_secs(8), "{end}: {:?}", done.took);
    }
}

/// Without it one that measures would take the run for one under another trial, and who has forgotten the variable
/// would miss kernels.
#[test]
fn a_trial_that_is_not_understood_is_said_and_all_is_recorded_as_without_one() {
    let Some(device) = device() else { return };
    let script = [("CANDLESCOPE_CUPTI_TRIAL", "no-calls,norecords")];
    let done = launched(device, &script, &[], &["ranges", "exit", "20"]);
    assert_eq!(done.status, Some(3), "{}", done.err);
    let said = "candlescope: CANDLESCOPE_CUPTI_TRIAL: norecords is not understood, and nothing is tried: no-records, no-calls, ";
    assert_eq!(done.err.matches(said).count(), 1, "{}", done.err);
    assert_eq!((done.of_kind("kernel"), done.of_kind("memcpy")), (done.kernels, done.copies));
    assert!(done.found().iter().all(|(path, ..)| path != "none"), "calls are followed: {:?}", done.found());
    let manifest = manifest(&done.run);
    assert_eq!(
        (&manifest["environment"]["cupti_trial"], &manifest["gpu"]["kernels"]["error"]),
        (&().into(), &().into())
    );
    // Where no kernels are asked for, nothing is to be tried.
    let off = launched(device, &script, &["--cupti", "off"], &["plain", "exit"]);
    assert!(off.status == Some(3) && !off.err.contains("CANDLESCOPE_CUPTI_TRIAL"), "{}", off.err);
}

/// CUPTI that does not hand over what it has: the program ends nevertheless.
#[test]
fn the_end_of_the_program_is_not_held_by_cupti() {
    let Some(device) = device() else { return };
    for (end, status) in [("exit", 3), ("_exit", 4)] {
        let done = launched(device, &[("SCRIPTED_FLUSH_MS", "60000")], &[], &["ranges", end]);
        assert_eq!(done.status, Some(status), "{}", done.err);
        assert!(done.took < Duration::from_secs(20), "{end}: {:?}", done.took);
        assert!(paths(&done.run).contains(&("decode".into(), 3)), "what has no kernels is there");
    }
}

#[test]
fn results_end_steps_of_a_program_without_ranges_and_kernels_are_theirs() {
    let Some(device) = device() else { return };
    let done = launched(device, &[], &[], &["plain", "exit", "20"]);
    assert_eq!(done.status, Some(3), "{}", done.err);
    let manifest = manifest(&done.run);
    let of = |key: &str| manifest["environment"][key].as_i64().unwrap();
    let repeated = of("steps_by_pattern");
    assert!(
        of("steps_by_results") == 20 && (15..=17).contains(&repeated),
        "the first ones are learned from: {repeated}"
    );
    let sql = "SELECT count(DISTINCT step) AS steps, count(*) AS kernels FROM kernels WHERE path = 'repeated'";
    assert_eq!(
        rows(&done.run, sql),
        serde_json::json!([{"steps": repeated, "kernels": repeated * 8}]),
        "with each copy"
    );
}

/// A range around all of a generation: its tokens are steps as they are without it.
#[test]
fn results_end_steps_inside_of_a_range_as_well() {
    let Some(device) = device() else { return };
    let done = launched(device, &[], &[], &["enclosed", "exit", "20"]);
    assert_eq!(done.status, Some(3), "{}", done.err);
    let manifest = manifest(&done.run);
    let repeated = manifest["environment"]["steps_by_pattern"].as_i64().unwrap();
    assert!((14..=16).contains(&repeated), "the first ones are learned from: {repeated}");
    let sql = "SELECT count(DISTINCT step) AS steps, count(*) AS kernels FROM kernels WHERE path = 'repeated'";
    assert_eq!(rows(&done.run, sql), serde_json::json!([{"steps": repeated, "kernels": repeated * 8}]));
    let around = "SELECT DISTINCT p.name FROM spans r JOIN spans p ON p.seq = r.parent_seq WHERE r.path = 'repeated'";
    assert_eq!(rows(&done.run, around), serde_json::json!([{"name": "generate"}]));
    assert_eq!((done.of_kind("kernel"), done.of_kind("memcpy")), (done.kernels, done.copies));
    let confidence = manifest["environment"]["steps_confidence"].as_f64().unwrap();
    assert!((0.5..1.0).contains(&confidence), "{confidence}");
    assert!(done.err.contains(&format!("confidence {:.0} %", (confidence * 100.0).floor())), "{}", done.err);
}

#[test]
fn windows_by_time_have_their_steps_inside_of_a_range_as_well() {
    let Some(device) = device() else { return };
    let done = launched(device, &[], &["--cupti", "5/1s"], &["enclosed", "exit", "350", "10"]);
    assert_eq!(done.status, Some(3), "{}", done.err);
    let manifest = manifest(&done.run);
    let windows = manifest["gpu"]["kernels"]["windows"].as_i64().unwrap();
    let sql = "SELECT count(DISTINCT step) AS n FROM kernels WHERE path = 'repeated'";
    let steps = rows(&done.run, sql)[0]["n"].as_i64().unwrap();
    assert!(windows >= 3 && steps >= 5 && steps <= windows * 5, "{steps} of {windows} windows");
    let kernels = done.of_kind("kernel");
    assert!(kernels >= steps * 7 && kernels < done.kernels / 2, "those of some steps: {kernels} of {}", done.kernels);
}

/// Whoever ends the process waits for whoever ends the session.
#[test]
fn kernels_are_whole_where_several_threads_end_the_program() {
    let Some(device) = device() else { return };
    for (end, statuses) in [("at_once", &[4][..]), ("watched", &[4, 5]), ("quick_exit", &[6])] {
        let done = launched(device, &[("SCRIPTED_FLUSH_MS", "300")], &[], &["plain", end, "3"]);
        assert!(done.status.is_some_and(|status| statuses.contains(&status)), "{end}: {:?} {}", done.status, done.err);
        assert_eq!(manifest(&done.run)["complete"], true, "{end}");
        assert_eq!((done.of_kind("kernel"), done.of_kind("memcpy")), (done.kernels, done.copies), "{end}");
    }
}

/// Nothing that was registered for the end of a process is called where it puts another program in its place.
#[test]
fn a_program_that_another_one_takes_the_place_of_has_a_run_and_so_has_the_other() {
    let Some(device) = device() else { return };
    let done = launched(device, &[], &[], &["plain", "exec", "5"]);
    assert_eq!(done.status, Some(5), "{}", done.err);
    let mut runs: Vec<PathBuf> = std::fs::read_dir(&done.run).unwrap().map(|entry| entry.unwrap().path()).collect();
    runs.sort();
    let [first, second] = &runs[..] else { panic!("{runs:?}\n{}", done.err) };
    let of = |run: &Path| rows(run, "SELECT kind, count(*) AS n FROM kernels GROUP BY kind ORDER BY kind");
    let all = serde_json::json!([{"kind": "kernel", "n": done.kernels}, {"kind": "memcpy", "n": done.copies}]);
    assert_eq!((of(first), of(second)), (all.clone(), all));
    assert_eq!((&manifest(first)["complete"], &manifest(second)["complete"]), (&false.into(), &true.into()));
}

/// The child has the recording's memory, and none of its threads.
#[test]
fn a_forked_child_that_starts_the_driver_is_left_alone_and_counted() {
    let Some(device) = device() else { return };
    for options in [&[][..], &["--follow-forks"]] {
        let done = launched(device, &[], options, &["forks", "exit", "5"]);
        assert_eq!(done.status, Some(3), "{}", done.err);
        // The child's: it says it first.
        assert!(done.context < Some(Duration::from_secs(1)), "nobody holds it: {:?}", done.context);
        let manifest = manifest(&done.run);
        assert_eq!(manifest["environment"]["forked_unrecorded"], 1, "{options:?}");
        assert!(done.err.contains("processes that were forked from it") && done.err.contains("(1)"), "{}", done.err);
        assert_eq!(done.of_kind("kernel"), done.kernels, "the parent's are whole");
        assert!(paths(&done.run).iter().all(|(path, _)| !path.contains("of the child")));
    }
}

/// It would unwind through the library, which ends the program.
#[test]
fn a_thread_that_is_cancelled_while_it_waits_for_the_recorder_ends_alone() {
    let Some(device) = device() else { return };
    let done = launched(device, &[("SCRIPTED_BUFFERS_MS", "60000")], &[], &["cancelled", "exit"]);
    assert_eq!(done.status, Some(3), "{}", done.err);
}

/// What names a kernel is CUPTI's, and goes with it.
#[test]
fn what_comes_when_cupti_leaves_is_counted_and_its_names_are_not_read() {
    let Some(device) = device() else { return };
    let done = launched(device, &[("SCRIPTED_LATE", "1")], &["--cupti", "5/1s"], &["plain", "exit", "350", "10"]);
    assert_eq!(done.status, Some(3), "{}", done.err);
    let manifest = manifest(&done.run);
    assert!(manifest["gpu"]["kernels"]["dropped"].as_i64() >= Some(1), "{}", manifest["gpu"]["kernels"]);
    assert_eq!(
        rows(&done.run, "SELECT count(*) AS n FROM kernels WHERE name LIKE '%late%'"),
        serde_json::json!([{"n": 0}])
    );
    assert!(done.of_kind("kernel") > 0);
}

/// A range comes first, and the recorder looks for CUPTI: the program's own, which it loads with its driver, is another
/// one.
#[test]
fn cupti_is_the_one_that_attached_within_cu_init() {
    let Some(device) = device() else { return };
    let dir = tempfile::tempdir().unwrap();
    let driver = device.join("libcuda.so.1");
    let [other, own] = ["other/lib64", "own"].map(|folder| dir.path().join(folder));
    [&other, &own].into_iter().for_each(|folder| std::fs::create_dir_all(folder).unwrap());
    [&other, &own].into_iter().for_each(|folder| _ = std::fs::copy(&driver, folder.join("libcupti.so.13")).unwrap());
    // One file is both, as the scripted one is.
    std::os::unix::fs::symlink("libcupti.so.13", own.join("libcuda.so.1")).unwrap();
    let home = dir.path().join("other");
    let program = [device.join("late_driver"), own.join("libcuda.so.1")].map(|path| path.to_str().unwrap().to_string());
    for variables in [&[][..], &[("CUDA_HOME", home.to_str().unwrap())]] {
        let run = dir.path().join(format!("run-{}", variables.len()));
        let output = record_with(variables, &run, &[], &program.each_ref().map(String::as_str));
        assert_eq!(output.status.code(), Some(5), "{}", text(&output.stderr));
        let sql = "SELECT path, count(*) AS n FROM kernels GROUP BY path";
        assert_eq!(rows(&run, sql), serde_json::json!([{"path": "decode", "n": 3}]), "{}", text(&output.stderr));
    }
}
