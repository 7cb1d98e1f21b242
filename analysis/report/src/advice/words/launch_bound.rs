use crate::advice::sentence::Sentence;

pub(super) fn words(it: &Sentence<'_>) -> (String, String) {
    let Sentence { phase, .. } = it;
    (
        format!(
            "the device waits for launches in {}{} of a step `{phase}`: {} kernels take {} of {}",
            it.share("late"),
            if it.value("late_at_most") > it.value("late") + 0.01 {
                format!(" to {}", it.share("late_at_most"))
            } else {
                String::new()
            },
            it.number("kernels"),
            it.time("device_ns"),
            it.time("step_ns")
        ),
        format!(
            "Capture the step `{phase}` as one CUDA graph and replay it, or take work off the thread that launches; the \
             upper end of the gain is {}",
            match it.advice.figure("replayed_steps") {
                Some(_) => {
                    "what `analyze --what-if graph` says, with kernels as fast as recorded, as far as it comes from \
                     waiting"
                }
                None => "all of that waiting: these steps cannot be replayed as a graph, and may keep some of it",
            }
        ),
    )
}

pub(super) fn plain(it: &Sentence<'_>) -> (String, String) {
    (
        "Give the GPU its work in one piece (a CUDA graph)".to_string(),
        format!("it waits for the processor in {} of the time", it.share("late")),
    )
}
