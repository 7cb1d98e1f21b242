//! What a program can change by itself: one remedy a file, listed in [`ALL`].
//!
//! A remedy says which findings it answers, what it changes, what that may cost, and what it promises. To add one, write a
//! file beside the others and put it into the list.

mod allocator;
mod batch;
mod chunked_prefill;
mod cuda_graph;
mod engine;
mod half_precision;
mod kv_cache_8bit;
mod ngram_speculation;
mod prefix_reuse;
mod remedy;
mod slots;
mod threads;
mod weight_bits;

pub use remedy::Answers;
pub(crate) use remedy::{Attempt, NoPromise, Remedy, State};

/// Every remedy, those that cost nothing first.
pub(crate) const ALL: &[&Remedy] = &[
    &threads::REMEDY,
    &slots::REMEDY,
    &prefix_reuse::REMEDY,
    &chunked_prefill::REMEDY,
    &ngram_speculation::REMEDY,
    &cuda_graph::REMEDY,
    &allocator::REMEDY,
    &engine::REMEDY,
    &batch::REMEDY,
    &half_precision::REMEDY,
    &weight_bits::REMEDY,
    &kv_cache_8bit::REMEDY,
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::Facts;
    use crate::goal::{Aim, Goal};
    use candlescope_core::run::RunManifest;
    use candlescope_figures::advice::Diagnosis;

    #[test]
    fn in_floats_of_32_bits_another_order_of_sums_changes_no_token() {
        let (goal, diagnosis) = (Goal { aim: Aim::Goodput, ..Goal::default() }, Diagnosis::default());
        let of = |remedy: &Remedy, facts: &Facts| {
            let attempts = (remedy.attempts)(&State { facts, goal: &goal, diagnosis: &diagnosis });
            attempts.unwrap_or_else(|why| panic!("{}: {why}", remedy.name)).remove(0).answers
        };
        let text = |text: &str| Some(text.to_string());
        let floats = Facts {
            is_ours: true,
            dtype: text("f32"),
            weights: text("f32"),
            held_up_by: Some(256),
            ..Facts::of(&RunManifest::default())
        };
        let continuous = Facts { is_continuous: true, ..floats.clone() };
        assert_eq!(of(&chunked_prefill::REMEDY, &continuous), Answers::Same);
        for remedy in [&engine::REMEDY, &batch::REMEDY] {
            assert_eq!(of(remedy, &floats), Answers::Same, "{}", remedy.name);
            for rounds in [
                Facts { dtype: text("bf16"), weights: text("bf16"), ..floats.clone() },
                Facts { weights: text("q4_1"), ..floats.clone() },
                Facts { dtype: None, ..floats.clone() },
            ] {
                assert_eq!(of(remedy, &rounds), Answers::Rounded, "{}: {rounds:?}", remedy.name);
            }
        }
        let in_8_bits = Facts { caches_in_8_bits: true, ..floats.clone() };
        assert_eq!(of(&batch::REMEDY, &in_8_bits), Answers::Rounded);
        // One sequence as a graph is rounded otherwise, too.
        let replayed = |dtype: &str| {
            let facts =
                Facts { device: "cuda:0".into(), dtype: text(dtype), weights: text(dtype), batch: 1, ..floats.clone() };
            of(&cuda_graph::REMEDY, &facts)
        };
        assert_eq!((replayed("f32"), replayed("bf16")), (Answers::Same, Answers::Rounded));
        // Each sequence draws its own.
        let mut manifest = RunManifest::default();
        manifest.options.insert("temperature".into(), serde_json::json!(0.7));
        let draws = Facts { draws: Facts::of(&manifest).draws, ..floats };
        assert!(draws.draws && of(&batch::REMEDY, &draws) == Answers::Rounded);
    }

    #[test]
    fn names_are_unique_and_say_what_they_cost() {
        let mut names: Vec<&str> = ALL.iter().map(|remedy| remedy.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), ALL.len());
        assert!(ALL.iter().all(|remedy| !remedy.title.is_empty() && !remedy.cost.is_empty()));
    }
}
