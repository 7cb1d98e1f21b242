//! Configured by an environment variable: without it the program runs as if candlescope were not there.
//!
//! `CANDLESCOPE="parquet=./runs,perfetto=trace.pftrace" cargo run -p candlescope-examples --bin environment`

use candlescope::llm::{self, Tokens};

fn main() {
    let _scope = candlescope::init();

    let layer = tracing::trace_span!("layer");
    let work = tracing::trace_span!("work");
    for step in 0..10 {
        let _step = llm::decode(Tokens::new(1).context(step + 1));
        for _ in 0..4 {
            let _layer = layer.enter();
            work.in_scope(|| std::hint::black_box((0..10_000).sum::<u64>()));
        }
    }
    println!("ten steps done");
}
