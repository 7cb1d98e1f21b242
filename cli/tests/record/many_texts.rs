//! Programs that make texts known to NVTX without end.

use super::common::text;
use super::{compile, headers, paths, record};

/// What a program gets for a text it may keep for ever, so that nothing of it is freed.
#[test]
fn a_program_that_makes_texts_known_without_end_does_not_grow() {
    let Some(include) = headers() else { return };
    let dir = tempfile::tempdir().unwrap();
    compile(dir.path(), "many_texts", "many_texts.c", &[&include]);
    let run = dir.path().join("run");
    let output = record(&run, &[], &[dir.path().join("many_texts").to_str().unwrap()]);
    let said = text(&output.stdout);
    assert!(output.status.success(), "{said}{}", text(&output.stderr));
    let grown: i64 = said.trim().parse().unwrap();
    // Sixteen bytes for each of the last 900,000: one of them takes three times as much.
    assert!(grown < 14 << 10, "{grown} KiB");
    let expected = ["program", "program/the first text"].map(|path| (path.to_string(), 1));
    assert_eq!(paths(&run), expected, "what it got for the first text is that of its ranges still");
}
