//! Kernels and copies computed by hand.

use crate::common::scenario::{GPU, Scenario, make};
use crate::common::{self, T0, path, write_run};
use candlescope_figures::Analysis;
use candlescope_figures::Intervals;
use candlescope_figures::Warmup;
use candlescope_figures::intervals::IntervalPass;
use candlescope_figures::kernel_sums::KernelPass;
use candlescope_reader::Run;
use candlescope_schema::{HostNs, KernelKind, KernelRecord};
use candlescope_testkit::with;
use tempfile::tempdir;

fn kernel(kind: KernelKind, name: &str, at: Option<&str>, dur: u64, bytes: Option<u64>) -> KernelRecord {
    let (seq, step) = (at.map(|_| 1), at.map(|_| 0));
    with(common::kernel(GPU, 0, dur), |r| {
        r.kind = kind;
        r.name = name.into();
        r.seq = seq;
        r.step = step;
        r.path = at.map(path);
        r.bytes = bytes;
    })
}

/// Two intervals of `decode/block/linear`, in one recorded step.
fn intervals() -> Intervals {
    let mut pass = IntervalPass::default();
    pass.recorded([0]);
    let parts = [
        (None, "decode"),
        (Some(0), "decode/block[0]"),
        (Some(1), "decode/block[0]/linear[0]"),
        (Some(1), "decode/block[0]/linear[1]"),
    ];
    for (i, (parent, path)) in parts.into_iter().enumerate() {
        pass.add(&crate::common::span(i as u64, parent, path, i as i64, 100 - i as u64));
    }
    pass.finish()
}

#[test]
fn tables_by_hand() {
    use KernelKind::{Kernel, Memcpy, Memset};
    let (linear, block) = (Some("decode/block[0]/linear[0]"), Some("decode/block[0]"));
    let mut pass = KernelPass::default();
    let mut at = T0;
    for mut record in [
        kernel(Kernel, "gemm", linear, 300, None),
        kernel(Kernel, "gemm", Some("decode/block[0]/linear[1]"), 100, None),
        kernel(Kernel, "gemm", block, 200, None),
        kernel(Kernel, "norm", block, 400, None),
        kernel(Memcpy, "htod", linear, 500, Some(1_000)),
        kernel(Memcpy, "htod", None, 300, Some(600)),
        kernel(Memset, "memset", block, 200, None),
    ] {
        record.gpu_start = HostNs(at);
        at += record.gpu_dur_ns as i64;
        pass.add(&record, &Warmup::default(), None);
    }
    let (kernels, steps) = pass.finish(&intervals());
    assert_eq!((kernels.records, kernels.total_ns, kernels.unattributed), (7, 2_000, (1, 300)));
    assert_eq!(steps.steps.values().map(Vec::len).sum::<usize>(), 6, "all with a step");

    let gemm = &kernels.by_name[0];
    assert_eq!((&*gemm.name, gemm.count, gemm.total_ns, gemm.mean_ns, gemm.p50_ns), ("gemm", 3, 600, 200.0, 200.0));
    assert_eq!(gemm.p95_ns, None, "three kernels have no 95th percentile");
    assert!((gemm.share - 0.3).abs() < 1e-12);
    assert_eq!(&*kernels.by_name[1].name, "norm");
    assert_eq!(kernels.by_name.len(), 2, "copies are no kernels");

    let paths: Vec<_> = kernels.by_path.iter().map(|r| (r.path.as_deref(), r.kernels, r.copies, r.total_ns)).collect();
    assert_eq!(paths, [(Some("decode/block/linear"), 2, 1, 900), (Some("decode/block"), 2, 1, 800), (None, 0, 1, 300)]);
    let linear = &kernels.by_path[0];
    assert_eq!((linear.calls, linear.launches_per_call, linear.share), (2, Some(1.0), 0.45));
    assert_eq!(linear.top.as_ref().map(|(name, ns)| (&**name, *ns)), Some(("htod", 500)));
    let block = &kernels.by_path[1];
    assert_eq!(block.top.as_ref().map(|(name, ns)| (&**name, *ns)), Some(("norm", 400)));
    assert_eq!(kernels.by_path[2].launches_per_call, None);
    assert_eq!(kernels.launches().into_iter().collect::<Vec<_>>(), [("decode/block", 2), ("decode/block/linear", 2)]);

    let copies: Vec<_> =
        kernels.copies.iter().map(|c| (&*c.direction, c.count, c.bytes, c.total_ns, c.gbytes)).collect();
    assert_eq!(copies, [("htod", 2, Some(1_600), 800, Some(2.0)), ("memset", 1, None, 200, None)], "1600 B in 800 ns");
}

#[test]
fn a_copy_that_does_not_say_its_bytes_is_in_no_rate() {
    let mut pass = KernelPass::default();
    for (n, bytes) in [Some(1_000), None].into_iter().enumerate() {
        let mut record = kernel(KernelKind::Memcpy, "htod", Some("decode/block[0]"), 500, bytes);
        record.gpu_start = HostNs(T0 + 1_000 * n as i64);
        pass.add(&record, &Warmup::default(), None);
    }
    let (kernels, _) = pass.finish(&intervals());
    let copies = &kernels.copies[0];
    assert_eq!((copies.count, copies.merged_ns, copies.gbytes), (2, 1_000, Some(2.0)), "1000 B in 500 ns");
}

#[test]
fn a_recorded_run_comes_out_whole() {
    let dir = tempdir().unwrap();
    let (batch, manifest) = make(&Scenario::on_gpu());
    // Several segments: what is known about kernels must reach every span.
    write_run(dir.path(), &batch, &manifest, 600);
    let analysis = Analysis::of(&Run::open(dir.path()).unwrap());
    assert_eq!(analysis.kernels.records, batch.kernels.len() as u64);
    let in_tables: u64 = analysis.kernels.by_path.iter().map(|row| row.total_ns).sum();
    assert_eq!(in_tables, batch.kernels.iter().map(|k| k.gpu_dur_ns).sum::<u64>(), "every kernel stands in one path");
    let by_name: u64 = analysis.kernels.by_name.iter().map(|row| row.total_ns).sum();
    let copies: u64 = analysis.kernels.copies.iter().map(|row| row.total_ns).sum();
    assert_eq!(by_name + copies, in_tables);
    let busy = analysis.gpu.busy.as_ref().unwrap();
    assert_eq!(busy.steps, 8);
    assert_eq!(busy.busy_ns + busy.idle_ns() + busy.unattributed_ns, busy.wall_ns);
    assert_eq!(busy.idle_ns(), busy.host_bound.ns + busy.launch_latency.ns + busy.launch_overhead.ns + busy.other.ns);
    // 6 blocks of (2 norms, 4 + 3 linears, rope), embedding, norm and head.
    assert_eq!(busy.launches_per_step(), Some(6.0 * 10.0 + 3.0));
    let decode = analysis.operators.iter().find(|o| o.path == "decode").unwrap();
    assert_eq!((decode.launches_per_call, decode.launch_calls), (Some(63.0), 8));
    assert!(analysis.verdict.ok, "{:?}", analysis.verdict);
}
