//! One GPU's power and energy sensors as a curve of energy over time, and how far it can be trusted.
//!
//! The counter of total energy is read about once a second; power is read ten to twenty times a second. So the curve
//! goes through the counter's readings and is interpolated between them by power. Both sensors are updated only about
//! every 100 ms [zeus `monitor/energy.py`; arXiv 2312.02741], so a reading may be that much older than it seems: that
//! is one term of the bound. The other is the sensor's own accuracy, which no number of samples improves.

use super::stats::percentile;
pub use candlescope_schema::accounts::energy_curve::{ACCURACY, SENSOR_PERIOD_NS};
use candlescope_schema::accounts::energy_curve::{anchored, at, integral};

/// A window of fewer sensor periods is below resolution.
pub const RESOLVED_PERIODS: u64 = 5;

/// Energy over a window, from the curve. Joules.
///
/// `low` and `high` cover the known uncertainties: the sensor's period and its stated accuracy. Unknown ones, such as
/// power that swings between two samples, are not included.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Joules {
    /// The best estimate. Divided by the time, it is between the lowest and the highest power sampled in it.
    pub joules: f64,
    /// The estimate less both terms.
    pub low: f64,
    /// The estimate and both terms.
    pub high: f64,
    /// The most energy that one sensor period can misplace, down and up.
    pub by_period: (f64, f64),
    /// [`ACCURACY`] of the estimate.
    pub by_accuracy: f64,
    /// The estimate less idle power × time; `None` if idle power is not known, or above the mean power.
    pub net: Option<f64>,
    /// The estimated idle power is above the mean power: one of the two is wrong for this time.
    pub idle_above_mean: bool,
    /// Time it is over, in nanoseconds.
    pub time_ns: u64,
    /// The window is too short for the sensor: the estimate is power × time, and only the bound means something.
    pub below_resolution: bool,
}

impl Joules {
    /// Mean power in watts.
    pub fn watts(&self) -> Option<f64> {
        (self.time_ns > 0).then(|| self.joules * 1e9 / self.time_ns as f64)
    }

    /// The sum of two GPUs' energy over the same time.
    #[must_use]
    pub fn plus(self, other: Joules) -> Joules {
        Joules {
            joules: self.joules + other.joules,
            low: self.low + other.low,
            high: self.high + other.high,
            by_period: (self.by_period.0 + other.by_period.0, self.by_period.1 + other.by_period.1),
            // All GPUs have the same kind of sensor, so all may read too low, or all too high.
            by_accuracy: self.by_accuracy + other.by_accuracy,
            idle_above_mean: self.idle_above_mean || other.idle_above_mean,
            net: self.net.zip(other.net).map(|(a, b)| a + b),
            time_ns: self.time_ns.max(other.time_ns),
            below_resolution: self.below_resolution || other.below_resolution,
        }
    }
}

/// Power while nothing runs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Idle {
    /// Power of one GPU in watts: a median or the lowest level, as `from` says.
    pub watts: f64,
    /// Where it was measured.
    pub from: IdleFrom,
}

/// Where idle power was measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IdleFrom {
    /// Median of this many samples after the first step began, outside all steps and requests.
    Between(usize),
    /// Lowest level that three consecutive samples had outside steps, loading included: idle power is at most this.
    Lowest,
}

impl IdleFrom {
    /// As `metrics.json` has it.
    pub fn as_str(self) -> &'static str {
        match self {
            IdleFrom::Between(_) => "between_steps",
            IdleFrom::Lowest => "lowest_outside_steps",
        }
    }
}

/// The counter's difference compared with the integral of power over the same time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SensorCheck {
    /// From the counter, in joules.
    pub counter_joules: f64,
    /// From power, in joules.
    pub power_joules: f64,
    /// Time between the counter's first and last reading, in nanoseconds.
    pub time_ns: u64,
}

impl SensorCheck {
    /// Integral of power ÷ difference of the counter: 1 if both agree.
    pub fn ratio(&self) -> Option<f64> {
        (self.counter_joules > 0.0).then(|| self.power_joules / self.counter_joules)
    }

    /// How far the ratio may be from 1 because of the sensors' periods alone.
    pub fn tolerance(&self) -> f64 {
        0.1 + 2.0 * SENSOR_PERIOD_NS as f64 / self.time_ns.max(1) as f64
    }
}

/// One GPU's energy over time, from readings of its power and of its counter of total energy.
#[derive(Debug, Clone, PartialEq)]
pub struct Sensor {
    /// Energy in joules at ascending times (Unix nanoseconds); linear in between.
    curve: Vec<(i64, f64)>,
    /// Power as sampled, in watts, at ascending times; empty if there is only the counter.
    power: Vec<(i64, f64)>,
    /// Smallest and largest of it.
    watts: (f64, f64),
    /// Time between updates of the sensor, in nanoseconds.
    pub period_ns: u64,
    /// Whether the curve uses the counter, and not power alone.
    pub has_counter: bool,
    /// The counter compared with power, if there are both.
    pub check: Option<SensorCheck>,
    /// Power while nothing runs, if known.
    pub idle: Option<Idle>,
}

impl Sensor {
    /// A curve from readings of power (watts) and of the counter (joules), each a time and a value, in any order.
    pub fn of(mut power: Vec<(i64, f64)>, mut counter: Vec<(i64, f64)>) -> Option<Self> {
        for list in [&mut power, &mut counter] {
            list.retain(|(_, value)| value.is_finite() && *value >= 0.0);
            list.sort_by_key(|(time, _)| *time);
            list.dedup_by_key(|(time, _)| *time);
        }
        // A counter that falls was reset (the driver was reloaded) and says nothing about the time before.
        if counter.windows(2).any(|w| w[1].1 < w[0].1) || counter.len() < 2 {
            counter.clear();
        }
        let by_power = integral(&power);
        if by_power.len() < 2 {
            return Self::of_counter(counter);
        }
        let period_ns = period(&power);
        let (first, last) = (power[0].0, power[power.len() - 1].0);
        counter.retain(|(time, _)| (first..=last).contains(time));
        let check = counter.first().zip(counter.last()).filter(|(a, b)| b.0 > a.0).map(|(a, b)| SensorCheck {
            counter_joules: b.1 - a.1,
            power_joules: at(&by_power, b.0) - at(&by_power, a.0),
            time_ns: b.0.abs_diff(a.0),
        });
        let watts = power.iter().fold((f64::INFINITY, 0.0f64), |(low, high), (_, w)| (low.min(*w), high.max(*w)));
        Some(Self {
            has_counter: check.is_some(),
            curve: if check.is_some() { anchored(&by_power, &counter) } else { by_power },
            watts,
            power,
            period_ns,
            check,
            idle: None,
        })
    }

    fn of_counter(counter: Vec<(i64, f64)>) -> Option<Self> {
        let slopes: Vec<f64> =
            counter.windows(2).map(|w| (w[1].1 - w[0].1) * 1e9 / w[1].0.abs_diff(w[0].0).max(1) as f64).collect();
        let watts = slopes.iter().fold((f64::INFINITY, 0.0f64), |(low, high), w| (low.min(*w), high.max(*w)));
        // Without power nothing is known about the time between two readings.
        let period_ns = gaps(counter.iter().map(|c| c.0)).max(SENSOR_PERIOD_NS);
        (!slopes.is_empty()).then_some(Self {
            curve: counter,
            watts,
            power: Vec::new(),
            period_ns,
            has_counter: true,
            check: None,
            idle: None,
        })
    }

    /// Learns idle power from the samples at least a sensor period away from `busy`: start and end of the time in which
    /// steps or requests were open, merged and in order.
    ///
    /// Samples before the first step are of loading, not of idling. If the run did not record all its steps
    /// (`gaps_are_idle` is false), time between recorded ones may have been spent on others. If fewer than three
    /// samples are left, idle power is at most the lowest level seen outside steps; without any, it is not known.
    pub fn learn_idle(&mut self, busy: &[(i64, i64)], gaps_are_idle: bool) {
        let margin = i64::try_from(self.period_ns).unwrap_or(i64::MAX);
        let clear = |time: i64| {
            let next = busy.partition_point(|(_, end)| end.saturating_add(margin) < time);
            busy.get(next).is_none_or(|(start, _)| time < start.saturating_sub(margin))
        };
        let outside: Vec<(i64, f64)> = self.power.iter().copied().filter(|(time, _)| clear(*time)).collect();
        let first = busy.first().map_or(i64::MAX, |(start, _)| *start);
        let mut between: Vec<f64> =
            outside.iter().filter(|(time, _)| gaps_are_idle && *time > first).map(|(_, watts)| *watts).collect();
        between.sort_by(f64::total_cmp);
        self.idle = if between.len() >= 3 {
            Some(Idle { watts: percentile(&between, 0.5), from: IdleFrom::Between(between.len()) })
        } else {
            let levels = outside.windows(3).map(|three| three.iter().fold(0.0f64, |most, (_, watts)| most.max(*watts)));
            levels.reduce(f64::min).map(|watts| Idle { watts, from: IdleFrom::Lowest })
        };
    }

    /// Power sampled within `windows`, which are merged and in order.
    fn within<'a>(&'a self, windows: &'a [(i64, i64)]) -> impl Iterator<Item = f64> + 'a {
        let inside = |time: i64| {
            let next = windows.partition_point(|(_, end)| *end <= time);
            windows.get(next).is_some_and(|(start, _)| *start <= time)
        };
        // Only those that may be: there may be many windows of few samples each.
        let ends = windows.first().zip(windows.last()).map_or((0, 0), |(first, last)| (first.0, last.1));
        let from = self.power.partition_point(|(time, _)| *time < ends.0);
        let near = self.power[from..].iter().take_while(move |(time, _)| *time < ends.1);
        near.filter(move |(time, _)| inside(*time)).map(|(_, watts)| *watts)
    }

    /// Samples of power taken within `windows`, which are merged and in order.
    pub fn samples_within(&self, windows: &[(i64, i64)]) -> u64 {
        self.within(windows).count() as u64
    }

    /// Energy over `windows` (start and end, merged and in order). `None` if the samples do not cover them.
    pub fn energy(&self, windows: &[(i64, i64)]) -> Option<Joules> {
        let (first, last) = (self.curve.first()?.0, self.curve.last()?.0);
        let (mut joules, mut time_ns, mut covered_ns) = (0.0, 0u64, 0u64);
        for (start, end) in windows {
            let (from, to) = ((*start).max(first), (*end).min(last));
            time_ns = time_ns.saturating_add(end.abs_diff(*start));
            if to > from {
                covered_ns = covered_ns.saturating_add(to.abs_diff(from));
                joules += at(&self.curve, to) - at(&self.curve, from);
            }
        }
        // Missing up to two sampling intervals at the ends of a window is within its bound; beyond that the energy is
        // not known.
        let missed_ns = time_ns.saturating_sub(covered_ns);
        if covered_ns == 0 || missed_ns > (time_ns / 20).max(self.period_ns.saturating_mul(2)) || missed_ns > covered_ns
        {
            return None;
        }
        joules *= time_ns as f64 / covered_ns as f64;
        let stretches = stretches(windows, self.period_ns);
        let long = |ns: u64| ns >= RESOLVED_PERIODS.saturating_mul(self.period_ns);
        let resolved_ns: u64 = stretches.iter().filter(|s| long(s.whole_ns)).map(|s| s.inside_ns).sum();
        let below_resolution = (resolved_ns as f64) < 0.9 * time_ns as f64;
        let seconds = time_ns as f64 / 1e9;
        let counted = joules;
        // A counter that rises faster than every sample of power contradicts power: the estimate is then the highest
        // power sampled, and the bound extends to what the counter says.
        let sampled = self.within(windows).map(|watts| (watts, watts));
        if let Some((least, most)) = sampled.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1))) {
            joules = joules.clamp(least * seconds, most * seconds);
        }
        let (mut low, mut high) = (self.watts.0 * seconds, self.watts.1 * seconds);
        if !below_resolution {
            // A reading is up to a period late. At each end of a stretch this misplaces one period at full power for
            // the counter, and one period of the difference between highest and lowest power for the integral of power.
            let swing = if self.has_counter { self.watts.1 } else { self.watts.1 - self.watts.0 };
            let bound =
                stretches.len() as f64 * swing * self.period_ns as f64 / 1e9 + self.watts.1 * missed_ns as f64 / 1e9;
            (low, high) = (low.max(counted - bound), high.min(counted + bound));
        }
        // Rounding of sums leaves a small residue even if nothing is misplaced.
        let term = |joules: f64| if joules < 1e-9 * counted.max(1.0) { 0.0 } else { joules };
        let by_period = (term(joules - low.min(counted)), term(high.max(counted) - joules));
        let by_accuracy = ACCURACY * joules;
        let net = self.idle.map(|idle| joules - idle.watts * seconds);
        Some(Joules {
            joules,
            low: (joules - by_period.0 - by_accuracy).max(0.0),
            high: joules + by_period.1 + by_accuracy,
            by_period,
            by_accuracy,
            net: net.filter(|net| *net >= 0.0),
            idle_above_mean: net.is_some_and(|net| net < 0.0),
            time_ns,
            below_resolution,
        })
    }

    /// What was counted between two times that the curve [covers](Self::covers), as it is, in joules.
    pub fn counted(&self, from: i64, to: i64) -> f64 {
        at(&self.curve, to) - at(&self.curve, from)
    }

    /// First and last time of the curve, Unix nanoseconds.
    pub fn covers(&self) -> Option<(i64, i64)> {
        Some((self.curve.first()?.0, self.curve.last()?.0))
    }
}

/// Windows with less than a sensor period between them: the sensors cannot tell them apart.
struct Stretch {
    whole_ns: u64,
    /// Of that, inside windows.
    inside_ns: u64,
}

fn stretches(windows: &[(i64, i64)], period_ns: u64) -> Vec<Stretch> {
    let mut out: Vec<Stretch> = Vec::new();
    let mut until = i64::MIN;
    for (start, end) in windows {
        let inside_ns = end.abs_diff(*start);
        match out.last_mut() {
            Some(last) if start.abs_diff(until) < period_ns => {
                last.whole_ns = last.whole_ns.saturating_add(end.abs_diff(until));
                last.inside_ns = last.inside_ns.saturating_add(inside_ns);
            }
            _ => out.push(Stretch { whole_ns: inside_ns, inside_ns }),
        }
        until = *end;
    }
    out
}

/// Time between updates of the sensor: the median time between two changes of its value, if it changed often enough.
fn period(power: &[(i64, f64)]) -> u64 {
    let changes: Vec<i64> = power.windows(2).filter(|w| w[0].1 != w[1].1).map(|w| w[1].0).collect();
    let sampling = gaps(power.iter().map(|p| p.0));
    let moves = if changes.len() >= 6 { gaps(changes) } else { SENSOR_PERIOD_NS };
    moves.max(sampling)
}

/// Median time between neighbours.
fn gaps(times: impl IntoIterator<Item = i64>) -> u64 {
    let times: Vec<i64> = times.into_iter().collect();
    let mut gaps: Vec<u64> = times.windows(2).map(|w| w[1].abs_diff(w[0])).collect();
    gaps.sort_unstable();
    gaps.get(gaps.len() / 2).copied().unwrap_or(0)
}
