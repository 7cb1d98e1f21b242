//! What the library leaves alone in somebody else's process: its signals, its children, its output, its time.

use super::*;
use std::process::Stdio;

#[test]
fn a_handler_that_the_program_sets_for_sigterm_stays_its_own() {
    let Some(program) = program() else { return };
    let dir = tempfile::tempdir().unwrap();
    let run = dir.path().join("run");
    let output = record(&run, &[], &[program.to_str().unwrap(), "nvtx", "handled"]);
    assert_eq!(output.status.code(), Some(5), "it was called, and the program goes on: {}", text(&output.stderr));
    assert!(Run::open(&run).unwrap().manifest().is_some_and(|manifest| manifest.complete));
}

/// Set before the recording begins, after it, and after it with a call of the handler before.
#[test]
fn a_handler_that_the_program_has_stays_its_own() {
    let Some(program) = program() else { return };
    let dir = tempfile::tempdir().unwrap();
    for end in ["handled-first", "handled-int", "chained", "chained-term"] {
        let run = dir.path().join(end);
        let output = record(&run, &[], &[program.to_str().unwrap(), "nvtx", end]);
        assert_eq!(output.status.code(), Some(5), "{end}: the program goes on: {}", text(&output.stderr));
        assert!(Run::open(&run).unwrap().manifest().is_some_and(|manifest| manifest.complete), "{end}");
        assert_eq!(paths(&run), of_tokens(3, 1), "{end}");
    }
}

#[test]
fn signals_are_left_alone_where_that_is_asked_for() {
    let Some(program) = program() else { return };
    let dir = tempfile::tempdir().unwrap();
    for (end, signal) in [("term", 15), ("int", 2)] {
        let run = dir.path().join(end);
        let variables = [("CANDLESCOPE", "sigterm=off")];
        let output = record_with(&variables, &run, &[], &[program.to_str().unwrap(), "nvtx", end, "3000"]);
        assert_eq!(output.status.code(), Some(128 + signal), "{}", text(&output.stderr));
        let opened = Run::open(&run).unwrap();
        assert_eq!(opened.manifest().map(|manifest| manifest.complete), Some(false), "nobody ended the run");
    }
}

/// What is recorded is lost, and neither the program nor its status; the command says what became of it.
#[test]
fn a_folder_that_is_removed_while_the_program_runs_leaves_the_program_alone() {
    let Some(program) = program() else { return };
    let dir = tempfile::tempdir().unwrap();
    let (run, runs) = (dir.path().join("run"), dir.path().join("run.recording"));
    let mut command = candlescope();
    command.env("CANDLESCOPE_INJECT_LIBRARY", library()).args(["record", "--out", run.to_str().unwrap(), "--"]);
    command.args([program.to_str().unwrap(), "nvtx", "exit", "4000"]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let manifest = |entry: std::fs::DirEntry| entry.path().join("run.json").is_file();
    let has_begun = || std::fs::read_dir(&runs).is_ok_and(|entries| entries.flatten().any(manifest));
    wait_until(has_begun, "the recording begins");
    // The library may write something there meanwhile.
    wait_until(|| std::fs::remove_dir_all(&runs).is_ok() || !runs.exists(), "the folder is removed");
    let output = child.wait_with_output().unwrap();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert_eq!((output.status.code(), out.as_str()), (Some(3), "out of nvtx\n"), "the program's own: {err}");
    assert!(!run.exists() && !err.contains("wrote "), "{err}");
    let why = format!("error: {} was removed while ", runs.display());
    assert!(err.contains(&why) && !err.contains("neither started the CUDA driver"), "{err}");
}

/// The library as a release has it, which serves metrics where that is asked for.
#[cfg(feature = "prometheus")]
#[test]
fn metrics_of_a_recorded_program_are_served_while_it_runs() {
    use candlescope_testkit::services::{free_addresses, get};
    let Some(program) = program() else { return };
    let dir = tempfile::tempdir().unwrap();
    let run = dir.path().join("run");
    let [address] = free_addresses();
    let mut command = candlescope();
    command.env("CANDLESCOPE_INJECT_LIBRARY", library()).env("CANDLESCOPE", format!("prometheus={address}"));
    command.args(["record", "--out", run.to_str().unwrap(), "--"]);
    command.args([program.to_str().unwrap(), "nvtx", "exit", "5000"]);
    let child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let tokens = "candlescope_steps_total{phase=\"decode\"} 3\n";
    let is_scraped = || get(address, "/metrics").is_ok_and(|page| page.contains(tokens));
    wait_until(is_scraped, "the program's three tokens are on the page");
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(3), "{}", text(&output.stderr));
    assert!(get(address, "/metrics").is_err(), "metrics end with the program");
    assert_eq!(paths(&run), of_tokens(3, 1), "and the run has what they were of");
}

/// What a process has open, and its threads, of itself and of a child.
fn looked(output: &Output) -> [(Vec<String>, usize); 2] {
    let out = text(&output.stdout);
    let (own, child) = out.split_once("the child\n").unwrap_or_else(|| panic!("{out}\n{}", text(&output.stderr)));
    [own, child].map(|lines| {
        let open = lines.lines().filter_map(|line| line.split_once(" -> ")).map(|(_, to)| to.to_string()).collect();
        (open, lines.lines().filter(|line| line.parse::<u32>().is_ok()).count())
    })
}

#[test]
fn a_child_has_no_file_socket_or_thread_of_the_recording() {
    let Some(program) = program() else { return };
    let dir = tempfile::tempdir().unwrap();
    let arguments = [program.to_str().unwrap(), "both", "look"];
    let [_, (alone, _)] = looked(&Command::new(program).args(&arguments[1..]).output().unwrap());
    let [(own, own_threads), (open, threads)] = looked(&record(&dir.path().join("run"), &[], &arguments));
    assert!(own_threads > 1 && own.len() > alone.len(), "there is something to inherit: {own_threads}, {own:?}");
    assert_eq!((threads, open.len()), (1, alone.len()), "{open:?} and {alone:?}");
    let sockets = |open: &[String]| open.iter().filter(|file| file.starts_with("socket:")).count();
    assert_eq!(sockets(&open), sockets(&alone), "{open:?} and {alone:?}");
    let here = dir.path().to_str().unwrap();
    assert!(!open.iter().any(|file| file.contains(here)), "{open:?}");
}

/// Rust's standard library panics where the system does not tell the time, which this program's does not while it is asked to load
/// something.
#[test]
fn a_panic_of_the_library_goes_no_further_and_prints_nothing() {
    let dir = tempfile::tempdir().unwrap();
    compile(dir.path(), "broken_clock", "broken_clock.c", &["-rdynamic"]);
    let run = dir.path().join("run");
    for options in [&[][..], &["--follow-forks"]] {
        let output = record(&run, options, &[dir.path().join("broken_clock").to_str().unwrap()]);
        let err = text(&output.stderr);
        assert_eq!(output.status.code(), Some(5), "{err}");
        let lines: Vec<&str> = err.lines().collect();
        let why = "it ended before recording had begun";
        assert!(matches!(lines[..], ["goes on", last] if last.contains(why)), "{options:?}: {err}");
        assert!(!run.exists());
    }
}

/// A collector that takes connections and never answers.
#[cfg(feature = "otlp")]
#[test]
fn the_end_of_the_program_is_not_held_by_a_destination_that_never_answers() {
    use std::time::{Duration, Instant};
    let Some(program) = program() else { return };
    let dir = tempfile::tempdir().unwrap();
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let to = format!("otlp=http://{}", silent.local_addr().unwrap());
    for (end, status) in [("exit", 3), ("_exit", 4), ("term", 128 + 15)] {
        let run = dir.path().join(end);
        let begun = Instant::now();
        let output = record_with(&[("CANDLESCOPE", to.as_str())], &run, &[], &[program.to_str().unwrap(), "nvtx", end]);
        let took = begun.elapsed();
        assert_eq!(output.status.code(), Some(status), "{}", text(&output.stderr));
        // Ten seconds, and what a busy machine adds.
        assert!(took < Duration::from_secs(15), "{end}: {took:?}");
        let opened = Run::open(&run).unwrap();
        let manifest = opened.manifest().unwrap();
        let codes: Vec<_> = manifest.verdict.findings.iter().map(|finding| finding.code.to_string()).collect();
        println!("{end}: {took:?}, {codes:?}");
        assert!(codes.iter().any(|code| code.starts_with("exporter_")), "it was sent there: {codes:?}");
        assert_eq!((manifest.complete, paths(&run)), (true, of_tokens(3, 1)), "and what is on disk is whole");
    }
}

#[test]
fn a_budget_leaves_steps_out_and_says_what_it_kept() {
    let Some(program) = program() else { return };
    let dir = tempfile::tempdir().unwrap();
    let run = dir.path().join("run");
    let options = ["--cupti", "off", "--budget", "1%"];
    let output = record(&run, &options, &[program.to_str().unwrap(), "nvtx", "steps"]);
    assert_eq!(output.status.code(), Some(5), "{}", text(&output.stderr));
    let manifest = manifest(&run);
    let (steps, budget) = (&manifest["steps"], &manifest["overhead"]["budget"]);
    println!("{steps} {budget}");
    let of = |key: &str| steps[key].as_i64().unwrap();
    assert_eq!(of("begun"), 40_003, "three tokens first");
    assert_eq!(of("recorded") + of("lost") + of("scheduled_out") + of("left_plain"), of("begun"));
    assert!(of("scheduled_out") > 1_000 && of("recorded") > 300, "{steps}");
    let kept = budget["kept"].as_f64().unwrap();
    assert!(budget["target"] == 0.01 && kept > 0.0 && kept < 0.9 && budget["ratio"].is_number(), "{budget}");
}

/// What an extension of NVTX begins, the plain function may end.
#[test]
fn a_range_that_begins_with_a_payload_is_one_among_the_others() {
    let Some(program) = program() else { return };
    let dir = tempfile::tempdir().unwrap();
    let run = dir.path().join("run");
    let output = record(&run, &["--cupti", "off"], &[program.to_str().unwrap(), "nvtx", "payload"]);
    assert_eq!(output.status.code(), Some(5), "{}", text(&output.stderr));
    let mut expected = of_tokens(3, 1);
    expected.iter_mut().filter(|(path, _)| path == "decode").for_each(|(_, n)| *n += 1);
    expected.extend(["decode/(payload)", "decode/block"].map(|path| (path.to_string(), 1)));
    expected.sort();
    assert_eq!(paths(&run), expected);
}

/// A driver is on the machine: the recorder waits for the program to load it, and does not.
#[test]
fn a_program_that_makes_ranges_alone_gets_no_driver() {
    let (Some(program), Some(device)) = (program(), super::scripted_driver::device()) else { return };
    let dir = tempfile::tempdir().unwrap();
    let run = dir.path().join("run");
    let variables = [("LD_LIBRARY_PATH", device.to_str().unwrap())];
    let output = record_with(&variables, &run, &[], &[program.to_str().unwrap(), "nvtx", "says", "300"]);
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.code() == Some(5) && out.contains("driver 0\n"), "{out}{err}");
    let why = "kernels were not recorded: the program has not started the CUDA driver";
    assert!(err.contains(why) && err.lines().count() == 2, "{err}");
}

/// NVTX, which waits for a tool that another thread starts, would have the child wait without end.
#[test]
fn a_fork_while_a_recording_begins_leaves_a_child_that_goes_on() {
    let Some(program) = program() else { return };
    let dir = tempfile::tempdir().unwrap();
    for n in 0..5 {
        let run = dir.path().join(format!("{n}"));
        let output = record(&run, &["--cupti", "off"], &[program.to_str().unwrap(), "nothing", "race"]);
        assert_eq!(output.status.code(), Some(5), "{}", text(&output.stderr));
        assert_eq!(paths(&run), [("first".to_string(), 1)]);
    }
}
