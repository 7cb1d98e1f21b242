//! CUDA graphs were asked for, and no step is one.

use crate::{Analysis, FEWEST_LEFT, LEFT_FOR, StepPoint, left_graph};
use candlescope_schema::Ran;
use candlescope_schema::run::{Code, Finding};

pub(super) fn find(run: &Analysis) -> Vec<Finding> {
    // Without a device the default asks for what cannot be.
    if !run.ran_on_gpu() {
        return Vec::new();
    }
    let points = || run.series.iter().flat_map(|series| &series.points);
    let count = |of: &dyn Fn(&StepPoint) -> bool| points().filter(|point| of(point)).count() as u64;
    let steps = count(&|point| left_graph(point.ran));
    if steps < FEWEST_LEFT as u64 || count(&|point| point.ran == Some(Ran::Replay)) > 0 {
        return Vec::new();
    }
    // A cause holds for all steps of a model, but for the first ones of a shape.
    let of = |cause: Ran| count(&|point| point.ran == Some(cause));
    let Some(cause) = LEFT_FOR.into_iter().max_by_key(|cause| (of(*cause), *cause != Ran::WarmUp)) else {
        return Vec::new();
    };
    let message = "CUDA graphs were asked for, and none of {steps} steps is one; {of_cause} of them ran call by call for \
                   the cause `{cause}`";
    let remedy = "Times are those of launches. The page decoding.md has what each cause means; a capture that failed says \
                  why on standard error";
    let finding = Finding::new(Code::GraphsNotReplayed, message, remedy);
    vec![finding.count("steps", steps).count("of_cause", of(cause)).text("cause", cause.as_str())]
}
