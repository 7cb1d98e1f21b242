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
pub(crate) use remedy::{Attempt, Remedy, State, Unpromised};

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

    #[test]
    fn names_are_unique_and_say_what_they_cost() {
        let mut names: Vec<&str> = ALL.iter().map(|remedy| remedy.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), ALL.len());
        assert!(ALL.iter().all(|remedy| !remedy.title.is_empty() && !remedy.cost.is_empty()));
    }
}
