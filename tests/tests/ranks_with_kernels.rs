//! Ranks whose kernels were recorded, on made runs: who waits for whom, what is hidden, and what the link carries, are known.
#![allow(missing_docs, reason = "a test")]

use candlescope_core::run::RunManifest;
use candlescope_core::{Batch, Exporter as _, Ledger, RecordKind};
use candlescope_exporters::parquet::{ParquetConfig, ParquetExporter};
use candlescope_figures::advice::{Advice, AdviceCode, ConfidenceLevel};
use candlescope_ranks::{AlignedBy, CollectiveKind, Rank, RankAnalysis, Ranks, RanksOfRun, Source, analyse};
use candlescope_reader::{ReadLimits, Run};
use candlescope_testkit::ranks::{A_LAYER, BYTES, ENDS_APART_NS, LARGE_BYTES, MadeRank, MadeRanks, as_threads};
use std::convert::Infallible;
use std::path::Path;

/// The second clock is an hour ahead.
const AHEAD: i64 = 3_600_001_234_567;

fn write(dir: &Path, batch: &Batch, manifest: &RunManifest) {
    let mut exporter = ParquetExporter::new(ParquetConfig::new(dir));
    let ledger = Ledger::new();
    exporter.start(manifest).unwrap();
    ledger.received(batch);
    exporter.export(batch, &ledger).unwrap();
    exporter.close(&ledger).unwrap();
    exporter.finish(manifest).unwrap();
}

fn analysed(made: &[MadeRank]) -> RankAnalysis {
    let dir = tempfile::tempdir().unwrap();
    for (rank, MadeRank { batch, manifest, .. }) in made.iter().enumerate() {
        write(&dir.path().join(format!("rank-{rank}")), batch, manifest);
    }
    let found = analyse(&Ranks::open(dir.path(), &ReadLimits::default()).unwrap());
    assert!(found.missing.is_empty() && found.damage.is_empty(), "{found:?}");
    found
}

fn told(found: &RankAnalysis, code: AdviceCode) -> Option<&Advice> {
    found.findings.iter().find(|finding| finding.code == code)
}

#[track_caller]
fn near(found: f64, truth: f64, tolerance: f64) {
    assert!((found - truth).abs() <= tolerance, "{found} is not within {tolerance} of {truth}");
}

/// All-reduces of a step.
fn reduces(made: &MadeRanks) -> f64 {
    (made.layers * A_LAYER) as f64
}

#[test]
fn a_rank_that_is_a_fifth_slower_is_found_though_clocks_are_an_hour_apart() {
    let with = MadeRanks { ahead_ns: vec![0, AHEAD], ..MadeRanks::default() };
    let (n, made) = (reduces(&with), with.make());
    let found = analysed(&made);
    assert_eq!((found.source, found.phase.as_str(), found.world_size), (Source::Kernels, "decode", 2));
    // The first rank is the slow one in the warm-up, which is not judged.
    assert_eq!((found.steps, found.matched, found.odd_steps), (40, 40 * n as usize, 0));
    let clocks = &found.clocks;
    assert_eq!((clocks.by, clocks.agrees), (AlignedBy::Collectives, true), "{clocks:?}");
    let (off, bound) = ((clocks.ahead_ns[1] - AHEAD).abs(), clocks.bound_ns.unwrap());
    assert!(off <= ENDS_APART_NS && off <= bound && bound <= with.transfer_ns + 2 * ENDS_APART_NS, "{clocks:?}");

    // 500 and 600 µs before each all-reduce; what clocks are off is in each of them.
    let (waits, slack) = (n * 100_000.0, n * off as f64 + 1.0);
    let [zero, slow] = &found.ranks[..] else { panic!("{:?}", found.ranks) };
    near(made[0].truth.waiting_ns, waits, n * ENDS_APART_NS as f64);
    near(zero.waiting_ns, made[0].truth.waiting_ns, slack);
    near(slow.waiting_ns, 0.0, slack);
    for (rank, made) in found.ranks.iter().zip(&made) {
        near(rank.transfer_ns, n * with.transfer_ns as f64, n * ENDS_APART_NS as f64 + slack);
        near(rank.transfer_ns, made.truth.transfer_ns, slack);
        near(rank.step_ns, made.truth.step_ns, 1_000.0);
        // One stream hides nothing.
        assert_eq!((rank.exposed_waiting_ns, rank.exposed_transfer_ns), (rank.waiting_ns, rank.transfer_ns));
    }
    let [reduce] = &found.collectives[..] else { panic!("{:?}", found.collectives) };
    assert_eq!(
        (reduce.kind, reduce.count, reduce.bytes),
        (CollectiveKind::AllReduce, found.matched, Some(BYTES as f64))
    );
    near(reduce.waiting_ns.unwrap(), waits / n / 2.0, ENDS_APART_NS as f64);

    // Its own time is what a step takes where no rank is slow, and the gain is what that saves.
    let even = analysed(&MadeRanks { slower: vec![1.0, 1.0], ..with }.make());
    near(zero.own_ns, even.ranks[0].step_ns, 2.0 * slack);
    near(slow.own_ns, slow.step_ns, slack);
    assert_eq!((zero.longest, slow.longest), (0, 40));
    let straggler = told(&found, AdviceCode::StragglerRank).unwrap();
    assert_eq!(straggler.place.rank, Some(1), "{straggler:?}");
    let saved = 1.0 - even.ranks[1].step_ns / slow.step_ns;
    near(straggler.gain.mid, saved, 0.003);
    // Clocks may be off by as much in each of a step's collectives; steps hardly differ.
    let gain = straggler.gain;
    near(gain.high - gain.mid, n * bound as f64 / slow.step_ns, 0.003);
    assert!(gain.low < saved && saved < gain.high && gain.low > 0.0, "{straggler:?}");
    assert_eq!((straggler.confidence.level, straggler.coverage.steps), (ConfidenceLevel::Medium, 40));
    let exposed = told(&found, AdviceCode::ExposedCommunication).unwrap();
    near(exposed.figure("share").unwrap(), slow.transfer_ns / slow.step_ns, 0.002);
    assert_eq!(found.findings.len(), 2, "{:?}", found.findings);
}

#[test]
fn equal_ranks_are_told_nothing_of_each_other() {
    for noise in [0.0, 0.02] {
        let with = MadeRanks { slower: vec![1.0, 1.0], noise, ahead_ns: vec![0, AHEAD], ..MadeRanks::default() };
        let found = analysed(&with.make());
        assert_eq!((told(&found, AdviceCode::StragglerRank), told(&found, AdviceCode::RankImbalance)), (None, None));
        for rank in &found.ranks {
            assert!(rank.waiting_ns < 0.01 * rank.step_ns, "{rank:?}");
        }
    }
    // What hosts differ by from step to step, now one and then the other, is imbalance where the device waits for them.
    let with = MadeRanks {
        slower: vec![1.0, 1.0],
        noise: 0.15,
        compute_ns: 100_000,
        host_ns: 20_000,
        transfer_ns: 5_000,
        ..MadeRanks::default()
    };
    let found = analysed(&with.make());
    let imbalance = told(&found, AdviceCode::RankImbalance).unwrap();
    assert_eq!((told(&found, AdviceCode::StragglerRank), imbalance.place.rank), (None, None));
    // Of two equal logarithms with this deviation the larger one is 0.56 deviations above the mean of both.
    near(imbalance.gain.mid, 0.56 * 0.15, 0.03);
}

#[test]
fn what_a_second_stream_hides_is_not_exposed() {
    // Half of the transfer, more than all of it, and more than what the first rank waits.
    for beside_ns in [20_000, 60_000, 120_000] {
        let with = MadeRanks { beside_ns, ..MadeRanks::default() };
        let n = reduces(&with);
        let made = with.make();
        let (found, even) = (analysed(&made), analysed(&MadeRanks { slower: vec![1.0, 1.0], ..with.clone() }.make()));
        for (rank, truth) in found.ranks.iter().zip(made.iter().map(|made| made.truth)) {
            near(rank.waiting_ns, truth.waiting_ns, 1.0);
            near(rank.transfer_ns, truth.transfer_ns, 1.0);
            near(rank.exposed_waiting_ns, truth.exposed_waiting_ns, 1.0);
            near(rank.exposed_transfer_ns, truth.exposed_transfer_ns, 1.0);
        }
        let [zero, slow] = &found.ranks[..] else { panic!("{:?}", found.ranks) };
        // The slow one comes last: beside its all-reduces is transfer only.
        let shown = (with.transfer_ns - beside_ns).max(0) as f64;
        near(slow.exposed_transfer_ns, n * shown, n * ENDS_APART_NS as f64);
        if beside_ns == 20_000 {
            near(zero.exposed_waiting_ns, n * (100_000.0 - 20_000.0), n * ENDS_APART_NS as f64);
            near(zero.exposed_transfer_ns, zero.transfer_ns, 1.0);
            let exposed = told(&even, AdviceCode::ExposedCommunication).unwrap();
            near(exposed.figure("share").unwrap(), n * shown / even.ranks[0].step_ns, 0.003);
        } else {
            assert_eq!(told(&even, AdviceCode::ExposedCommunication), None, "all of it is hidden");
        }
        // What hides waiting would have hidden the transfer: the first rank would take what it takes beside one that is not slow.
        near(zero.own_ns, even.ranks[0].step_ns, n * ENDS_APART_NS as f64);
        let straggler = told(&found, AdviceCode::StragglerRank).unwrap();
        assert_eq!(straggler.place.rank, Some(1));
        near(straggler.gain.mid, 1.0 - even.ranks[1].step_ns / slow.step_ns, 0.005);
    }
}

#[test]
fn large_all_reduces_say_what_the_link_carries() {
    let with = MadeRanks { slower: vec![1.0, 1.0], large: 20, ..MadeRanks::default() };
    let bus = |with: &MadeRanks| {
        let found = analysed(&with.make());
        let in_phase = |phase: &str| found.collectives.iter().find(|of| of.phase == phase).unwrap().clone();
        let (small, large) = (in_phase("decode"), in_phase("encode"));
        assert_eq!((small.bus_bytes_per_s, large.count), (None, 40), "8 KiB say nothing of the link");
        assert_eq!(large.bytes, Some(LARGE_BYTES as f64));
        near(large.transfer_ns, with.large_ns as f64, 1_000.0);
        (large, told(&found, AdviceCode::BusBandwidth).cloned())
    };
    // Of two ranks each link carries all bytes once [nccl-tests]: 268 MB in 872 µs.
    let (of, slow) = bus(&with);
    near(of.bus_bytes_per_s.unwrap() / 1e9, 308.0, 0.5);
    assert_eq!((of.link_bytes_per_s, slow), (Some(450e9), None));
    let (of, slow) = bus(&MadeRanks { large_ns: 2_000_000, ..with.clone() });
    near(of.bus_bytes_per_s.unwrap() / 1e9, 134.2, 0.3);
    let slow = slow.unwrap();
    near(slow.figure("bus_bandwidth").unwrap() / 1e9, 134.2, 0.3);
    assert_eq!((slow.figure("link_bandwidth"), slow.place.kernel.as_deref()), (Some(450e9), Some("all_reduce")));
    // Its phase is not the one whose steps are judged, and no gain is claimed.
    assert_eq!((slow.place.phase.as_str(), slow.coverage.steps, slow.gain.high), ("encode", 0, 0.0));
    // Between machines, and of another card, it is not known what the link carries.
    for with in [
        MadeRanks { large_ns: 2_000_000, ahead_ns: vec![0, AHEAD], ..with.clone() },
        MadeRanks { large_ns: 2_000_000, gpu: "NVIDIA L4", ..with.clone() },
    ] {
        let (of, slow) = bus(&with);
        assert!(of.bus_bytes_per_s.is_some(), "{of:?}");
        assert_eq!((of.link_bytes_per_s, slow), (None, None));
    }
    // Of four ranks each link carries one and a half of them.
    let (of, _) = bus(&MadeRanks { slower: vec![1.0; 4], ..with });
    near(of.bus_bytes_per_s.unwrap() / 1e9, 1.5 * 308.0, 0.75);
}

#[test]
fn time_on_the_device_does_where_a_rank_has_no_kernels() {
    let with = MadeRanks { large: 10, ..MadeRanks::default() };
    let mut made = with.make();
    made[1].batch.kernels.clear();
    let found = analysed(&made);
    assert_eq!((found.source, found.steps), (Source::DeviceTime, 40));
    for (rank, made) in found.ranks.iter().zip(&made) {
        near(rank.waiting_ns, made.truth.waiting_ns, 1.0);
        near(rank.transfer_ns, made.truth.transfer_ns, 1.0);
    }
    let straggler = told(&found, AdviceCode::StragglerRank).unwrap();
    assert_eq!(straggler.place.rank, Some(1));
    let large = found.collectives.iter().find(|of| of.phase == "encode").unwrap();
    near(large.bus_bytes_per_s.unwrap() / 1e9, 308.0, 0.5);
    assert_eq!(told(&found, AdviceCode::ExposedCommunication), None, "what else the devices did is not known");

    // A step of which one interval has no such time is not judged, and without any nothing is.
    let reduces = |batch: &mut Batch, step: Option<u64>| {
        let of = batch.spans.iter_mut().filter(|span| span.path.name.as_ref() == "all_reduce");
        of.filter(|span| step.is_none() || span.step == step).for_each(|span| span.gpu = None);
    };
    reduces(&mut made[0].batch, Some(10));
    assert_eq!(analysed(&made).steps, 39);
    reduces(&mut made[0].batch, None);
    let found = analysed(&made);
    assert_eq!((found.source, found.matched, found.findings.len()), (Source::Unknown, 0, 0), "launches say nothing");
}

#[test]
fn all_reduces_through_the_host_are_read_by_their_copies() {
    // The host waits in them: it is not as if it had been launching all the while.
    let with = MadeRanks { through_host: true, ahead_ns: vec![0, AHEAD], ..MadeRanks::default() };
    let (n, made) = (reduces(&with), with.make());
    let found = analysed(&made);
    assert_eq!((found.source, found.steps, found.odd_steps), (Source::DeviceTime, 40, 0));
    assert!((found.clocks.ahead_ns[1] - AHEAD).abs() <= ENDS_APART_NS, "{:?}", found.clocks);
    let slack = n * ENDS_APART_NS as f64;
    for (rank, made) in found.ranks.iter().zip(&made) {
        near(rank.waiting_ns, made.truth.waiting_ns, slack);
        near(rank.transfer_ns, made.truth.transfer_ns, slack);
    }
    let even = analysed(&MadeRanks { slower: vec![1.0, 1.0], ..with }.make());
    near(found.ranks[0].own_ns, even.ranks[0].step_ns, 0.01 * even.ranks[0].step_ns);
    let straggler = told(&found, AdviceCode::StragglerRank).unwrap();
    assert_eq!(straggler.place.rank, Some(1));
    near(straggler.gain.mid, 1.0 - even.ranks[1].step_ns / found.ranks[1].step_ns, 0.005);
    assert_eq!(told(&even, AdviceCode::StragglerRank), None);
}

#[test]
fn steps_are_judged_whose_kernels_all_ranks_recorded_alike() {
    let with = MadeRanks::default();
    let mut made = with.make();
    // Windows that overlap in 14 steps, in one of which the second rank lacks an all-reduce.
    made[0].batch.kernels.retain(|kernel| kernel.step.is_some_and(|step| (10..30).contains(&step)));
    made[1].batch.kernels.retain(|kernel| kernel.step.is_some_and(|step| step >= 16));
    let lost =
        made[1].batch.kernels.iter().rposition(|kernel| {
            kernel.step == Some(20) && kernel.name.as_ref() == candlescope_testkit::ranks::ALL_REDUCE
        });
    made[1].batch.kernels.remove(lost.unwrap());
    let found = analysed(&made);
    assert_eq!((found.source, found.steps, found.odd_steps), (Source::Kernels, 13, 1));
    assert_eq!(found.matched, 13 * reduces(&with) as usize);
    near(found.ranks[0].waiting_ns, made[0].truth.waiting_ns, reduces(&with) * ENDS_APART_NS as f64);
    assert_eq!(told(&found, AdviceCode::StragglerRank).unwrap().place.rank, Some(1));
    // In fewer than eight steps nobody is named.
    made[0].batch.kernels.retain(|kernel| kernel.step.is_some_and(|step| step < 20));
    let found = analysed(&made);
    assert_eq!((found.steps, found.findings.len()), (4, 0), "{:?}", found.findings);
}

#[test]
fn a_host_goes_on_launching_while_its_device_waits() {
    // Each kernel takes a fraction of what its launch does.
    let bound = MadeRanks { compute_ns: 100_000, host_ns: 20_000, transfer_ns: 5_000, ..MadeRanks::default() };
    let found = analysed(&bound.make());
    let even = analysed(&MadeRanks { slower: vec![1.0, 1.0], ..bound }.make());
    let [zero, slow] = &found.ranks[..] else { panic!("{:?}", found.ranks) };
    // The device waits for a quarter of the step, but its host could not be faster by that.
    assert!(zero.waiting_ns > 0.24 * zero.step_ns, "{zero:?}");
    near(zero.own_ns / even.ranks[0].step_ns, 1.0, 0.025);
    let (straggler, saved) =
        (told(&found, AdviceCode::StragglerRank).unwrap(), 1.0 - even.ranks[1].step_ns / slow.step_ns);
    assert_eq!(straggler.place.rank, Some(1));
    let gain = straggler.gain.mid;
    assert!(gain >= saved && gain < saved + 0.025, "{gain} of {saved}, at most");
}

/// Of so many starts with noisy hosts, those in which a rank is named.
fn named(slower: [f64; 2], noise: f64, starts: u64) -> [usize; 2] {
    let mut named = [0; 2];
    for seed in 1..=starts {
        let with = MadeRanks {
            slower: slower.to_vec(),
            noise,
            seed,
            layers: 2,
            compute_ns: 100_000,
            host_ns: 20_000,
            transfer_ns: 5_000,
            ..MadeRanks::default()
        };
        let found = analysed(&with.make());
        assert_eq!(found.steps, 40);
        if let Some(straggler) = told(&found, AdviceCode::StragglerRank) {
            named[straggler.place.rank.unwrap() as usize] += 1;
        }
    }
    named
}

#[test]
fn noise_of_hosts_makes_a_rank_of_twenty_starts_a_straggler_only_if_it_is_one() {
    // The slow one takes a fifth longer. Where its host's steps differ by as much from each other, it is the slowest in three of
    // four steps only, and often not named; the other one never is.
    for (noise, at_least) in [(0.05, 20), (0.1, 20), (0.2, 10)] {
        for slow in [0, 1] {
            let mut slower = [1.0; 2];
            slower[slow] = 1.2;
            let named = named(slower, noise, 20);
            assert!(named[slow] >= at_least && named[1 - slow] == 0, "noise of {noise}, slow rank {slow}: {named:?}");
        }
        assert_eq!(named([1.0, 1.0], noise, 20), [0, 0], "noise of {noise}");
    }
}

#[test]
fn threads_of_one_process_are_told_of_as_processes_are() {
    let mut made = MadeRanks { large: 20, ..MadeRanks::default() }.make();
    let processes = analysed(&made);
    let analysed_as_threads = |made: &[MadeRank]| {
        let dir = tempfile::tempdir().unwrap();
        let (batch, manifest) = as_threads(made);
        write(dir.path(), &batch, &manifest);
        let ranks = Ranks::of_threads(dir.path(), &ReadLimits::default()).unwrap();
        // Nothing is lost between them, and nothing is in two.
        let own = |kind| -> u64 { counts(&ranks, kind).iter().sum() };
        for kind in [RecordKind::Span, RecordKind::Step, RecordKind::Kernel] {
            assert_eq!(own(kind), batch.count(kind), "{kind:?}");
        }
        analyse(&ranks)
    };
    let threads = analysed_as_threads(&made);
    let names: Vec<Option<&str>> = threads.ranks.iter().map(|rank| rank.thread.as_deref()).collect();
    assert_eq!(names, [Some("rank-0"), Some("rank-1")]);
    let mut without_names = threads.clone();
    without_names.ranks.iter_mut().for_each(|rank| rank.thread = None);
    // Processes read their clock each by itself, which leaves more room for what is gained.
    without_names.clocks = processes.clocks.clone();
    for (of_threads, of_processes) in without_names.findings.iter_mut().zip(&processes.findings) {
        let (narrow, wide) = (of_threads.gain, of_processes.gain);
        assert!(wide.low <= narrow.low && narrow.mid == wide.mid && narrow.high <= wide.high, "{narrow:?} {wide:?}");
        of_threads.gain = wide;
    }
    assert_eq!(without_names, processes);
    assert_eq!(told(&threads, AdviceCode::StragglerRank).and_then(|finding| finding.place.rank), Some(1));

    // Their order is that of their devices, whatever they are called.
    made.reverse();
    let turned = analysed_as_threads(&made);
    let names: Vec<Option<&str>> = turned.ranks.iter().map(|rank| rank.thread.as_deref()).collect();
    assert_eq!(names, [Some("rank-1"), Some("rank-0")]);
    assert_eq!(told(&turned, AdviceCode::StragglerRank).and_then(|finding| finding.place.rank), Some(1));

    // Two threads that share a device, a helper that marks no phase, and a kernel of nobody: all of them are in one rank, once.
    made.reverse();
    let (mut batch, manifest) = as_threads(&made);
    let device = batch.kernels[0].device.clone();
    batch.kernels.iter_mut().for_each(|kernel| kernel.device = device.clone());
    let mut of_helper = batch.kernels[0].clone();
    (of_helper.seq, of_helper.step) = (Some(7 << 40), None);
    let mut of_nobody = of_helper.clone();
    of_nobody.seq = None;
    batch.kernels.extend([of_helper, of_nobody]);
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), &batch, &manifest);
    let ranks = Ranks::of_threads(dir.path(), &ReadLimits::default()).unwrap();
    assert_eq!(
        counts(&ranks, RecordKind::Kernel),
        [made[0].batch.kernels.len() as u64 + 2, made[1].batch.kernels.len() as u64]
    );
    let names: Vec<Option<&str>> = ranks.all().iter().map(Rank::thread).collect();
    assert_eq!(names, [Some("rank-0"), Some("rank-1")], "one device says no order");

    // A step without a record: which of the others belong together is not known.
    batch.steps.remove(10);
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), &batch, &manifest);
    let error = Ranks::of_threads(dir.path(), &ReadLimits::default()).unwrap_err().to_string();
    assert!(error.starts_with("1 of ") && error.contains("have no record"), "{error}");

    // One thread is no two ranks.
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), &made[0].batch, &made[0].manifest);
    let error = Ranks::of_threads(dir.path(), &ReadLimits::default()).unwrap_err().to_string();
    assert!(
        error
            .ends_with("has marked phases on 1 thread: ranks are 2 to 64 threads that run phases each, such as decode"),
        "{error}"
    );
}

/// Records of each rank.
fn counts(ranks: &Ranks, kind: RecordKind) -> Vec<u64> {
    let of_run = |of_run: RanksOfRun<'_>| {
        let mut counts = vec![0; of_run.ranks().len()];
        let Ok(findings) = of_run.read(Run::batches, |place, own| {
            counts[place] += own.count(kind);
            Ok::<(), Infallible>(())
        });
        assert_eq!(findings, []);
        counts
    };
    ranks.by_run().flat_map(of_run).collect()
}
