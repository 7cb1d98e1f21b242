//! Files of a study that other crates than the lab look for by name: what is in them is the lab's.

/// Says what a study is. A directory that has it is a study.
pub const MANIFEST_FILE: &str = "study.json";

/// Samples, each as soon as it is taken.
pub const JOURNAL_FILE: &str = "journal.jsonl";

/// The same once a study has ended, a row for each.
pub const RESULTS_FILE: &str = "results.parquet";
