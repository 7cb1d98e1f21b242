//! What a study knows about each variant.

use super::closing::{VariantFacts, VariantsSummary};
use super::variant::Variant;
use super::variant_options::VariantOptions;
use crate::study::{CaseSummary, Records, Speedup, speedup, summaries};
use crate::suites::without;

/// A variant with all that is known about it.
#[derive(Debug, Clone)]
pub struct VariantRow {
    /// Which way of running the model the row is about.
    pub variant: Variant,
    /// Its samples over all process starts, and how its case ended in each.
    pub summary: CaseSummary,
    /// What was measured once.
    pub closed: Option<VariantFacts>,
    /// How many times as fast it is as the model without a cache.
    pub over_no_cache: Option<Speedup>,
    /// How many times as fast it is as the model in f32 with a cache.
    pub over_kv_cache: Option<Speedup>,
}

impl VariantRow {
    /// Why it has no latency; `None` if it has one.
    pub fn absent(&self) -> Option<String> {
        self.summary.plain.is_empty().then(|| {
            let why = without(&self.summary);
            why.strip_prefix("not tried: ").map_or(why.clone(), str::to_string)
        })
    }
}

/// The rows of all variants.
pub fn rows(options: &VariantOptions, records: &Records, closing: Option<&VariantsSummary>) -> Vec<VariantRow> {
    let summaries = summaries(&options.case_ids(), records);
    let of = |variant: Variant| options.variants.iter().position(|known| *known == variant).map(|at| &summaries[at]);
    let row = |(variant, summary): (&Variant, &CaseSummary)| VariantRow {
        variant: *variant,
        summary: summary.clone(),
        closed: closing.and_then(|closing| closing.variants.iter().find(|own| own.variant == *variant).cloned()),
        over_no_cache: of(Variant::NoCache).and_then(|base| speedup(base, summary)),
        over_kv_cache: of(Variant::KvCache).and_then(|base| speedup(base, summary)),
    };
    options.variants.iter().zip(&summaries).map(row).collect()
}
