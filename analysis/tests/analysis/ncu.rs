//! Counters of Nsight Compute, as an H200 gave them, by path.

use crate::common::{manifest, span, write_run};
use candlescope_figures::ncu::{Counters, CountersByPath, Limiter};
use candlescope_reader::Run;
use candlescope_report::ncu::text;
use candlescope_schema::{Batch, SpanId};
use tempfile::tempdir;

const PAGE: &[u8] = include_bytes!("../fixtures/ncu-raw-page.csv");
/// Bytes of a gate's weights, 2,048 × 5,632 in bf16, and of what goes in and comes out.
const GATE_BYTES: u64 = (2048 * 5632 + 2048 + 5632) * 2;

#[test]
fn counters_as_they_were_read() {
    let counters = Counters::read(PAGE).unwrap();
    assert_eq!(counters.kernels.len(), 10);
    let gate = &counters.kernels[0];
    assert!(gate.name.starts_with("nvjet_sm90"), "{}", gate.name);
    let names: Vec<_> = gate.ranges.iter().map(|range| range.name.as_str()).collect();
    assert_eq!(names, ["request", "decode", "block", "mlp", "gate_proj"]);
    assert_eq!((gate.duration_ns, gate.dram_bytes), (Some(8960.0), Some(23_091_200.0)));
    assert_eq!((gate.memory_percent, gate.occupancy_percent), (Some(53.76), Some(14.27)));
    let (reason, share) = gate.top_stall().unwrap();
    assert_eq!(reason, "long scoreboard");
    assert!((0.5..0.8).contains(&share), "{share}");
}

#[test]
fn counters_find_their_intervals() {
    let counters = Counters::read(PAGE).unwrap();
    let spans = counters.kernels.iter().map(|kernel| kernel.ranges.last().unwrap());
    let mut batch = Batch::default();
    for (seq, range) in spans.enumerate() {
        if batch.spans.iter().any(|known| known.span_id.0 == range.span) {
            continue;
        }
        let mut span = span(seq as u64, None, &format!("decode/block[{seq}]/mlp/{}", range.name), seq as i64 * 10, 5);
        span.span_id = SpanId(range.span);
        span.io_bytes = Some(GATE_BYTES);
        batch.spans.push(span);
    }
    let dir = tempdir().unwrap();
    write_run(dir.path(), &batch, &manifest(&batch), 100);
    let run = Run::open(dir.path()).unwrap();
    let found = CountersByPath::of(&counters, Some(&run));
    assert_eq!((found.kernels, found.outside, found.matched), (10, 0, 10));
    let of = |path: &str, kernel: &str| {
        found
            .rows
            .iter()
            .find(|row| row.path == path && row.kernel.contains(kernel))
            .unwrap_or_else(|| panic!("{path}"))
    };
    let gate = of("decode/block/mlp/gate_proj", "nvjet");
    assert_eq!((gate.n, gate.limiter), (2, Some(Limiter::Grid)));
    // The device's own counter and the cost model agree.
    let (moved, expected) = (gate.dram_bytes.unwrap(), gate.expected_bytes.unwrap());
    assert!((moved / expected - 1.0).abs() < 0.01, "{moved} {expected}");
    let down = of("decode/block/mlp/down_proj", "nvjet");
    assert_eq!(down.expected_bytes, None, "two kernels share what its operation should move");
    let shown = text(&found, 2);
    assert!(shown.contains("long scoreboard") && shown.contains("more: --top 0"), "{shown}");
}

#[test]
fn without_a_run_paths_are_the_names_of_ranges() {
    let found = CountersByPath::of(&Counters::read(PAGE).unwrap(), None);
    assert!(found.rows.iter().any(|row| row.path == "request/decode/block/mlp/gate_proj"));
    assert_eq!((found.matched, found.rows[0].expected_bytes), (0, None));
}
