//! Sessions one after the other in a process.
#![allow(missing_docs, reason = "a test")]

use candlescope::InitError;

/// In a process of its own: it installs the global subscriber.
#[test]
fn a_second_session_with_our_own_subscriber_says_what_to_do_instead() {
    let first = candlescope::builder().install().expect("starts");
    tracing::trace_span!("step").in_scope(|| ());
    assert_eq!(first.finish().expect("recorded").counts["spans"], 1);
    let error = candlescope::builder().install().expect_err("the subscriber stays");
    assert!(matches!(error, InitError::InstalledBefore), "{error:?}");
    let said = error.to_string();
    for part in ["for the life of the process", "captures", "with_default", "load the model anew"] {
        assert!(said.contains(part), "{said}");
    }
    // With subscribers of their own, as many as one likes.
    use tracing_subscriber::prelude::*;
    for _ in 0..2 {
        let (layer, scope) = candlescope::builder().layer().expect("starts");
        tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
            tracing::trace_span!("step").in_scope(|| ());
        });
        assert_eq!(scope.finish().expect("recorded").counts["spans"], 1);
    }
}
