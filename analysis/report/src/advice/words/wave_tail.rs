use crate::advice::sentence::Sentence;

pub(super) fn words(it: &Sentence<'_>) -> (String, String) {
    let Sentence { at, kernel, .. } = it;
    (
        format!("{kernel} in `{at}` fills {} of its {} waves", it.share("filled"), it.number("waves")),
        format!(
            "Choose another tile or split for {kernel} in `{at}`, or another batch, so that its blocks fill whole waves"
        ),
    )
}

pub(super) fn plain(it: &Sentence<'_>) -> (String, String) {
    let Sentence { part, .. } = it;
    (
        format!("Divide {part} differently among the GPU's processors"),
        format!("{} of them have work at its end", it.share("filled")),
    )
}
