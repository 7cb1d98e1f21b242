//! What each request caused, as it becomes known: its share of the time of its steps, on the host and on the device, and of
//! the energy that was counted.
//!
//! Batches pass here last, when all is known of them that ever will be. Where a counter of energy is read, the record of a
//! request waits for the reading after its last step; without one nothing waits. Both divisions are those of the schema's
//! `accounts`, as reports have them, but for steps inside others, which have their own here.
//!
//! No I/O and no clock.

mod energy;
mod open_account;

pub(crate) use open_account::BatchTime;

use crate::record::{Batch, RequestRecord, StepRecord};
use crate::run::RunManifest;
use candlescope_schema::accounts::{WorkShares, kv_bytes_of_a_token};
use energy::Energy;
use open_account::Account;
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Requests with steps whose records have not gone out.
///
/// Overload policy: beyond this those have no account whose last step is the oldest, because a request that never ends must
/// not cost memory for ever. Their records say nothing of what they caused.
const MOST_OPEN: usize = 16_384;

/// Requests without an account any more that are remembered, because steps of them may still come.
const MOST_GONE: usize = 16_384;

/// Records of requests that wait for a reading of the energy counter.
///
/// Overload policy: beyond this the oldest goes out without its energy.
const MOST_HELD: usize = 4_096;

/// Longest time that a record waits: for the counter, which is read every second, and for what a step in between does.
const PATIENCE: Duration = Duration::from_secs(8);

/// Latest steps of a thread that are remembered for one around them, which comes after them.
const MOST_INSIDE: usize = 64;

/// Threads of which they are.
const MOST_THREADS: usize = 4_096;

/// Times of a step: when it began, and how long it took on the host and on the device, nanoseconds.
#[derive(Debug, Clone, Copy)]
struct PastStep {
    start_ns: i64,
    host_ns: u64,
    gpu_ns: u64,
}

/// Requests whose account was closed. None is opened for them again.
#[derive(Debug, Default)]
struct ClosedRequests {
    latest: VecDeque<u64>,
    numbers: FxHashSet<u64>,
    /// The highest number that is not remembered. Of requests up to it nobody knows.
    before: u64,
}

impl ClosedRequests {
    fn add(&mut self, request: u64) {
        if !self.numbers.insert(request) {
            return;
        }
        self.latest.push_back(request);
        if self.latest.len() > MOST_GONE
            && let Some(oldest) = self.latest.pop_front()
        {
            self.numbers.remove(&oldest);
            self.before = self.before.max(oldest);
        }
    }

    /// Whether a request that has no account has, or may have, had one.
    fn has(&self, request: u64) -> bool {
        request <= self.before || self.numbers.contains(&request)
    }
}

/// See the module's text.
#[derive(Debug, Default)]
pub(crate) struct Accounts {
    work: WorkShares,
    energy: Energy,
    open: BTreeMap<u64, Account>,
    gone: ClosedRequests,
    /// Whether a phase was seen: what is no phase may be the application's then.
    phased: bool,
    threads: FxHashMap<u32, VecDeque<PastStep>>,
    held: VecDeque<(Instant, RequestRecord)>,
}

impl Accounts {
    /// Takes what the manifest says of the model and of where it runs.
    pub(crate) fn learn(&mut self, run: &RunManifest) {
        self.work.set_kv_bytes(kv_bytes_of_a_token(&run.model));
        self.energy.learn(run);
    }

    /// The program works on this device, as its clock or its kernels say.
    pub(crate) fn works_on(&mut self, uuid: &Arc<str>) {
        self.energy.works_on(uuid, &mut self.open);
    }

    /// Whether a counter of energy is read.
    pub(crate) fn counts_energy(&self, at: Instant) -> bool {
        self.energy.is_read(at)
    }

    /// Whether records of requests wait.
    pub(crate) fn is_waiting(&self) -> bool {
        !self.held.is_empty()
    }

    /// Takes a batch, and gives its requests their shares of time.
    pub(crate) fn add(&mut self, batch: &mut Batch, at: Instant) {
        batch.kernels.iter().for_each(|kernel| self.works_on(&kernel.device));
        self.phased |= batch.steps.iter().any(|step| step.phase.is_some());
        // First: steps are kept if a counter is read.
        batch.samples.iter().for_each(|sample| self.energy.sample(sample, at));
        batch.steps.iter().for_each(|step| self.step(step, at));
        batch.requests.iter_mut().for_each(|request| self.give_time(request));
    }

    fn step(&mut self, step: &StepRecord, at: Instant) {
        if self.phased && step.is_application() {
            return;
        }
        let (host_ns, gpu_ns) = self.own_time(step);
        let shares = self.work.of_step(step.request, &step.serves, step.bytes);
        let extent = (step.host_start.0, step.host_start.plus_ns(step.host_dur_ns).0);
        for &(request, share) in &shares {
            if !self.open.contains_key(&request) && self.gone.has(request) {
                self.work.forget(request);
                continue;
            }
            let account = self.open.entry(request).or_default();
            account.steps += 1;
            account.step_ns += host_ns as f64 * share;
            if let Some(ns) = gpu_ns {
                account.device_steps += 1;
                account.device_ns += ns as f64 * share;
            }
            account.energy.step(extent);
        }
        self.energy.step(step.thread.index, extent, shares, at, &mut self.open);
        if self.open.len() > MOST_OPEN {
            self.forget_oldest();
        }
    }

    /// Closes many accounts at once, because all have to be looked at.
    fn forget_oldest(&mut self) {
        let last = self.open.iter().map(|(request, account)| (account.energy.last_end(), *request));
        let mut by_last: Vec<(i64, u64)> = last.collect();
        by_last.sort_unstable();
        for (_, request) in by_last.into_iter().take(MOST_OPEN / 8) {
            self.open.remove(&request);
            self.work.forget(request);
            self.gone.add(request);
        }
    }

    /// The step's time on the host and on the device, without that of steps inside it, which came before it.
    fn own_time(&mut self, step: &StepRecord) -> (u64, Option<u64>) {
        if self.threads.len() >= MOST_THREADS && !self.threads.contains_key(&step.thread.index) {
            self.threads.clear();
        }
        let past = self.threads.entry(step.thread.index).or_default();
        let start_ns = step.host_start.0;
        let gpu_ns = step.gpu.map(|gpu| gpu.dur_ns);
        let inside = past.drain(past.partition_point(|before| before.start_ns < start_ns)..);
        let (host_inside, gpu_inside) =
            inside.fold((0u64, 0u64), |sum, one| (sum.0.saturating_add(one.host_ns), sum.1.saturating_add(one.gpu_ns)));
        // It may be inside another one itself, together with what is inside it.
        past.push_back(PastStep { start_ns, host_ns: step.host_dur_ns, gpu_ns: gpu_ns.unwrap_or(gpu_inside) });
        if past.len() > MOST_INSIDE {
            past.pop_front();
        }
        (step.host_dur_ns.saturating_sub(host_inside), gpu_ns.map(|ns| ns.saturating_sub(gpu_inside)))
    }

    fn give_time(&self, request: &mut RequestRecord) {
        let none = Account::default();
        let account = match self.open.get(&request.request) {
            Some(account) => account,
            None if !self.gone.has(request.request) => &none,
            None => return,
        };
        request.step_count = Some(account.steps);
        request.step_share_ns = Some(account.step_ns.round() as u64);
        request.device_step_count = Some(account.device_steps);
        request.device_share_ns = (account.device_steps > 0).then(|| account.device_ns.round() as u64);
    }

    /// Takes the requests out of a batch that are to wait for the energy counter, and closes the accounts of the others.
    pub(crate) fn hold(&mut self, batch: &mut Batch, at: Instant) {
        let waits = self.energy.is_read(at);
        let (held, mut rest): (Vec<RequestRecord>, Vec<RequestRecord>) = std::mem::take(&mut batch.requests)
            .into_iter()
            .partition(|request| waits && self.open.contains_key(&request.request));
        rest.iter_mut().for_each(|request| self.close(request));
        batch.requests = rest;
        self.held.extend(held.into_iter().map(|request| (at, request)));
    }

    /// Divides what was counted meanwhile. Returns the sums as samples, and the requests that need wait no longer.
    pub(crate) fn settle(&mut self, around: &BatchTime) -> Batch {
        let mut out = Batch::default();
        self.energy.settle(around, &mut self.open, &mut out.samples);
        let mut excess = self.held.len().saturating_sub(MOST_HELD);
        for (since, mut request) in std::mem::take(&mut self.held) {
            let account = self.open.get(&request.request);
            let is_settled = account.is_none_or(|account| self.energy.is_settled(&account.energy));
            if is_settled || excess > 0 || around.is_last || around.at.saturating_duration_since(since) > PATIENCE {
                self.close(&mut request);
                out.requests.push(request);
            } else {
                self.held.push_back((since, request));
            }
            excess = excess.saturating_sub(1);
        }
        out
    }

    /// The requests that wait, with what is known of them.
    pub(crate) fn release(&mut self) -> Batch {
        let mut out = Batch::default();
        for (_, mut request) in std::mem::take(&mut self.held) {
            self.close(&mut request);
            out.requests.push(request);
        }
        out
    }

    /// Completes the record of a request, which goes out.
    fn close(&mut self, request: &mut RequestRecord) {
        self.give_time(request);
        self.work.forget(request.request);
        self.gone.add(request.request);
        let Some(account) = self.open.remove(&request.request) else { return };
        let Some(found) = self.energy.of(request, &account.energy) else { return };
        request.energy_mj = Some(found.joules * 1e3);
        request.energy_low_mj = found.bound.map(|(low, _)| low * 1e3);
        request.energy_high_mj = found.bound.map(|(_, high)| high * 1e3);
    }
}

#[cfg(test)]
#[path = "accounts_tests.rs"]
mod tests;
