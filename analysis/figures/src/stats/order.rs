//! What the order of samples says: percentiles, and the interval of a median.

/// Independent units, samples or clusters of them, from which the 95 % interval of a median exists.
pub const INTERVAL_FROM: usize = 6;

/// Numbers from which [`sort`] goes by their digits.
const MANY: usize = 1 << 14;
/// Bits of a digit, and how many digits 64 bits have.
const DIGIT: u32 = 11;
const DIGITS: usize = 64_usize.div_ceil(DIGIT as usize);

/// Sorts as [`f64::total_cmp`] has it. Of many, times in whole nanoseconds have few digits that differ: these are put in
/// order one after the other, from the lowest on.
pub(crate) fn sort(numbers: &mut Vec<f64>) {
    if numbers.len() < MANY {
        return numbers.sort_unstable_by(f64::total_cmp);
    }
    // Bits that are in the order of the numbers: of negative ones, more is less.
    let bits = |number: f64| {
        let bits = number.to_bits();
        bits ^ (((bits as i64 >> 63) as u64) | 1 << 63)
    };
    let digit = |number: f64, at: usize| (bits(number) >> (at as u32 * DIGIT)) as usize & ((1 << DIGIT) - 1);
    let mut counts = vec![[0_usize; 1 << DIGIT]; DIGITS];
    for number in &*numbers {
        counts.iter_mut().enumerate().for_each(|(at, counts)| counts[digit(*number, at)] += 1);
    }
    let mut sorted = vec![0.0; numbers.len()];
    for (at, mut places) in counts.into_iter().enumerate() {
        if places.contains(&numbers.len()) {
            // It is the same in all.
            continue;
        }
        let mut before = 0;
        for place in &mut places {
            before += std::mem::replace(place, before);
        }
        for number in &*numbers {
            let place = &mut places[digit(*number, at)];
            sorted[*place] = *number;
            *place += 1;
        }
        std::mem::swap(numbers, &mut sorted);
    }
}

/// The `p`-quantile of sorted samples, interpolated linearly between neighbours (type 7, the default of NumPy and R).
pub fn percentile(sorted: &[f64], p: f64) -> f64 {
    let position = p * (sorted.len() - 1) as f64;
    let (below, above) = (position.floor() as usize, position.ceil() as usize);
    sorted[below] + (sorted[above] - sorted[below]) * (position - below as f64)
}

/// 95 % interval of the median of independent, sorted samples, from order statistics; `None` below [`INTERVAL_FROM`] of
/// them.
pub(super) fn median_interval(sorted: &[f64]) -> Option<(f64, f64)> {
    let rank = interval_rank(sorted.len())?;
    Some((sorted[rank - 1], sorted[sorted.len() - rank]))
}

/// The largest `k` for which at most 2.5 % of binomial(n, 1/2) lies below `k`: the interval goes from the `k`-th
/// smallest sample to the `k`-th largest.
pub(super) fn interval_rank(n: usize) -> Option<usize> {
    const TAIL: f64 = 0.025;
    // Probabilities relative to that of the middle, from there down until they vanish: exact for any n, because 1/2ⁿ
    // itself, which underflows from n = 1075 on, is not needed.
    let mut lowest = n / 2;
    let mut relative = vec![1.0f64];
    while lowest > 0 && relative[relative.len() - 1] > 1e-18 {
        relative.push(relative[relative.len() - 1] * lowest as f64 / (n - lowest + 1) as f64);
        lowest -= 1;
    }
    let below: f64 = relative.iter().sum();
    // The upper half mirrors the lower one; for an even n the middle belongs to both.
    let whole = if n.is_multiple_of(2) { 2.0 * below - 1.0 } else { 2.0 * below };
    let mut tail = 0.0;
    let fits = relative.iter().rev().take_while(|p| {
        tail += *p;
        tail <= TAIL * whole
    });
    Some(lowest + fits.count()).filter(|&rank| rank > 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::SplitMix;

    #[test]
    fn many_numbers_are_in_the_same_order_as_few() {
        let mut random = SplitMix(11);
        let mut whole = || f64::from(random.below(1 << 20));
        let whole: Vec<f64> = (0..3 * MANY).map(|_| whole()).collect();
        let other = whole.iter().enumerate().map(|(at, n)| match at % 9 {
            0 => -n,
            1 => n / 3.0,
            2 => -0.0,
            3 => f64::from(at as u32) * 1e300,
            4 => f64::NEG_INFINITY,
            5 => f64::NAN,
            6 => -f64::NAN,
            7 => u64::MAX as f64,
            _ => *n,
        });
        for numbers in [whole.clone(), other.collect(), vec![7.0; MANY], vec![2.0, -1.0, 0.0], Vec::new()] {
            let (mut sorted, mut expected) = (numbers.clone(), numbers);
            sort(&mut sorted);
            expected.sort_by(f64::total_cmp);
            let bits = |list: &[f64]| list.iter().map(|n| n.to_bits()).collect::<Vec<_>>();
            assert_eq!(bits(&sorted), bits(&expected));
        }
    }
}
