use crate::advice::sentence::Sentence;
use crate::format::significant;

pub(super) fn words(it: &Sentence<'_>) -> (String, String) {
    let Sentence { phase, .. } = it;
    let others = it.advice.figure("others").filter(|n| *n > 0.05);
    let who =
        others.map_or("other threads".to_string(), |n| format!("others, which use {} processors,", significant(n)));
    (
        format!(
            "for {} of the time of steps `{phase}` ({} a step on average) they were ready to go on and {who} had their \
             processor",
            it.share("share"),
            it.time("preempted_ns")
        ),
        match others {
            Some(_) => format!(
                "End the other programs, or give the program processors of its own (`taskset`), and record `{phase}` again"
            ),
            // A product is not shared: other threads of the program, or of other programs, had it.
            None if it.advice.figure("threads") == Some(1.0) => format!(
                "Find out which threads ran meanwhile (`top -H`): let the program start fewer of its own, or give `{phase}` \
                 processors of its own (`taskset`); in a run of seconds those that record are among them (`--stacks=off`, or \
                 a longer run)"
            ),
            None => format!(
                "Start fewer threads than there are processors (`candlescope tune threads`), so that those of `{phase}` keep theirs"
            ),
        },
    )
}

pub(super) fn plain(it: &Sentence<'_>) -> (String, String) {
    let Sentence { step, .. } = it;
    (
        "Give the program processors of its own".to_string(),
        format!("on average {} of {step} is spent waiting for a processor", it.share("share")),
    )
}
