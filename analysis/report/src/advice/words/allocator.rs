use crate::advice::sentence::Sentence;

pub(super) fn words(it: &Sentence<'_>) -> (String, String) {
    let Sentence { phase, .. } = it;
    (
        "memory is allocated on the critical path".to_string(),
        format!("Reuse tensors in `{phase}`, or raise the pool's release threshold"),
    )
}

pub(super) fn plain(_: &Sentence<'_>) -> (String, String) {
    ("Reuse memory".to_string(), "it is asked for anew while requests wait".to_string())
}
