//! Energy over time from readings of a GPU's power and of its counter of total energy.

/// Time between updates of a sensor if the samples do not tell, in nanoseconds [measured on an H200].
pub const SENSOR_PERIOD_NS: u64 = 100_000_000;

/// Relative error of a reading, a datasheet figure. NVIDIA states it for Fermi and Kepler [NVML reference,
/// `nvmlDeviceGetPowerUsage`] but not for later GPUs, for which arXiv 2312.02741 measured about the same.
pub const ACCURACY: f64 = 0.05;

/// Power integrated by trapezoids: joules since the first sample. Samples are a time and watts, in order.
pub fn integral(power: &[(i64, f64)]) -> Vec<(i64, f64)> {
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
pub fn anchored(by_power: &[(i64, f64)], counter: &[(i64, f64)]) -> Vec<(i64, f64)> {
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
        // A power sample at the time of the reading is replaced by it.
        while by_power.get(next).is_some_and(|(t, _)| *t <= t1) {
            next += 1;
        }
    }
    out.push((last, end));
    out.extend(by_power.iter().filter(|(t, _)| *t > last).map(|(t, e)| (*t, end + (e - after))));
    out
}

/// The curve at `time`, linear between its points; its first or last value beyond them.
pub fn at(curve: &[(i64, f64)], time: i64) -> f64 {
    let next = curve.partition_point(|(t, _)| *t <= time);
    match (next.checked_sub(1).and_then(|i| curve.get(i)), curve.get(next)) {
        (Some(&(t0, e0)), Some(&(t1, e1))) => e0 + (e1 - e0) * time.abs_diff(t0) as f64 / t1.abs_diff(t0).max(1) as f64,
        (Some(&(_, e)), None) | (None, Some(&(_, e))) => e,
        (None, None) => 0.0,
    }
}
