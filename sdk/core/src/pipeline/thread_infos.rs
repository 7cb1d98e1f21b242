//! Threads by their number, for records that another thread wrote: ranges that end elsewhere than they began.

use crate::record::{ThreadInfo, thread_of};
use rustc_hash::FxHashMap;
use std::collections::VecDeque;
use std::sync::Arc;

/// Threads that have ended and are remembered; a range of an earlier one has the thread on which it ended.
const MOST_ENDED: usize = 1_024;

/// See the module's text.
#[derive(Debug, Default)]
pub(crate) struct ThreadInfos {
    known: FxHashMap<u64, Arc<ThreadInfo>>,
    /// Those of them that have ended, in that order.
    ended: VecDeque<u64>,
}

impl ThreadInfos {
    /// A thread has come.
    pub(crate) fn add(&mut self, info: &Arc<ThreadInfo>) {
        self.known.insert(u64::from(info.index), Arc::clone(info));
    }

    /// A thread has ended: it is remembered for what still waits, with the last [`MOST_ENDED`].
    pub(crate) fn has_ended(&mut self, index: u32) {
        self.ended.push_back(u64::from(index));
        if self.ended.len() > MOST_ENDED
            && let Some(oldest) = self.ended.pop_front()
        {
            self.known.remove(&oldest);
        }
    }

    /// The thread that gave this number to an interval; `None` if it is not known any more.
    pub(crate) fn of(&self, seq: u64) -> Option<&Arc<ThreadInfo>> {
        self.known.get(&thread_of(seq))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::SEQ_BITS;

    #[test]
    fn threads_that_have_ended_are_known_for_a_while() {
        let mut infos = ThreadInfos::default();
        let most = u32::try_from(MOST_ENDED).unwrap();
        for index in 0..most + 2 {
            infos.add(&Arc::new(ThreadInfo::new(index, 1, "thread")));
        }
        (0..=most).for_each(|index| infos.has_ended(index));
        let index_of = |thread: u32| infos.of(u64::from(thread) << SEQ_BITS | 7).map(|info| info.index);
        assert_eq!((index_of(0), index_of(1), index_of(most + 1)), (None, Some(1), Some(most + 1)));
        assert_eq!(infos.known.len(), MOST_ENDED + 1, "no more than that");
    }
}
