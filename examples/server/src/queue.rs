//! A bounded queue whose places become free as soon as the waiting client goes away.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// Why an item is not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum QueueError {
    Full(usize),
    Stopping,
}

#[derive(Debug)]
pub(crate) struct Queue<T> {
    capacity: usize,
    state: Mutex<State<T>>,
    changed: Condvar,
}

#[derive(Debug)]
struct State<T> {
    /// Each with a number, by which it is found again.
    waiting: VecDeque<(u64, T)>,
    pushed: u64,
    open: bool,
}

/// A place in the queue. Dropping it removes the item if it still waits.
#[derive(Debug)]
pub(crate) struct QueuePlace<T> {
    queue: Arc<Queue<T>>,
    number: u64,
}

impl<T> Queue<T> {
    pub(crate) fn new(capacity: usize) -> Self {
        let state = State { waiting: VecDeque::with_capacity(capacity), pushed: 0, open: true };
        Self { capacity, state: Mutex::new(state), changed: Condvar::new() }
    }

    fn state(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn push(self: &Arc<Self>, item: impl FnOnce() -> T) -> Result<QueuePlace<T>, QueueError> {
        let mut state = self.state();
        if !state.open {
            return Err(QueueError::Stopping);
        }
        if state.waiting.len() >= self.capacity {
            return Err(QueueError::Full(self.capacity));
        }
        let number = state.pushed;
        state.pushed += 1;
        state.waiting.push_back((number, item()));
        drop(state);
        self.changed.notify_one();
        Ok(QueuePlace { queue: self.clone(), number })
    }

    /// The item that waited longest; waits for one. `None` once the queue is closed.
    pub(crate) fn next(&self) -> Option<T> {
        let waits = |state: &mut State<T>| state.open && state.waiting.is_empty();
        let mut state = self.changed.wait_while(self.state(), waits).unwrap_or_else(PoisonError::into_inner);
        state.waiting.pop_front().map(|(_, item)| item)
    }

    /// The item that waited longest, if any waits.
    pub(crate) fn try_next(&self) -> Option<T> {
        self.state().waiting.pop_front().map(|(_, item)| item)
    }

    /// Accepts no more items and drops those that wait.
    pub(crate) fn close(&self) {
        let mut state = self.state();
        state.open = false;
        let left = std::mem::take(&mut state.waiting);
        drop(state);
        drop(left);
        self.changed.notify_all();
    }
}

impl<T> Drop for QueuePlace<T> {
    fn drop(&mut self) {
        let mut state = self.queue.state();
        let at = state.waiting.iter().position(|(number, _)| *number == self.number);
        let left = at.and_then(|at| state.waiting.remove(at));
        drop(state);
        drop(left);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_come_first_served_and_whoever_leaves_makes_room() {
        let queue = Arc::new(Queue::new(2));
        let _first = queue.push(|| 1).expect("room");
        let second = queue.push(|| 2).expect("room");
        let refused = queue.push(|| unreachable!("made for nothing"));
        assert_eq!(refused.err(), Some(QueueError::Full(2)));
        drop(second);
        let third = queue.push(|| 3).expect("room again");
        assert_eq!((queue.next(), queue.next()), (Some(1), Some(3)));
        // An item that a worker has taken is no longer in the queue.
        drop(third);
        let _fourth = queue.push(|| 4).expect("room");
        assert_eq!((queue.next(), queue.try_next()), (Some(4), None));
    }

    #[test]
    fn a_closed_queue_lets_go_of_everybody() {
        let queue = Arc::new(Queue::new(8));
        let waits = std::thread::spawn({
            let queue = queue.clone();
            move || [queue.next(), queue.next()]
        });
        let _place = queue.push(|| Arc::new(())).expect("room");
        while !queue.state().waiting.is_empty() {
            std::thread::yield_now();
        }
        queue.close();
        let [first, second] = waits.join().expect("no panic");
        assert!(first.is_some() && second.is_none());
        assert_eq!(queue.push(|| Arc::new(())).err(), Some(QueueError::Stopping));

        let (queue, item) = (Arc::new(Queue::new(8)), Arc::new(()));
        let _place = queue.push(|| item.clone()).expect("room");
        queue.close();
        assert_eq!(Arc::strong_count(&item), 1);
        assert_eq!(queue.next(), None);
    }
}
