use crate::advice::sentence::Sentence;

pub(super) fn words(it: &Sentence<'_>) -> (String, String) {
    let Sentence { phase, at, .. } = it;
    let function = it.function();
    (
        format!(
            "a step `{phase}` waits for {} ({}), most of it in `{function}` at `{at}`",
            it.share("share"),
            it.time("waits_ns")
        ),
        format!(
            "See what `{function}` waits for: a lock that another thread holds, a file, a socket. Do it before `{phase}` or on \
             another thread"
        ),
    )
}

pub(super) fn plain(it: &Sentence<'_>) -> (String, String) {
    let Sentence { step, .. } = it;
    (
        "Find out what the program waits for, and do that elsewhere".to_string(),
        format!("{} of {step} is spent waiting", it.share("share")),
    )
}
