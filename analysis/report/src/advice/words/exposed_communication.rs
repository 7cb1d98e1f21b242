use crate::advice::sentence::Sentence;

pub(super) fn words(it: &Sentence<'_>) -> (String, String) {
    let what = match it.advice.figure("host_exposed_ns") {
        Some(_) => "the host does nothing else",
        None => "the device computes nothing",
    };
    (
        format!("transfers of collectives take {} of a step, in which {what}", it.share("share")),
        "Overlap them with computing of another part, send fewer bytes (16 bits, a part of the layers in parallel), or larger pieces"
            .to_string(),
    )
}

pub(super) fn plain(it: &Sentence<'_>) -> (String, String) {
    let Sentence { step, .. } = it;
    (
        "Let devices compute while they send each other data, or send less".to_string(),
        format!("{} of {step} goes by with sending alone", it.share("share")),
    )
}
