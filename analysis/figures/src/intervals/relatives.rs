//! The intervals in memory, which may still get a child or a parent, and how they nest.

use super::super::int_map::IntMap;
use super::held::{OpenInterval, WaitingChildren};

/// Most requests inside requests that are followed. Real ones nest a few deep; in a crafted run they may form a cycle.
pub(super) const MOST_REQUESTS_DEEP: usize = 64;

/// The nearest interval around another one that is not a request; its time includes the other's.
///
/// Requests stand above steps and have no self time, but a server has a step around them (its handler, `main`), and the
/// steps in a request are part of that.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Ancestor {
    Nothing,
    Held(u64),
    NotYetSeen(u64),
}

/// Intervals that may still get children, by number, and children that wait for their parent.
#[derive(Debug)]
pub(super) struct Relatives {
    held: IntMap<u64, OpenInterval>,
    waiting: IntMap<u64, WaitingChildren>,
    generation: u32,
    /// Earliest start of what came in this generation.
    earliest_start: i64,
    /// How many are held before some are dropped.
    hold_most: usize,
    /// The upper limit of `hold_most`.
    at_most: usize,
}

impl Relatives {
    pub(super) fn holding(hold_most: usize) -> Self {
        Self {
            held: IntMap::default(),
            waiting: IntMap::default(),
            generation: 0,
            earliest_start: i64::MAX,
            hold_most,
            at_most: usize::MAX,
        }
    }

    pub(super) fn at_most(&mut self, most: usize) {
        self.at_most = most.max(1);
        self.hold_most = self.hold_most.min(self.at_most);
    }

    /// What is around an interval that was entered in `parent_seq`.
    pub(super) fn around(&self, parent_seq: Option<u64>) -> Ancestor {
        let mut parent_seq = parent_seq;
        for _ in 0..MOST_REQUESTS_DEEP {
            let Some(seq) = parent_seq else { return Ancestor::Nothing };
            match self.held.get(&seq) {
                Some(parent) if parent.above_steps && !parent.is_warmup => parent_seq = parent.parent_seq,
                Some(_) => return Ancestor::Held(seq),
                None => return Ancestor::NotYetSeen(seq),
            }
        }
        Ancestor::Nothing
    }

    /// The interval around, if it is known and is warm-up.
    pub(super) fn warm_around(&self, around: Ancestor) -> Option<OpenInterval> {
        match around {
            Ancestor::Held(seq) => self.held.get(&seq).filter(|held| held.is_warmup).copied(),
            _ => None,
        }
    }

    /// The interval with this number, if it is in a figure.
    pub(super) fn counted(&mut self, seq: u64) -> Option<&mut OpenInterval> {
        self.held.get_mut(&seq).filter(|held| !held.is_warmup)
    }

    /// Children that wait for `seq`; `None` if too many parents are still to come for these to wait as well.
    pub(super) fn waiting_for(&mut self, seq: u64) -> Option<&mut WaitingChildren> {
        let is_one_too_many = self.waiting.len() >= self.at_most && !self.waiting.contains_key(&seq);
        (!is_one_too_many).then(|| self.waiting.entry(seq).or_default())
    }

    /// Counts a child that waits for `seq`, if there is one.
    pub(super) fn count_waiting(&mut self, seq: u64) {
        if let Some(waiting) = self.waiting.get_mut(&seq) {
            waiting.count += 1;
        }
    }

    /// The children of `seq` that came before it.
    pub(super) fn take_waiting(&mut self, seq: u64) -> Option<WaitingChildren> {
        self.waiting.remove(&seq)
    }

    /// Keeps an interval that began at `start_ns`. Returns true if it is time to [drop](Self::let_go) some.
    pub(super) fn hold(&mut self, seq: u64, start_ns: i64, held: OpenInterval) -> bool {
        self.earliest_start = self.earliest_start.min(start_ns);
        self.held.insert(seq, OpenInterval { generation: self.generation, ..held });
        self.held.len() >= self.hold_most
    }

    /// Removes intervals that ended before anything of the last generation began, which go to `gone`: no child of theirs
    /// can come any more. Returns how many were removed although a child could come, because there were too many.
    pub(super) fn let_go(&mut self, mut gone: impl FnMut(OpenInterval)) -> u64 {
        let (generation, earliest) = (self.generation, self.earliest_start);
        let is_over = |_: &u64, held: &mut OpenInterval| held.generation < generation && held.end_ns < earliest;
        self.held.extract_if(is_over).for_each(|(_, held)| gone(held));
        self.generation += 1;
        self.earliest_start = i64::MAX;
        // If too few can be removed, looking again at every row would cost more than the memory, so more are held.
        // Usually the half that came last stays, with a few that are still open.
        if self.held.len() > self.hold_most / 4 * 3 {
            self.hold_most = self.hold_most.saturating_mul(2).min(self.at_most);
        }
        let early = if self.held.len() >= self.at_most { self.held.len() } else { 0 };
        if early > 0 {
            self.held.drain().for_each(|(_, held)| gone(held));
        }
        early as u64
    }

    /// Everything that is left, at the end.
    pub(super) fn take_all(&mut self) -> (Vec<OpenInterval>, Vec<WaitingChildren>) {
        (self.held.drain().map(|(_, held)| held).collect(), self.waiting.drain().map(|(_, w)| w).collect())
    }

    #[cfg(test)]
    pub(super) fn held(&self) -> usize {
        self.held.len()
    }
}

#[cfg(test)]
mod tests {
    use super::super::held::InsideSums;
    use super::*;

    fn held(parent_seq: Option<u64>, end_ns: i64) -> OpenInterval {
        OpenInterval {
            node: 0,
            parent_seq,
            dur_ns: 1,
            end_ns,
            inside: InsideSums::default(),
            warm: InsideSums::default(),
            above_steps: false,
            is_warmup: false,
            is_replayed: false,
            gpu: None,
            kernels_recorded: false,
            group: 0,
            usual: None,
            generation: 0,
        }
    }

    fn request(parent_seq: Option<u64>) -> OpenInterval {
        OpenInterval { above_steps: true, ..held(parent_seq, i64::MAX) }
    }

    fn let_go(relatives: &mut Relatives) -> (Vec<OpenInterval>, u64) {
        let mut gone = Vec::new();
        let early = relatives.let_go(|held| gone.push(held));
        (gone, early)
    }

    #[test]
    fn requests_are_looked_through() {
        let mut relatives = Relatives::holding(100);
        relatives.hold(1, 0, held(None, 10));
        relatives.hold(2, 0, request(Some(1)));
        relatives.hold(3, 0, request(Some(2)));
        relatives.hold(4, 0, request(Some(9)));
        assert_eq!(relatives.around(None), Ancestor::Nothing);
        assert_eq!(relatives.around(Some(3)), Ancestor::Held(1));
        assert_eq!(relatives.around(Some(4)), Ancestor::NotYetSeen(9));
        // A crafted run: two requests, each inside the other.
        relatives.hold(5, 0, request(Some(6)));
        relatives.hold(6, 0, request(Some(5)));
        assert_eq!(relatives.around(Some(5)), Ancestor::Nothing);
        // A warm-up request is in no figure, and it accounts for what is inside it.
        relatives.hold(7, 0, OpenInterval { is_warmup: true, ..request(Some(1)) });
        assert_eq!(relatives.around(Some(7)), Ancestor::Held(7));
        assert!(
            relatives.warm_around(Ancestor::Held(7)).is_some() && relatives.warm_around(Ancestor::Held(1)).is_none()
        );
        assert!(relatives.counted(7).is_none() && relatives.counted(1).is_some());
    }

    #[test]
    fn what_can_have_no_child_any_more_is_let_go() {
        let mut relatives = Relatives::holding(4);
        assert!(!relatives.hold(1, 0, held(None, 10)) && !relatives.hold(2, 0, held(None, 1_000)));
        assert_eq!(let_go(&mut relatives).0.len(), 0, "those of this generation may be followed by a child");
        relatives.hold(3, 20, held(None, 30));
        let (gone, early) = let_go(&mut relatives);
        assert_eq!((gone.len(), gone[0].end_ns, early), (1, 10, 0), "the other one is still open");
    }

    #[test]
    fn no_more_are_held_than_may_be() {
        let mut relatives = Relatives::holding(100);
        relatives.at_most(3);
        assert!(!relatives.hold(1, 0, held(None, 10)) && !relatives.hold(2, 0, held(None, 10)));
        assert!(relatives.hold(3, 0, held(None, 10)));
        let (gone, early) = let_go(&mut relatives);
        assert_eq!((gone.len(), early, relatives.held()), (3, 3, 0));
        for seq in 0..3 {
            assert!(relatives.waiting_for(seq).is_some());
        }
        assert!(relatives.waiting_for(3).is_none() && relatives.waiting_for(2).is_some());
    }
}
