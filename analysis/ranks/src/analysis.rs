//! What ranks do with each other.

use super::clocks::{AlignedBy, Clocks};
use super::collective::{CollectiveKind, LARGE};
use super::facts::{CollectiveSum, JudgedTimes, RankAnalysis, RankFacts, longest, mean, median};
use super::link::nvlink;
use super::open::Ranks;
use super::rank::Rank;
use super::reading::{Reading, SeenCollective, Source, Time, merged};
use super::rules;
use std::collections::{BTreeMap, BTreeSet};

/// Reads the ranks' runs, and says what they do with each other.
pub fn analyse(ranks: &Ranks) -> RankAnalysis {
    let readings: Vec<Reading> = Reading::all(ranks.all());
    let source = source(&readings);
    let places = places(&readings, source);
    let hosts: Vec<&str> = ranks.all().iter().map(|rank| rank.manifest().host.as_str()).collect();
    let threads = ranks.all().iter().all(|rank| rank.thread().is_some());
    let clocks = Clocks::of(&hosts, threads, &places.matched);
    // What ended on one rank before another had come was not one collective, unless a clock's error makes it look so.
    let ahead = |rank: usize| clocks.ahead_ns[rank];
    let of_devices = if source == Source::Host { 0 } else { 2 * candlescope_schema::run::GPU_CLOCK_BOUND_NS as i64 };
    let of_processes = if clocks.by == AlignedBy::OneMachine { clocks.bound_ns.unwrap_or(0) } else { 0 };
    let slack = of_devices.max(of_processes);
    let can_be = |all: &Vec<&SeenCollective>| {
        let last = all.iter().enumerate().map(|(rank, seen)| seen.start - ahead(rank)).max().unwrap_or(0);
        let first = all.iter().enumerate().map(|(rank, seen)| seen.end - ahead(rank)).min().unwrap_or(0);
        last <= first + slack
    };
    let (matched, odd): (Vec<_>, Vec<_>) = places.matched.into_iter().partition(can_be);
    let mut odd_steps = places.odd;
    odd_steps.extend(odd.iter().filter_map(|all| all[0].step));
    // What is a prompt on one rank and a token on another was not one step.
    let differs = |step: &&u64| {
        let mut phases = readings.iter().filter_map(|reading| reading.steps.get(*step)).map(|took| took.phase);
        phases.next().is_some_and(|first| phases.any(|phase| phase != first))
    };
    odd_steps.extend(readings[0].steps.keys().filter(differs));
    let split: Vec<Split> = matched.iter().map(|all| Split::of(all, &clocks.ahead_ns)).collect();
    let common = readings[0].steps.keys().filter(|step| {
        readings.iter().all(|reading| reading.steps.contains_key(step) && reading.knows(source, **step))
    });
    let common: BTreeSet<u64> = common.copied().filter(|step| !odd_steps.contains(step)).collect();
    let phase = longest_phase(&readings[0], &common);
    let judged = judged(&readings, &split, &common, phase);
    let devices: Vec<String> = ranks.all().iter().zip(&readings).map(device_of).collect();
    let link = devices.iter().map(|device| nvlink(device)).collect::<Option<Vec<f64>>>();
    let link = link.filter(|_| clocks.by == AlignedBy::OneMachine).and_then(|all| all.into_iter().reduce(f64::min));
    let facts = ranks.all().iter().zip(devices).enumerate().map(|(at, (rank, device))| fact(at, rank, device, &judged));
    let mut analysis = RankAnalysis {
        world_size: ranks.world_size(),
        missing: ranks.missing(),
        source,
        phase: phase.to_string(),
        steps: judged.len(),
        matched: split.iter().filter(|one| one.step.is_some_and(|step| common.contains(&step))).count(),
        ranks: facts.collect(),
        collectives: sums(&readings, source, &split, &common, ranks.world_size(), link),
        odd_steps: odd_steps.len(),
        findings: Vec::new(),
        damage: readings.iter().flat_map(|reading| reading.findings.iter().cloned()).collect(),
        unreadable: ranks.unreadable().to_vec(),
        clocks,
    };
    analysis.findings = rules::findings(&analysis, &judged);
    analysis
}

/// The best source that all ranks have: kernels, then time on the device. Intervals of the host say what a collective
/// takes only where the host computes: otherwise it goes on before the device does.
fn source(readings: &[Reading]) -> Source {
    let all = |of: fn(&Reading) -> &Vec<SeenCollective>| readings.iter().all(|reading| !of(reading).is_empty());
    if all(|reading| &reading.kernels) {
        Source::Kernels
    } else if all(|reading| &reading.on_device) {
        Source::DeviceTime
    } else if readings.iter().any(|reading| reading.has_device) {
        Source::Unknown
    } else {
        Source::Host
    }
}

/// Collectives that are the same on all ranks: the n-th of a kind in a step.
struct Places<'a> {
    matched: Vec<Vec<&'a SeenCollective>>,
    /// Steps in which ranks have different ones.
    odd: BTreeSet<u64>,
}

fn places(readings: &[Reading], source: Source) -> Places<'_> {
    type ByStep<'a> = BTreeMap<(Option<u64>, CollectiveKind), Vec<&'a SeenCollective>>;
    let mut by_rank: Vec<ByStep<'_>> = Vec::new();
    for reading in readings {
        let mut of = ByStep::new();
        for seen in reading.seen(source).iter().filter(|seen| seen.kind.holds_all()) {
            of.entry((seen.step, seen.kind)).or_default().push(seen);
        }
        by_rank.push(of);
    }
    let keys: BTreeSet<(Option<u64>, CollectiveKind)> = by_rank.iter().flat_map(|of| of.keys().copied()).collect();
    let (mut matched, mut odd) = (Vec::new(), BTreeSet::new());
    for (step, kind) in keys {
        // A rank that did not record the step's kernels does not say that there were none.
        if step.is_some_and(|step| readings.iter().any(|reading| !reading.knows(source, step))) {
            continue;
        }
        let all: Vec<&[&SeenCollective]> =
            by_rank.iter().map(|of| of.get(&(step, kind)).map_or(&[][..], Vec::as_slice)).collect();
        match all.iter().all(|others| others.len() == all[0].len()) {
            true => matched
                .extend((0..all[0].len()).map(|at| all.iter().map(|of| of[at]).collect::<Vec<&SeenCollective>>())),
            false => odd.extend(step),
        }
    }
    matched.sort_by_key(|all| all[0].start);
    Places { matched, odd }
}

/// A collective, split on each rank where the last one had come.
struct Split {
    kind: CollectiveKind,
    step: Option<u64>,
    bytes: Option<u64>,
    ranks: Vec<OnRank>,
}

/// A collective on a rank, by its own clock.
#[derive(Clone, Copy)]
struct OnRank {
    start: i64,
    /// When the last rank had come.
    last: i64,
    end: i64,
    device: Option<usize>,
}

impl Split {
    fn of(all: &[&SeenCollective], ahead: &[i64]) -> Self {
        let last = all.iter().zip(ahead).map(|(seen, ahead)| seen.start - ahead).max().unwrap_or(0);
        let split = |(seen, ahead): (&&SeenCollective, &i64)| OnRank {
            start: seen.start,
            last: (last + ahead).clamp(seen.start, seen.end.max(seen.start)),
            end: seen.end,
            device: seen.device,
        };
        let bytes = all.iter().map(|seen| seen.bytes).collect::<Option<Vec<u64>>>();
        Self {
            kind: all[0].kind,
            step: all[0].step,
            bytes: bytes.and_then(|bytes| bytes.into_iter().max()),
            ranks: all.iter().zip(ahead).map(split).collect(),
        }
    }
}

/// The phase with the longest total of these steps.
fn longest_phase(reading: &Reading, common: &BTreeSet<u64>) -> &'static str {
    let mut total: BTreeMap<&'static str, i64> = BTreeMap::new();
    for (_, took) in reading.steps.iter().filter(|(step, _)| common.contains(step)) {
        *total.entry(took.phase).or_default() += took.ns;
    }
    total.into_iter().max_by_key(|(_, ns)| *ns).map_or("", |(phase, _)| phase)
}

fn judged(readings: &[Reading], split: &[Split], common: &BTreeSet<u64>, phase: &str) -> Vec<JudgedTimes> {
    let mut of_step: BTreeMap<u64, Vec<&Split>> = BTreeMap::new();
    for one in split {
        if let Some(step) = one.step {
            of_step.entry(step).or_default().push(one);
        }
    }
    let of = |step: &u64| {
        let all = of_step.get(step).map_or(&[][..], Vec::as_slice);
        let mut judged = JudgedTimes::default();
        for (rank, reading) in readings.iter().enumerate() {
            let took = &reading.steps[step];
            let device = all.first().and_then(|one| one.ranks[rank].device);
            let part = |of: fn(&OnRank) -> Time| {
                // Two at once count once.
                let parts = merged(all.iter().map(|one| of(&one.ranks[rank])).filter(|(from, to)| from < to).collect());
                let length: i64 = parts.iter().map(|(from, to)| to - from).sum();
                (length, reading.exposed(device, &parts))
            };
            let (both, exposed) = part(|on| (on.start, on.end));
            let (waiting, exposed_waiting) = part(|on| (on.start, on.last));
            // Had nobody been late, it would have ended as much earlier, and what ran beside it from its beginning
            // would not.
            let (_, lost) = part(|on| (on.end - (on.last - on.start), on.end));
            judged.step.push(took.ns as f64);
            // While its device waits, a host may go on putting work on it: it would take that long without waiting as well.
            let own = (took.ns - lost).max(took.launching);
            judged.own.push(own.max(0) as f64);
            judged.waiting.push(waiting as f64);
            judged.transfer.push((both - waiting).max(0) as f64);
            judged.exposed_waiting.push(exposed_waiting as f64);
            judged.exposed_transfer.push((exposed - exposed_waiting).max(0) as f64);
        }
        judged
    };
    common.iter().filter(|step| readings[0].steps[step].phase == phase).map(of).collect()
}

fn device_of((rank, reading): (&Rank, &Reading)) -> String {
    let manifest = rank.manifest();
    let gpus = manifest.gpus();
    let used = reading.device.as_deref().and_then(|uuid| manifest.gpu(uuid));
    // Without kernels: a machine's list has all of them, and ranks take one each, in order.
    let gpu = used.or_else(|| gpus.get(manifest.rank as usize % gpus.len().max(1)));
    gpu.and_then(|gpu| gpu["name"].as_str()).map_or_else(|| "CPU".to_string(), str::to_string)
}

fn fact(rank: usize, of: &Rank, device: String, judged: &[JudgedTimes]) -> RankFacts {
    let each = |of: fn(&JudgedTimes) -> &Vec<f64>| judged.iter().map(move |step| of(step)[rank]);
    RankFacts {
        rank: of.manifest().rank,
        host: of.manifest().host.clone(),
        thread: of.thread().map(str::to_string),
        device,
        step_ns: median(each(|step| &step.step).collect()),
        own_ns: median(each(|step| &step.own).collect()),
        longest: judged.iter().filter(|step| longest(&step.own) == Some(rank)).count(),
        waiting_ns: mean(each(|step| &step.waiting)),
        transfer_ns: mean(each(|step| &step.transfer)),
        exposed_waiting_ns: mean(each(|step| &step.exposed_waiting)),
        exposed_transfer_ns: mean(each(|step| &step.exposed_transfer)),
    }
}

fn sums(
    readings: &[Reading],
    source: Source,
    split: &[Split],
    common: &BTreeSet<u64>,
    world: usize,
    link: Option<f64>,
) -> Vec<CollectiveSum> {
    let phase_of =
        |step: Option<u64>| step.filter(|step| common.contains(step)).map(|step| readings[0].steps[&step].phase);
    let mut by_kind: BTreeMap<(&str, CollectiveKind), Vec<&Split>> = BTreeMap::new();
    for one in split {
        if let Some(phase) = phase_of(one.step) {
            by_kind.entry((phase, one.kind)).or_default().push(one);
        }
    }
    let ranks = readings.len();
    let sum = |((phase, kind), all): ((&str, CollectiveKind), Vec<&Split>)| {
        let each = || all.iter().flat_map(|one| &one.ranks);
        let bytes = all.iter().map(|one| one.bytes).collect::<Option<Vec<u64>>>();
        // Of the last rank to come, all of it is transfer.
        let large = all.iter().filter(|one| one.bytes.is_some_and(|bytes| bytes >= LARGE));
        let (moved, took) = large.fold((0.0, 0.0), |(moved, took), one| {
            let shortest = one.ranks.iter().map(|on| on.end - on.last).min().unwrap_or(0);
            (moved + one.bytes.unwrap_or(0) as f64, took + shortest as f64 / 1e9)
        });
        let on_device = matches!(source, Source::Kernels | Source::DeviceTime);
        CollectiveSum {
            kind,
            phase: phase.to_string(),
            count: all.len(),
            waiting_ns: Some(mean(each().map(|on| (on.last - on.start) as f64))),
            transfer_ns: mean(each().map(|on| (on.end - on.last) as f64)),
            bytes: bytes.map(|bytes| mean(bytes.into_iter().map(|bytes| bytes as f64))),
            bus_bytes_per_s: kind.bus_factor(world).filter(|_| on_device && took > 0.0).map(|of| moved * of / took),
            link_bytes_per_s: link.filter(|_| on_device),
        }
    };
    let mut all: Vec<CollectiveSum> = by_kind.into_iter().map(sum).collect();
    // What only some ranks do together has no last one to wait for.
    let mut others: BTreeMap<(&str, CollectiveKind), Vec<f64>> = BTreeMap::new();
    for seen in readings.iter().flat_map(|reading| reading.seen(source)).filter(|seen| !seen.kind.holds_all()) {
        if let Some(phase) = phase_of(seen.step) {
            others.entry((phase, seen.kind)).or_default().push((seen.end - seen.start) as f64);
        }
    }
    all.extend(others.into_iter().map(|((phase, kind), took)| CollectiveSum {
        kind,
        phase: phase.to_string(),
        count: took.len() / ranks.max(1),
        waiting_ns: None,
        transfer_ns: mean(took.into_iter()),
        bytes: None,
        bus_bytes_per_s: None,
        link_bytes_per_s: None,
    }));
    all
}
