//! A program with its own subscriber: whatever the variable `CANDLESCOPE` says, its `init()` works.
#![allow(missing_docs, reason = "a test")]

use std::process::{Command, Output};
use tracing_subscriber::prelude::*;

const CHILD: &str = "CANDLESCOPE_TEST_LAYER_FROM_ENV";

/// The program. The test below runs it in other processes, because a process has one subscriber and one environment.
#[test]
fn program() {
    if std::env::var_os(CHILD).is_none() {
        return;
    }
    let (layer, scope) = candlescope::layer_from_env();
    assert_eq!(layer.is_some(), scope.is_enabled());
    tracing_subscriber::registry().with(layer).init();
    tracing::trace_span!("step").in_scope(|| ());
    // 0 if nothing was recorded.
    let spans = scope.finish().map_or(0, |manifest| manifest.counts["spans"]);
    std::process::exit(40 + i32::try_from(spans).expect("few"));
}

fn run(value: Option<&str>) -> (Option<i32>, String) {
    let mut command = Command::new(std::env::current_exe().expect("this test"));
    command.args(["--exact", "program", "--nocapture", "--quiet"]).env(CHILD, "1").env_remove("CANDLESCOPE");
    if let Some(value) = value {
        command.env("CANDLESCOPE", value);
    }
    let Output { status, stderr, .. } = command.output().expect("starts");
    (status.code(), String::from_utf8(stderr).expect("text"))
}

#[test]
fn the_programs_own_subscriber_is_installed_whatever_the_variable_says() {
    assert_eq!(run(None), (Some(40), String::new()));
    assert_eq!(run(Some(" ")), (Some(40), String::new()));
    let (code, said) = run(Some("nonsense=1"));
    assert_eq!(code, Some(40), "{said}");
    assert!(
        said.contains("entry 1 is not known") && said.contains("nothing is recorded, and the program goes on"),
        "{said}"
    );
    // A key that is not known does not cost the others.
    let dir = tempfile::tempdir().expect("a folder");
    let (code, said) = run(Some(&format!("perfetot=x,perfetto={}", dir.path().join("t.pftrace").display())));
    assert_eq!(code, Some(41), "{said}");
    assert!(said.contains("did you mean `perfetto`?") && said.contains("recording without it"), "{said}");
    assert!(dir.path().join("t.pftrace").exists());
    let (code, said) = run(Some("otlp=http://u:A,Zq7@host:4318"));
    assert_eq!(code, Some(40), "{said}");
    assert!(!said.contains("Zq") && said.contains(r"`\,`"), "{said}");
    let (code, said) = run(Some("paused=off"));
    assert_eq!(code, Some(41), "{said}");
    assert_eq!(said.matches("candlescope: 1 intervals in 1 steps").count(), 1, "{said}");
    let (code, said) = run(Some("report=off"));
    assert_eq!((code, said.lines().count()), (Some(41), 1), "the account can be left out: {said}");
    assert!(said.contains("names no destination") && said.contains("parquet=./runs"), "{said}");
}
