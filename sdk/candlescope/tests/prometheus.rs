//! Metrics through the builder: one call, and the session's own account is among them.
#![allow(missing_docs, reason = "a test")]

use candlescope_testkit::services::{free_addresses, get};
use std::time::Duration;
use tracing_subscriber::prelude::*;

#[test]
fn one_call_serves_metrics_and_the_sessions_account() {
    let [address] = free_addresses();
    let (layer, scope) = candlescope::builder().prometheus(address.to_string()).layer().expect("starts");
    tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
        let _step = candlescope::llm::decode(candlescope::llm::Tokens::new(1).context(2));
    });
    // Twice, because the account is read while the last records are still on their way.
    for _ in 0..2 {
        scope.flush(Duration::from_secs(5)).expect("flushes");
    }
    let page = get(address, "/metrics").expect("metrics");
    assert!(page.contains("\ncandlescope_steps_total{phase=\"decode\"} 1\n"), "{page}");
    assert!(page.contains("candlescope_records_total{exporter=\"prometheus\",outcome=\"exported\"}"), "{page}");

    let again = candlescope::builder().prometheus(address.to_string()).layer().expect_err("the port is taken");
    assert!(again.to_string().contains(&address.to_string()), "{again}");
    assert!(scope.finish().expect("was on").exporters.iter().all(|e| e.conserved()));
}
