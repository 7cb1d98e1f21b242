use crate::advice::sentence::Sentence;
use candlescope_document::text::code;

pub(super) fn words(it: &Sentence<'_>) -> (String, String) {
    let Sentence { phase, .. } = it;
    let (each, calls) = (it.time("each_ns"), it.number("calls"));
    let threads = it.advice.figure("rayon_num_threads");
    let cause = if threads == Some(0.0) {
        ": RAYON_NUM_THREADS is not set, and candle then reads /proc/cpuinfo at each product of dense matrices"
    } else {
        ""
    };
    let sampled = match it.advice.figure("sampled") {
        Some(_) => format!("; by samples, asking for the number of cores takes {} of the step", it.share("sampled")),
        None => String::new(),
    };
    (
        format!(
            "each of the {calls} products of a step `{phase}` takes {each} whatever its size, {} of the \
             step{cause}{sampled}",
            it.share("of_step")
        ),
        match threads {
            Some(0.0) => format!(
                "Set RAYON_NUM_THREADS before the program starts, to the processors that it may use, or to 1 for a small \
                 model: the products of `{phase}` then cost what they compute"
            ),
            Some(_) => format!(
                "Try other numbers of threads first (`candlescope tune threads`): products of `{phase}` that wait for \
                 each other's threads cost the same whatever their size. Else find what they do beside computing \
                 (`perf record -g` names it), or make fewer and larger ones: batch, or multiply by several weights at once"
            ),
            None => format!(
                "See that RAYON_NUM_THREADS is set where the program of `{phase}` runs: without it candle 0.11 reads \
                 /proc/cpuinfo at each product of dense matrices. If it is, `perf record -g` names what they do"
            ),
        },
    )
}

pub(super) fn plain(it: &Sentence<'_>) -> (String, String) {
    let Sentence { step, .. } = it;
    (
        match it.advice.figure("rayon_num_threads") {
            None | Some(0.0) => {
                format!("Set the environment variable {} before the program starts", code("RAYON_NUM_THREADS"))
            }
            Some(_) => {
                "Make fewer and larger products of matrices, or find what each does beside computing".to_string()
            }
        },
        format!(
            "each of {} products of matrices costs {} whatever its size, {} of {step}",
            it.number("calls"),
            it.time("each_ns"),
            it.share("of_step")
        ),
    )
}
