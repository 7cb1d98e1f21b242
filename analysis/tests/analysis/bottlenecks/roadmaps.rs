//! The order of remedies: what one of them leaves is another's to take.

use super::made::{Diagnosed, Piece, diagnose, gpu_run, near, piece, queued, with_result};
use candlescope_figures::advice::AdviceCode;
use candlescope_report::advice::text;

/// Products of a step: 50 of 16 µs, with a short kernel after each.
const PRODUCTS: i64 = 50;
const PRODUCT_NS: u64 = 16_000;

/// A run of these kernels whose products move `share` of what 1 TB/s allows.
fn found_in(pieces: &[Piece], dur_ns: u64, share: f64) -> Diagnosed {
    let (mut batch, manifest) = gpu_run(pieces, dur_ns);
    let bytes = (PRODUCT_NS as f64 * 1e3 * share) as u64;
    for span in batch.spans.iter_mut().filter(|span| span.path.path == "decode/linear") {
        (span.flops, span.bytes, span.io_bytes) = (Some(1_000), Some(bytes), Some(bytes));
    }
    diagnose(&(batch, manifest))
}

/// Every kernel is launched 20 µs after the one before, and starts 3 µs later: the device waits for more than half of the 2 ms.
fn launching(share: f64) -> Diagnosed {
    let one = |n: i64| {
        let (path, ns) = if n % 2 == 0 { ("decode/linear", PRODUCT_NS) } else { ("decode/head", 1_000) };
        let launch = 10_000 + 20_000 * n;
        Piece { interval: n as u64 / 2, ..piece(path, "gemm", launch, launch + 3_000, ns) }
    };
    found_in(&(0..2 * PRODUCTS).map(one).collect::<Vec<_>>(), 2_000_000, share)
}

#[test]
fn a_limit_that_matters_once_the_first_is_gone_comes_second() {
    let found = launching(0.1);
    // As long as the device waits for launches, faster products gain nothing, and are no finding.
    found.none(AdviceCode::BelowRoof);
    let graph = found.one(AdviceCode::LaunchBound).gain;
    let [roadmap] = &found.diagnosis.roadmaps[..] else { panic!("{:#?}", found.diagnosis.roadmaps) };
    let [first, second] = &roadmap.stages[..] else { panic!("{roadmap:#?}") };
    assert_eq!(
        (roadmap.phase.as_str(), first.code, second.code),
        ("decode", AdviceCode::LaunchBound, AdviceCode::BelowRoof)
    );
    assert_eq!((first.path.as_deref(), second.path.as_deref()), (None, Some("decode/linear")));
    assert!((first.alone - graph.mid).abs() < 1e-9 && (first.gain - graph.mid).abs() < 1e-9, "{first:?}");
    near(first.so_far, graph.low, graph.mid, graph.high, 1e-9);
    // In a graph, which reaches a part of what its kernels allow, products take a tenth of their time over the same part.
    let products = PRODUCTS as f64 * PRODUCT_NS as f64 / found.diagnosis.steps[0].unobserved_ns;
    let marginal = |rate: f64| products * (1.0 - 0.1 / rate) / rate;
    assert!(second.alone < 1e-9 && (second.gain - marginal(0.875)).abs() < 0.005, "{second:?} {}", marginal(0.875));
    let (low, mid, high) = (graph.low + marginal(0.75), graph.mid + marginal(0.875), graph.high + marginal(1.0));
    near(second.so_far, low, mid, high, 0.005);
    // What the stages gain is what all of them gain.
    let sum: f64 = roadmap.stages.iter().map(|stage| stage.gain).sum();
    assert!((sum - second.so_far.mid).abs() < 1e-9 && second.so_far.high < 1.0, "{roadmap:#?}");
    let told = text(&found.diagnosis).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(told.contains("in this order, a step `decode` gains the most: launch_bound ("), "{told}");
    assert!(told.contains("), then below_roof at `decode/linear` (") && told.contains(", 0.0 % alone): "), "{told}");
}

#[test]
fn a_single_limit_has_no_order() {
    // Products at nine tenths of the roof leave nothing to a second remedy.
    let found = launching(0.9);
    found.one(AdviceCode::LaunchBound);
    assert!(found.diagnosis.roadmaps.is_empty(), "{:#?}", found.diagnosis.roadmaps);
    // Launched in time, slow products are the one limit, at once.
    let both = (0..PRODUCTS as u64)
        .flat_map(|n| [("decode/linear", "gemm", PRODUCT_NS, n), ("decode/head", "gemm", 1_000, n)]);
    let (pieces, dur_ns) = with_result(queued(&both.collect::<Vec<_>>()));
    let found = found_in(&pieces, dur_ns, 0.1);
    let products = PRODUCTS as f64 * PRODUCT_NS as f64 / found.diagnosis.steps[0].unobserved_ns;
    let gain = found.one(AdviceCode::BelowRoof).gain;
    near(gain, products * (1.0 - 0.1 / 0.75), products * (1.0 - 0.1 / 0.875), products * 0.9, 0.005);
    found.none(AdviceCode::LaunchBound);
    assert!(found.diagnosis.roadmaps.is_empty(), "{:#?}", found.diagnosis.roadmaps);
}
