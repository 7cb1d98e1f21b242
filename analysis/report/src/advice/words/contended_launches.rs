use crate::advice::sentence::Sentence;

pub(super) fn words(it: &Sentence<'_>) -> (String, String) {
    let Sentence { phase, .. } = it;
    let how = match it.advice.figure("off_cpu_ns").or(it.advice.figure("locks_ns")) {
        Some(_) => {
            let part = |name: &str| it.advice.figure(name).map_or_else(|| "nothing".to_string(), |_| it.time(name));
            format!(
                "of a step `{phase}` {} is off the CPU and {} in the driver's locks",
                part("off_cpu_ns"),
                part("locks_ns")
            )
        }
        None => format!(
            "a launching call of `{phase}` takes {} beside others and {} alone, {} more of a step",
            it.time("call_ns"),
            it.time("alone_ns"),
            it.time("more_ns")
        ),
    };
    (
        format!("{:.0} threads launch at once and wait for one another in the driver: {how}", it.value("threads")),
        format!(
            "Let one thread launch for all, best as one batch of their sequences (`{phase}` then launches once for all of them); \
             a process for each thread has no lock in common; a CUDA graph launches once a step"
        ),
    )
}

pub(super) fn plain(it: &Sentence<'_>) -> (String, String) {
    let Sentence { step, .. } = it;
    (
        "Serve several requests together as one batch, instead of each on a thread of its own".to_string(),
        format!("threads of {step} wait for one another for {}", it.time("more_ns")),
    )
}
