//! Which connections are open, which requests are under way on them, and what makes way when there are too many.
//!
//! Overload policy: as many requests may be under way as connections stay open. Whoever sends one more is told so, with
//! a response. Some more connections may be open for a moment, so that a request that has been sent is read even if
//! everybody comes at once. Of those beyond the limit, the ones that have gone longest without sending a whole request
//! are closed, once they are quiet for [`QUIET`] or owe the request for [`SLOW`], and also for [`QUIET`] where not one more
//! can be open: hanging clients and idle connections keep others out for a second at most. These wait until one of them
//! has ended.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// A connection that sends nothing for so long while it owes a request may be closed to make room.
const QUIET: Duration = Duration::from_secs(1);

/// So may one that sends its request for so long, as somebody does who sends a byte now and then.
const SLOW: Duration = Duration::from_secs(5);

/// Shortest time between two log lines about refused requests.
const SAY_AGAIN: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(crate) struct Connections {
    /// Requests under way at once, and connections that stay open.
    most: usize,
    /// Connections at once, those that are open for a moment included.
    room: usize,
    state: Mutex<State>,
    /// Notified when a connection has ended.
    ended: Notify,
}

#[derive(Debug, Default)]
struct State {
    open: HashMap<u64, OpenConnection>,
    /// Connections that have a request's place: those in [`Stage::Body`] and [`Stage::Request`].
    requests: usize,
    counts: Counts,
    /// When refusals were last said.
    said: Option<Instant>,
}

#[derive(Debug)]
struct OpenConnection {
    stage: Stage,
    /// When it began to wait for a request, or for the rest of one.
    since: Instant,
    /// Whether something of the request's head has come.
    has_begun: bool,
    /// When it last sent something.
    heard: Instant,
    /// When it was told to leave, if it was.
    told: Option<Instant>,
    /// Notified when it is.
    leave: Arc<Notify>,
}

#[derive(Debug)]
enum Stage {
    /// A request's head is to come.
    Head,
    /// Its body is. Notified if its place is given to another request.
    Body(Arc<Notify>),
    /// A request is under way.
    Request,
    /// Its place was given away, and it is told so.
    MadeWay,
}

/// Counts of what became of connections so far.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) accepted: u64,
    /// Closed without a whole request, to make room for others.
    pub(crate) made_way: u64,
    /// Requests that were refused because others were under way on as many connections as there may be.
    pub(crate) refused: u64,
}

impl OpenConnection {
    /// Whether it may be closed to make room: it owes a request, and is quiet, or takes as long as `slow`.
    fn may_leave(&self, now: Instant, slow: Duration) -> bool {
        let quiet = now.saturating_duration_since(self.heard.max(self.since));
        quiet >= QUIET || now.saturating_duration_since(self.since) >= slow
    }
}

/// An open connection, until it is dropped.
#[derive(Debug)]
pub(crate) struct ConnectionPermit {
    connections: Arc<Connections>,
    number: u64,
    leave: Arc<Notify>,
}

/// A request has a place on a connection until this is dropped.
#[derive(Debug)]
pub(crate) struct RequestPermit {
    connection: Arc<ConnectionPermit>,
    body: Arc<Notify>,
}

impl Connections {
    /// `room` is for connections that are open for a moment, too: more than `most`.
    pub(crate) fn new(most: usize, room: usize) -> Arc<Self> {
        Arc::new(Self { most, room, state: Mutex::default(), ended: Notify::new() })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn counts(&self) -> Counts {
        self.state().counts
    }

    /// Whether another connection may be open.
    pub(crate) fn has_room(&self) -> bool {
        self.state().open.len() < self.room
    }

    /// Completes when a connection has ended.
    pub(crate) async fn one_has_ended(&self) {
        self.ended.notified().await;
    }

    /// Whether more connections are open than stay so.
    pub(crate) fn are_too_many(&self) -> bool {
        self.state().open.len() > self.most
    }

    /// One more connection, after a look at whether there is room.
    pub(crate) fn admit(self: &Arc<Self>, now: Instant) -> Arc<ConnectionPermit> {
        let mut state = self.state();
        state.counts.accepted += 1;
        let (number, leave) = (state.counts.accepted, Arc::new(Notify::new()));
        let leave_at = leave.clone();
        let open = OpenConnection {
            stage: Stage::Head,
            since: now,
            has_begun: false,
            heard: now,
            told: None,
            leave: leave_at,
        };
        state.open.insert(number, open);
        drop(state);
        Arc::new(ConnectionPermit { connections: self.clone(), number, leave })
    }

    /// Tells connections beyond the limit to leave: of those that wait for a request's head, and may leave, the ones
    /// that have waited longest.
    pub(crate) fn make_room(&self, now: Instant) {
        let mut state = self.state();
        let leaving = state.open.values().filter(|open| open.told.is_some()).count();
        let excess = state.open.len().saturating_sub(leaving).saturating_sub(self.most);
        let slow = if state.open.len() >= self.room { QUIET } else { SLOW };
        let may_leave = |open: &OpenConnection| {
            matches!(open.stage, Stage::Head) && open.told.is_none() && open.may_leave(now, slow)
        };
        let waiting = state.open.iter().filter(|&(_, open)| may_leave(open));
        let mut waiting: Vec<(Instant, u64)> = waiting.map(|(number, open)| (open.since, *number)).collect();
        waiting.sort_unstable();
        for (_, number) in waiting.into_iter().take(excess) {
            if let Some(open) = state.open.get_mut(&number) {
                open.told = Some(now);
                open.leave.notify_one();
            }
        }
    }

    /// How many requests have been refused, if it is time to say so.
    pub(crate) fn refused_to_say(&self, now: Instant) -> Option<u64> {
        let mut state = self.state();
        let is_time = state.said.is_none_or(|said| now.saturating_duration_since(said) >= SAY_AGAIN);
        is_time.then(|| {
            state.said = Some(now);
            state.counts.refused
        })
    }
}

impl ConnectionPermit {
    pub(crate) fn connections(&self) -> &Connections {
        &self.connections
    }

    /// Completes when the connection is told to leave.
    pub(crate) async fn told_to_leave(&self) {
        self.leave.notified().await;
    }

    /// Whether it leaves now that it was told to. It stays if it has sent something since, or if a response is being sent
    /// to it: the request's place is given back before the last of that has left.
    pub(crate) fn leaves(&self, is_sending: bool) -> bool {
        let mut state = self.connections.state();
        let Some(open) = state.open.get_mut(&self.number) else { return true };
        let is_quiet = open.told.is_some_and(|told| open.heard <= told);
        let leaves = matches!(open.stage, Stage::Head) && is_quiet && !is_sending;
        if leaves {
            state.counts.made_way += 1;
        } else {
            open.told = None;
        }
        leaves
    }

    /// The connection sent something.
    pub(crate) fn heard(&self, now: Instant) {
        if let Some(open) = self.connections.state().open.get_mut(&self.number) {
            open.heard = now;
            if matches!(open.stage, Stage::Head) && !std::mem::replace(&mut open.has_begun, true) {
                open.since = now;
            }
        }
    }

    /// A place for a request whose head is there; `None` if others have all of them. A body that is quiet or slow makes
    /// way, so that `most` times the size of a body bounds the memory for them.
    pub(crate) fn request(self: &Arc<Self>, now: Instant) -> Option<RequestPermit> {
        let mut state = self.connections.state();
        if state.requests >= self.connections.most {
            let bodies = state.open.values_mut().filter(|open| matches!(open.stage, Stage::Body(_)));
            let Some(slow) = bodies.filter(|open| open.may_leave(now, SLOW)).min_by_key(|open| open.since) else {
                state.counts.refused += 1;
                return None;
            };
            if let Stage::Body(body) = std::mem::replace(&mut slow.stage, Stage::MadeWay) {
                body.notify_one();
            }
            state.counts.made_way += 1;
            state.requests -= 1;
        }
        let body = Arc::new(Notify::new());
        if let Some(open) = state.open.get_mut(&self.number) {
            (open.stage, open.since) = (Stage::Body(body.clone()), now);
            state.requests += 1;
        }
        drop(state);
        Some(RequestPermit { connection: self.clone(), body })
    }
}

impl RequestPermit {
    /// Completes when the place was given to another request, while the body was to come.
    pub(crate) async fn lost(&self) {
        self.body.notified().await;
    }

    /// The whole request is there: from here on its place cannot be taken away.
    pub(crate) fn is_whole(&self) {
        if let Some(open) = self.connection.connections.state().open.get_mut(&self.connection.number)
            && matches!(open.stage, Stage::Body(_))
        {
            open.stage = Stage::Request;
        }
    }
}

impl Drop for RequestPermit {
    fn drop(&mut self) {
        let mut state = self.connection.connections.state();
        let Some(open) = state.open.get_mut(&self.connection.number) else { return };
        let had_a_place = matches!(open.stage, Stage::Body(_) | Stage::Request);
        (open.stage, open.since, open.has_begun, open.told) = (Stage::Head, Instant::now(), false, None);
        if had_a_place {
            state.requests -= 1;
        }
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        self.connections.state().open.remove(&self.number);
        self.connections.ended.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn was_told(connection: &ConnectionPermit) -> bool {
        connection.connections.state().open[&connection.number].told.is_some()
    }

    #[test]
    fn who_waits_longest_leaves_and_nobody_who_has_just_sent_something() {
        let connections = Connections::new(2, 4);
        let now = Instant::now();
        let after = |ms: u64| now + Duration::from_millis(ms);
        let [first, second, third, fourth] = [0, 10, 20, 30].map(|ms| connections.admit(after(ms)));
        assert!(connections.are_too_many() && !connections.has_room());
        connections.make_room(after(900));
        assert!([&first, &second, &third, &fourth].iter().all(|open| !was_told(open)), "they came just now");
        first.heard(after(950));
        connections.make_room(after(1_100));
        assert!(!was_told(&first) && was_told(&second) && was_told(&third) && !was_told(&fourth));
        // What it sent arrived before it left.
        second.heard(after(1_200));
        assert!(!second.leaves(false) && !third.leaves(true), "a response is being sent");
        connections.make_room(after(1_250));
        fourth.heard(after(1_260));
        assert!(third.leaves(false) && !fourth.leaves(false));
        drop(third);
        assert!(connections.has_room());
        // Somebody who sends a byte now and then is not quiet, but slow.
        [&first, &second, &fourth].iter().for_each(|open| open.heard(after(5_900)));
        connections.make_room(after(5_960));
        assert!(was_told(&first) && !was_told(&second) && !was_told(&fourth), "two stay");
        assert_eq!(connections.counts(), Counts { accepted: 4, made_way: 1, refused: 0 });
        drop((first, second, fourth));
        assert!(connections.state().open.is_empty() && !connections.are_too_many());
    }

    #[test]
    fn a_byte_now_and_then_keeps_nobody_out_where_no_more_can_be_open() {
        let connections = Connections::new(1, 2);
        let now = Instant::now();
        let after = |ms: u64| now + Duration::from_millis(ms);
        let [first, second] = [0, 10].map(|ms| connections.admit(after(ms)));
        for ms in [100, 600, 1_050] {
            [&first, &second].iter().for_each(|open| open.heard(after(ms)));
        }
        connections.make_room(after(1_100));
        assert!(was_told(&first) && !was_told(&second), "one stays");
    }

    #[test]
    fn requests_under_way_keep_their_places_and_bodies_that_hang_make_way() {
        let connections = Connections::new(2, 8);
        let now = Instant::now();
        let open: [_; 4] = std::array::from_fn(|_| connections.admit(now));
        let whole = open[0].request(now).expect("a place");
        whole.is_whole();
        let hangs = open[1].request(now).expect("a place");
        assert!(open[2].request(now).is_none(), "its body may be on its way");
        let later = now + QUIET;
        let instead = open[2].request(later).expect("the place of the body that hangs");
        // What comes of that body does not matter any more.
        hangs.is_whole();
        assert!(matches!(connections.state().open[&open[1].number].stage, Stage::MadeWay));
        drop(hangs);
        instead.is_whole();
        assert!(open[3].request(later + SLOW).is_none(), "both are whole");
        connections.make_room(later + SLOW);
        assert!(was_told(&open[1]) && was_told(&open[3]) && !was_told(&open[0]) && !was_told(&open[2]));
        assert_eq!(connections.counts(), Counts { accepted: 4, made_way: 1, refused: 2 });
        assert_eq!(connections.refused_to_say(now), Some(2));
        assert_eq!((connections.refused_to_say(later), connections.state().requests), (None, 2));
        drop((whole, instead));
        assert_eq!(connections.state().requests, 0);
        // A connection that has answered begins to wait anew.
        assert!(!connections.state().open[&open[0].number].may_leave(Instant::now(), SLOW));
    }
}
