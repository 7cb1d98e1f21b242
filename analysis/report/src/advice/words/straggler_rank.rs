use crate::advice::sentence::Sentence;
use crate::format::count;

pub(super) fn words(it: &Sentence<'_>) -> (String, String) {
    let Sentence { rank, .. } = it;
    (
        format!(
            "{rank} takes {} of its own a step, the others {} (medians): it was the slowest in {} of {} steps, and the others wait for it",
            it.time("own_ns"),
            it.time("others_own_ns"),
            count(it.value("slowest_steps") as u64),
            count(it.advice.coverage.steps)
        ),
        format!(
            "Compare {rank} with another (`candlescope compare`): its device, its clocks and its share of the work"
        ),
    )
}

pub(super) fn plain(it: &Sentence<'_>) -> (String, String) {
    let Sentence { rank, step, .. } = it;
    (
        format!("Find out what slows {rank} down: its device, or its share of the work"),
        format!(
            "of {step} it computes for {}, the others for {}, and they wait for it",
            it.time("own_ns"),
            it.time("others_own_ns")
        ),
    )
}
