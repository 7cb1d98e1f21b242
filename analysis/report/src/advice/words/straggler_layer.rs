use crate::advice::sentence::Sentence;

pub(super) fn words(it: &Sentence<'_>) -> (String, String) {
    let Sentence { at, .. } = it;
    (
        format!("`{at}` takes {}, its siblings {}", it.time("mean_ns"), it.time("siblings_ns")),
        format!("Look at what `{at}` does beside its siblings: another shape, type or device, or a copy"),
    )
}

pub(super) fn plain(it: &Sentence<'_>) -> (String, String) {
    let Sentence { part, .. } = it;
    (
        format!("Look at what {part} does that its like do not"),
        format!("it takes {}, the others {}", it.time("mean_ns"), it.time("siblings_ns")),
    )
}
