use crate::advice::sentence::Sentence;

pub(super) fn words(it: &Sentence<'_>) -> (String, String) {
    let Sentence { phase, at, .. } = it;
    let behind = match it.advice.figure("resumed_ns") {
        Some(_) => format!("; behind it, the first layer takes {} more than the others", it.time("resumed_ns")),
        None => String::new(),
    };
    (
        format!(
            "a step `{phase}` waits for {} ({}), {}{behind}",
            it.share("share"),
            it.time("waits_ns"),
            it.most_of_it()
        ),
        match it.function() {
            Some(function) => format!(
                "See what `{function}` waits for: a lock that another thread holds, a file, a socket. Do it before `{phase}` or on \
                 another thread"
            ),
            None => format!(
                "Find out what `{at}` waits for, which no sample tells: a lock that another thread holds, a file, a socket. A \
                 timeline shows what other threads do meanwhile (`candlescope export perfetto`). Do it before `{phase}` or on \
                 another thread"
            ),
        },
    )
}

pub(super) fn plain(it: &Sentence<'_>) -> (String, String) {
    let Sentence { step, .. } = it;
    (
        "Find out what the program waits for, and do that elsewhere".to_string(),
        format!("{} of {step} is spent waiting", it.share("share")),
    )
}
