use crate::advice::sentence::Sentence;

pub(super) fn words(it: &Sentence<'_>) -> (String, String) {
    let Sentence { at, kernel, .. } = it;
    (
        format!(
            "{} kernels a step only move data ({kernel}), {}, most of it in `{at}`",
            it.number("kernels"),
            it.time("device_ns")
        ),
        format!(
            "Leave out `contiguous`, `cat` and `repeat` in `{at}`: use layouts that the next kernel reads as they are"
        ),
    )
}

pub(super) fn plain(it: &Sentence<'_>) -> (String, String) {
    ("Leave out copies inside the GPU".to_string(), format!("they take {} each time", it.time("device_ns")))
}
