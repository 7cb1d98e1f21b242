//! What ranks do with each other.

use super::clocks::Clocks;
use super::collective::CollectiveKind;
use super::link::nvlink;
use super::open::Ranks;
use super::rank_finding::{RankCode, RankFinding};
use super::reading::{Reading, Seen};
use candlescope_schema::numbers::{duration, percent};
use candlescope_schema::run::Finding;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// A rank is a straggler if it takes longest in more than this share of steps, where chance gives each the same.
const MOST_STEPS: f64 = 0.6;
/// What is less than this share of a step is not told.
const WORTH: f64 = 0.03;
/// A link that carries less than this share of what it can is told of.
const SLOW_LINK: f64 = 0.5;
/// Fewest steps that all ranks have, to judge.
const LEAST_STEPS: usize = 8;
/// Bytes of an operation from which the link, not the start of the operation, decides how long it takes.
const LARGE: u64 = 8 << 20;

/// One rank beside the others.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct RankFacts {
    /// Its number.
    pub rank: u32,
    /// Its machine.
    pub host: String,
    /// Its device.
    pub device: String,
    /// Measured steps that all ranks have.
    pub steps: usize,
    /// The median of them, nanoseconds.
    pub step_ns: f64,
    /// The same without waiting for other ranks.
    pub own_ns: f64,
    /// Of these steps, how many took this rank the longest of its own time.
    pub longest: usize,
    /// Waiting in collectives until the last rank had come, nanoseconds a step.
    pub waiting_ns: f64,
    /// What collectives took after that, nanoseconds a step.
    pub transfer_ns: f64,
    /// The part of both in which the device did nothing else, nanoseconds a step.
    pub exposed_ns: f64,
}

/// A collective operation over all ranks.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct CollectiveSum {
    /// Which.
    pub kind: CollectiveKind,
    /// How many, in measured steps of all ranks.
    pub count: usize,
    /// Waiting for the last rank, nanoseconds: the mean over ranks, a collective.
    pub waiting_ns: f64,
    /// What it took after that, nanoseconds: the mean over ranks, a collective.
    pub transfer_ns: f64,
    /// Bytes a collective, where all say it.
    pub bytes: Option<f64>,
    /// Bytes a second on the bus [nccl-tests], of transfers of 8 MiB and more.
    pub bus_bytes_per_s: Option<f64>,
    /// What the link carries in one direction, by datasheet.
    pub link_bytes_per_s: Option<f64>,
}

/// Several ranks as one.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct RankAnalysis {
    /// How many the program has.
    pub world_size: usize,
    /// Those without a run.
    pub missing: Vec<u32>,
    /// Their clocks.
    pub clocks: Clocks,
    /// Each rank.
    pub ranks: Vec<RankFacts>,
    /// Measured steps that all ranks have.
    pub steps: usize,
    /// Whether collectives are kernels of the devices, or intervals of the hosts.
    pub on_device: bool,
    /// Each kind of collective.
    pub collectives: Vec<CollectiveSum>,
    /// Steps in which ranks have different numbers of collectives: their collectives are in no figure.
    pub unmatched_steps: usize,
    /// What they lose to each other, the largest first.
    pub findings: Vec<RankFinding>,
    /// What is wrong with the files.
    pub damage: Vec<Finding>,
}

/// Reads the ranks' runs, and says what they do with each other.
pub fn analyse(ranks: &Ranks) -> RankAnalysis {
    let readings: Vec<Reading> = ranks.runs().iter().map(Reading::of).collect();
    let manifests = ranks.manifests();
    // Kernels say it better than intervals, which may end before the device does; but only if all ranks recorded some.
    let on_device = readings.iter().all(|reading| !reading.on_device.is_empty());
    let seen = |reading: &'_ Reading| if on_device { reading.on_device.clone() } else { reading.on_host.clone() };
    let seen: Vec<Vec<Seen>> = readings.iter().map(seen).collect();
    let (matched, unmatched_steps) = matched(&seen);
    let hosts: Vec<&str> = manifests.iter().map(|manifest| manifest.host.as_str()).collect();
    let clocks = Clocks::of(&hosts, &matched);
    let steps: Vec<u64> = readings[0]
        .steps
        .keys()
        .filter(|step| readings.iter().all(|reading| reading.steps.contains_key(step)))
        .copied()
        .collect();
    let split: Vec<Split> = matched.iter().map(|all| Split::of(all, &clocks)).collect();
    // Of steps outside the windows in which kernels were recorded, it is not known who waited.
    let known: BTreeSet<u64> = split.iter().filter_map(|split| split.step).collect();
    let steps: Vec<u64> = steps.into_iter().filter(|step| !on_device || known.contains(step)).collect();
    let facts = facts(ranks, &readings, &steps, &split);
    let link = manifests.iter().map(|manifest| nvlink(&device_of(manifest))).collect::<Option<Vec<f64>>>();
    let link = link.filter(|_| on_device && clocks.by == super::AlignedBy::OneMachine);
    let link = link.and_then(|links| links.into_iter().reduce(f64::min));
    let measured: Vec<&Split> = split.iter().filter(|split| split.step.is_some_and(|at| steps.contains(&at))).collect();
    let collectives = sums(&measured, readings.len(), link);
    let mut analysis = RankAnalysis {
        world_size: ranks.world_size(),
        missing: ranks.missing(),
        clocks,
        ranks: facts,
        steps: steps.len(),
        on_device,
        collectives,
        unmatched_steps,
        findings: Vec::new(),
        damage: readings.iter().flat_map(|reading| reading.findings.clone()).collect(),
    };
    analysis.findings = findings(&analysis, &own_times(&readings, &steps, &split));
    analysis
}

/// Collectives that are the same on all ranks: the n-th of a kind in a step. And how many steps have no such order.
fn matched(seen: &[Vec<Seen>]) -> (Vec<Vec<&Seen>>, usize) {
    type Places<'a> = BTreeMap<(Option<u64>, CollectiveKind), Vec<&'a Seen>>;
    let places: Vec<Places<'_>> = seen
        .iter()
        .map(|all| {
            let mut places = Places::new();
            for one in all.iter().filter(|one| one.kind.holds_all()) {
                places.entry((one.step, one.kind)).or_default().push(one);
            }
            places
        })
        .collect();
    let (mut matched, mut unmatched) = (Vec::new(), 0);
    for (place, first) in &places[0] {
        let all: Option<Vec<_>> = places.iter().map(|places| places.get(place)).collect();
        match all {
            Some(all) if all.iter().all(|others| others.len() == first.len()) => {
                matched.extend((0..first.len()).map(|at| all.iter().map(|others| others[at]).collect::<Vec<&Seen>>()));
            }
            // A rank whose window of kernels lay elsewhere does not know the step.
            None => {}
            Some(_) => unmatched += 1,
        }
    }
    matched.sort_by_key(|all| all[0].start);
    (matched, unmatched)
}

/// A collective, split for each rank.
struct Split {
    kind: CollectiveKind,
    step: Option<u64>,
    bytes: Option<u64>,
    waiting: Vec<i64>,
    transfer: Vec<i64>,
    exposed: Vec<i64>,
}

impl Split {
    fn of(all: &[&Seen], clocks: &Clocks) -> Self {
        let last = all.iter().zip(&clocks.ahead_ns).map(|(seen, ahead)| seen.start - ahead).max().unwrap_or(0);
        let waiting: Vec<i64> = all
            .iter()
            .zip(&clocks.ahead_ns)
            .map(|(seen, ahead)| (last - (seen.start - ahead)).clamp(0, seen.end - seen.start))
            .collect();
        let bytes = all.iter().map(|seen| seen.bytes).collect::<Option<Vec<u64>>>();
        Self {
            kind: all[0].kind,
            step: all[0].step,
            bytes: bytes.and_then(|bytes| bytes.into_iter().max()),
            transfer: all.iter().zip(&waiting).map(|(seen, waiting)| seen.end - seen.start - waiting).collect(),
            exposed: all.iter().map(|seen| seen.end - seen.start - seen.hidden).collect(),
            waiting,
        }
    }
}

/// For each step, each rank's time without waiting for others.
fn own_times(readings: &[Reading], steps: &[u64], split: &[Split]) -> Vec<Vec<f64>> {
    let mut waiting: BTreeMap<u64, Vec<i64>> = BTreeMap::new();
    for one in split {
        if let Some(step) = one.step {
            let of = waiting.entry(step).or_insert_with(|| vec![0; readings.len()]);
            of.iter_mut().zip(&one.waiting).for_each(|(sum, waited)| *sum += waited);
        }
    }
    let own = |step: &u64| {
        let waited = waiting.get(step);
        let of_rank = |(rank, reading): (usize, &Reading)| {
            (reading.steps[step].ns - waited.map_or(0, |waited| waited[rank])).max(0) as f64
        };
        readings.iter().enumerate().map(of_rank).collect()
    };
    steps.iter().map(own).collect()
}

fn device_of(manifest: &candlescope_schema::run::RunManifest) -> String {
    let gpu = manifest.gpus().first().and_then(|gpu| gpu["name"].as_str()).map(str::to_string);
    gpu.unwrap_or_else(|| "CPU".to_string())
}

fn facts(ranks: &Ranks, readings: &[Reading], steps: &[u64], split: &[Split]) -> Vec<RankFacts> {
    let own = own_times(readings, steps, split);
    let in_steps = || split.iter().filter(|split| split.step.is_some_and(|at| steps.contains(&at)));
    let count = steps.len().max(1) as f64;
    let fact = |(rank, manifest): (usize, &candlescope_schema::run::RunManifest)| {
        let sum = |of: fn(&Split) -> &Vec<i64>| in_steps().map(|split| of(split)[rank] as f64).sum::<f64>() / count;
        RankFacts {
            rank: manifest.rank,
            host: manifest.host.clone(),
            device: device_of(manifest),
            steps: steps.len(),
            step_ns: median(steps.iter().map(|step| readings[rank].steps[step].ns as f64).collect()),
            own_ns: median(own.iter().map(|all| all[rank]).collect()),
            longest: own.iter().filter(|all| longest(all) == Some(rank)).count(),
            waiting_ns: sum(|split| &split.waiting),
            transfer_ns: sum(|split| &split.transfer),
            exposed_ns: sum(|split| &split.exposed),
        }
    };
    ranks.manifests().into_iter().enumerate().map(fact).collect()
}

/// The rank with the longest of these times.
fn longest(all: &[f64]) -> Option<usize> {
    all.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1)).map(|(rank, _)| rank)
}

fn sums(split: &[&Split], ranks: usize, link: Option<f64>) -> Vec<CollectiveSum> {
    let mut by_kind: BTreeMap<CollectiveKind, Vec<&Split>> = BTreeMap::new();
    split.iter().for_each(|one| by_kind.entry(one.kind).or_default().push(one));
    let sum = |(kind, all): (CollectiveKind, Vec<&Split>)| {
        let mean = |of: fn(&Split) -> &Vec<i64>| {
            all.iter().flat_map(|one| of(one)).sum::<i64>() as f64 / (all.len() * ranks).max(1) as f64
        };
        let bytes = all.iter().map(|one| one.bytes).collect::<Option<Vec<u64>>>();
        // The last rank to come does nothing but transfer.
        let large = all.iter().filter(|one| one.bytes.is_some_and(|bytes| bytes >= LARGE));
        let (moved, took) = large.fold((0.0, 0.0), |(moved, took), one| {
            let shortest = one.transfer.iter().copied().min().unwrap_or(0);
            (moved + one.bytes.unwrap_or(0) as f64, took + shortest as f64 / 1e9)
        });
        let bus = kind.bus_factor(ranks).filter(|_| took > 0.0).map(|factor| moved * factor / took);
        CollectiveSum {
            kind,
            count: all.len(),
            waiting_ns: mean(|one| &one.waiting),
            transfer_ns: mean(|one| &one.transfer),
            bytes: bytes.map(|bytes| bytes.iter().sum::<u64>() as f64 / bytes.len().max(1) as f64),
            bus_bytes_per_s: bus,
            link_bytes_per_s: link,
        }
    };
    by_kind.into_iter().map(sum).collect()
}

fn findings(analysis: &RankAnalysis, own: &[Vec<f64>]) -> Vec<RankFinding> {
    let mut found = Vec::new();
    if own.len() < LEAST_STEPS {
        return found;
    }
    let step = mean(analysis.ranks.iter().map(|rank| rank.step_ns));
    // What a step would take if every rank took the mean, or the median of the others.
    let lost = |of: fn(&[f64]) -> f64| mean(own.iter().map(|all| all.iter().copied().fold(0.0, f64::max) - of(all)));
    let balance = lost(|all| mean(all.iter().copied())) / step;
    let slowest = analysis.ranks.iter().max_by_key(|rank| rank.longest);
    match slowest.filter(|rank| rank.longest as f64 > MOST_STEPS * own.len() as f64) {
        Some(slow) => {
            let at = analysis.ranks.iter().position(|rank| rank.rank == slow.rank).unwrap_or(0);
            let behind = |all: &Vec<f64>| {
                let others = all.iter().enumerate().filter(|(rank, _)| *rank != at).map(|(_, own)| *own);
                all[at] - others.fold(0.0, f64::max)
            };
            let gain = mean(own.iter().map(behind)) / step;
            if gain > WORTH {
                let others = median(analysis.ranks.iter().filter(|r| r.rank != slow.rank).map(|r| r.own_ns).collect());
                found.push(RankFinding {
                    code: RankCode::StragglerRank,
                    text: format!(
                        "Rank {} takes {} of its own a step, the others {} (medians): it was the slowest in {} of {} steps, and \
                         the others wait for it.",
                        slow.rank,
                        duration(slow.own_ns),
                        duration(others),
                        slow.longest,
                        own.len()
                    ),
                    remedy: format!(
                        "Compare rank {} with another (`candlescope compare`): its device, its clocks and its share of the work",
                        slow.rank
                    ),
                    gain: Some(gain),
                    rank: Some(slow.rank),
                });
            }
        }
        None if balance > WORTH => found.push(RankFinding {
            code: RankCode::RankImbalance,
            text: format!(
                "The slowest rank of a step takes {} of a step longer than the mean, and it is not always the same one.",
                percent(balance)
            ),
            remedy: "Give ranks equal shares of each step; look for what else runs on their machines".to_string(),
            gain: Some(balance),
            rank: None,
        }),
        None => {}
    }
    // Transfer that nothing hides: of what is exposed, what is not waiting.
    let exposed = mean(analysis.ranks.iter().map(|rank| (rank.exposed_ns - rank.waiting_ns).max(0.0))) / step;
    if exposed > WORTH {
        found.push(RankFinding {
            code: RankCode::ExposedCommunication,
            text: format!(
                "Transfers of collectives take {} of a step, in which {}.",
                percent(exposed),
                if analysis.on_device { "the device computes nothing" } else { "the host does nothing else" }
            ),
            remedy: "Overlap them with computing of another part, send fewer bytes (bf16, a part of the layers in parallel), or \
                     larger pieces"
                .to_string(),
            gain: Some(exposed),
            rank: None,
        });
    }
    for of in &analysis.collectives {
        if let (Some(bus), Some(link)) = (of.bus_bytes_per_s, of.link_bytes_per_s)
            && bus < SLOW_LINK * link
        {
            found.push(RankFinding {
                code: RankCode::BusBandwidth,
                text: format!(
                    "`{}` of 8 MiB and more reaches {:.0} GB/s on the bus (measured); the link carries {:.0} GB/s in one direction \
                     (datasheet).",
                    of.kind.name(),
                    bus / 1e9,
                    link / 1e9
                ),
                remedy: "Look at NCCL_DEBUG=INFO for the transport that was chosen, and at `nvidia-smi topo -m`".to_string(),
                gain: None,
                rank: None,
            });
        }
    }
    found.sort_by(|a, b| b.gain.unwrap_or(0.0).total_cmp(&a.gain.unwrap_or(0.0)));
    found
}

fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (sum, count) = values.fold((0.0, 0.0), |(sum, count), value| (sum + value, count + 1.0));
    if count > 0.0 { sum / count } else { 0.0 }
}

fn median(mut values: Vec<f64>) -> f64 {
    if values.is_empty() {
        return 0.0;
    }
    values.sort_by(f64::total_cmp);
    f64::midpoint(values[(values.len() - 1) / 2], values[values.len() / 2])
}
