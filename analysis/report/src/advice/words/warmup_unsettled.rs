use crate::advice::sentence::Sentence;
use crate::format::count;

pub(super) fn words(it: &Sentence<'_>) -> (String, String) {
    let Sentence { phase, .. } = it;
    let first = it.value("unsettled_steps");
    (
        format!(
            "{}, half of the later ones at most {}",
            if first == 1.0 {
                format!("the first step `{phase}` takes {}", it.time("first_ns"))
            } else {
                format!("the first {} steps `{phase}` take {} on average", count(first as u64), it.time("first_ns"))
            },
            it.time("settled_ns")
        ),
        format!(
            "Warm up longer before measuring `{phase}` (`--warmup`, or the option `warmup` of a program that \
             marks its requests), until its rolling median settles"
        ),
    )
}

pub(super) fn plain(it: &Sentence<'_>) -> (String, String) {
    (
        "Let more requests warm up before measuring".to_string(),
        format!(
            "the first measured ones are slower than the later ones: {} and \
                 {}",
            it.time("first_ns"),
            it.time("settled_ns")
        ),
    )
}
