use crate::advice::sentence::Sentence;

pub(super) fn words(it: &Sentence<'_>) -> (String, String) {
    (
        format!(
            "the slowest rank of a step takes {} of a step longer than the mean, and it is not always the same one",
            it.share("share")
        ),
        "Give ranks equal shares of each step; look for what else runs on their machines".to_string(),
    )
}

pub(super) fn plain(it: &Sentence<'_>) -> (String, String) {
    let Sentence { step, .. } = it;
    (
        "Give all devices equal shares of the work, and their machines nothing else to do".to_string(),
        format!("the slowest of them makes {step} {} longer, now this one and then that one", it.share("share")),
    )
}
