//! What runs against their rooflines show.

use super::chart::{ChartPoint, RoofLine, chart};
use super::section::{MOST, shown, signed, table_of};
use super::static_sections::{bound, lacking, spread};
use crate::format::{count, duration, head as cut, path, percent, significant};
use candlescope_document::text::UNKNOWN;
use candlescope_document::{Block, Fact, Forms, Heat, HeatCell, MostRows, Picture, Section};
use candlescope_predict::roofline::{HeatMap, Point, PointKind, RunRoofline, Status};
use candlescope_work::devices::label_in_words;

/// Longest name in a terminal's table.
const LONGEST: usize = 60;

/// The head: of the first run the roofs, and of each whether it can be trusted.
pub(super) fn facts(runs: &[RunRoofline]) -> Vec<Fact> {
    let Some(run) = runs.first() else { return Vec::new() };
    let mut all = vec![Fact::new("run", run.run.clone())];
    let told = runs.iter().filter_map(|run| Some((run, run.verdict.as_ref()?)));
    all.extend(told.map(|(run, verdict)| match runs.len() {
        1 => Fact::new("verdict", verdict.clone()),
        _ => Fact::new("verdict", format!("{}: {verdict}", run.run)),
    }));
    for roof in &run.roofs {
        let peaks = roof.flops_by_type().into_iter();
        let peaks = peaks.map(|(kind, flops)| format!("{} {} TFLOP/s", kind.name(), significant(flops / 1e12)));
        let mut figures: Vec<String> = peaks.collect();
        figures.extend(roof.bandwidth().map(|peak| format!("{} GB/s", significant(peak.value / 1e9))));
        let many = if roof.devices() > 1 { format!(", {} devices together", roof.devices()) } else { String::new() };
        let figures = figures.join(", ");
        let label = label_in_words(roof.origin().name(), roof.is_disturbed());
        all.push(Fact::new("roof", format!("{label} · {figures}{many} ({})", roof.source())));
    }
    if run.roofs.is_empty() {
        all.push(Fact::new(
            "roof",
            "none: no peaks of the run's own device; give --peaks FILE, or --gpu with its name",
        ));
    }
    all
}

pub(super) fn sections(runs: &[RunRoofline], contexts: Option<&HeatMap>) -> Vec<Section> {
    let mut all = Vec::new();
    for (at, run) in runs.iter().enumerate() {
        let own = |section: Section| match runs.len() {
            1 => section,
            _ => Section {
                id: format!("{}-{at}", section.id),
                title: format!("{} ({})", section.title, run.run),
                ..section
            },
        };
        all.extend([ratings(run), bottlenecks(run), comparisons(run)].map(own));
        all.extend([roofline(run), table(run, PointKind::Phase, "phases", "Phases")].map(own));
        all.push(own(table(run, PointKind::Operator, "operators", "Operators")));
        all.push(own(table(run, PointKind::Kernels, "kernels", "Kernels by the path that launched them")));
        all.extend(run.layers.iter().map(|map| {
            let note = "Roofline utilisation under the run's first roof, where it can be told; else the mean time.";
            let title = format!("Layers × operators, {}", map.title);
            own(Section::new(format!("layers-{}", map.title), title, note)
                .with_in(Forms::FILES, Block::Heat(heat(map))))
        }));
    }
    if let Some(map) = contexts {
        let note = "Decoding steps; roofline utilisation where it can be told, else the mean time of a step.";
        all.push(Section::new("contexts", "Batch × context", note).with_in(Forms::FILES, Block::Heat(heat(map))));
    }
    all
}

fn ratings(run: &RunRoofline) -> Section {
    let rows = run.ratings.iter().map(|rating| {
        vec![
            rating.figure.to_string(),
            rating.grade.name().to_string(),
            shown(rating.value, significant),
            rating.unit.to_string(),
            format!("{}, {}", significant(rating.thresholds.0), significant(rating.thresholds.1)),
            rating.note.clone(),
        ]
    });
    let note = "Thresholds are conventions: --rate sets them.";
    let head = ["figure", "rating", "value", "unit", "thresholds", "what it is"];
    Section::new("ratings", "Ratings", note).with(table_of(&head, rows.collect()))
}

fn bottlenecks(run: &RunRoofline) -> Section {
    let rows = run.bottlenecks.iter().map(|b| vec![b.phase.clone(), bound(b.bound), b.evidence.clone()]);
    Section::new("bottleneck", "Bottleneck", "").with(table_of(&["phase", "bound by", "evidence"], rows.collect()))
}

fn comparisons(run: &RunRoofline) -> Section {
    let kernels = run.outlook.as_ref().and_then(|outlook| outlook.from_kernels.as_ref());
    let rows = run.comparisons.iter().map(|c| {
        let mut row = vec![
            c.figure.to_string(),
            duration(c.measured_ns),
            count(c.n),
            spread(Some(c.predicted_ns)),
            signed(c.error),
        ];
        if kernels.is_some() {
            row.push(shown(c.from_kernels_ns, duration));
            row.push(c.from_kernels_error.map_or_else(|| UNKNOWN.to_string(), signed));
        }
        row
    });
    let note = "Error = predicted ÷ measured − 1. At their roofs operations are rather too short, and small kernels at their usual \
         time too short or too long.";
    let mut list: Vec<String> =
        run.outlook_missing.iter().map(|what| format!("no prediction: the run lacks {what}")).collect();
    list.extend(run.notes.iter().cloned());
    list.extend(kernels.into_iter().flat_map(lacking));
    let mut head = vec!["", "measured", "n", "predicted", "error"];
    if kernels.is_some() {
        head.extend(["from kernels", "its error"]);
    }
    Section::new("prediction", "Measured against predicted", note).with(table_of(&head, rows.collect())).list(list)
}

fn roofline(run: &RunRoofline) -> Section {
    let note = "Large: phases. Small: operators. A point above a roof is invalid, and shown where it is.";
    Section::new("roofline", "Roofline", note).picture(roofline_chart(run))
}

pub(super) fn roofline_chart(run: &RunRoofline) -> Option<Picture> {
    let of = |kind| run.points.iter().filter(move |point: &&Point| point.kind == kind);
    let multiply = of(PointKind::Phase).find_map(|point| point.under.first()?.multiply);
    let roofs = run.roofs.iter().filter_map(|roof| {
        let known = roof.flops_by_type();
        let own = multiply.and_then(|kind| known.get_key_value(&kind));
        let (kind, flops) = own.or_else(|| known.first_key_value())?;
        let name = format!("{}, {}", roof.origin().name(), kind.name());
        Some(RoofLine { name, flops: *flops, bandwidth: roof.bandwidth()?.value })
    });
    let drawn = |point: &Point, marked: bool| {
        Some(ChartPoint {
            name: format!("{} ({})", point.name, point.over),
            intensity: point.intensity?,
            flops: point.flops_per_s?,
            marked,
        })
    };
    let mut points: Vec<ChartPoint> = of(PointKind::Phase).filter_map(|point| drawn(point, true)).collect();
    points.extend(of(PointKind::Operator).take(60).filter_map(|point| drawn(point, false)));
    chart(&roofs.collect::<Vec<_>>(), &points)
}

fn table(run: &RunRoofline, kind: PointKind, id: &str, title: &str) -> Section {
    let points: Vec<&Point> = run.points.iter().filter(|point| point.kind == kind).collect();
    let rows = points.iter().map(|point| {
        let under = point.under.first();
        let status = match point.status() {
            Status::Ok => "OK".to_string(),
            // Said once, in the head.
            Status::DataMissing(_) if run.roofs.is_empty() => "data missing".to_string(),
            Status::DataMissing(why) => format!("data missing: {why}"),
            Status::Invalid(why) => format!("invalid: {why}"),
        };
        let utilisation = |at: usize| shown(point.under.get(at).and_then(|under| under.utilisation), percent);
        let mut row = vec![
            cut(&path(&point.name, LONGEST), LONGEST),
            count(point.calls),
            shown(point.ns, duration),
            point.over.to_string(),
            shown(point.predicted_ns, duration),
            shown(point.flops_per_s, |f| significant(f / 1e9)),
            shown(point.bytes_per_s, |b| significant(b / 1e9)),
            shown(point.intensity, significant),
            shown(under.and_then(|under| under.attainable_flops), |f| significant(f / 1e9)),
        ];
        row.extend((0..run.roofs.len()).map(utilisation));
        row.extend([bound(under.and_then(|under| under.bound)), status]);
        row
    });
    let mut head: Vec<String> =
        ["", "calls", "mean", "time", "predicted", "GFLOP/s", "GB/s", "FLOP/B", "attainable GFLOP/s"]
            .map(str::to_string)
            .to_vec();
    head.extend(run.roofs.iter().map(|roof| format!("of {} roof", roof.origin().name())));
    head.extend(["lower roof", "status"].map(str::to_string));
    let head: Vec<&str> = head.iter().map(String::as_str).collect();
    let terminal_rows = if kind == PointKind::Phase { 40 } else { 12 };
    Section::new(id, title, "").with(table_of(&head, rows.collect()).most(
        MostRows::of(terminal_rows, MOST, MOST),
        "rows",
        "the files",
    ))
}

fn heat(map: &HeatMap) -> Heat {
    let cell = |cell: &Option<candlescope_predict::roofline::HeatCell>| match cell {
        None => HeatCell { text: UNKNOWN.to_string(), ..HeatCell::default() },
        Some(cell) => HeatCell {
            text: cell.utilisation.map_or_else(|| duration(cell.ns), percent),
            hint: format!("{} of {}", duration(cell.ns), count(cell.n)),
            depth: cell.utilisation.map(|share| (share.clamp(0.0, 1.0) * 85.0).round() as u8),
            invalid: cell.utilisation.is_some_and(|share| share > 1.0),
        },
    };
    Heat {
        corner: format!("{} \\ {}", map.row, map.column),
        columns: map.columns.clone(),
        rows: map.rows.iter().cloned().zip(map.cells.iter().map(|row| row.iter().map(cell).collect())).collect(),
    }
}
