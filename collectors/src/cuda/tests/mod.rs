//! The clock over a scripted driver: no hardware.

mod allocation;
mod anchors;
mod fake;
mod losses;
mod marks;

use super::driver_calls::StreamId;
use super::lane::Lane;
use super::mark_pools::MarkPools;
use super::poll::Poller;
use crate::driver_gate::Gate;
use candlescope_core::HostNs;
use candlescope_core::gpu::{DeviceInfo, DeviceNs, GpuLane, GpuReport, MarkId, NoMark};
use fake::{Fake, context};
use std::sync::Arc;
use std::time::Duration;

const STREAM: StreamId = StreamId::PER_THREAD;

/// A clock over a scripted driver, and what it reported.
struct Rig {
    fake: Fake,
    shared: Arc<MarkPools<Fake>>,
    poller: Poller<Fake>,
    reports: Vec<GpuReport>,
    gate: &'static Gate,
}

/// A mark as reported.
#[derive(Debug, Clone, Copy, PartialEq)]
struct ReportedMark {
    thread: u32,
    id: u32,
    device: u8,
    at: Option<DeviceNs>,
}

impl Rig {
    /// One context on each device.
    fn new(devices: usize, in_flight: usize) -> Self {
        let ordinals: Vec<_> = (0..devices).collect();
        Self::with(&ordinals, in_flight, Duration::from_secs(30))
    }

    fn with(ordinals: &[usize], in_flight: usize, age_out: Duration) -> Self {
        let fake = Fake::new(ordinals);
        let shared = Arc::new(MarkPools::new(fake.clone(), in_flight, Vec::new()));
        let info = |n: usize| DeviceInfo { uuid: format!("GPU-{n}").into(), name: "fake".into() };
        let devices = (0..=ordinals.iter().copied().max().unwrap_or(0)).map(info).collect();
        // Other tests of the process detach CUPTI.
        let gate: &'static Gate = Box::leak(Box::new(Gate::new()));
        let poller = Poller::new(shared.clone(), devices, age_out).behind(gate);
        Self { gate, fake, shared, poller, reports: Vec::new() }
    }

    fn lane(&self, thread: u32) -> Lane<Fake> {
        Lane::new(self.shared.clone(), thread, MarkId::FIRST)
    }

    fn poll(&mut self) {
        let fake = self.fake.clone();
        self.poller.poll(&|| fake.host(), &mut |report| self.reports.push(report));
        assert_eq!(self.fake.state().breaches, 0, "a query that would have broken a capture");
    }

    /// Lets time pass, polling every 5 ms.
    fn run_ms(&mut self, ms: i64) {
        for _ in 0..ms / 5 {
            self.fake.pass_ns(5_000_000);
            self.poll();
        }
    }

    fn marks(&self) -> Vec<ReportedMark> {
        let seen = |report: &GpuReport| match *report {
            GpuReport::Mark { thread, id, device, at } => Some(ReportedMark { thread, id: id.0.get(), device, at }),
            _ => None,
        };
        self.reports.iter().filter_map(seen).collect()
    }

    /// Host time and bound of each anchor of `device`, with the device's time.
    fn anchors(&self, of: u8) -> Vec<(DeviceNs, HostNs, u64)> {
        let anchor = |report: &GpuReport| match *report {
            GpuReport::Anchor { device, at, host, bound_ns } if device == of => Some((at, host, bound_ns)),
            _ => None,
        };
        self.reports.iter().filter_map(anchor).collect()
    }

    fn count(&self, name: &str) -> u64 {
        self.poller.statistics()[name].as_u64().expect("a number")
    }

    /// Everything recorded is accounted for.
    fn assert_balance(&self) {
        let parts = ["timed", "aged", "refused_by_driver", "lost_with_context", "unanchored", "under_way"];
        let sum: u64 = parts.iter().map(|part| self.count(&format!("marks_{part}"))).sum();
        assert_eq!(sum, self.count("marks_recorded"), "{:?}", self.poller.statistics());
        let reported = self.marks().len() as u64;
        assert_eq!(reported + self.poller.backlog() as u64, self.count("marks_recorded"));
    }
}
