use crate::advice::sentence::Sentence;
use candlescope_document::text::code;

pub(super) fn words(it: &Sentence<'_>) -> (String, String) {
    let Sentence { phase, .. } = it;
    let share = it.share("share");
    let what = match it.advice.place.cause {
        Some("thread_count") => {
            "asking for the number of cores: RAYON_NUM_THREADS is not set, and candle asks at each product"
        }
        Some("pool_sync") => {
            "waking the pool's threads, waiting for them and looking for work: its pieces are too small"
        }
        Some("recording") => "recording itself",
        Some("environment") => "reading the environment",
        Some("formatting") => "formatting text",
        Some("hashing") => "hashing",
        Some("allocation") => "taking memory and giving it back",
        Some("copies") => "copying tensors to make them contiguous or to join them",
        _ => "functions that compute nothing",
    };
    (format!("{share} of a step `{phase}` is {what}, {}", it.most_of_it()), remedy(it))
}

fn remedy(it: &Sentence<'_>) -> String {
    let Sentence { phase, .. } = it;
    match it.advice.place.cause {
        Some("thread_count") => format!(
            "Set RAYON_NUM_THREADS before the program starts, to the processors that it may use, or to 1 for a small model: \
             `{phase}` then computes instead"
        ),
        Some("pool_sync") => {
            let fewer = match it.advice.figure("rayon_num_threads") {
                Some(1.0) => "",
                _ => {
                    "; or let fewer threads share the work (RAYON_NUM_THREADS=1, or what `candlescope tune threads` finds)"
                }
            };
            format!(
                "Let the thread that runs `{phase}` be one of rayon's pool, before anything uses it: \
                 `rayon::ThreadPoolBuilder::new().use_current_thread().build_global()`; each small operation is handed to another \
                 thread and back otherwise{fewer}; or give each piece more work (batch)"
            )
        }
        Some("recording") => {
            format!(
                "Record fewer intervals of `{phase}`: a schedule (`--schedule`), or fewer spans inside small operations"
            )
        }
        Some("environment") => format!("Read the environment once before `{phase}`, and keep what it says"),
        Some("formatting") => format!("Build texts outside `{phase}`, or only where somebody reads them"),
        Some("hashing") => {
            format!("Keep what `{phase}` looks up, or use a quicker hasher (`rustc-hash`) for small keys")
        }
        Some("allocation") => format!(
            "Reuse the tensors of `{phase}` between steps, or link another allocator (mimalloc, jemalloc), which keeps what \
             is freed"
        ),
        Some("copies") => format!(
            "Write into a tensor made beforehand (`slice_set`) instead of joining tensors in `{phase}`, and keep layouts that \
             the next operation takes as they are"
        ),
        _ => format!("Find who calls it in `{phase}`: the flame graph shows it"),
    }
}

pub(super) fn plain(it: &Sentence<'_>) -> (String, String) {
    let Sentence { step, .. } = it;
    let what = match it.advice.place.cause {
        Some("thread_count") => {
            format!("Set the environment variable {} before the program starts", code("RAYON_NUM_THREADS"))
        }
        Some("pool_sync") => {
            "Let the thread that runs the model do small operations itself, instead of handing them to others"
                .to_string()
        }
        Some("allocation") => "Reuse memory instead of asking for it at every step".to_string(),
        Some("copies") => "Avoid copying data between operations".to_string(),
        Some("recording") => "Record less of each step".to_string(),
        _ => "Remove work that computes nothing".to_string(),
    };
    (what, format!("{} of {step} computes nothing", it.share("share")))
}
