//! Records only some steps: by a schedule, or in a window that is requested while the program runs.

use candlescope::Schedule;
use candlescope::llm::{self, Tokens};
use candlescope::sdk::MemoryExporter;

fn steps(n: usize) {
    let work = tracing::trace_span!("work");
    for position in 1..=n {
        let _step = llm::decode(Tokens::new(1).context(position));
        work.in_scope(|| std::hint::black_box((0..1_000).sum::<u64>()));
    }
}

fn main() -> anyhow::Result<()> {
    let memory = MemoryExporter::new();
    // Skip 10 steps, then twice: wait 3, warm up 1, record 2.
    let schedule = Schedule { skip_first: 10, wait: 3, warmup: 1, active: 2, repeat: 2 };
    let scope = candlescope::builder().exporter(memory.clone()).schedule(schedule).install()?;
    steps(30);
    if let Some(handle) = scope.handle() {
        // Something looks slow: the next five steps in full, whatever the schedule says.
        handle.capture_next(5)?;
    }
    steps(10);
    scope.finish();
    let mut recorded: Vec<u64> = memory.batch().steps.iter().map(|s| s.step).collect();
    recorded.sort_unstable();
    println!("recorded steps {recorded:?}");
    anyhow::ensure!(recorded == [14, 15, 20, 21, 30, 31, 32, 33, 34], "the schedule says otherwise");
    Ok(())
}
