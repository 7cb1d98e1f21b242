//! The smallest sum of squares of a prediction that is made of maxima.
//!
//! Such a sum has kinks and flat stretches. Steps by its slopes (Levenberg and Marquardt) go fast where it is smooth,
//! steps along the axes go on where slopes mislead, and several starting points find the right valley.

use candlescope_figures::stats::SplitMix;

/// Starting points that are looked at.
const LOOKED_AT: usize = 160;
/// Starting points that are followed.
const FOLLOWED: usize = 3;
/// Turns between slopes and axes.
const TURNS: usize = 6;
/// Steps by slopes in a turn.
const STEPS: usize = 15;
/// A turn that gains less than this share is the last.
const GAIN: f64 = 1e-3;
/// Difference by which slopes are taken: the values are logarithms.
const DIFFERENCE: f64 = 1e-5;
/// Longest step of one value.
const LONGEST: f64 = 1.5;

/// What is minimised: the squares of these, which depend on the values.
pub(super) trait Residuals {
    /// One for each thing that is compared.
    fn of(&self, values: &[f64]) -> Vec<f64>;

    /// Σ squares.
    fn loss(&self, values: &[f64]) -> f64 {
        self.of(values).iter().map(|residual| residual * residual).sum()
    }
}

/// The values with the least squares, from many starting points between `low` and `high` and from `start`.
pub(super) fn search(residuals: &dyn Residuals, start: &[f64], range: &[(f64, f64)], seed: u64) -> Vec<f64> {
    let mut random = SplitMix(seed);
    let mut drawn = |(low, high): &(f64, f64)| low + (high - low) * random.uniform();
    let mut starts = vec![start.to_vec()];
    starts.extend((0..LOOKED_AT).map(|_| range.iter().map(&mut drawn).collect::<Vec<f64>>()));
    let mut starts: Vec<(f64, Vec<f64>)> = starts.into_iter().map(|values| (residuals.loss(&values), values)).collect();
    starts.sort_by(|a, b| a.0.total_cmp(&b.0));
    let followed = starts.into_iter().take(FOLLOWED).map(|(_, values)| from(residuals, values));
    followed.min_by(|a, b| a.0.total_cmp(&b.0)).map_or_else(|| start.to_vec(), |(_, values)| values)
}

/// The valley that `values` lie in: its loss and its bottom.
pub(super) fn from(residuals: &dyn Residuals, values: Vec<f64>) -> (f64, Vec<f64>) {
    let (mut loss, mut values) = (residuals.loss(&values), values);
    for _ in 0..TURNS {
        let before = loss;
        (loss, values) = by_slopes(residuals, loss, values);
        (loss, values) = by_axes(residuals, loss, values);
        if loss >= before * (1.0 - GAIN) {
            break;
        }
    }
    (loss, values)
}

/// Levenberg and Marquardt, with differences for slopes.
fn by_slopes(residuals: &dyn Residuals, mut loss: f64, mut values: Vec<f64>) -> (f64, Vec<f64>) {
    let mut damping = 1e-3;
    for _ in 0..STEPS {
        let now = residuals.of(&values);
        let slopes: Vec<Vec<f64>> = (0..values.len())
            .map(|at| {
                let mut there = values.clone();
                there[at] += DIFFERENCE;
                residuals.of(&there).iter().zip(&now).map(|(there, now)| (there - now) / DIFFERENCE).collect()
            })
            .collect();
        let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
        let normal: Vec<Vec<f64>> = slopes.iter().map(|a| slopes.iter().map(|b| dot(a, b)).collect()).collect();
        let down: Vec<f64> = slopes.iter().map(|a| -dot(a, &now)).collect();
        let mut moved = false;
        while damping < 1e6 {
            let mut damped = normal.clone();
            for (at, row) in damped.iter_mut().enumerate() {
                row[at] += damping * row[at].max(1e-9);
            }
            let step = solve(damped, down.clone());
            let there: Vec<f64> =
                values.iter().zip(&step).map(|(value, step)| value + step.clamp(-LONGEST, LONGEST)).collect();
            let found = residuals.loss(&there);
            if found < loss {
                moved = found < loss * (1.0 - 1e-6);
                (loss, values) = (found, there);
                damping = (damping / 5.0).max(1e-9);
                break;
            }
            damping *= 4.0;
        }
        if !moved {
            break;
        }
    }
    (loss, values)
}

/// Steps along each axis, shortened when none helps.
fn by_axes(residuals: &dyn Residuals, mut loss: f64, mut values: Vec<f64>) -> (f64, Vec<f64>) {
    let mut step = 0.25;
    while step > 5e-3 {
        let mut moved = false;
        for at in 0..values.len() {
            for way in [step, -step] {
                let mut there = values.clone();
                there[at] += way;
                let found = residuals.loss(&there);
                if found < loss * (1.0 - 1e-9) {
                    (loss, values, moved) = (found, there, true);
                    break;
                }
            }
        }
        if !moved {
            step /= 4.0;
        }
    }
    (loss, values)
}

/// Gauss's elimination with pivots; what has no pivot stays 0.
fn solve(mut matrix: Vec<Vec<f64>>, mut right: Vec<f64>) -> Vec<f64> {
    let n = right.len();
    for column in 0..n {
        let pivot = (column..n).max_by(|a, b| matrix[*a][column].abs().total_cmp(&matrix[*b][column].abs()));
        let Some(pivot) = pivot.filter(|row| matrix[*row][column].abs() > 1e-300) else { continue };
        matrix.swap(column, pivot);
        right.swap(column, pivot);
        let chosen = matrix[column].clone();
        for row in column + 1..n {
            let share = matrix[row][column] / chosen[column];
            for (value, above) in matrix[row].iter_mut().zip(&chosen) {
                *value -= share * above;
            }
            right[row] -= share * right[column];
        }
    }
    let mut found = vec![0.0; n];
    for row in (0..n).rev() {
        let known: f64 = (row + 1..n).map(|column| matrix[row][column] * found[column]).sum();
        if matrix[row][row].abs() > 1e-300 {
            found[row] = (right[row] - known) / matrix[row][row];
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rosenbrock's valley, and a floor that one value has no effect below.
    struct Valley;

    impl Residuals for Valley {
        fn of(&self, v: &[f64]) -> Vec<f64> {
            vec![1.0 - v[0], 10.0 * (v[1] - v[0] * v[0]), v[2].max(2.0) - 3.0]
        }
    }

    #[test]
    fn the_bottom_of_a_bent_valley_with_a_kink_is_found() {
        let found = search(&Valley, &[-1.2, 1.0, 2.5], &[(-2.0, 2.0), (-2.0, 2.0), (0.0, 4.0)], 1);
        for (found, truth) in found.iter().zip([1.0, 1.0, 3.0]) {
            assert!((found - truth).abs() < 1e-3, "{found} for {truth}");
        }
    }

    #[test]
    fn equations_are_solved_and_what_is_free_stays() {
        let found = solve(vec![vec![0.0, 2.0], vec![4.0, 1.0]], vec![6.0, 7.0]);
        assert_eq!(found, vec![1.0, 3.0]);
        assert_eq!(solve(vec![vec![0.0]], vec![1.0]), vec![0.0]);
    }
}
