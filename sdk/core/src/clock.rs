//! The one place where clocks are read and converted. Everywhere else time is a [`HostNs`] or a plain duration.
//!
//! The hot path reads raw ticks (the CPU's time-stamp counter if it is invariant, through `quanta`) and nothing else.
//! The drain thread converts ticks to Unix nanoseconds with a linear mapping, which it regularly re-anchors against the
//! monotonic clock, so that a calibration error does not add up over a long run, and what it added until then is taken
//! back: several processes of a machine have one time line. (On a busy machine the first calibration was 18 parts per
//! million off, and two ranks' clocks 18 µs after a second.) The system's wall clock is read once for the origin: if it
//! is set later, the time line goes on unchanged.

mod device_clock;

use crate::HostNs;
use crate::run::{ClockAnchor, ClockInfo};
pub(crate) use device_clock::DeviceMapper;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Raw reading of the hot path's clock, meaningless outside this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) struct Ticks(pub(crate) u64);

/// Reads the hot path's clock.
#[derive(Debug, Clone)]
pub(crate) struct TickSource {
    clock: quanta::Clock,
}

impl TickSource {
    pub(crate) fn new() -> Self {
        Self { clock: quanta::Clock::new() }
    }

    #[inline(always)]
    pub(crate) fn now(&self) -> Ticks {
        Ticks(self.clock.raw())
    }
}

/// The moment `timeout` from now; at most a century from now, because a longer timeout would overflow.
pub(crate) fn deadline(timeout: Duration) -> Instant {
    const CENTURY: Duration = Duration::from_secs(100 * 365 * 86_400);
    Instant::now() + timeout.min(CENTURY)
}

/// Converts ticks to Unix nanoseconds. Lives on the drain thread.
#[derive(Debug)]
pub(crate) struct TickMapper {
    source: TickSource,
    /// Start of the run: a long baseline for the slope.
    first: (Ticks, Instant),
    /// Wall clock at that moment, Unix nanoseconds.
    origin_ns: i64,
    /// Nanoseconds per tick as last measured.
    ns_per_tick: f64,
    /// Whether a tick is a nanosecond of the monotonic clock, because the CPU has no counter to rely on.
    is_monotonic: bool,
    /// The mapping: straight pieces that join, the current one last. A tick is converted by the piece that it falls
    /// into, so it maps to the same time whenever it is converted, and a request is never shorter than its steps.
    pieces: Vec<Piece>,
    anchors: Vec<ClockAnchor>,
    last_resync: Instant,
    /// The current piece, for other threads.
    shared: Arc<Mutex<Piece>>,
}

/// Reads the host's clock on the mapper's time line, from any background thread.
#[derive(Debug, Clone)]
pub(crate) struct HostClock {
    source: TickSource,
    piece: Arc<Mutex<Piece>>,
}

impl HostClock {
    pub(crate) fn now(&self) -> HostNs {
        // The lock is taken first: waiting for it must not lie between reading the clock and using the reading.
        let piece = *self.piece.lock().unwrap_or_else(PoisonError::into_inner);
        piece.map(self.source.now())
    }

    /// One whose time line is so many nanoseconds ahead.
    #[cfg(test)]
    pub(crate) fn shifted(self, ns: i64) -> Self {
        let mut piece = *self.piece.lock().unwrap_or_else(PoisonError::into_inner);
        piece.mapped_ns += ns;
        piece.after_ns += ns;
        Self { source: self.source, piece: Arc::new(Mutex::new(piece)) }
    }
}

#[derive(Debug, Clone, Copy)]
struct Piece {
    ticks: Ticks,
    mapped_ns: i64,
    ns_per_tick: f64,
    /// Nanoseconds of each of its first ticks, which take back an error.
    steeper: f64,
    /// How many do: after them nothing is left to take back, however late the next piece comes.
    steeper_ticks: i64,
    /// What stands for `mapped_ns` after them.
    after_ns: i64,
}

impl Piece {
    /// One that takes back a share `back` of the time of so many ticks.
    fn new(ticks: Ticks, mapped_ns: i64, ns_per_tick: f64, back: f64, steeper_ticks: i64) -> Self {
        let steeper = ns_per_tick * (1.0 + back);
        let taken = (steeper_ticks as f64 * steeper) as i64 - (steeper_ticks as f64 * ns_per_tick) as i64;
        Self { ticks, mapped_ns, ns_per_tick, steeper, steeper_ticks, after_ns: mapped_ns + taken }
    }

    #[inline]
    fn map(&self, ticks: Ticks) -> HostNs {
        let delta = ticks.0.wrapping_sub(self.ticks.0) as i64;
        let is_steeper = delta < self.steeper_ticks;
        let (from, slope) = if is_steeper { (self.mapped_ns, self.steeper) } else { (self.after_ns, self.ns_per_tick) };
        HostNs(from + (delta as f64 * slope) as i64)
    }
}

/// The shortest time over which a slope is measured: reading errors at both ends, about 50 ns each, make two parts per
/// million of it.
const MEASURABLE: Duration = Duration::from_millis(50);

/// Until when re-anchoring is due first. What quanta's calibration is off by adds up until then.
const FIRST_RESYNC: Duration = Duration::from_millis(100);

/// What is taken back of an error in a second at most, as a share: durations are wrong by as much meanwhile.
const STEEPEST: f64 = 1e-4;

/// From this difference between two slopes on, one of the clocks stood still: a machine slept.
const JUMP: f64 = 0.01;

/// Pieces kept: at one every ten seconds, half an hour. Earlier ticks are mapped by the oldest piece.
const MAX_PIECES: usize = 192;

/// More anchors than this are thinned out, so that the list of a long run stays bounded.
const MAX_ANCHORS: usize = 512;

impl TickMapper {
    pub(crate) fn new(source: TickSource) -> Self {
        // quanta's calibration gives the first slope; reading a long delta keeps its fixed-point error small.
        let span = 1u64 << 40;
        let of_span = source.clock.delta_as_nanos(1, 1 + span);
        let ns_per_tick = of_span as f64 / span as f64;
        let (ticks, instant, system) = simultaneous(&source);
        let piece = Piece::new(ticks, system, ns_per_tick, 0.0, 0);
        Self {
            source,
            first: (ticks, instant),
            origin_ns: system,
            ns_per_tick,
            is_monotonic: of_span == span,
            pieces: vec![piece],
            anchors: vec![ClockAnchor { ticks: ticks.0, mapped_ns: system, system_ns: system }],
            last_resync: instant,
            shared: Arc::new(Mutex::new(piece)),
        }
    }

    /// A host clock for other threads.
    pub(crate) fn host_clock(&self) -> HostClock {
        HostClock { source: self.source.clone(), piece: self.shared.clone() }
    }

    /// The host's time now.
    pub(crate) fn now(&self) -> HostNs {
        self.to_host(self.source.now())
    }

    /// The host's time less that of the system's monotonic clock, nanoseconds: what to add to a reading of that clock
    /// that was taken not long ago.
    pub(crate) fn monotonic_offset(&self) -> i64 {
        #[cfg(target_os = "linux")]
        {
            let mut best = (u64::MAX, 0);
            for _ in 0..3 {
                let before = self.source.now();
                let read = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
                let width = self.source.now().0.saturating_sub(before.0);
                let at = self.to_host(Ticks(before.0 + width / 2));
                let offset = at.0 - (read.tv_sec * 1_000_000_000 + read.tv_nsec);
                best = best.min((width, offset));
            }
            best.1
        }
        #[cfg(not(target_os = "linux"))]
        {
            0
        }
    }

    /// Unix nanoseconds of `ticks`.
    #[inline]
    pub(crate) fn to_host(&self, ticks: Ticks) -> HostNs {
        let current = &self.pieces[self.pieces.len() - 1];
        if ticks >= current.ticks { current.map(ticks) } else { self.piece_of(ticks).map(ticks) }
    }

    #[cold]
    fn piece_of(&self, ticks: Ticks) -> &Piece {
        let after = self.pieces.partition_point(|p| p.ticks <= ticks);
        &self.pieces[after.saturating_sub(1)]
    }

    /// Nanoseconds per tick, as last measured.
    pub(crate) fn ns_per_tick(&self) -> f64 {
        self.ns_per_tick
    }

    /// Nanoseconds between two readings; zero if `end` is before `start`.
    #[cfg(test)]
    pub(crate) fn duration_ns(&self, start: Ticks, end: Ticks) -> u64 {
        self.to_host(end).since(self.to_host(start))
    }

    /// Re-anchors if it is due.
    pub(crate) fn maybe_resync(&mut self) {
        if self.last_resync.elapsed() >= self.due() {
            self.resync();
        }
    }

    /// From one re-anchoring to the next: a tenth of a second at first, as long again as the run until then, a second in the
    /// first ten seconds, ten seconds later.
    fn due(&self) -> Duration {
        let age = self.last_resync.duration_since(self.first.1);
        if age < Duration::from_secs(10) {
            age.clamp(FIRST_RESYNC, Duration::from_secs(1))
        } else {
            Duration::from_secs(10)
        }
    }

    /// Re-anchors now. The mapping stays continuous; only its slope changes.
    pub(crate) fn resync(&mut self) {
        let (ticks, instant, system) = simultaneous(&self.source);
        self.anchor(ticks, instant, system);
    }

    fn anchor(&mut self, ticks: Ticks, instant: Instant, system: i64) {
        let mapped = self.to_host(ticks).0;
        if self.jumped(ticks, instant) {
            // What was measured across that is no slope. The time line goes on from here.
            (self.first, self.origin_ns) = ((ticks, instant), mapped);
        }
        let elapsed = instant.duration_since(self.first.1);
        if elapsed >= MEASURABLE && ticks > self.first.0 {
            self.ns_per_tick = elapsed.as_nanos() as f64 / (ticks.0 - self.first.0.0) as f64;
        }
        self.last_resync = instant;
        // Until the next one, but not sooner than in a second.
        let over = self.due().max(Duration::from_secs(1)).as_nanos() as f64;
        let behind = self.origin_ns + elapsed.as_nanos() as i64 - mapped;
        let back = (behind as f64 / over).clamp(-STEEPEST, STEEPEST);
        if self.pieces.len() >= MAX_PIECES {
            self.pieces.remove(0);
        }
        let piece = Piece::new(ticks, mapped, self.ns_per_tick, back, (over / self.ns_per_tick) as i64);
        self.pieces.push(piece);
        *self.shared.lock().unwrap_or_else(PoisonError::into_inner) = piece;
        if self.anchors.len() >= MAX_ANCHORS {
            let mut keep = false;
            self.anchors.retain(|_| {
                keep = !keep;
                keep
            });
        }
        self.anchors.push(ClockAnchor { ticks: ticks.0, mapped_ns: mapped, system_ns: system });
    }

    /// Whether one of the clocks stood still since the last reading, while the other went on.
    fn jumped(&self, ticks: Ticks, instant: Instant) -> bool {
        let last = &self.pieces[self.pieces.len() - 1];
        let since = instant.duration_since(self.last_resync);
        let is_measured = self.last_resync.duration_since(self.first.1) >= MEASURABLE;
        if !is_measured || since < MEASURABLE || ticks <= last.ticks {
            return false;
        }
        let lately = since.as_nanos() as f64 / (ticks.0 - last.ticks.0) as f64;
        (lately / self.ns_per_tick - 1.0).abs() > JUMP
    }

    /// For the manifest.
    pub(crate) fn info(&self) -> ClockInfo {
        let n = 1000;
        let start = Instant::now();
        for _ in 0..n {
            std::hint::black_box(self.source.now());
        }
        ClockInfo {
            source: if self.is_monotonic { "monotonic" } else { "tsc" }.to_string(),
            ticks_per_second: 1e9 / self.ns_per_tick(),
            read_ns: start.elapsed().as_nanos() as f64 / f64::from(n),
            anchors: self.anchors.clone(),
        }
    }
}

/// Ticks, monotonic clock and wall clock read at nearly the same moment: the try with the shortest bracket of a few.
fn simultaneous(source: &TickSource) -> (Ticks, Instant, i64) {
    let mut best: Option<(u64, (Ticks, Instant, i64))> = None;
    for _ in 0..5 {
        let before = source.now();
        let instant = Instant::now();
        let system = HostNs::now().0;
        let after = source.now();
        let width = after.0.saturating_sub(before.0);
        if best.as_ref().is_none_or(|(w, _)| width < *w) {
            best = Some((width, (Ticks(before.0 + width / 2), instant, system)));
        }
    }
    // The loop runs at least once, so `best` is always set.
    best.map(|(_, b)| b).unwrap_or_else(|| (source.now(), Instant::now(), HostNs::now().0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maps_to_the_system_clock_within_a_millisecond() {
        let source = TickSource::new();
        let mut mapper = TickMapper::new(source.clone());
        std::thread::sleep(Duration::from_millis(300));
        mapper.resync();
        std::thread::sleep(Duration::from_millis(50));
        let mapped = mapper.to_host(source.now());
        let system = HostNs::now();
        let skew = (mapped.0 - system.0).abs();
        assert!(skew < 1_000_000, "skew of {skew} ns");
    }

    #[test]
    fn durations_match_the_monotonic_clock() {
        let source = TickSource::new();
        let mapper = TickMapper::new(source.clone());
        let (a, ia) = (source.now(), Instant::now());
        std::thread::sleep(Duration::from_millis(20));
        let (b, ib) = (source.now(), Instant::now());
        let ours = mapper.duration_ns(a, b) as f64;
        let theirs = ib.duration_since(ia).as_nanos() as f64;
        assert!((ours / theirs - 1.0).abs() < 0.01, "{ours} vs {theirs}");
        assert_eq!(mapper.duration_ns(b, a), 0);
    }

    #[test]
    fn a_tick_maps_to_the_same_time_whenever_it_is_converted() {
        let source = TickSource::new();
        let mut mapper = TickMapper::new(source.clone());
        std::thread::sleep(Duration::from_millis(210));
        let early = source.now();
        let early_mapped = mapper.to_host(early);
        for _ in 0..3 {
            std::thread::sleep(Duration::from_millis(20));
            mapper.resync();
        }
        assert_eq!(mapper.to_host(early), early_mapped);
        // The pieces join: time never runs backwards across them.
        let (first, last) = (early.0, source.now().0);
        let times: Vec<_> = (0..=1000).map(|i| mapper.to_host(Ticks(first + (last - first) / 1000 * i))).collect();
        assert!(times.windows(2).all(|w| w[0] <= w[1]));
    }

    #[test]
    fn what_a_wrong_calibration_added_is_taken_back() {
        let mut mapper = TickMapper::new(TickSource::new());
        let (first, began, origin) = (mapper.first.0, mapper.first.1, mapper.origin_ns);
        let truth = mapper.ns_per_tick;
        // Seen on a busy machine: 18 parts per million.
        mapper.ns_per_tick *= 1.0 + 18e-6;
        mapper.pieces[0] = Piece::new(first, origin, mapper.ns_per_tick, 0.0, 0);
        let mut off = Vec::new();
        let mut at = Duration::ZERO;
        while at < Duration::from_secs(40) {
            at += mapper.due();
            let ticks = Ticks(first.0 + (at.as_nanos() as f64 / truth) as u64);
            off.push((at.as_millis(), mapper.to_host(ticks).0 - origin - at.as_nanos() as i64));
            mapper.anchor(ticks, began + at, 0);
        }
        // Never more than it adds in a tenth of a second, and nothing for long.
        assert!((1_700..=1_900).contains(&off[0].1), "{off:?}");
        assert!(off.iter().all(|(_, ns)| ns.abs() <= 1_900), "{off:?}");
        assert!(off.iter().filter(|(ms, _)| *ms > 5_000).all(|(_, ns)| ns.abs() <= 20), "{off:?}");
        assert!((mapper.ns_per_tick() / truth - 1.0).abs() < 1e-8, "the rate that is told is the one measured");
        // Of an error that no calibration makes, a little at a time.
        mapper.origin_ns += 1_000_000_000;
        let late = at + Duration::from_secs(10);
        let ticks = Ticks(first.0 + (late.as_nanos() as f64 / truth) as u64);
        mapper.anchor(ticks, began + late, 0);
        let slope = mapper.pieces[mapper.pieces.len() - 1].steeper;
        assert!((slope / truth - 1.0 - STEEPEST).abs() < 1e-7, "{slope} {truth}");
    }

    #[test]
    fn an_error_is_taken_back_once_however_late_the_next_reading_is() {
        let mut mapper = TickMapper::new(TickSource::new());
        let (first, began, origin, truth) = (mapper.first.0, mapper.first.1, mapper.origin_ns, mapper.ns_per_tick);
        mapper.pieces[0] = Piece::new(first, origin, truth * (1.0 + 18e-6), 0.0, 0);
        let ticks = |ms: u64| Ticks(first.0 + (ms as f64 * 1e6 / truth) as u64);
        mapper.anchor(ticks(500), began + Duration::from_millis(500), 0);
        let off = |ms: u64| mapper.to_host(ticks(ms)).0 - origin - ms as i64 * 1_000_000;
        assert!((8_900..=9_100).contains(&off(500)) && (4_400..=4_600).contains(&off(1_000)), "{}", off(500));
        assert!(off(1_500).abs() <= 1_000 && off(10_000).abs() <= 1_000, "{} {}", off(1_500), off(10_000));
    }

    #[test]
    fn a_machine_that_slept_is_measured_anew() {
        let mut mapper = TickMapper::new(TickSource::new());
        let (first, began, truth) = (mapper.first.0, mapper.first.1, mapper.ns_per_tick);
        let ticks = |ms: u64| Ticks(first.0 + (ms as f64 * 1e6 / truth) as u64);
        // The counter goes on for a minute, the monotonic clock does not.
        for (counter, monotonic) in [(100, 100), (1_000, 1_000), (62_000, 2_000), (63_000, 3_000), (64_000, 4_000)] {
            mapper.anchor(ticks(counter), began + Duration::from_millis(monotonic), 0);
        }
        assert!((mapper.ns_per_tick() / truth - 1.0).abs() < 1e-6, "{} {truth}", mapper.ns_per_tick());
        let second = mapper.duration_ns(ticks(70_000), ticks(71_000));
        assert!(second.abs_diff(1_000_000_000) <= 1_000, "{second}");
    }

    #[test]
    fn resync_is_continuous() {
        let source = TickSource::new();
        let mut mapper = TickMapper::new(source.clone());
        std::thread::sleep(Duration::from_millis(250));
        let t = source.now();
        let before = mapper.to_host(t);
        mapper.resync();
        let after = mapper.to_host(t);
        assert!((before.0 - after.0).abs() < 1_000, "{before:?} {after:?}");
    }
}
