//! What reports say of a diagnosis: its findings, what could not be judged, the steps that it is about.

use super::sentence::{DISTURBED, Sentence, place_of, shown};
use super::words::words;
use crate::format::{after_colon, count, duration, percent, printable};
use candlescope_document::text::capital;
use candlescope_figures::advice::{Advice, Diagnosis, LEAST_GAIN, RoadmapStage, TrackRecord};
use candlescope_work::estimate::Estimate;

/// A finding in words.
#[derive(Debug)]
pub(crate) struct AdviceText {
    /// What was seen.
    pub(crate) message: String,
    /// What to do, naming the place.
    pub(crate) remedy: String,
}

/// A finding as tables show it.
pub(crate) struct Row<'a> {
    pub(crate) advice: &'a Advice,
    pub(crate) words: AdviceText,
    /// `12 % (9–14 %)`.
    pub(crate) gain: String,
    pub(crate) place: String,
    /// Its figures, one after another.
    pub(crate) evidence: String,
}

/// What is said where there is no finding.
pub(crate) fn nothing_found() -> String {
    format!("nothing that gains {} of a step or more was found", percent(LEAST_GAIN))
}

/// The findings of a diagnosis.
pub(crate) fn rows(diagnosis: &Diagnosis) -> Vec<Row<'_>> {
    let row = |advice| Row {
        advice,
        words: worded(advice),
        gain: gain(advice.gain),
        place: place_of(advice),
        evidence: evidence(advice),
    };
    diagnosis.findings.iter().map(row).collect()
}

/// From this much more of a step on, a remedy's place in the order matters.
const ORDER_MATTERS: f64 = 0.005;

/// `38 % (25 to 47 %)`.
pub(crate) fn gain(gain: Estimate) -> String {
    let plain = |share: f64| percent(share).replace(" %", "");
    format!("{} ({} to {})", percent(gain.mid), plain(gain.low), percent(gain.high))
}

fn evidence(advice: &Advice) -> String {
    let figure = |figure: &candlescope_figures::advice::AdviceFigure| {
        let name = figure.name.strip_suffix("_ns").unwrap_or(figure.name).replace('_', " ");
        format!("{name} {} ({})", shown(figure.value, figure.unit), figure.source.name())
    };
    advice.evidence.iter().map(figure).collect::<Vec<_>>().join(", ")
}

/// What a finding says.
pub(crate) fn worded(advice: &Advice) -> AdviceText {
    let (message, remedy) = words(&Sentence::of(advice));
    if advice.disturbed {
        return AdviceText {
            message: format!("{}; {DISTURBED}", capital(&message)),
            remedy: format!("Record again on a machine at rest first, and if it stays: {}", after_colon(&remedy)),
        };
    }
    let message = match advice.record {
        Some(record) => format!("{}; {}", capital(&message), remembered(record)),
        None => capital(&message),
    };
    AdviceText { message, remedy }
}

/// What to do about a finding, in words.
pub fn remedy_in_words(advice: &Advice) -> String {
    worded(advice).remedy
}

/// How promises of this kind came out.
fn remembered(record: TrackRecord) -> String {
    let TrackRecord { promises, came_true } = record;
    match (promises, came_true) {
        (1, 1) => "the one promise of this kind that was put to the test on this device came true".into(),
        (1, _) => "the one promise of this kind that was put to the test on this device did not come true".into(),
        _ => format!("of {promises} promises of this kind on this device {came_true} came true"),
    }
}

/// What could not be judged: the findings with the steps that it is about, what is missing, how to record it.
pub(crate) fn abstentions(diagnosis: &Diagnosis) -> Vec<(String, String, String)> {
    let mut all: Vec<(candlescope_figures::advice::Missing, &[String], Vec<&str>)> = Vec::new();
    for abstention in &diagnosis.abstained {
        let same = |known: &&mut (candlescope_figures::advice::Missing, &[String], Vec<&str>)| {
            known.0 == abstention.missing && known.1 == abstention.phases
        };
        match all.iter_mut().find(same) {
            Some((_, _, codes)) => codes.push(abstention.code.as_str()),
            None => all.push((abstention.missing, &abstention.phases, vec![abstention.code.as_str()])),
        }
    }
    // Where all kinds of steps lack it, none is named.
    let everywhere = |phases: &[String]| phases.len() == diagnosis.steps.len();
    let line = |(missing, phases, codes): (candlescope_figures::advice::Missing, &[String], Vec<&str>)| {
        let named: Vec<String> = phases.iter().map(|phase| format!("`{}`", printable(phase))).collect();
        let of = if everywhere(phases) { String::new() } else { format!(" of {}", named.join(", ")) };
        (format!("{}{of}", codes.join(", ")), missing.what().to_string(), missing.record().to_string())
    };
    all.into_iter().map(line).collect()
}

/// How long a step of each kind takes unobserved.
pub(crate) fn steps(diagnosis: &Diagnosis) -> Vec<String> {
    let one = |step: &candlescope_figures::advice::UnobservedStep| {
        // A median of steps that differ much is nearer to one of its ends.
        let bound = match (step.range_ns, step.bound_ns) {
            (Some((low, high)), _) => format!(" ({} to {})", duration(low), duration(high)),
            (None, Some(ns)) => format!(" ±{}", duration(ns)),
            (None, None) => String::new(),
        };
        let device = step.device_ns.map_or(String::new(), |ns| format!(", {} of it work on the device", duration(ns)));
        format!(
            "a step `{}` takes {}{bound} unobserved ({} observed, n {}){device}; {} of the steps' time",
            printable(&step.phase),
            duration(step.unobserved_ns),
            duration(step.observed_ns),
            count(step.n),
            percent(step.share_of_time)
        )
    };
    diagnosis.steps.iter().map(one).collect()
}

/// The order of remedies, a line for each kind of step.
fn roadmaps(diagnosis: &Diagnosis) -> impl Iterator<Item = String> {
    let stage = |stage: &RoadmapStage| {
        let at = stage.path.as_ref().map_or_else(String::new, |path| format!(" at `{}`", printable(path)));
        // Where it gains as much alone, the order does not matter.
        let alone = match stage.gain - stage.alone {
            more if more >= ORDER_MATTERS => format!(", {} alone", percent(stage.alone)),
            _ => String::new(),
        };
        format!("{}{at} ({}{alone})", stage.code, percent(stage.gain))
    };
    diagnosis.roadmaps.iter().map(move |roadmap| {
        let stages: Vec<String> = roadmap.stages.iter().map(stage).collect();
        let all = roadmap.stages.last().map_or_else(String::new, |last| format!(": {} in all", gain(last.so_far)));
        format!("in this order, a step `{}` gains the most: {}{all}", printable(&roadmap.phase), stages.join(", then "))
    })
}

/// What findings gain together, and in which order.
pub(crate) fn together(diagnosis: &Diagnosis) -> Vec<String> {
    let one = |together: &candlescope_figures::advice::JointGain| {
        let codes: Vec<&str> = together.codes.iter().map(|code| code.as_str()).collect();
        format!(
            "all of {} together: {} of a step `{}`",
            codes.join(", "),
            gain(together.gain),
            printable(&together.phase)
        )
    };
    diagnosis.together.iter().map(one).chain(roadmaps(diagnosis)).collect()
}
