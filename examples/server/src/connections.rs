//! Which connections are open, and which one is closed when there are too many.
//!
//! Overload policy: a connection beyond the limit closes the one that has gone longest without sending a whole request,
//! so that hanging clients and idle connections never keep others out. If requests are under way on all of them, the
//! new connection is refused.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

#[derive(Debug)]
pub(crate) struct Connections {
    most: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    open: HashMap<u64, OpenConnection>,
    /// Goes up with every change, so that the smallest `since` is the oldest.
    clock: u64,
    counts: Counts,
}

#[derive(Debug)]
struct OpenConnection {
    /// When the connection began to wait for a request; `None` while one is under way.
    since: Option<u64>,
    /// Notified when the place is given to another connection.
    close: Arc<Notify>,
}

/// Counts of what became of connections so far.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) accepted: u64,
    /// Closed without a request under way, to make room for others.
    pub(crate) made_way: u64,
    /// Refused because requests were under way on all of them.
    pub(crate) refused: u64,
}

/// A connection's place, free again when it is dropped.
#[derive(Debug)]
pub(crate) struct ConnectionPermit {
    connections: Arc<Connections>,
    number: u64,
    close: Arc<Notify>,
}

/// A request is under way on a connection until this is dropped.
#[derive(Debug)]
pub(crate) struct Busy(Arc<ConnectionPermit>);

impl Connections {
    pub(crate) fn new(most: usize) -> Arc<Self> {
        Arc::new(Self { most, state: Mutex::default() })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn counts(&self) -> Counts {
        self.state().counts
    }

    /// A place for one more connection; `None` if requests are under way on all of them.
    pub(crate) fn admit(self: &Arc<Self>) -> Option<Arc<ConnectionPermit>> {
        let mut state = self.state();
        if state.open.len() >= self.most {
            let oldest = state.open.iter().filter_map(|(n, open)| Some((open.since?, *n))).min();
            let Some(left) = oldest.and_then(|(_, number)| state.open.remove(&number)) else {
                state.counts.refused += 1;
                return None;
            };
            left.close.notify_one();
            state.counts.made_way += 1;
        }
        state.counts.accepted += 1;
        state.clock += 1;
        let (number, close) = (state.clock, Arc::new(Notify::new()));
        state.open.insert(number, OpenConnection { since: Some(number), close: close.clone() });
        drop(state);
        Some(Arc::new(ConnectionPermit { connections: self.clone(), number, close }))
    }
}

impl ConnectionPermit {
    /// Completes when the place was given to another connection.
    pub(crate) async fn lost(&self) {
        self.close.notified().await;
    }

    /// From here on the place cannot be taken away.
    pub(crate) fn busy(self: &Arc<Self>) -> Busy {
        if let Some(open) = self.connections.state().open.get_mut(&self.number) {
            open.since = None;
        }
        Busy(self.clone())
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        self.connections.state().open.remove(&self.number);
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        let mut state = self.0.connections.state();
        state.clock += 1;
        let now = state.clock;
        if let Some(open) = state.open.get_mut(&self.0.number) {
            open.since = Some(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_lost(connections: &Connections, place: &ConnectionPermit) -> bool {
        !connections.state().open.contains_key(&place.number)
    }

    #[test]
    fn who_waits_longest_makes_way_and_requests_under_way_do_not() {
        let connections = Connections::new(3);
        let [first, second, third] = [(); 3].map(|()| connections.admit().expect("room"));
        let under_way = first.busy();
        // A request was answered on the second connection, so it has waited less long than the third.
        drop(second.busy());
        let fourth = connections.admit().expect("the third makes way");
        assert!(is_lost(&connections, &third) && !is_lost(&connections, &second));
        let _all = [second.busy(), fourth.busy()];
        assert!(connections.admit().is_none(), "requests are under way on all of them");
        drop(under_way);
        let _fifth = connections.admit().expect("the first one is idle now");
        assert!(is_lost(&connections, &first));
        assert_eq!(connections.counts(), Counts { accepted: 5, made_way: 2, refused: 1 });
        // A connection that lost its place does not free one when it is dropped.
        drop((first, third));
        assert_eq!(connections.state().open.len(), 3);
    }
}
