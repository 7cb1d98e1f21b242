//! Whether two sides cut the work of their requests into other steps, so that the time of a step says nothing of them.

use super::change_points::median;
use super::run_facts::RunFacts;

/// Numbers of steps that differ by up to this share are the same: where requests join and leave, they differ from run
/// to run.
const MARGIN: f64 = 0.02;

/// Whether runs of `b` take another number of steps for a request than those of `a`, as where several tokens are looked
/// up and checked in one, or where requests share their steps; `false` where a side does not say.
pub fn takes_other_steps(a: &[RunFacts], b: &[RunFacts]) -> bool {
    let middle = |runs: &[RunFacts]| {
        let known: Vec<f64> = runs.iter().filter_map(|run| run.steps_per_request).collect();
        (!known.is_empty()).then(|| median(&known))
    };
    middle(a).zip(middle(b)).is_some_and(|(a, b)| (a - b).abs() > MARGIN * a.max(b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fewer_steps_for_a_request_are_others() {
        let side = |steps: &[Option<f64>]| -> Vec<RunFacts> {
            steps.iter().map(|steps| RunFacts { steps_per_request: *steps, ..RunFacts::default() }).collect()
        };
        let before = side(&[Some(64.0), Some(64.0), Some(30.0)]);
        assert!(takes_other_steps(&before, &side(&[Some(40.0)])) && takes_other_steps(&before, &side(&[Some(90.0)])));
        assert!(!takes_other_steps(&before, &side(&[Some(64.5), None])), "requests that join and leave");
        assert!(!takes_other_steps(&before, &side(&[None])) && !takes_other_steps(&[], &before));
    }
}
