//! What the recorded requests of the base show, without a KV cache and with one: links, bottlenecks, operators, layers.

use super::layers::{Layer, layers};
use super::row::VariantRow;
use super::variant::Variant;
use crate::study::{CaseSummary, Study};
use crate::suites::{RecordedCase, bound_sentences, ms, recorded};
use candlescope_document::{Block, MostRows, Row, Section, Table, column};
use std::path::Path;

/// Operators of each variant that are listed.
const OPERATORS: usize = 8;
/// Layers that are listed.
const LAYERS: usize = 20;
/// A recorded request ÷ a plain one above which something held the recorded one up: recording itself costs some per cent.
const HELD_UP: f64 = 1.5;

/// The section of the report; empty without recorded requests.
pub(super) fn section(study: &Study, rows: &[VariantRow]) -> Section {
    let base = |row: &&VariantRow| matches!(row.variant, Variant::NoCache | Variant::KvCache);
    let rows: Vec<&VariantRow> = rows.iter().filter(base).collect();
    let summaries: Vec<CaseSummary> = rows.iter().map(|row| row.summary.clone()).collect();
    let all = recorded(study.dir(), &summaries);
    let title = |of: &RecordedCase<'_>| {
        let row = rows.iter().find(|row| row.summary.case == of.case.case);
        row.map_or("", |row| row.variant.title())
    };
    let runs = all.iter().filter_map(|of| {
        let link = Some(format!("{}/report.html", of.case.last_run()?));
        Some(Row { link, ..Row::new(title(of), vec![of.requests.to_string().into()]) })
    });
    let runs = Table::new("variant", vec![column("requests, every layer of each step", "")], runs.collect());
    let bounds = all.iter().flat_map(|of| bound_sentences(of).into_iter().map(|said| format!("{}: {said}", title(of))));
    let mut parts = vec![Section::new("bounds", "What bounds them", "").list(bounds.collect())];
    parts.extend(all.iter().enumerate().map(|(nth, of)| operators(nth, title(of), of)));
    if let [one, other] = &all[..] {
        parts.push(layers_of_both(study.dir(), (title(one), one), (title(other), other)));
    }
    Section { parts, ..Section::new("recorded", "Recorded requests", "").with(runs) }
}

/// How many times as long as the plain requests of a case its recorded ones took, where that is so long that their times
/// are not the program's; `None` where they are.
fn held_up(case: &CaseSummary) -> Option<f64> {
    case.recording_cost().map(|cost| 1.0 + cost).filter(|times| *times > HELD_UP)
}

/// What stands above the tables of requests that were held up; empty if none was.
fn beware(of: &[(&str, Option<f64>)]) -> Block {
    let told = of.iter().filter_map(|(title, times)| {
        let times = (*times)?;
        Some(format!(
            "Beware: recorded requests of \"{title}\" took {times:.1} times as long as the plain ones. Something else held them \
             up, and the times below are not the program's: measure again while nothing else runs, or record more requests \
             (`--profiled 3`)."
        ))
    });
    Block::List(told.collect())
}

/// The words for a layer's ratio. Requests that were held up show none, however far apart the calls of one lie.
fn times_of(layer: &Layer, held_up: bool) -> String {
    match layer.times().filter(|_| !held_up) {
        Some((times, low, high)) => format!("{times:.1}x ({low:.1} to {high:.1})"),
        None => "not clear".to_string(),
    }
}

/// Where the time of recorded requests goes.
fn operators(nth: usize, title: &str, of: &RecordedCase<'_>) -> Section {
    let mut all: Vec<_> = of.analysis.operators.iter().filter(|operator| operator.self_ns > 0).collect();
    all.sort_by_key(|operator| std::cmp::Reverse(operator.self_ns));
    let requests = of.requests.max(1) as f64;
    let rows = all.iter().map(|operator| {
        vec![
            operator.path.clone(),
            format!("{:.0}", operator.calls as f64 / requests),
            ms(Some(operator.self_ns as f64 / requests)),
            format!("{:.1} %", operator.self_share * 100.0),
        ]
    });
    let heads = ["operator", "calls a request", "self time a request", "share of step time"];
    let table = Table::of_texts(&heads, rows.collect()).of_code(60);
    let section = Section::new(format!("operators-{nth}"), format!("Operators, {title}"), "");
    if all.is_empty() {
        return section;
    }
    section.with(beware(&[(title, held_up(of.case))])).with(table.most(
        MostRows::of(OPERATORS, OPERATORS, OPERATORS),
        "operators",
        "in the run's report",
    ))
}

/// What a cache saves, layer by layer.
fn layers_of_both(
    study: &Path,
    (without, one): (&str, &RecordedCase<'_>),
    (with, other): (&str, &RecordedCase<'_>),
) -> Section {
    let both = layers(study, one, other);
    let held = [held_up(one.case), held_up(other.case)];
    let any = held.iter().any(Option::is_some);
    let rows = both.iter().take(LAYERS).map(|layer| {
        let (a, b) = (layer.without.ns, layer.with.ns);
        let less = if a >= b { ms(Some(a - b)) } else { format!("−{}", ms(Some(b - a))) };
        vec![layer.name.clone(), ms(Some(a)), ms(Some(b)), less, times_of(layer, any)]
    });
    let table = Table::of_texts(&["layer", without, with, "less by", "times"], rows.collect()).of_code(60);
    let section = Section::new(
        "layers-of-both",
        "Layers without and with the cache",
        "Self time in a typical request, all phases together: calls × their median, so that a stall of single calls counts \
         for nothing. The ratio has the least and the most that the calls allow; where these do not show which takes longer, \
         there is none. The largest clear difference first.",
    );
    if both.is_empty() {
        return section;
    }
    section.with(beware(&[(without, held[0]), (with, held[1])])).with(table)
}

#[cfg(test)]
mod tests {
    use super::super::layers::LayerTime;
    use super::*;
    use crate::method::{CaseId, Measurement, Mode, Reading, Sample, SampleVerdict};

    fn case(plain_ms: u64, recorded_ms: u64) -> CaseSummary {
        let sample = |mode, ms: u64| Sample {
            case: CaseId::new("variants"),
            process: 0,
            repetition: 0,
            mode,
            ended_ns: 0,
            measurement: Measurement::new(ms * 1_000_000),
            reading: Reading::default(),
            verdict: SampleVerdict::Ok,
        };
        CaseSummary {
            case: CaseId::new("variants"),
            plain: vec![sample(Mode::Plain, plain_ms)],
            profiled: vec![sample(Mode::Profiled, recorded_ms)],
            retaken: 0,
            processes: 1,
            stops: Vec::new(),
            detail: None,
        }
    }

    #[test]
    fn a_recorded_request_that_was_held_up_shows_no_ratio() {
        // A plain request took 32.3 ms in all, and one layer of the recorded one 236 ms.
        let held = held_up(&case(32, 317));
        assert!(held.is_some_and(|times| (times - 317.0 / 32.0).abs() < 1e-9), "{held:?}");
        assert_eq!(held_up(&case(32, 34)), None);
        let time = |ns: f64| LayerTime { ns, low: 0.99 * ns, high: 1.01 * ns };
        let layer = Layer { name: "block/self_attn/rotary".into(), without: time(236e6), with: time(0.358e6) };
        assert_eq!(times_of(&layer, true), "not clear");
        assert!(times_of(&layer, false).starts_with("659.2x"), "{}", times_of(&layer, false));
        let Block::List(told) = beware(&[("no KV cache", held), ("KV cache", None)]) else { panic!("a list") };
        let told = told.join(" ");
        assert!(told.contains("\"no KV cache\" took 9.9 times") && !told.contains("of \"KV cache\""), "{told}");
        assert!(matches!(beware(&[("no KV cache", None)]), Block::List(told) if told.is_empty()));
    }
}
