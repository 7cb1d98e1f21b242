//! One GPU's power and energy sensors as a curve of energy over time, and how far it can be trusted.
//!
//! The counter of total energy is exact but read about once a second; power is read ten to twenty times a second. So the curve
//! goes through the counter's readings and takes its shape between them from power. Both sensors move only about every 100 ms
//! [zeus `monitor/energy.py`; arXiv 2312.02741], so what is read is up to that much older than it seems: that is the bound.

use super::stats::percentile;

/// How often a sensor moves where the samples do not tell, in nanoseconds [measured on an H200].
pub const SENSOR_PERIOD_NS: u64 = 100_000_000;

/// A window of fewer sensor periods is below resolution.
pub const RESOLVED_PERIODS: u64 = 5;

/// Energy over a window, from the curve. Joules.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Joules {
    /// The best estimate.
    pub joules: f64,
    /// It is not less than this.
    pub low: f64,
    /// It is not more than this.
    pub high: f64,
    /// The estimate less idle power × time.
    pub net: Option<f64>,
    /// Time it is over, in nanoseconds.
    pub time_ns: u64,
    /// The window is shorter than several sensor periods: this is power × time, and only the bound says something.
    pub below_resolution: bool,
}

impl Joules {
    /// Mean power in watts.
    pub fn watts(&self) -> Option<f64> {
        (self.time_ns > 0).then(|| self.joules * 1e9 / self.time_ns as f64)
    }

    /// Two GPUs' energy over the same time.
    #[must_use]
    pub fn plus(self, other: Joules) -> Joules {
        Joules {
            joules: self.joules + other.joules,
            low: self.low + other.low,
            high: self.high + other.high,
            net: self.net.zip(other.net).map(|(a, b)| a + b),
            time_ns: self.time_ns.max(other.time_ns),
            below_resolution: self.below_resolution || other.below_resolution,
        }
    }
}

/// Power while nothing runs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Idle {
    /// Watts.
    pub watts: f64,
    /// Samples outside steps that it is the median of; 0 where there were too few and it is the smallest sample of all.
    pub outside_steps: usize,
}

/// The counter's difference against the integral of power over the same time.
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
    /// Power's integral ÷ counter's difference: 1 where both agree.
    pub fn ratio(&self) -> Option<f64> {
        (self.counter_joules > 0.0).then(|| self.power_joules / self.counter_joules)
    }

    /// How far the ratio may be from 1 for the sensors' periods alone.
    pub fn tolerance(&self) -> f64 {
        0.1 + 2.0 * SENSOR_PERIOD_NS as f64 / self.time_ns.max(1) as f64
    }
}

/// A GPU's sensors.
#[derive(Debug, Clone, PartialEq)]
pub struct Sensor {
    /// Energy in joules at ascending times (Unix nanoseconds); straight in between.
    curve: Vec<(i64, f64)>,
    /// Smallest and largest power sampled, in watts.
    watts: (f64, f64),
    /// How often the sensor moves, in nanoseconds.
    pub period_ns: u64,
    /// Whether the counter is part of it, and not power alone.
    pub has_counter: bool,
    /// The counter against power, where both tell.
    pub check: Option<SensorCheck>,
    /// Power while nothing runs, where known.
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
        // A counter that falls was reset (the driver was loaded anew): it says nothing about the time before.
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
            period_ns,
            check,
            idle: None,
        })
    }

    fn of_counter(counter: Vec<(i64, f64)>) -> Option<Self> {
        let slopes: Vec<f64> =
            counter.windows(2).map(|w| (w[1].1 - w[0].1) * 1e9 / w[1].0.abs_diff(w[0].0).max(1) as f64).collect();
        let watts = slopes.iter().fold((f64::INFINITY, 0.0f64), |(low, high), w| (low.min(*w), high.max(*w)));
        // Without power nothing is known of what lies between two readings.
        let period_ns = gaps(counter.iter().map(|c| c.0)).max(SENSOR_PERIOD_NS);
        (!slopes.is_empty()).then_some(Self {
            curve: counter,
            watts,
            period_ns,
            has_counter: true,
            check: None,
            idle: None,
        })
    }

    /// Takes idle power from `power` samples that lie outside `steps` (start and end, merged and in order), clear of them by a
    /// sensor period; with fewer than three of these, from the smallest sample.
    pub fn learn_idle(&mut self, power: &[(i64, f64)], steps: &[(i64, i64)]) {
        let margin = i64::try_from(self.period_ns).unwrap_or(i64::MAX);
        let clear = |time: i64| {
            let next = steps.partition_point(|(_, end)| end.saturating_add(margin) < time);
            steps.get(next).is_none_or(|(start, _)| time < start.saturating_sub(margin))
        };
        let mut outside: Vec<f64> =
            power.iter().filter(|(time, w)| w.is_finite() && *w >= 0.0 && clear(*time)).map(|(_, w)| *w).collect();
        outside.sort_by(f64::total_cmp);
        self.idle = if outside.len() >= 3 {
            Some(Idle { watts: percentile(&outside, 0.5), outside_steps: outside.len() })
        } else {
            Some(self.watts.0).filter(|w| w.is_finite()).map(|watts| Idle { watts, outside_steps: 0 })
        };
    }

    /// Energy over `windows` (start and end, merged and in order). `None` where the samples do not cover them.
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
        // What two sampling intervals miss at the ends of a window is within its bound; more is not known.
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
        let (least, most) = (self.watts.0 * seconds, self.watts.1 * seconds);
        let (mut low, mut high) = (least.min(joules), most.max(joules));
        if !below_resolution {
            // A reading is up to a period late. At the ends of a stretch that misplaces a period at full power for the counter,
            // and a period of the difference between most and least power for the integral of power.
            let swing = if self.has_counter { self.watts.1 } else { self.watts.1 - self.watts.0 };
            let bound =
                stretches.len() as f64 * swing * self.period_ns as f64 / 1e9 + self.watts.1 * missed_ns as f64 / 1e9;
            (low, high) = (low.max(joules - bound), high.min(joules + bound));
        }
        let net = self.idle.map(|idle| joules - idle.watts * seconds);
        Some(Joules { joules, low, high, net, time_ns, below_resolution })
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

/// Power integrated by trapezoids: joules since the first sample.
fn integral(power: &[(i64, f64)]) -> Vec<(i64, f64)> {
    let mut sum = 0.0;
    let mut out = Vec::with_capacity(power.len());
    for (i, (time, watts)) in power.iter().enumerate() {
        if let Some((before, earlier)) = i.checked_sub(1).and_then(|i| power.get(i)) {
            sum += (watts + earlier) / 2.0 * time.abs_diff(*before) as f64 / 1e9;
        }
        out.push((*time, sum));
    }
    out
}

/// The power curve, stretched between the counter's readings so that it goes through all of them.
fn anchored(by_power: &[(i64, f64)], counter: &[(i64, f64)]) -> Vec<(i64, f64)> {
    let (Some(&(first, start)), Some(&(last, end))) = (counter.first(), counter.last()) else {
        return by_power.to_vec();
    };
    let (before, after) = (at(by_power, first), at(by_power, last));
    let mut out = Vec::with_capacity(by_power.len() + counter.len());
    out.extend(by_power.iter().filter(|(t, _)| *t < first).map(|(t, e)| (*t, start - (before - e))));
    let mut next = by_power.partition_point(|(t, _)| *t <= first);
    for pair in counter.windows(2) {
        let ((t0, c0), (t1, c1)) = (pair[0], pair[1]);
        out.push((t0, c0));
        let (e0, e1) = (at(by_power, t0), at(by_power, t1));
        while let Some(&(t, e)) = by_power.get(next).filter(|(t, _)| *t < t1) {
            let share =
                if e1 > e0 { (e - e0) / (e1 - e0) } else { t.abs_diff(t0) as f64 / t1.abs_diff(t0).max(1) as f64 };
            out.push((t, c0 + (c1 - c0) * share));
            next += 1;
        }
        // A power sample at the reading itself gives way to it.
        while by_power.get(next).is_some_and(|(t, _)| *t <= t1) {
            next += 1;
        }
    }
    out.push((last, end));
    out.extend(by_power.iter().filter(|(t, _)| *t > last).map(|(t, e)| (*t, end + (e - after))));
    out
}

/// The curve at `time`, straight between its points; its first or last value beyond them.
fn at(curve: &[(i64, f64)], time: i64) -> f64 {
    let next = curve.partition_point(|(t, _)| *t <= time);
    match (next.checked_sub(1).and_then(|i| curve.get(i)), curve.get(next)) {
        (Some(&(t0, e0)), Some(&(t1, e1))) => e0 + (e1 - e0) * time.abs_diff(t0) as f64 / t1.abs_diff(t0).max(1) as f64,
        (Some(&(_, e)), None) | (None, Some(&(_, e))) => e,
        (None, None) => 0.0,
    }
}

/// How often the sensor moves: the median time between two changes of its value, where it changed often enough to tell.
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
