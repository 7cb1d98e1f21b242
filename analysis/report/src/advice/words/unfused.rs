use crate::advice::sentence::Sentence;

pub(super) fn words(it: &Sentence<'_>) -> (String, String) {
    let Sentence { at, kernel, .. } = it;
    (
        format!(
            "`{at}` takes {} kernels a step, {}, where {} would do: {kernel}",
            it.number("kernels"),
            it.time("device_ns"),
            it.number("become")
        ),
        format!("Use one fused kernel in `{at}` instead of {kernel}"),
    )
}

pub(super) fn plain(it: &Sentence<'_>) -> (String, String) {
    let Sentence { part, .. } = it;
    (
        format!("Compute {part} in one piece on the GPU"),
        format!(
            "it takes {} small programs (kernels) where {} would \
                 do",
            it.number("kernels"),
            it.number("become")
        ),
    )
}
