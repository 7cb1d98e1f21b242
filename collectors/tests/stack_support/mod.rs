//! What the tests of stacks share: a recorder that polls as the SDK does, work of a known amount, and children processes.
#![allow(unreachable_pub, dead_code, reason = "each test uses some of it")]
#![allow(unsafe_code, reason = "clocks, affinity and privileges through the C library")]

use candlescope_collectors::stacks::{SourceChoice, StackOptions, StackSampler};
use candlescope_core::stacks::{RawStackSample, StackError, StackSink, StackSource, ThreadChange, ThreadEvent};
use candlescope_core::{StackRecord, ThreadState};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::hint::black_box;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Samples this process as the SDK does: polls as often as the sampler asks for, on a thread `cs-stacks`.
pub struct Recorder {
    stop: Sender<()>,
    thread: JoinHandle<Recorded>,
}

/// Tests that share the CPUs with others measure these too: one at a time.
pub fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What was delivered.
#[derive(Debug, Default)]
pub struct Recorded {
    pub source: String,
    pub facts: BTreeMap<String, Value>,
    pub samples: Vec<RawStackSample>,
    pub events: Vec<ThreadEvent>,
    pub stacks: Vec<StackRecord>,
    pub lost: u64,
    /// CPU time of each poll, nanoseconds.
    pub polls_ns: Vec<u64>,
    /// CPU time of the thread that polls, its wakeups among it, and samples, since half a second after its start.
    pub later: (u64, u64),
    pub error: Option<String>,
}

impl Recorder {
    pub fn start(options: StackOptions) -> Result<Self, StackError> {
        let (stop, stopped) = channel();
        let (started, start) = channel();
        let poll = move || record(StackSampler::new(options), &started, &stopped);
        let thread = std::thread::Builder::new().name("cs-stacks".into()).spawn(poll).expect("a thread");
        start.recv().expect("an outcome").map(|()| Self { stop, thread })
    }

    pub fn with(source: SourceChoice) -> Result<Self, StackError> {
        Self::start(StackOptions::default().source(source))
    }

    pub fn stop(self) -> Recorded {
        // It polls no more if sampling has ended by itself.
        let _ = self.stop.send(());
        self.thread.join().expect("no panic")
    }
}

fn record(mut sampler: StackSampler, started: &Sender<Result<(), StackError>>, stopped: &Receiver<()>) -> Recorded {
    let outcome = sampler.start();
    let failed = outcome.is_err();
    started.send(outcome).expect("somebody waits");
    let mut recorded = Recorded::default();
    if failed {
        return recorded;
    }
    recorded.source = sampler.name().to_string();
    let (begun, mut at_first) = (Instant::now(), None);
    while stopped.recv_timeout(sampler.pause()).is_err() {
        let mut sink = StackSink::default();
        let before = thread_cpu_ns();
        let outcome = sampler.poll(&mut sink);
        recorded.polls_ns.push(thread_cpu_ns() - before);
        recorded.take(sink);
        if begun.elapsed() > Duration::from_millis(500) {
            let (ns, samples) = (thread_cpu_ns(), recorded.samples.len() as u64);
            let first = *at_first.get_or_insert((ns, samples));
            recorded.later = (ns - first.0, samples - first.1);
        }
        if let Err(error) = outcome {
            recorded.error = Some(error.to_string());
            break;
        }
    }
    recorded.facts = sampler.describe();
    let mut sink = StackSink::default();
    sampler.stop(&mut sink);
    recorded.take(sink);
    recorded
}

impl Recorded {
    /// Checks what a delivery promises, and keeps it.
    fn take(&mut self, sink: StackSink) {
        for stack in sink.stacks {
            let expected = self.stacks.len() as u64 + 1;
            assert_eq!(stack.stack, expected, "numbers ascend from 1");
            match stack.parent {
                None => assert_eq!(stack.depth, 0),
                Some(parent) => {
                    assert!(parent < stack.stack, "parents come first");
                    assert_eq!(stack.depth, self.stacks[parent as usize - 1].depth.saturating_add(1));
                }
            }
            self.stacks.push(stack);
        }
        for sample in &sink.samples {
            assert!(sample.stack.is_none_or(|s| s <= self.stacks.len() as u64), "a sample comes after its stack");
        }
        self.samples.extend(sink.samples);
        for event in sink.events {
            let before = self.events.iter().rev().find(|before| before.tid == event.tid);
            assert!(before.is_none_or(|before| before.time <= event.time), "{before:?} before {event:?}");
            self.events.push(event);
        }
        self.lost += sink.lost;
    }

    /// Names of a sample's functions, innermost first.
    pub fn functions(&self, sample: &RawStackSample) -> Vec<&str> {
        let mut names = Vec::new();
        let mut at = sample.stack;
        while let Some(stack) = at {
            let record = &self.stacks[stack as usize - 1];
            names.push(record.function.as_deref().unwrap_or("?"));
            at = record.parent;
        }
        names
    }

    /// The innermost frame of a sample that has a stack.
    pub fn innermost(&self, sample: &RawStackSample) -> &StackRecord {
        &self.stacks[sample.stack.expect("a stack") as usize - 1]
    }

    pub fn binaries(&self) -> BTreeSet<&str> {
        self.stacks.iter().map(|stack| stack.binary.as_ref()).collect()
    }

    /// Whether a function of this name, without its path, is in the sample's stack.
    pub fn has(&self, sample: &RawStackSample, function: &str) -> bool {
        self.functions(sample).iter().any(|name| name.rsplit("::").next() == Some(function))
    }

    /// Nanoseconds of samples of a thread in a state that have a function in their stack; of all of them without one.
    pub fn weight(&self, tid: u64, state: ThreadState, function: Option<&str>) -> u64 {
        let of = |s: &&RawStackSample| s.tid == tid && s.state == state && function.is_none_or(|f| self.has(s, f));
        self.samples.iter().filter(of).map(|s| s.weight_ns).sum()
    }

    /// Whether it is known when a thread was on a CPU.
    pub fn tells_switches(&self, tid: u64) -> bool {
        let of_it = self.events.iter().filter(|event| event.tid == tid);
        of_it.into_iter().any(|e| matches!(e.change, ThreadChange::Attached { switches: true, .. }))
    }

    /// Whether the sampler said that it does not see this.
    pub fn is_blind_to(&self, what: &str) -> bool {
        self.facts["stacks_blind_to"].as_array().is_some_and(|blind| blind.iter().any(|b| b == what))
    }

    /// Mean CPU time of a poll, microseconds, but of the first ones, which read the binaries.
    pub fn poll_us(&self) -> f64 {
        let later = self.polls_ns.get(20..).unwrap_or_default();
        later.iter().sum::<u64>() as f64 / 1e3 / later.len().max(1) as f64
    }

    /// Samples, each different stack once with its weight, for messages of tests.
    pub fn summary(&self) -> String {
        let mut stacks = BTreeMap::<String, (u64, u64)>::new();
        for sample in &self.samples {
            let key =
                format!("{} {:?} {:?} {}", sample.tid, sample.state, sample.kernel, inner(&self.functions(sample)));
            let entry = stacks.entry(key).or_default();
            *entry = (entry.0 + 1, entry.1 + sample.weight_ns);
        }
        let mut lines: Vec<_> = stacks.into_iter().collect();
        lines.sort_by_key(|(_, (_, weight))| std::cmp::Reverse(*weight));
        let lines = lines.iter().take(16).map(|(k, (n, ns))| format!("{n:>6} {:>9.3} ms {k}\n", *ns as f64 / 1e6));
        format!(
            "lost {}, {} stacks, {} events\n{}",
            self.lost,
            self.stacks.len(),
            self.events.len(),
            lines.collect::<String>()
        )
    }
}

fn inner(functions: &[&str]) -> String {
    functions.iter().take(5).map(|f| f.split('<').next().unwrap_or(f).to_string() + " < ").collect()
}

fn clock(id: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is valid.
    unsafe { libc::clock_gettime(id, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// CPU time of the calling thread.
pub fn thread_cpu_ns() -> u64 {
    clock(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// CPU time of the process.
pub fn process_cpu_ns() -> u64 {
    clock(libc::CLOCK_PROCESS_CPUTIME_ID)
}

/// `CLOCK_MONOTONIC`.
pub fn monotonic_ns() -> u64 {
    clock(libc::CLOCK_MONOTONIC)
}

pub fn thread_id() -> u64 {
    // SAFETY: takes nothing.
    (unsafe { libc::syscall(libc::SYS_gettid) }) as u64
}

/// Works until the thread has used so much more CPU time.
#[inline(never)]
pub fn alpha(cpu_ns: u64) {
    spin::<31>(cpu_ns);
}

/// As [`alpha`], by other instructions: the compiler would make one function of two that are the same.
#[inline(never)]
pub fn beta(cpu_ns: u64) {
    spin::<37>(cpu_ns);
}

#[inline(always)]
fn spin<const FACTOR: u64>(cpu_ns: u64) {
    let until = thread_cpu_ns() + cpu_ns;
    while thread_cpu_ns() < until {
        let mut n = 0_u64;
        for i in 0..20_000_u64 {
            n = black_box(n.wrapping_mul(FACTOR).wrapping_add(i));
        }
    }
}

/// Lets the calling thread run on one CPU only.
pub fn pin(cpu: usize) {
    // SAFETY: zeroes are an empty set, and the pointer is valid.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu, &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set);
    }
}

pub fn is_root() -> bool {
    // SAFETY: takes nothing.
    (unsafe { libc::geteuid() }) == 0
}

/// The whole process becomes an ordinary user.
pub fn become_ordinary() {
    if is_root() {
        // SAFETY: plain numbers. What root dumped is readable again, as of a program that an ordinary user started.
        unsafe {
            assert_eq!(libc::setgid(65534), 0);
            assert_eq!(libc::setuid(65534), 0);
            libc::prctl(libc::PR_SET_DUMPABLE, 1);
        }
    }
}

/// Names the part that this process plays, if it is a child.
pub fn part() -> Option<String> {
    std::env::var("STACKS_TEST_PART").ok()
}

/// Runs this test program again to play a part, in which the test `player` alone runs.
pub fn play(player: &str, part: &str) -> Output {
    play_as(&std::env::current_exe().expect("this test"), player, part)
}

/// As [`play`], from a copy of the program.
pub fn play_as(program: &Path, player: &str, part: &str) -> Output {
    let mut command = Command::new(program);
    command.args(["--exact", player, "--nocapture", "--test-threads=1"]).env("STACKS_TEST_PART", part);
    command.output().expect("the test starts again")
}

/// As [`play`], and fails unless the child ended well.
pub fn play_well(player: &str, part: &str) {
    let output = play(player, part);
    let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    println!("{part}: {text}");
    assert!(output.status.success(), "{part}: {:?}", output.status);
}
