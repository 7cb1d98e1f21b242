//! `report.html` and `report.md` of a search.

use super::outcome::TuneOutcome;
use super::words::{cells, heads, lines};
use crate::study::Manifest;
use crate::study::pages::{charts, method};
use candlescope_document::{Document, Picture, Section, Table};

const METHOD: &str = "The ends of the range first, then the batch that is expected to serve best, by the prediction corrected \
    by what had been measured until then; then the batches beside it. At last the best ones were measured again, interleaved \
    in random order. All in one process start, so that no interval here says how far another one may be off: `candlescope \
    bench throughput --batches` with the batches above measures over several starts.";
const MEMORY: &str = "Memory on a CPU is the most that the process had resident, which includes what batches before may have \
    left behind.";

/// What the page and the Markdown of a tuned batch show.
pub(super) fn document(manifest: &Manifest, tuned: &TuneOutcome, drawn: &[Picture]) -> Document {
    let note = format!(
        "Requests of {} prompt and {} output tokens a sequence. Medians; expected figures are derived, the others measured. \
         Every sample is in results.parquet, every figure of this page in tune.json.",
        tuned.prompt_tokens, tuned.output_tokens
    );
    let rows = tuned.points.iter().map(|point| cells(point, tuned)).collect();
    let table = Table::of_texts(&heads(tuned), rows).words(&["why it was measured", "result"]);
    Document {
        title: manifest.study.clone(),
        sections: vec![
            Section::new("found", "What was found", "").list(lines(tuned)),
            Section::new("batches", "Batches", note).with(table),
            charts(drawn),
            method(manifest, vec![METHOD.to_string(), MEMORY.to_string()], &manifest.disturbances),
        ],
        ..Document::default()
    }
}
