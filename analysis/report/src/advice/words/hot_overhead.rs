use crate::advice::sentence::Sentence;
use crate::format::{count, percent};
use candlescope_document::text::{capital, code};

pub(super) fn words(it: &Sentence<'_>) -> (String, String) {
    let Sentence { phase, .. } = it;
    let share = it.share("share");
    let what = match it.advice.place.cause {
        Some("thread_count") => {
            "asking for the number of cores: RAYON_NUM_THREADS is not set, and candle asks at each product"
        }
        Some("pool_sync") if of_candle(it) => {
            "waiting for the threads that share its quantised products: one of them had no processor, or the pieces \
             are too small"
        }
        Some("pool_sync") => {
            "waking the pool's threads, waiting for them and looking for work: its pieces are too small"
        }
        Some("environment") => "reading the environment",
        Some("formatting") => "formatting text",
        Some("hashing") => "hashing",
        Some("allocation") => "taking memory and giving it back",
        Some("copies") => "copying tensors to make them contiguous or to join them",
        _ => "functions that compute nothing",
    };
    (format!("{share} of a step `{phase}`{} is {what}, {}", counted(it), it.most_of_it()), remedy(it))
}

/// Between what the share lies, and what it rests on: two standard errors of the samples, in which waits count as well.
fn counted(it: &Sentence<'_>) -> String {
    let Some(error) = it.advice.evidence.iter().find(|figure| figure.name == "share_error") else {
        return String::new();
    };
    let (share, bound) = (it.value("share"), 2.0 * error.value);
    let (low, high) = (percent((share - bound).max(0.0)), percent((share + bound).min(1.0)));
    format!(" ({low} to {high}, by {} samples)", count(error.n))
}

/// Whether it is candle's own pool that is waited for, and not rayon's.
fn of_candle(it: &Sentence<'_>) -> bool {
    it.advice.place.function.as_deref().is_some_and(|function| function.contains("BarrierGuard"))
}

/// Whether the thread that runs the model hands work to rayon's pool, of which it is no part.
fn hands_over(it: &Sentence<'_>) -> bool {
    !of_candle(it) && it.advice.figure("caller_computes").is_none()
}

fn remedy_of_pool(it: &Sentence<'_>) -> String {
    let Sentence { phase, .. } = it;
    let take_part = hands_over(it).then(|| {
        format!(
            "let the thread that runs `{phase}` be one of rayon's pool, before anything uses it: \
             `rayon::ThreadPoolBuilder::new().use_current_thread().build_global()`; each small operation is handed \
             to another thread and back otherwise"
        )
    });
    let is_one = it.advice.figure("rayon_num_threads") == Some(1.0);
    let fewer = (!is_one).then(|| {
        "let fewer threads share the work (RAYON_NUM_THREADS=1, or what `candlescope tune threads` finds)".to_string()
    });
    let larger = format!("give each piece of `{phase}` more work (batch)");
    let all: Vec<String> = [take_part, fewer, Some(larger)].into_iter().flatten().collect();
    capital(&all.join("; or "))
}

fn remedy(it: &Sentence<'_>) -> String {
    let Sentence { phase, .. } = it;
    match it.advice.place.cause {
        Some("thread_count") => format!(
            "Set RAYON_NUM_THREADS before the program starts, to the processors that it may use, or to 1 for a small model: \
             `{phase}` then computes instead"
        ),
        Some("pool_sync") => remedy_of_pool(it),
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
        Some("pool_sync") if hands_over(it) => {
            "Let the thread that runs the model do small operations itself, instead of handing them to others"
                .to_string()
        }
        Some("pool_sync") => "Let fewer threads share the work of the model".to_string(),
        Some("allocation") => "Reuse memory instead of asking for it at every step".to_string(),
        Some("copies") => "Avoid copying data between operations".to_string(),
        _ => "Remove work that computes nothing".to_string(),
    };
    (what, format!("{} of {step} computes nothing", it.share("share")))
}

#[cfg(test)]
mod tests {
    use super::super::made_up;
    use candlescope_figures::advice::{AdviceCode, AdvicePlace};

    /// What is said of 10 % in 36 samples of a pool's synchronisation in this function, with one more figure.
    fn said(function: &str, figure: Option<(&'static str, f64)>) -> String {
        let place = AdvicePlace::of("decode").path("decode/mlp").function(function).because("pool_sync");
        let figures = [("share", 0.1), ("share_error", 0.016)].into_iter().chain(figure);
        made_up::said(AdviceCode::HotOverhead, place, 36, figures)
    }

    #[test]
    fn who_computes_for_the_pool_already_is_not_asked_to() {
        let sleep = "rayon_core::sleep::Sleep::sleep";
        let handed = said(sleep, None);
        assert!(handed.starts_with("10.0 % of a step `decode` (6.8 % to 13.2 %, by 36 samples) is "), "{handed}");
        assert!(handed.contains(". Let the thread that runs `decode` be one of rayon's pool"), "{handed}");
        let computes = said(sleep, Some(("caller_computes", 1.0)));
        assert!(computes.contains(". Let fewer threads share the work"), "{computes}");
        let one = said(sleep, Some(("rayon_num_threads", 1.0)));
        assert!(one.ends_with("; or give each piece of `decode` more work (batch)"), "{one}");
        assert!(!one.contains("fewer threads"), "{one}");
        let waits = said("<candle_core::utils::BarrierGuard as core::ops::drop::Drop>::drop", None);
        assert!(waits.contains("one of them had no processor") && !waits.contains("rayon's pool"), "{waits}");
    }
}
