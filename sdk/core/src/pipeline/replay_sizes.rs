//! How many kernels the replays of a graph have: a loss that the recorder does not tell shows in one that has fewer than
//! nearly all others.
//!
//! What a graph *should* run is not known: CUPTI tells of more nodes than run. And a graph may have parts that run on a
//! condition; a number of kernels that comes again is no loss.

use rustc_hash::FxHashMap;

/// Replays that a graph has had before one is judged.
const FEWEST: u32 = 8;

/// The usual number is that of at least nine replays in ten.
const USUAL_IN_TEN: u64 = 9;

/// A number is rare that one replay in so many had, and in any case the first so many; what came more often is the graph's.
const RARE_IN: u32 = 50;
const RARE: std::ops::RangeInclusive<u32> = 2..=8;

/// Numbers that are told apart. Those that came once make room.
const MOST_SIZES: usize = 16;

/// Graphs that are known. Beyond that all are forgotten.
const MOST_GRAPHS: usize = 4096;

/// The replays of one graph.
#[derive(Debug, Default)]
struct Sizes {
    replays: u32,
    /// Numbers of kernels, copies and memsets, and how many replays had each.
    had: Vec<(u32, u32)>,
}

/// The replays of all graphs.
#[derive(Debug, Default)]
pub(crate) struct ReplaySizes {
    graphs: FxHashMap<u32, Sizes>,
}

impl ReplaySizes {
    /// Notes a replay with so many records, of which none is known to be lost. The answer is how many it has fewer than nearly
    /// all before it, if that is rare; 0 if nothing is missing, as far as that can be told.
    pub(crate) fn missing(&mut self, graph: u32, records: u32) -> u32 {
        if self.graphs.len() >= MOST_GRAPHS && !self.graphs.contains_key(&graph) {
            self.graphs.clear();
        }
        let sizes = self.graphs.entry(graph).or_default();
        let usual = sizes.usual();
        sizes.replays = sizes.replays.saturating_add(1);
        let times = match sizes.had.iter_mut().find(|(size, _)| *size == records) {
            Some((_, times)) => {
                *times = times.saturating_add(1);
                *times
            }
            None => {
                if sizes.had.len() >= MOST_SIZES {
                    sizes.had.retain(|(_, times)| *times > 1);
                }
                if sizes.had.len() < MOST_SIZES {
                    sizes.had.push((records, 1));
                }
                1
            }
        };
        let is_rare = times <= (sizes.replays / RARE_IN).clamp(*RARE.start(), *RARE.end());
        usual.filter(|_| is_rare).map_or(0, |usual| usual.saturating_sub(records))
    }
}

impl Sizes {
    /// The number that nearly all replays had.
    fn usual(&self) -> Option<u32> {
        let (size, times) = *self.had.iter().max_by_key(|(_, times)| *times)?;
        let is_usual = u64::from(times) * 10 >= u64::from(self.replays) * USUAL_IN_TEN;
        (self.replays >= FEWEST && is_usual).then_some(size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is missing in each of these replays of one graph.
    fn missing(records: impl IntoIterator<Item = u32>) -> Vec<u32> {
        let mut sizes = ReplaySizes::default();
        records.into_iter().map(|records| sizes.missing(3, records)).collect()
    }

    #[test]
    fn one_replay_with_fewer_records_than_the_others_lacks_them() {
        let mut records = vec![941; 20];
        records[12] = 940;
        records[17] = 899;
        let found = missing(records);
        assert_eq!((found[12], found[17]), (1, 42));
        assert_eq!(found.iter().filter(|n| **n > 0).count(), 2);
    }

    #[test]
    fn what_comes_again_is_a_condition_and_no_loss() {
        // One replay in ten takes the shorter way.
        let found = missing((0..200).map(|n| if n % 10 == 9 { 700 } else { 732 }));
        assert_eq!(found.iter().filter(|n| **n > 0).count(), 2, "the first two might have been losses");
        // In turns there is no usual number, nor where each has another one.
        assert_eq!(missing((0..100).map(|n| 700 + n % 2)), vec![0; 100]);
        assert_eq!(missing((0..100).map(|n| 1_000 - n)), vec![0; 100]);
    }

    #[test]
    fn losses_of_any_number_are_told_over_many_replays_and_one_number_that_goes_on_coming_is_not() {
        let each_another = missing((0..10_000).map(|n| if n % 100 == 99 { 631 + n / 100 } else { 732 }));
        assert_eq!(each_another.iter().filter(|n| **n > 0).count(), 100);
        let again = missing((0..10_000).map(|n| if n % 100 == 99 { 731 } else { 732 }));
        assert_eq!(again.iter().filter(|n| **n == 1).count(), 8);
    }

    #[test]
    fn nothing_is_judged_before_there_are_replays_to_judge_by_and_more_is_no_loss() {
        assert_eq!(missing([732, 732, 732, 700, 732, 732, 732, 732]), vec![0; 8]);
        assert_eq!(missing([vec![732; 10], vec![733]].concat()), vec![0; 11]);
        let mut sizes = ReplaySizes::default();
        (0..10).for_each(|_| assert_eq!(sizes.missing(1, 50), 0));
        assert_eq!(sizes.missing(2, 40), 0, "another graph is another one");
        assert_eq!(sizes.missing(1, 40), 10);
    }
}
