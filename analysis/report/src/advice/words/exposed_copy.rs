use crate::advice::sentence::Sentence;

pub(super) fn words(it: &Sentence<'_>) -> (String, String) {
    let Sentence { at, kernel, .. } = it;
    (
        format!(
            "copies ({kernel}) of `{at}` run while no kernel does: {} a step for {}",
            it.time("exposed_ns"),
            it.bytes("bytes")
        ),
        format!(
            "Copy {kernel} of `{at}` once, before the steps, from pinned memory on another stream, or make the values \
            on the device"
        ),
    )
}

pub(super) fn plain(it: &Sentence<'_>) -> (String, String) {
    let Sentence { part, .. } = it;
    (
        format!("Copy less between memory and GPU, or while it computes, in {part}"),
        format!("copies hold it up for {} each time", it.time("exposed_ns")),
    )
}
