//! The times of marks, by lane, kept until the intervals that they belong to have ended.

use crate::HostNs;
use crate::clock::DeviceMapper;
use crate::gpu::{DeviceInfo, DeviceNs, GpuReport, MarkId};
use crate::record::GpuTime;
use crate::run::GpuDeviceAccount;
use crate::vocabulary::GpuSource;
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::VecDeque;
use std::sync::Arc;

/// Marks remembered for one thread. If more marks than this were made inside an interval, it has no GPU time, but its
/// parts do.
const MAX_MARKS: usize = 131_072;

/// Threads that have ended and whose marks are still kept.
const MAX_ENDED: usize = 64;

#[derive(Debug, Clone, Copy)]
struct Time {
    device: u8,
    at: Option<DeviceNs>,
}

#[derive(Debug, Default)]
struct Lane {
    /// Number of the first mark remembered.
    first: Option<MarkId>,
    times: VecDeque<Time>,
}

/// What is known of an interval's two marks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lookup {
    Known(GpuTime),
    /// Only one of them was made.
    OneMark,
    /// The device never reached one of them, or its time cannot be converted.
    Lost,
    /// One of them is too old to be remembered.
    Forgotten,
    /// One of them is not known yet.
    Pending,
}

/// What is known of marks, for all lanes.
#[derive(Debug, Default)]
pub(crate) struct MarkTimes {
    lanes: FxHashMap<u32, Lane>,
    /// Threads that have ended, the oldest first, whose marks are kept for intervals that still wait for them.
    ended: VecDeque<u32>,
    /// Threads whose marks are no longer kept.
    gone: FxHashSet<u32>,
    devices: Vec<(DeviceInfo, DeviceMapper)>,
    timed: u64,
    lost: u64,
    /// How often anything new was learnt.
    learnt: u64,
    #[cfg(test)]
    pub(super) asked: std::cell::Cell<u64>,
}

impl Lane {
    /// How far `id` is from the first mark remembered. It is beyond the end for marks that are still to come, and for
    /// forgotten ones.
    fn offset(&self, id: u32) -> Option<usize> {
        let first = self.first?.0.get();
        // Zero is not used as a number, so a distance across the wrap-around is one shorter.
        let ahead = if id >= first { id - first } else { id.wrapping_sub(first).wrapping_sub(1) };
        Some(ahead as usize)
    }

    fn get(&self, id: u32) -> Result<Time, Lookup> {
        let offset = self.offset(id).ok_or(Lookup::Pending)?;
        match self.times.get(offset) {
            Some(time) => Ok(*time),
            // Numbers up to half the circle ahead are still to come; the others are in the past.
            None if offset < (1 << 31) => Err(Lookup::Pending),
            None => Err(Lookup::Forgotten),
        }
    }
}

impl MarkTimes {
    /// A thread has ended. The marks of the last few such threads are kept.
    pub(crate) fn thread_ended(&mut self, thread: u32) {
        if !self.lanes.contains_key(&thread) {
            return;
        }
        self.learnt += 1;
        self.ended.push_back(thread);
        if self.ended.len() > MAX_ENDED
            && let Some(oldest) = self.ended.pop_front()
        {
            self.lanes.remove(&oldest);
            self.gone.insert(oldest);
        }
    }

    pub(crate) fn take(&mut self, report: GpuReport) {
        match report {
            GpuReport::Device { device, info } => {
                let at = device as usize;
                let unknown = || DeviceInfo { uuid: "unknown".into(), name: "unknown".into() };
                while self.devices.len() <= at {
                    self.devices.push((unknown(), DeviceMapper::default()));
                }
                self.devices[at].0 = info;
            }
            GpuReport::Anchor { device, at, host, bound_ns } => {
                if let Some((_, mapper)) = self.devices.get_mut(device as usize) {
                    mapper.anchor(at, host, bound_ns);
                }
            }
            GpuReport::Mark { thread, id, device, at } => {
                self.learnt += 1;
                match at {
                    Some(_) => self.timed += 1,
                    None => self.lost += 1,
                }
                if self.gone.contains(&thread) {
                    return;
                }
                let lane = self.lanes.entry(thread).or_default();
                lane.first.get_or_insert(id);
                lane.times.push_back(Time { device, at });
                if lane.times.len() > MAX_MARKS {
                    lane.times.pop_front();
                    lane.first = lane.first.map(MarkId::next);
                }
            }
        }
    }

    /// Changes whenever further marks may have become known. Known marks stay known.
    pub(crate) fn learnt(&self) -> u64 {
        self.learnt
    }

    /// Whether nothing more will be learnt about these marks.
    pub(crate) fn is_known(&self, thread: u32, marks: [u32; 2]) -> bool {
        #[cfg(test)]
        self.asked.set(self.asked.get() + 1);
        let known = |id: u32| {
            id == 0
                || self.gone.contains(&thread)
                || self.lanes.get(&thread).is_some_and(|lane| !matches!(lane.get(id), Err(Lookup::Pending)))
        };
        marks.into_iter().all(known)
    }

    /// GPU time between two marks of a thread.
    pub(crate) fn between(&self, thread: u32, marks: [u32; 2]) -> Lookup {
        if marks.contains(&0) {
            return Lookup::OneMark;
        }
        let Some(lane) = self.lanes.get(&thread) else {
            return if self.gone.contains(&thread) { Lookup::Forgotten } else { Lookup::Pending };
        };
        let (start, end) = match (lane.get(marks[0]), lane.get(marks[1])) {
            (Ok(start), Ok(end)) => (start, end),
            (Err(why), _) | (_, Err(why)) => return why,
        };
        let (Some(from), Some(to)) = (self.host(start), self.host(end)) else { return Lookup::Lost };
        let dur_ns = match (start.at, end.at) {
            // On one device, its own clock is used: no error from converting between clocks.
            (Some(a), Some(b)) if start.device == end.device => u64::try_from(b.0 - a.0).unwrap_or(0),
            // Work went on to another device in between: both times are on the host's time line.
            _ => to.since(from),
        };
        Lookup::Known(GpuTime { start: from, dur_ns, source: GpuSource::Event })
    }

    fn host(&self, time: Time) -> Option<HostNs> {
        self.devices.get(time.device as usize)?.1.to_host(time.at?)
    }

    /// Marks timed and lost so far.
    pub(crate) fn marks(&self) -> (u64, u64) {
        (self.timed, self.lost)
    }

    /// UUIDs of the devices that have marks.
    pub(crate) fn uuids(&self) -> impl Iterator<Item = &Arc<str>> {
        self.devices.iter().map(|(info, _)| &info.uuid)
    }

    /// The accounts of the devices, for the manifest.
    pub(crate) fn devices(&self) -> Vec<GpuDeviceAccount> {
        let account = |(info, mapper): &(DeviceInfo, DeviceMapper)| GpuDeviceAccount {
            uuid: info.uuid.to_string(),
            name: info.name.to_string(),
            skew_bound_ns: mapper.skew_bound_ns(),
            drift_ppm: mapper.drift_ppm(),
            anchors_dropped: mapper.dropped(),
            anchors: mapper.anchors().to_vec(),
        };
        self.devices.iter().map(account).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::num::NonZeroU32;

    fn id(n: u32) -> MarkId {
        MarkId(NonZeroU32::new(n).unwrap())
    }

    fn with_devices() -> MarkTimes {
        let mut t = MarkTimes::default();
        for device in 0..2 {
            let info = DeviceInfo { uuid: "u".into(), name: "n".into() };
            t.take(GpuReport::Device { device, info });
            let offset = i64::from(device) * 500;
            t.take(GpuReport::Anchor { device, at: DeviceNs(offset), host: HostNs(1_000_000), bound_ns: 1 });
        }
        t
    }

    fn mark(t: &mut MarkTimes, n: u32, device: u8, at: Option<i64>) {
        t.take(GpuReport::Mark { thread: 1, id: id(n), device, at: at.map(DeviceNs) });
    }

    #[test]
    fn time_between_marks_of_one_device() {
        let mut t = with_devices();
        mark(&mut t, 1, 0, Some(100));
        assert!(t.is_known(1, [1, 1]) && !t.is_known(1, [1, 2]));
        assert_eq!(t.between(1, [1, 2]), Lookup::Pending);
        mark(&mut t, 2, 0, Some(350));
        let expected = GpuTime { start: HostNs(1_000_100), dur_ns: 250, source: GpuSource::Event };
        assert_eq!(t.between(1, [1, 2]), Lookup::Known(expected));
        assert_eq!(t.between(1, [0, 2]), Lookup::OneMark);
    }

    #[test]
    fn work_that_moves_to_another_device_is_timed_on_the_hosts_line() {
        let mut t = with_devices();
        mark(&mut t, 1, 0, Some(100));
        mark(&mut t, 2, 1, Some(1_000));
        let expected = GpuTime { start: HostNs(1_000_100), dur_ns: 400, source: GpuSource::Event };
        assert_eq!(t.between(1, [1, 2]), Lookup::Known(expected));
    }

    #[test]
    fn a_lost_mark_costs_its_intervals_only() {
        let mut t = with_devices();
        mark(&mut t, 1, 0, Some(1));
        mark(&mut t, 2, 0, None);
        mark(&mut t, 3, 0, Some(9));
        assert_eq!(t.between(1, [1, 2]), Lookup::Lost);
        assert!(matches!(t.between(1, [1, 3]), Lookup::Known(_)));
        assert_eq!(t.marks(), (2, 1));
    }

    #[test]
    fn numbers_go_round() {
        let mut t = with_devices();
        mark(&mut t, u32::MAX - 1, 0, Some(10));
        mark(&mut t, u32::MAX, 0, Some(20));
        assert!(!t.is_known(1, [u32::MAX, 1]));
        mark(&mut t, 1, 0, Some(30));
        mark(&mut t, 2, 0, Some(45));
        let dur = |marks| match t.between(1, marks) {
            Lookup::Known(gpu) => gpu.dur_ns,
            other => panic!("{other:?}"),
        };
        assert_eq!((dur([u32::MAX, 1]), dur([1, 2]), dur([u32::MAX - 1, 2])), (10, 15, 35));
        assert!(!t.is_known(1, [2, 3]));
    }

    #[test]
    fn old_marks_are_forgotten_and_said_to_be() {
        let mut t = with_devices();
        for n in 1..=(MAX_MARKS as u32 + 10) {
            mark(&mut t, n, 0, Some(i64::from(n)));
        }
        assert_eq!(t.between(1, [5, 200]), Lookup::Forgotten);
        assert!(t.is_known(1, [5, 200]));
        assert!(matches!(t.between(1, [11, 200]), Lookup::Known(_)));
        assert_eq!(t.lanes[&1].times.len(), MAX_MARKS);
    }
}
