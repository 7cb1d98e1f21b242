//! What is loaded before the program's own libraries (`LD_PRELOAD`), and which variables its children get.

use super::*;

/// What the program says of its child's variables, each whole.
fn said(output: &Output) -> Vec<String> {
    let out = text(&output.stdout);
    let (_, lines) = out.split_once("driver ").unwrap_or_else(|| panic!("{out}{}", text(&output.stderr)));
    lines.lines().skip(1).map(str::to_string).collect()
}

/// Their names.
fn names(variables: &[String]) -> Vec<&str> {
    variables.iter().map(|line| line.split('=').next().unwrap()).collect()
}

#[test]
fn children_of_a_recorded_program_get_no_library_unless_they_are_followed() {
    let Some(program) = program() else { return };
    let program = program.to_str().unwrap();
    let dir = tempfile::tempdir().unwrap();
    // Of what others preload, and of what the user says, nothing is taken away; a shell in front passes all on.
    let variables = [("LD_PRELOAD", "libm.so.6"), ("CANDLESCOPE", "host=off,parquet=mine")];
    let script = format!("'{program}' both says");
    for (n, command) in [&[program, "both", "says"][..], &["sh", "-c", &script]].iter().enumerate() {
        let run = dir.path().join(format!("alone-{n}"));
        let output = record_with(&variables, &run, &["--step-range", "decode"], command);
        assert_eq!(output.status.code(), Some(5), "{}", text(&output.stderr));
        let said = said(&output);
        // NVTX asks for its own again in each library that makes ranges; by the claim a child steps aside.
        let expected = ["CANDLESCOPE", "CANDLESCOPE_INJECT_CLAIM", "LD_PRELOAD", "NVTX_INJECTION64_PATH"];
        assert_eq!(names(&said), expected, "{said:?}");
        assert_eq!([&said[0], &said[2]], ["CANDLESCOPE=host=off,parquet=mine", "LD_PRELOAD=libm.so.6"]);
        assert!(paths(&run).contains(&("decode".into(), 3)), "{}", text(&output.stderr));
    }
    let output = record(&dir.path().join("followed"), &["--follow-forks"], &[program, "both", "says"]);
    let said = said(&output);
    for name in ["CUDA_INJECTION64_PATH", "NVTX_INJECTION64_PATH", "LD_PRELOAD", "CANDLESCOPE_INJECT_SESSION"] {
        assert!(names(&said).contains(&name), "{name}: {said:?}");
    }
}

/// AddressSanitizer ends a program in which another library comes before its own.
#[test]
fn nothing_is_preloaded_into_a_program_that_cannot_bear_it() {
    let Some(include) = headers() else { return };
    let dir = tempfile::tempdir().unwrap();
    let probe = dir.path().join("probe.c");
    std::fs::write(&probe, "int main(void) { return 0; }").unwrap();
    let mut command = Command::new("cc");
    command.args(["-fsanitize=address", "-o"]).arg(dir.path().join("probe")).arg(&probe);
    if !command.output().is_ok_and(|output| output.status.success()) {
        eprintln!("skipped: the compiler has no AddressSanitizer");
        return;
    }
    compile(dir.path(), "sanitised", "program.c", &[&include, "-fsanitize=address"]);
    let program = dir.path().join("sanitised");
    let run = dir.path().join("run");
    let variables = [("ASAN_OPTIONS", "detect_leaks=0")];
    let output = record_with(&variables, &run, &[], &[program.to_str().unwrap(), "nvtx", "return"]);
    let err = text(&output.stderr);
    assert_eq!(output.status.code(), Some(5), "{err}");
    assert!(err.contains("has AddressSanitizer") && !err.contains("does not come first"), "{err}");
    assert_eq!(paths(&run), of_tokens(3, 1));
}

#[test]
fn nothing_is_preloaded_where_that_is_asked_for() {
    let Some(program) = program() else { return };
    let dir = tempfile::tempdir().unwrap();
    let run = dir.path().join("run");
    let output = record(&run, &["--no-preload"], &[program.to_str().unwrap(), "nvtx", "_exit", "3000"]);
    assert_eq!(output.status.code(), Some(4), "{}", text(&output.stderr));
    let opened = Run::open(&run).unwrap();
    assert_eq!(opened.manifest().map(|manifest| manifest.complete), Some(false), "nobody saw its end");
}
