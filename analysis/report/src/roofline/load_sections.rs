//! What a load test beside its prediction shows.

use super::chart::{ChartPoint, chart};
use super::section::{shown, signed, table_of};
use super::static_sections::{bound, roof_line, spread};
use crate::format::{count, duration, significant};
use candlescope_document::Section;
use candlescope_document::text::UNKNOWN;
use candlescope_predict::roofline::{LoadLatency, LoadStage, Outlook};

pub(super) fn sections(stages: &[LoadStage]) -> Vec<Section> {
    let rows = stages.iter().map(|stage| {
        let mut row = vec![stage.level.clone(), significant(stage.in_flight)];
        row.extend([stage.prompt, stage.output].map(|n| n.map_or_else(|| UNKNOWN.to_string(), count)));
        for latency in [&stage.ttft, &stage.tpot] {
            row.extend(cells(latency.as_ref()));
        }
        let rates = [stage.tokens_per_s, stage.predicted_tokens_per_s, stage.predicted_decode_tokens_per_s];
        row.extend(rates.map(|rate| shown(rate, significant)));
        row.push(bound(stage.bound));
        row
    });
    let head = [
        "load",
        "under way",
        "prompt",
        "output",
        "TTFT",
        "p95",
        "predicted",
        "error",
        "TPOT",
        "p95",
        "predicted",
        "error",
        "tokens/s",
        "predicted",
        "while decoding",
        "bound by",
    ];
    let note = "A token is predicted for a batch of the mean number of requests under way, the first token for a \
                prompt alone: waiting for other requests is in the measurement only. Predicted tokens/s are those of \
                whole requests, the wait for the first token included; beside them those while all decode. Error = predicted ÷ median − 1.";
    let mut all = vec![Section::new("load", "Load against prediction", note).with(table_of(&head, rows.collect()))];
    let rated = stages.iter().flat_map(|stage| stage.ratings.iter().map(move |rating| (stage, rating)));
    let rows = rated.map(|(stage, rating)| {
        vec![
            stage.level.clone(),
            rating.figure.to_string(),
            rating.grade.name().to_string(),
            shown(rating.value, significant),
            rating.unit.to_string(),
            rating.note.clone(),
        ]
    });
    let head = ["load", "figure", "rating", "value", "unit", "what it is"];
    all.push(
        Section::new("ratings", "Ratings", "Thresholds are conventions: --rate sets them.")
            .with(table_of(&head, rows.collect())),
    );
    let missing: Vec<String> = stages
        .iter()
        .filter_map(|stage| Some(format!("{}: no prediction: {}", stage.level, stage.missing.as_ref()?)))
        .collect();
    all.push(Section::new("unpredicted", "Not predicted", "").list(missing));
    all
}

fn cells(latency: Option<&LoadLatency>) -> [String; 4] {
    match latency {
        None => [UNKNOWN; 4].map(str::to_string),
        Some(l) => [duration(l.median_ns), shown(l.p95_ns, duration), spread(l.predicted_ns), shown(l.error, signed)],
    }
}

/// The stages on the roofline.
pub(super) fn points(outlook: &Outlook, stages: &[LoadStage]) -> Section {
    let points = stages.iter().filter_map(|stage| {
        let point = stage.point?;
        Some(ChartPoint {
            name: stage.level.clone(),
            intensity: point.intensity,
            flops: point.flops_per_s,
            marked: true,
        })
    });
    let note = "A token of each request under way, by the median time per output token that was measured.";
    let picture = chart(&roof_line(outlook).into_iter().collect::<Vec<_>>(), &points.collect::<Vec<_>>());
    Section::new("load-roofline", "Measured tokens on the roofline", note).picture(picture)
}
