//! Several processes as ranks of one run: a program whose ranks wait for each other by a server of the test's own, so that who waits
//! for whom, and how long an exchange takes, is known.
#![allow(missing_docs, reason = "a test")]

use candlescope::llm::{self, Tokens};
use candlescope_core::{Annotation, Exporter as _, Ledger};
use candlescope_exporters::parquet::{ParquetConfig, ParquetExporter};
use candlescope_figures::advice::AdviceCode;
use candlescope_ranks::{AlignedBy, CollectiveKind, RankAnalysis, Ranks, Source, analyse};
use candlescope_reader::ReadLimits;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use tracing::trace_span;
use tracing_subscriber::prelude::*;

const RUN: &str = "CANDLESCOPE_TEST_RUN";
const PORT: &str = "CANDLESCOPE_TEST_PORT";
const WORK_US: &str = "CANDLESCOPE_TEST_WORK_US";
/// How much longer a rank computes in its turn: rank 0 in each other step from the first one on, rank 1 in those
/// between.
const TURN_US: &str = "CANDLESCOPE_TEST_TURN_US";
/// Steps, of which the first ones of a process count as the others do.
const STEPS: usize = 30;
/// Exchanges of a step.
const EXCHANGES: usize = 2;
/// How long an exchange takes once all have come.
const TRANSFER: Duration = Duration::from_millis(2);
const BYTES: u64 = 1_000_000;

/// A rank, which computes by sleeping.
#[test]
fn rank() {
    let Some(run) = std::env::var_os(RUN) else { return };
    let number = |name: &str| std::env::var(name).unwrap().parse::<u64>().unwrap();
    let (layer, scope) = candlescope::builder().parquet(run).layer().expect("starts");
    tracing_subscriber::registry().with(layer).init();
    let mut server = TcpStream::connect(("127.0.0.1", u16::try_from(number(PORT)).unwrap())).unwrap();
    server.set_nodelay(true).unwrap();
    let mut exchange = || {
        server.write_all(&[1]).unwrap();
        server.read_exact(&mut [0]).unwrap();
    };
    // Nobody begins before all are there.
    exchange();
    for step in 0..STEPS as u64 {
        let _step = llm::decode(Tokens::new(1).context(8));
        let work_us = number(WORK_US) + if step % 2 == number("RANK") % 2 { number(TURN_US) } else { 0 };
        for _ in 0..EXCHANGES {
            trace_span!(target: "model", "linear").in_scope(|| std::thread::sleep(Duration::from_micros(work_us)));
            trace_span!(target: "model", "all_reduce").in_scope(|| {
                candlescope_core::annotate(Annotation::new().io_bytes(BYTES));
                exchange();
            });
        }
    }
    scope.finish();
}

/// Lets every process go on once all have come, and the exchange has taken its time.
fn serve(listener: &TcpListener, ranks: usize) {
    let mut all: Vec<TcpStream> = (0..ranks).map(|_| listener.accept().unwrap().0).collect();
    all.iter().for_each(|one| one.set_nodelay(true).unwrap());
    for _ in 0..=STEPS * EXCHANGES {
        for one in &mut all {
            one.read_exact(&mut [0]).unwrap();
        }
        std::thread::sleep(TRANSFER);
        for one in &mut all {
            one.write_all(&[1]).unwrap();
        }
    }
}

/// Runs a process for each of these times of computing.
fn run(folder: &Path, work: &[u64]) {
    run_in_turns(folder, work, 0);
}

/// The same, each for `turn_us` longer in its turn.
fn run_in_turns(folder: &Path, work: &[u64], turn_us: u64) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::scope(|scope| {
        scope.spawn(|| serve(&listener, work.len()));
        let start = |(rank, us): (usize, &u64)| {
            Command::new(std::env::current_exe().unwrap())
                .args(["--exact", "rank", "--nocapture", "--quiet"])
                .env(RUN, folder.join(format!("rank-{rank}")))
                .env(PORT, port.to_string())
                .env(WORK_US, us.to_string())
                .env(TURN_US, turn_us.to_string())
                .env("RANK", rank.to_string())
                .env("WORLD_SIZE", work.len().to_string())
                .spawn()
                .unwrap()
        };
        for mut process in work.iter().enumerate().map(start).collect::<Vec<_>>() {
            assert!(process.wait().unwrap().success());
        }
    });
}

/// Moves a run to another machine, whose clock is ahead by so much.
fn elsewhere(from: &Path, to: &Path, ahead: i64) {
    let run = candlescope_reader::Run::open(from).unwrap();
    let mut manifest = run.manifest().unwrap().clone();
    manifest.host = "another".into();
    manifest.started_ns += ahead;
    manifest.ended_ns = manifest.ended_ns.map(|ended| ended + ahead);
    let ledger = Ledger::new();
    let mut exporter = ParquetExporter::new(ParquetConfig::new(to));
    exporter.start(&manifest).unwrap();
    for mut batch in run.batches() {
        batch.move_by(ahead);
        ledger.received(&batch);
        exporter.export(&batch, &ledger).unwrap();
    }
    exporter.close(&ledger).unwrap();
    exporter.finish(&manifest).unwrap();
    std::fs::remove_dir_all(from).unwrap();
}

fn of(folder: &Path) -> RankAnalysis {
    analyse(&Ranks::open(folder, &ReadLimits::default()).unwrap())
}

#[test]
fn a_rank_that_is_slow_on_purpose_is_found_and_waiting_is_told_from_transfer() {
    let dir = tempfile::tempdir().unwrap();
    // The rank 2 takes 6 ms longer, twice a step.
    run(dir.path(), &[3_000, 3_000, 9_000]);
    let found = of(dir.path());
    assert_eq!((found.world_size, found.ranks.len(), found.steps, found.missing.len()), (3, 3, STEPS, 0), "{found:?}");
    assert_eq!(found.clocks.by, AlignedBy::OneMachine);
    // The ends of exchanges are told one after the other, and threads have to be woken.
    let ends = found.clocks.ends_apart_ns.unwrap();
    assert!(ends < 3_000_000 && found.clocks.collectives == STEPS * EXCHANGES, "{:?}", found.clocks);
    assert_eq!((found.source, found.matched, found.odd_steps), (Source::Host, STEPS * EXCHANGES, 0));
    let [reduce] = &found.collectives[..] else { panic!("{:?}", found.collectives) };
    assert_eq!(
        (reduce.kind, reduce.count, reduce.bytes),
        (CollectiveKind::AllReduce, STEPS * EXCHANGES, Some(BYTES as f64))
    );
    assert!(
        reduce.transfer_ns > 1.9e6 && reduce.transfer_ns < 4e6,
        "an exchange takes 2 ms and what waking costs: {reduce:?}"
    );
    let [zero, one, slow] = &found.ranks[..] else { panic!("{:?}", found.ranks) };
    for fast in [zero, one] {
        assert!((10e6..15e6).contains(&fast.waiting_ns), "6 ms twice a step: {fast:?}");
        assert!(fast.own_ns < 0.75 * slow.own_ns && fast.longest < STEPS / 4, "{fast:?} {slow:?}");
        // Everybody's step is as long as the slowest one's.
        assert!((fast.step_ns / slow.step_ns - 1.0).abs() < 0.1, "{fast:?} {slow:?}");
        assert!(fast.exposed_waiting_ns >= fast.waiting_ns && fast.exposed_transfer_ns > 2e6, "a host hides nothing");
    }
    assert!(slow.waiting_ns < 1.5e6, "{slow:?}");
    let first = &found.findings[0];
    assert_eq!((first.code, first.place.rank), (AdviceCode::StragglerRank, Some(2)), "{:?}", found.findings);
    // Without it a step takes 10 ms in place of 22.
    assert!((0.4..0.65).contains(&first.gain.mid), "{first:?}");
    let exposed = found.findings.iter().find(|finding| finding.code == AdviceCode::ExposedCommunication).unwrap();
    assert!((0.1..0.35).contains(&exposed.figure("share").unwrap()), "{exposed:?}");

    // Another machine, whose clock is an hour ahead: found by what ends together, and taken off.
    const AHEAD: i64 = 3_600_000_000_000;
    elsewhere(&dir.path().join("rank-1"), &dir.path().join("rank-1-there"), AHEAD);
    let apart = of(dir.path());
    assert_eq!((apart.clocks.by, apart.clocks.agrees, apart.missing.len()), (AlignedBy::Collectives, true, 0));
    let off = (apart.clocks.ahead_ns[1] - AHEAD).abs();
    // Ranks 0 and 1 are never the last to come: their clocks may be off by as much as they wait.
    let bound = apart.clocks.bound_ns.unwrap();
    assert!(off < 3_000_000 && off <= bound && bound < 12_000_000, "{off} {:?}", apart.clocks);
    assert_eq!((apart.findings[0].code, apart.findings[0].place.rank), (AdviceCode::StragglerRank, Some(2)));

    // A rank without a run.
    std::fs::remove_dir_all(dir.path().join("rank-1-there")).unwrap();
    assert_eq!(of(dir.path()).missing, [1]);
}

#[test]
fn equal_ranks_are_told_nothing_of_a_straggler() {
    let dir = tempfile::tempdir().unwrap();
    run(dir.path(), &[6_000, 6_000]);
    let found = of(dir.path());
    assert!(found.findings.iter().all(|finding| finding.code != AdviceCode::StragglerRank), "{:?}", found.findings);
    assert!(found.ranks.iter().all(|rank| rank.waiting_ns < 0.25 * rank.step_ns), "{:?}", found.ranks);
    // A later start of the program in the same folder is what is read.
    let again = tempfile::tempdir().unwrap();
    run(again.path(), &[2_000, 2_000]);
    for rank in 0..2 {
        std::fs::rename(again.path().join(format!("rank-{rank}")), dir.path().join(format!("again-{rank}"))).unwrap();
    }
    let last = Ranks::open(dir.path(), &ReadLimits::default()).unwrap();
    for rank in last.all() {
        let folder = format!("again-{}", rank.manifest().rank);
        let there = std::fs::read_to_string(dir.path().join(&folder).join("run.json")).unwrap();
        assert!(there.contains(&rank.manifest().run_id), "{} is not that of {folder}", rank.manifest().run_id);
    }
    // Two processes of one rank at the same time are no run.
    let text = std::fs::read_to_string(dir.path().join("again-1/run.json")).unwrap();
    std::fs::write(
        dir.path().join("again-1/run.json"),
        text.replace("\"rank\": 1", "\"rank\": 0").replace("\"rank\":1", "\"rank\":0"),
    )
    .unwrap();
    let error = Ranks::open(dir.path(), &ReadLimits::default()).unwrap_err().to_string();
    assert!(error.contains("are both rank 0"), "{error}");
}

#[test]
fn ranks_that_take_turns_at_being_slow_are_no_stragglers() {
    let dir = tempfile::tempdir().unwrap();
    run_in_turns(dir.path(), &[3_000, 3_000], 6_000);
    let found = of(dir.path());
    assert!(found.findings.iter().all(|finding| finding.code != AdviceCode::StragglerRank), "{:?}", found.findings);
    let imbalance = found.findings.iter().find(|finding| finding.code == AdviceCode::RankImbalance);
    let imbalance = imbalance.unwrap_or_else(|| panic!("{:?}", found.findings));
    // 6 ms twice a step are 6 ms above the mean of both, of a step of 22.
    assert!((0.15..0.4).contains(&imbalance.gain.mid) && imbalance.place.rank.is_none(), "{imbalance:?}");
}

#[test]
fn threads_of_one_process_are_ranks_of_its_run() {
    let dir = tempfile::tempdir().unwrap();
    let run = dir.path().join("run");
    let (layer, scope) = candlescope::builder().parquet(&run).layer().expect("starts");
    let dispatch = tracing::Dispatch::new(tracing_subscriber::registry().with(layer));
    let all = std::sync::Barrier::new(2);
    std::thread::scope(|threads| {
        for (rank, work_us) in [(0, 3_000), (1, 9_000)] {
            let (dispatch, all) = (&dispatch, &all);
            let thread = std::thread::Builder::new().name(format!("rank-{rank}"));
            let decode = move || {
                let _recorded = tracing::dispatcher::set_default(dispatch);
                for _ in 0..STEPS {
                    let _step = llm::decode(Tokens::new(1).context(8));
                    trace_span!(target: "model", "linear")
                        .in_scope(|| std::thread::sleep(Duration::from_micros(work_us)));
                    trace_span!(target: "model", "all_reduce").in_scope(|| {
                        all.wait();
                        std::thread::sleep(TRANSFER);
                    });
                }
            };
            thread.spawn_scoped(threads, decode).unwrap();
        }
        // One that marks no phase is no rank.
        threads.spawn(|| {
            let _recorded = tracing::dispatcher::set_default(&dispatch);
            trace_span!(target: "server", "poll").in_scope(|| std::thread::sleep(Duration::from_millis(1)));
        });
    });
    scope.finish();
    let found = analyse(&Ranks::of_threads(&run, &ReadLimits::default()).unwrap());
    assert_eq!((found.world_size, found.steps, found.matched, found.odd_steps), (2, STEPS, STEPS, 0), "{found:?}");
    assert_eq!((found.source, found.clocks.by), (Source::Host, AlignedBy::OneMachine));
    let [fast, slow] = &found.ranks[..] else { panic!("{:?}", found.ranks) };
    assert_eq!((fast.thread.as_deref(), slow.thread.as_deref()), (Some("rank-0"), Some("rank-1")));
    // 6 ms of a step of some 11.
    assert!((5e6..9e6).contains(&fast.waiting_ns) && slow.waiting_ns < 1.5e6, "{fast:?} {slow:?}");
    assert!((1.9e6..4e6).contains(&slow.transfer_ns), "{slow:?}");
    let straggler = found.findings.iter().find(|finding| finding.code == AdviceCode::StragglerRank);
    assert_eq!(straggler.map(|finding| finding.place.rank), Some(Some(1)), "{:?}", found.findings);
}
