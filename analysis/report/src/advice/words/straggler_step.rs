use crate::advice::sentence::Sentence;
use crate::format::count;

pub(super) fn words(it: &Sentence<'_>) -> (String, String) {
    let Sentence { phase, .. } = it;
    let late = it.value("late_steps");
    (
        format!(
            "{} `{phase}` {} {}{}, where the median is {}: a stall of single steps, not what an operation takes",
            if late == 1.0 { "one of the steps".to_string() } else { format!("{} of the steps", count(late as u64)) },
            if late == 1.0 { "takes" } else { "take" },
            it.time("late_mean_ns"),
            if late == 1.0 { "" } else { " on average" },
            it.time("median_ns")
        ),
        format!(
            "Record `{phase}` again while nothing else runs on the machine; if steps still stall, look at the longest on a \
             timeline (`candlescope export perfetto`): growth of a cache, allocation, paging"
        ),
    )
}

pub(super) fn plain(it: &Sentence<'_>) -> (String, String) {
    let Sentence { step, .. } = it;
    (
        "Measure again while nothing else runs on the machine, and look for stalls".to_string(),
        format!(
            "{step} took {} on average in {} cases, where {} is usual",
            it.time("late_mean_ns"),
            count(it.value("late_steps") as u64),
            it.time("median_ns")
        ),
    )
}
