//! How many kernels the replays of a graph have: a loss that the recorder does not tell shows in one that has fewer than
//! nearly all others.
//!
//! What a graph *should* run is not known: CUPTI tells of more nodes than run, and not which of them are conditional. A
//! graph may have parts that run on a condition: then the same nodes are left out again and again, while a loss leaves
//! out others each time. So a replay is taken for one that lacks something while what it ran is rare, and once the same
//! nodes alone have run too often for that, what was counted of them is taken back. Losses of a small graph, so many
//! that each of its nodes was lost as often, cannot be told from conditions.

use crate::splitmix;
use rustc_hash::FxHashMap;

/// Replays that a graph has had before one is judged.
const FEWEST: u32 = 8;

/// The usual number is that of at least nine replays in ten.
const USUAL_IN_TEN: u64 = 9;

/// What one replay in so many ran is rare, and in any case the first so many; what came more often is the graph's.
const RARE_IN: u32 = 50;
const RARE: std::ops::RangeInclusive<u32> = 2..=8;

/// Ways of running that are told apart: a condition in each layer makes as many. Those that came least often make room.
const MOST_WAYS: usize = 64;

/// Graphs that are known. Beyond that all are forgotten.
const MOST_GRAPHS: usize = 4096;

/// What a replay ran, as far as it was recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct ReplayRecords {
    /// Kernels, copies and memsets.
    records: u32,
    /// Which of the graph's nodes they are, as a sum over the hashes of their numbers: without an order.
    nodes: u64,
}

impl ReplayRecords {
    /// Adds one, of this node if that is known.
    pub(crate) fn add(&mut self, node: Option<u64>) {
        self.records += 1;
        self.nodes = self.nodes.wrapping_add(node.map_or(0, splitmix::next));
    }
}

/// What is missing.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct MissingRecords {
    /// Records that this replay has fewer than nearly all before it; 0 if nothing is missing, as far as that can be told.
    pub(crate) here: u32,
    /// What was told of replays before, by their intervals, and is no loss by this one.
    pub(crate) not_there: Vec<(u64, u32)>,
}

/// A way in which replays of a graph ran.
#[derive(Debug)]
struct ReplayWay {
    ran: ReplayRecords,
    /// How many did.
    replays: u32,
    /// What was told to be missing of these, by their intervals.
    told: Vec<(u64, u32)>,
}

/// The replays of one graph.
#[derive(Debug, Default)]
struct Sizes {
    replays: u32,
    ways: Vec<ReplayWay>,
}

/// The replays of all graphs.
#[derive(Debug, Default)]
pub(crate) struct ReplaySizes {
    graphs: FxHashMap<u32, Sizes>,
}

impl ReplaySizes {
    /// Records that a replay which ran this has fewer than nearly all before it. Of these up to `told` are known to be
    /// lost, so it is no example for others: if these alone make it one of the ways in which the graph runs, no more are
    /// missing.
    pub(crate) fn missing_of_lossy(&self, graph: u32, ran: ReplayRecords, told: u64) -> u32 {
        let Some(sizes) = self.graphs.get(&graph) else { return 0 };
        let Some(usual) = sizes.usual() else { return 0 };
        let most = u64::from(ran.records).saturating_add(told);
        let is_reached = |records: &u32| *records >= ran.records && u64::from(*records) <= most;
        // What ran so already, whole: a condition that has not come often.
        if sizes.ways.iter().any(|way| way.ran == ran) {
            return 0;
        }
        let ways = sizes.ways.iter().filter(|way| way.replays > sizes.rare()).map(|way| way.ran.records);
        ways.filter(is_reached).min().unwrap_or(usual).saturating_sub(ran.records)
    }

    /// Notes a replay, launched by the interval `seq`, that ran this, and of which no record is known to be lost.
    pub(crate) fn missing(&mut self, graph: u32, ran: ReplayRecords, seq: u64) -> MissingRecords {
        if self.graphs.len() >= MOST_GRAPHS && !self.graphs.contains_key(&graph) {
            self.graphs.clear();
        }
        let sizes = self.graphs.entry(graph).or_default();
        let usual = sizes.usual();
        sizes.replays = sizes.replays.saturating_add(1);
        let rare = sizes.rare();
        let here = usual.map_or(0, |usual| usual.saturating_sub(ran.records));
        let way = sizes.way(ran);
        way.replays = way.replays.saturating_add(1);
        if way.replays > rare {
            return MissingRecords { here: 0, not_there: std::mem::take(&mut way.told) };
        }
        if here > 0 {
            way.told.push((seq, here));
        }
        MissingRecords { here, not_there: Vec::new() }
    }
}

impl Sizes {
    /// What so many replays ran at most is rare.
    fn rare(&self) -> u32 {
        (self.replays / RARE_IN).clamp(*RARE.start(), *RARE.end())
    }

    /// The number of records that nearly all replays had.
    fn usual(&self) -> Option<u32> {
        // Whatever most replays had outweighs all others together (Boyer and Moore's majority vote).
        let (mut records, mut ahead) = (0, 0);
        for way in &self.ways {
            let replays = u64::from(way.replays);
            match way.ran.records == records {
                true => ahead += replays,
                false if ahead >= replays => ahead -= replays,
                false => (records, ahead) = (way.ran.records, replays - ahead),
            }
        }
        let had = self.ways.iter().filter(|way| way.ran.records == records);
        let replays: u64 = had.map(|way| u64::from(way.replays)).sum();
        let is_usual = replays * 10 >= u64::from(self.replays) * USUAL_IN_TEN;
        (self.replays >= FEWEST && is_usual).then_some(records)
    }

    /// The way in which a replay ran this.
    fn way(&mut self, ran: ReplayRecords) -> &mut ReplayWay {
        let at = match self.ways.iter().position(|way| way.ran == ran) {
            Some(at) => at,
            None => {
                if self.ways.len() >= MOST_WAYS {
                    let least = self.ways.iter().map(|way| way.replays).min().unwrap_or(0);
                    self.ways.retain(|way| way.replays > least);
                }
                self.ways.push(ReplayWay { ran, replays: 0, told: Vec::new() });
                self.ways.len() - 1
            }
        };
        &mut self.ways[at]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A replay of a graph of so many nodes, without these.
    fn without(nodes: u64, left_out: &[u64]) -> ReplayRecords {
        let mut ran = ReplayRecords::default();
        (0..nodes).filter(|node| !left_out.contains(node)).for_each(|node| ran.add(Some(node)));
        ran
    }

    /// The first so many nodes.
    fn first(nodes: u64) -> ReplayRecords {
        without(nodes, &[])
    }

    /// What is missing in each of these replays of one graph, and what in all, without what was taken back.
    fn missing(ran: impl IntoIterator<Item = ReplayRecords>) -> (Vec<u32>, u32) {
        let (mut sizes, mut told, mut all) = (ReplaySizes::default(), Vec::new(), 0);
        for (seq, ran) in (0..).zip(ran) {
            let MissingRecords { here, not_there } = sizes.missing(3, ran, seq);
            told.push(here);
            all += here;
            for (seq, records) in not_there {
                assert_eq!(told[seq as usize], records, "it was told of this replay");
                all -= records;
            }
        }
        (told, all)
    }

    fn lacking(told: &[u32]) -> usize {
        told.iter().filter(|n| **n > 0).count()
    }

    #[test]
    fn one_replay_with_fewer_records_than_the_others_lacks_them() {
        let mut ran = vec![first(941); 20];
        ran[12] = without(941, &[700]);
        ran[17] = first(899);
        let (found, all) = missing(ran);
        assert_eq!((found[12], found[17], all), (1, 42, 43));
        assert_eq!(lacking(&found), 2);
    }

    #[test]
    fn what_comes_again_is_a_condition_and_no_loss() {
        // One replay in ten takes the shorter way.
        let (found, all) = missing((0..200).map(|n| first(if n % 10 == 9 { 700 } else { 732 })));
        assert_eq!((lacking(&found), all), (2, 0), "the first two might have been losses, and were none");
        // In turns there is no usual number, nor where each has another one.
        assert_eq!(missing((0..100).map(|n| first(700 + n % 2))), (vec![0; 100], 0));
        assert_eq!(missing((0..100).map(|n| first(1_000 - n))), (vec![0; 100], 0));
    }

    #[test]
    fn two_branches_that_are_taken_seldom_are_no_losses_either() {
        let way = |n: u64| match n % 100 {
            40 => without(732, &[7, 8, 9]),
            90 => without(732, &[20, 21, 22]),
            _ => first(732),
        };
        let (found, all) = missing((0..2_000).map(way));
        assert!(lacking(&found) > 0 && all == 0, "{all} of {found:?}");
    }

    #[test]
    fn a_branch_in_each_of_many_layers_is_no_loss_either() {
        // Thirty layers, each of which is left out once in four hundred replays.
        let way = |n: u64| if n % 400 < 300 && n % 10 == 9 { without(732, &[n % 400]) } else { first(732) };
        let (found, all) = missing((0..8_000).map(way));
        assert!(lacking(&found) > 0 && all == 0, "{all} are left of {}", lacking(&found));
    }

    #[test]
    fn losses_of_any_number_are_told_over_many_replays_and_nodes_that_go_on_being_left_out_are_none() {
        let numbers = (0..10_000).map(|n| first(if n % 100 == 99 { 631 + n / 100 } else { 732 }));
        let (found, all) = missing(numbers);
        assert_eq!((lacking(&found), all), (100, (631..=730).map(|records| 732 - records).sum::<u32>()));
        // As many each time, and others.
        let one = |n: u64, node: u64| if n % 100 == 99 { without(732, &[node]) } else { first(732) };
        let (found, all) = missing((0..10_000).map(|n| one(n, n / 100)));
        assert_eq!((lacking(&found), all), (100, 100));
        // Two each time, whose numbers have the same sum.
        let two = |n: u64| if n % 100 == 99 { without(732, &[n / 100, 731 - n / 100]) } else { first(732) };
        assert_eq!(missing((0..10_000).map(two)).1, 200);
        let (found, all) = missing((0..10_000).map(|n| one(n, 5)));
        assert_eq!((lacking(&found), all), (8, 0));
    }

    #[test]
    fn nothing_is_judged_before_there_are_replays_to_judge_by_and_more_is_no_loss() {
        assert_eq!(missing([732, 732, 732, 700, 732, 732, 732, 732].map(first)), (vec![0; 8], 0));
        assert_eq!(missing([vec![first(732); 10], vec![first(733)]].concat()), (vec![0; 11], 0));
        let mut sizes = ReplaySizes::default();
        (0..10).for_each(|seq| assert_eq!(sizes.missing(1, first(50), seq), MissingRecords::default()));
        assert_eq!(sizes.missing(2, first(40), 10).here, 0, "another graph is another one");
        assert_eq!(sizes.missing(1, first(40), 11).here, 10);
    }

    #[test]
    fn what_is_told_of_a_replay_is_held_against_all_ways_in_which_its_graph_runs_and_makes_none() {
        let mut sizes = ReplaySizes::default();
        // One replay in twenty takes a way that is 30 records shorter.
        for seq in 0..400 {
            sizes.missing(1, first(if seq % 20 == 19 { 702 } else { 732 }), seq);
        }
        let lacks = |records, told| sizes.missing_of_lossy(1, first(records), told);
        assert_eq!((lacks(732, 2), lacks(730, 2), lacks(600, 2)), (0, 2, 132));
        assert_eq!((lacks(702, 2), lacks(701, 2), lacks(699, 2)), (0, 1, 33), "two more would be the shorter way");
        assert_eq!(sizes.missing_of_lossy(2, first(600), 2), 0, "nothing is known of another graph");
    }

    #[test]
    fn where_nodes_are_not_known_their_number_says_what_comes_again() {
        let ran = |records: u32| {
            let mut ran = ReplayRecords::default();
            (0..records).for_each(|_| ran.add(None));
            ran
        };
        let (found, all) = missing((0..200).map(|n| ran(if n % 20 == 19 { 70 } else { 73 })));
        assert!(lacking(&found) > 0 && all == 0, "{all} of {found:?}");
    }
}
