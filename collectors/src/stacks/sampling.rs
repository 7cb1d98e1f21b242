//! Sampling that has begun: finds threads, and reads what was recorded of them.

use super::mode::Mode;
use super::sampled_thread::SampledThread;
use super::signals;
use super::stack_books::StackBooks;
use super::stack_options::StackOptions;
use super::sys;
use super::thread_list::{self, ThreadList, YOUNG_NS};
use candlescope_core::run::env_key;
use candlescope_core::stacks::{MonotonicNs, StackError, StackSink};
use rustc_hash::{FxHashMap, FxHashSet};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// At the end, names are waited for so long; what has none by then is delivered without.
const LAST_NAMES: Duration = Duration::from_secs(2);
/// Page faults that are too few for a record are read so often of threads that were not seen to run.
const FAULTS_NS: u64 = 100_000_000;
/// The kernel writes a record at once; another CPU may still be at one when its buffer is read.
const SETTLED_NS: u64 = 1_000_000;

/// Pauses between two readings: each reading costs as much as several samples, and the threads that are sampled a turn on
/// their CPU.
const SHORTEST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_millis(50);

/// A thread that is not sampled.
#[derive(Debug, Clone, Copy)]
struct OtherThread {
    since: MonotonicNs,
    /// There were too many.
    waits_for_room: bool,
}

/// See the module's text.
pub(super) struct Sampling {
    options: StackOptions,
    mode: Mode,
    list: ThreadList,
    threads: FxHashMap<u32, SampledThread>,
    others: FxHashMap<u32, OtherThread>,
    faults_read_at: MonotonicNs,
    page_fault_ns: Option<f64>,
    books: StackBooks,
    /// How long after the last reading the next one is due.
    pause: Duration,
    /// A record that does not lie in one piece.
    copied: Vec<u8>,
    lost: u64,
    /// Threads that were never sampled, for there were too many, or something was refused.
    not_sampled: u64,
}

impl Sampling {
    pub(super) fn start(options: StackOptions) -> Result<Self, StackError> {
        let mode = Mode::choose(&options)?;
        let list = ThreadList::open();
        let list = list.map_err(|error| StackError(format!("no stacks: /proc/self/task cannot be read: {error}")))?;
        let books = StackBooks::new();
        let books = books.map_err(|error| StackError(format!("no stacks: a thread cannot be started: {error}")))?;
        Ok(Self {
            options,
            mode,
            list,
            threads: FxHashMap::default(),
            others: FxHashMap::default(),
            faults_read_at: sys::monotonic(),
            page_fault_ns: sys::page_fault_ns(),
            books,
            pause: SHORTEST_PAUSE,
            copied: Vec::new(),
            lost: 0,
            not_sampled: 0,
        })
    }

    pub(super) fn name(&self) -> &'static str {
        self.mode.name()
    }

    pub(super) fn describe(&self) -> BTreeMap<String, Value> {
        let mut facts = BTreeMap::from([
            (env_key::STACKS_SOURCE.name().to_string(), json!(self.mode.name())),
            (env_key::STACKS_HZ.name().to_string(), json!(self.mode.hz(&self.options))),
            (env_key::STACKS_BLIND_TO.name().to_string(), json!(self.mode.blind_to())),
        ]);
        facts.extend(self.page_fault_ns.map(|ns| (env_key::PAGE_FAULT_NS.name().to_string(), json!(ns))));
        for (key, count) in [("stacks_threads_left_out", self.not_sampled), ("stacks_not_kept", self.books.not_kept)] {
            if count > 0 {
                facts.insert(key.to_string(), json!(count));
            }
        }
        facts
    }

    pub(super) fn pause(&self) -> Duration {
        self.pause
    }

    pub(super) fn poll(&mut self, into: &mut StackSink) -> Result<(), StackError> {
        let now = sys::monotonic();
        self.books.follow_loader();
        let threads = self.list.threads(now);
        if let Some(threads) = &threads {
            self.follow_threads(threads, now, into);
        }
        let faults = now.0.saturating_sub(self.faults_read_at.0) >= FAULTS_NS;
        if faults {
            self.faults_read_at = now;
        }
        let mut ours = Vec::new();
        let mut fullness = 0.0_f32;
        for (tid, thread) in &mut self.threads {
            fullness = fullness.max(thread.fullness());
            self.lost += thread.read(&mut self.books, &mut self.copied, faults, into);
            if !thread.follow_name(into) {
                ours.push(*tid);
            }
        }
        self.pause = next_pause(self.pause, fullness, self.mode.longest_pause(&self.options).min(LONGEST_PAUSE));
        for tid in ours {
            self.detach(tid, into);
            self.others.insert(tid, OtherThread { since: now, waits_for_room: false });
        }
        into.lost += std::mem::take(&mut self.lost);
        self.books.settle(into);
        into.through = MonotonicNs(now.0.saturating_sub(SETTLED_NS));
        into.samples_through = self.books.oldest_waiting().map_or(into.through, |oldest| oldest.min(into.through));
        if threads.is_some() && self.mode.signals && !signals::is_installed() {
            self.stop(into);
            let cause = "the program installed a handler of its own for the sampler's signal";
            return Err(StackError(format!("stacks are sampled no more: {cause}")));
        }
        Ok(())
    }

    pub(super) fn stop(&mut self, into: &mut StackSink) {
        self.detach_all(into);
        into.lost += std::mem::take(&mut self.lost);
        self.books.finish(Instant::now() + LAST_NAMES, into);
        into.through = sys::monotonic();
        into.samples_through = into.through;
    }

    fn follow_threads(&mut self, threads: &FxHashSet<u32>, now: MonotonicNs, into: &mut StackSink) {
        let gone = |(tid, thread): (&u32, &SampledThread)| (!threads.contains(tid) || thread.is_over()).then_some(*tid);
        let gone: Vec<u32> = self.threads.iter().filter_map(gone).collect();
        for tid in gone {
            self.detach(tid, into);
        }
        self.others.retain(|tid, _| threads.contains(tid));
        // A thread takes its name once it runs: a young one may be one of ours, or none any more.
        let is_young = |since: MonotonicNs| now.0.saturating_sub(since.0) < YOUNG_NS;
        for thread in self.threads.values_mut().filter(|thread| is_young(thread.since)) {
            thread.read_name();
        }
        for tid in threads {
            if self.threads.contains_key(tid) {
                continue;
            }
            let other = self.others.get(tid).copied();
            let has_room = self.threads.len() < self.options.max_threads;
            if other.is_none_or(|other| is_young(other.since) || other.waits_for_room && has_room) {
                self.attach(*tid, other, now, into);
            }
        }
    }

    fn attach(&mut self, tid: u32, known: Option<OtherThread>, now: MonotonicNs, into: &mut StackSink) {
        let Some(name) = thread_list::name(tid) else { return };
        let since = known.map_or(now, |known| known.since);
        let ours = thread_list::is_our_own(&name);
        let waits_for_room = !ours && self.threads.len() >= self.options.max_threads;
        if !ours
            && !waits_for_room
            && let Some(thread) = SampledThread::attach(tid, &name, self.mode, &self.options, into)
        {
            self.others.remove(&tid);
            self.threads.insert(tid, thread);
            return;
        }
        if self.others.insert(tid, OtherThread { since, waits_for_room }).is_none() && !ours {
            // One that ended meanwhile was not left out.
            self.not_sampled += u64::from(thread_list::name(tid).is_some());
        }
    }

    fn detach_all(&mut self, into: &mut StackSink) {
        let tids: Vec<u32> = self.threads.keys().copied().collect();
        tids.into_iter().for_each(|tid| self.detach(tid, into));
    }

    fn detach(&mut self, tid: u32, into: &mut StackSink) {
        if let Some(thread) = self.threads.remove(&tid) {
            self.lost += thread.detach(&mut self.books, &mut self.copied, into);
        }
    }
}

/// A reading found the fullest buffer so full after this pause. The next one is to find it less than half full.
fn next_pause(pause: Duration, fullness: f32, longest: Duration) -> Duration {
    let next = match fullness {
        ..0.35 => pause * 5 / 4,
        ..0.6 => pause,
        _ => pause / 2,
    };
    next.clamp(SHORTEST_PAUSE, longest.max(SHORTEST_PAUSE))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_little_to_read_pauses_longer_and_who_has_much_soon_reads_again() {
        let longest = Duration::from_millis(50);
        let after = |start: u64, per_ms: f32, readings: u32| {
            let first = Duration::from_millis(start);
            (0..readings).fold(first, |pause, _| next_pause(pause, pause.as_millis() as f32 * per_ms, longest))
        };
        assert_eq!(after(10, 0.0, 9), longest);
        assert_eq!(after(50, 0.01, 9), longest, "half full is all right");
        let busy = after(50, 0.03, 9);
        assert!(busy.as_millis() as f32 * 0.03 < 0.6 && busy > SHORTEST_PAUSE, "{busy:?}");
        assert_eq!(after(50, 1.0, 3), SHORTEST_PAUSE);
        assert_eq!(next_pause(longest, 0.0, Duration::from_millis(24)), Duration::from_millis(24));
    }
}
