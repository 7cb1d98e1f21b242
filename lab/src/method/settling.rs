//! When a case has been repeated often enough.

use super::options::Method;
use super::stop_reason::StopReason;
use candlescope_figures::stats::{Distribution, INTERVAL_FROM};
use std::collections::{HashMap, VecDeque};
use std::time::Duration;

/// Estimates of the noise that are looked at (nvbench: 512).
const NOISE_WINDOW: usize = 512;
/// Estimates of the entropy that are looked at (nvbench: 299).
const ENTROPY_WINDOW: usize = 299;
/// How far estimates of the noise may differ, as a share of their mean (nvbench: 5 %).
const NOISE_AGREES: f64 = 0.05;

/// The samples of one case in one process, as far as rules need them.
#[derive(Debug, Clone, Default)]
pub(super) struct SettlingRule {
    times: Vec<f64>,
    mean: f64,
    squares: f64,
    total_ns: f64,
    noise: VecDeque<f64>,
    /// How many samples fell into each class.
    classes: HashMap<u64, u32>,
    /// Σ c·log₂ c over the classes.
    weighted: f64,
    entropy: VecDeque<f64>,
    /// Rules are asked at this number of samples next: asking after each of a million would take longer than they.
    next: usize,
}

impl SettlingRule {
    pub(super) fn samples(&self) -> u32 {
        self.times.len() as u32
    }

    pub(super) fn add(&mut self, ns: u64, method: &Method) {
        let value = ns as f64;
        self.times.push(value);
        self.total_ns += value;
        let n = self.times.len() as f64;
        let off = value - self.mean;
        self.mean += off / n;
        self.squares += off * (value - self.mean);
        if let Some(noise) = self.deviation() {
            push(&mut self.noise, noise, NOISE_WINDOW);
        }
        let class = self.classes.entry(ns / method.entropy_bin_ns.max(1)).or_default();
        let plogp = |count: u32| if count == 0 { 0.0 } else { f64::from(count) * f64::from(count).log2() };
        self.weighted += plogp(*class + 1) - plogp(*class);
        *class += 1;
        push(&mut self.entropy, (n.log2() - self.weighted / n).max(0.0), ENTROPY_WINDOW);
    }

    /// Standard deviation ÷ mean; `None` below two samples.
    fn deviation(&self) -> Option<f64> {
        let n = self.times.len();
        (n > 1 && self.mean > 0.0).then(|| (self.squares / (n - 1) as f64).sqrt() / self.mean)
    }

    /// Why the case need not be repeated any more; `spent` is the time that it has taken in all.
    pub(super) fn verdict(&mut self, method: &Method, spent: Duration) -> Option<StopReason> {
        if let Some(runs) = method.runs {
            return (self.samples() >= runs).then_some(StopReason::RunsReached);
        }
        let n = self.times.len();
        if n >= method.min_samples.max(1) as usize && n >= self.next {
            self.next = if n < NOISE_WINDOW { n + 1 } else { n + n / 16 };
            let settled = [
                (StopReason::IntervalNarrow, self.interval_is_narrow(method)),
                (StopReason::DeviationSmall, self.deviates_little(method)),
                (StopReason::NoiseSettled, self.noise_has_settled(method)),
                (StopReason::EntropySettled, self.entropy_has_settled(method)),
            ];
            if let Some((reason, _)) = settled.into_iter().find(|(_, holds)| *holds) {
                return Some(reason);
            }
        }
        (n > 0 && spent >= method.time_limit).then_some(StopReason::TimeLimit)
    }

    fn interval_is_narrow(&self, method: &Method) -> bool {
        let Some(all) = Distribution::of(self.times.clone()) else { return false };
        all.median_ci95.is_some_and(|(low, high)| high - low <= method.interval_width * all.median)
    }

    fn long_enough(&self, method: &Method) -> bool {
        self.total_ns >= method.deviation_after.as_nanos() as f64
    }

    fn deviates_little(&self, method: &Method) -> bool {
        // A deviation of a few samples is small by chance.
        let enough = self.times.len() >= INTERVAL_FROM && self.long_enough(method);
        enough && self.deviation().is_some_and(|deviation| deviation < method.deviation)
    }

    fn noise_has_settled(&self, method: &Method) -> bool {
        if !self.long_enough(method) || self.noise.len() <= method.noise_estimates {
            return false;
        }
        let n = self.noise.len() as f64;
        let mean = self.noise.iter().sum::<f64>() / n;
        let deviation = (self.noise.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / (n - 1.0)).sqrt();
        deviation <= NOISE_AGREES * mean
    }

    /// Least squares through the last estimates of the entropy.
    fn entropy_has_settled(&self, method: &Method) -> bool {
        let n = self.entropy.len();
        if n <= method.noise_estimates {
            return false;
        }
        let x_mean = (n - 1) as f64 / 2.0;
        let y_mean = self.entropy.iter().sum::<f64>() / n as f64;
        let (mut xy, mut xx, mut yy) = (0.0, 0.0, 0.0);
        for (x, y) in self.entropy.iter().enumerate() {
            let (dx, dy) = (x as f64 - x_mean, y - y_mean);
            xy += dx * dy;
            xx += dx * dx;
            yy += dy * dy;
        }
        let slope = xy / xx;
        let explained = if yy == 0.0 { 1.0 } else { xy * xy / (xx * yy) };
        slope.atan().to_degrees() <= method.entropy_degrees && explained >= method.entropy_r2
    }
}

fn push(window: &mut VecDeque<f64>, value: f64, most: usize) {
    if window.len() == most {
        window.pop_front();
    }
    window.push_back(value);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stops(times: impl IntoIterator<Item = u64>, method: &Method) -> Option<(usize, StopReason)> {
        let mut settling = SettlingRule::default();
        let mut spent = Duration::ZERO;
        for (n, ns) in times.into_iter().enumerate() {
            settling.add(ns, method);
            spent += Duration::from_nanos(ns);
            if let Some(reason) = settling.verdict(method, spent) {
                return Some((n + 1, reason));
            }
        }
        None
    }

    /// Only one rule can hold.
    fn only() -> Method {
        Method { interval_width: 0.0, deviation: 0.0, noise_estimates: usize::MAX, ..Method::default() }
    }

    /// Values around `middle` that differ by up to `share` of it, in no order.
    fn scattered(middle: u64, share: f64) -> impl Iterator<Item = u64> {
        (0u64..).map(move |n| {
            let mixed = (n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as f64 / (1u64 << 24) as f64;
            (middle as f64 * (1.0 + share * (mixed - 0.5))) as u64
        })
    }

    #[test]
    fn each_rule_ends_a_case() {
        let ms = 1_000_000;
        let narrow = Method { interval_width: 0.02, ..only() };
        assert_eq!(stops(scattered(ms, 0.01), &narrow), Some((10, StopReason::IntervalNarrow)), "from ten samples on");
        let little = Method { deviation: 0.005, ..only() };
        let (n, reason) = stops(scattered(10 * ms, 0.01), &little).unwrap();
        assert_eq!((n, reason), (51, StopReason::DeviationSmall), "not before half a second");
        let noise = Method { noise_estimates: 64, entropy_r2: 2.0, ..only() };
        let (n, reason) = stops(scattered(10 * ms, 0.5), &noise).unwrap();
        assert_eq!(reason, StopReason::NoiseSettled);
        assert!(n > 64, "{n}");
        // Ten values of the same frequency: the entropy is log₂ 10 and stays.
        let entropy = Method { noise_estimates: 64, deviation_after: Duration::MAX, ..only() };
        let (n, reason) = stops((0..).map(|n| ms + 1_000 * (n % 10)), &entropy).unwrap();
        assert_eq!(reason, StopReason::EntropySettled);
        assert!(n > 64 && n < 2_000, "{n}");
        let (n, reason) = stops(scattered(1_000 * ms, 0.5), &only()).unwrap();
        assert_eq!(reason, StopReason::TimeLimit);
        assert!((14..=20).contains(&n), "{n} samples of about a second in 15 s");
        assert_eq!(stops(scattered(ms, 0.0), &only().runs(Some(4))), Some((4, StopReason::RunsReached)));
    }

    #[test]
    fn a_long_sample_is_one_sample() {
        let slow = std::iter::repeat(100_000_000_000);
        assert_eq!(stops(slow, &Method::default()), Some((1, StopReason::TimeLimit)));
    }
}
