//! An exporter of your own: a type, a name, and one function that takes batches and says what became of them.

use candlescope::llm::{self, Tokens};
use candlescope::sdk::{Batch, ExportError, Exporter, Ledger};
use std::collections::BTreeMap;

/// Adds up time by path without ordinals and prints it at the end.
#[derive(Default)]
struct TopPaths {
    total_ns: BTreeMap<String, (u64, u64)>,
}

impl Exporter for TopPaths {
    fn name(&self) -> &'static str {
        "top-paths"
    }

    fn export(&mut self, batch: &Batch, ledger: &Ledger) -> Result<(), ExportError> {
        for span in &batch.spans {
            let (calls, ns) = self.total_ns.entry(span.path.rollup.clone()).or_default();
            *calls += 1;
            *ns += span.host_dur_ns;
        }
        // The rule: every record received is counted as exported or dropped.
        ledger.exported_batch(batch);
        Ok(())
    }

    fn close(&mut self, _: &Ledger) -> Result<(), ExportError> {
        for (path, (calls, ns)) in &self.total_ns {
            println!("{path:<24} {calls:>4} calls {:>10.1} µs", *ns as f64 / 1e3);
        }
        Ok(())
    }
}

fn main() -> anyhow::Result<()> {
    let scope = candlescope::builder().exporter(TopPaths::default()).install()?;
    let (block, linear) = (tracing::trace_span!("block"), tracing::trace_span!("linear"));
    for position in 1..=3 {
        let _step = llm::decode(Tokens::new(1).context(position));
        for _ in 0..2 {
            let _block = block.enter();
            linear.in_scope(|| std::hint::black_box((0..1_000).sum::<u64>()));
        }
    }
    drop(scope);
    Ok(())
}
