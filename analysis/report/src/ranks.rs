//! Ranks side by side: as text, as a page, and as an object for programs.

use crate::advice::{gain, worded};
use crate::format::{bytes, duration};
use candlescope_document::terminal::{Layout, draw};
use candlescope_document::{Cell, Document, Fact, Row, Section, Table, cell, column, html, maybe, words};
use candlescope_figures::advice::{Advice, AdviceCode, AdviceFigure, AdvicePlace, AdviceSeverity, Confidence};
use candlescope_ranks::{RankAnalysis, Source};
use candlescope_work::estimate::Estimate;
use serde::Serialize;

/// As text for a terminal, its lines as long as they need; with colours where `color` says so.
pub fn text(analysis: &RankAnalysis, color: bool) -> String {
    draw(&document(analysis), Layout { color, width: usize::MAX })
}

/// As one HTML page, with its style and script inside.
pub fn page(analysis: &RankAnalysis) -> String {
    html::page(&document(analysis))
}

/// As one object under stable keys: what is known of the ranks, and the findings with their words.
pub fn json(analysis: &RankAnalysis) -> impl Serialize {
    RanksObject { analysis, findings: analysis.findings.iter().map(RankObject::of).collect() }
}

#[derive(Serialize)]
struct RanksObject<'a> {
    #[serde(flatten)]
    analysis: &'a RankAnalysis,
    findings: Vec<RankObject<'a>>,
}

/// A finding. The first five keys are older than the others.
#[derive(Serialize)]
struct RankObject<'a> {
    code: AdviceCode,
    text: String,
    remedy: String,
    /// The most that it gains, as a share of a step.
    gain: Option<f64>,
    rank: Option<u32>,
    severity: AdviceSeverity,
    place: &'a AdvicePlace,
    gain_bounds: Option<Estimate>,
    /// Steps that its figures rest on; none where these are not the ones that are judged.
    steps: Option<u64>,
    confidence: Confidence,
    evidence: &'a [AdviceFigure],
    query: &'a str,
}

impl<'a> RankObject<'a> {
    fn of(advice: &'a Advice) -> Self {
        let (said, gain) = (worded(advice), gain_of(advice));
        Self {
            code: advice.code,
            text: format!("{}.", said.message),
            remedy: said.remedy,
            gain: gain.map(|gain| gain.high),
            rank: advice.place.rank,
            severity: advice.severity,
            place: &advice.place,
            gain_bounds: gain,
            steps: Some(advice.coverage.steps).filter(|steps| *steps > 0),
            confidence: advice.confidence,
            evidence: &advice.evidence,
            query: &advice.query,
        }
    }
}

/// What all of them show: the conclusion, findings, a row a rank, and a row a kind of operation and phase.
pub fn document(analysis: &RankAnalysis) -> Document {
    let conclusion = match analysis.findings.first() {
        Some(first) => {
            let said = worded(first);
            format!("{}. {}.", said.message, said.remedy)
        }
        None if analysis.source == Source::Unknown => {
            "What collectives take is not known: intervals of the host end before the device does. Record kernels (--cupti), or time on \
             the device for these intervals (--gpu-timing)."
                .to_string()
        }
        None if analysis.matched == 0 => {
            "No collective was recorded by all ranks: name an interval all_reduce, or record kernels (--cupti).".to_string()
        }
        None if analysis.has_too_few_steps() => "Too few steps in which every rank's collectives are known, to judge.".to_string(),
        None => "Ranks take equal times, and lose little to each other.".to_string(),
    };
    let from = match analysis.source {
        Source::Kernels => "kernels of the devices",
        Source::DeviceTime => "time on the devices",
        Source::Host => "intervals of the hosts",
        _ => "not known",
    };
    let steps = match analysis.phase.as_str() {
        "" => "no steps of all ranks".to_string(),
        phase => format!("{} steps of {phase} judged", analysis.steps),
    };
    let mut document = Document {
        kind: "ranks".to_string(),
        title: format!("{} of {} ranks", analysis.ranks.len(), analysis.world_size),
        before: before(analysis),
        conclusion,
        facts: vec![Fact::new("", steps), Fact::new("Collectives", from)],
        ..Document::default()
    };
    if !analysis.missing.is_empty() {
        let missing: Vec<String> = analysis.missing.iter().map(ToString::to_string).collect();
        let text = format!("There are no runs of the ranks {}: what is said is of the others.", missing.join(", "));
        document.before.push(text);
    }
    if analysis.odd_steps > 0 {
        document.before.push(format!(
            "In {} steps ranks have different collectives, or such as cannot be one (groups of ranks by themselves?): these steps are \
             not judged.",
            analysis.odd_steps
        ));
    }
    document.sections = vec![findings(analysis), ranks(analysis), collectives(analysis)];
    document
}

/// What to know before reading the rest: what cannot be read.
fn before(analysis: &RankAnalysis) -> Vec<String> {
    const SHOWN: usize = 3;
    let damage = analysis.damage.iter().map(|finding| format!("{}. {}", finding.message(), finding.remedy()));
    let unreadable = analysis.unreadable.iter().take(SHOWN).map(|reason| format!("Left out: {reason}"));
    let mut all: Vec<String> = damage.chain(unreadable).collect();
    if analysis.unreadable.len() > SHOWN {
        all.push(format!("{} runs more that cannot be read are left out.", analysis.unreadable.len() - SHOWN));
    }
    all
}

fn findings(analysis: &RankAnalysis) -> Section {
    let sentence = |advice: &Advice| {
        let (said, sure) = (worded(advice), advice.confidence.level.name());
        let gain = match gain_of(advice) {
            Some(share) => format!(" Gain {} of a step, confidence {sure}.", gain(share)),
            None => String::new(),
        };
        format!("`{}`: {}. {}.{gain}", advice.code, said.message, said.remedy)
    };
    let sentences = analysis.findings.iter().map(sentence).collect();
    Section::new("findings", "What ranks lose to each other", "").list(sentences)
}

/// What a finding gains; `None` if it says nothing of that.
fn gain_of(advice: &Advice) -> Option<Estimate> {
    (advice.gain != Estimate::default()).then_some(advice.gain)
}

fn ranks(analysis: &RankAnalysis) -> Section {
    let columns = vec![
        column("Step", "Median of the measured steps"),
        column("Own", "The same without waiting for other ranks"),
        column("Slowest in", "Steps in which its own time was the longest"),
        column("Waiting", "In collectives, until the last rank had come; a step"),
        column("Transfer", "In collectives after that; a step"),
        column("Exposed waiting", "While its device computed nothing; a step"),
        column("Exposed transfer", "While its device computed nothing; a step"),
        words("Device"),
        words("Host"),
    ];
    let time = |ns: f64| cell(duration(ns), ns);
    let rows = analysis.ranks.iter().map(|rank| {
        Row::new(
            match &rank.thread {
                Some(thread) => format!("rank {} ({thread})", rank.rank),
                None => format!("rank {}", rank.rank),
            },
            vec![
                time(rank.step_ns),
                time(rank.own_ns),
                cell(format!("{} of {}", rank.longest, analysis.steps), rank.longest as f64),
                time(rank.waiting_ns),
                time(rank.transfer_ns),
                time(rank.exposed_waiting_ns),
                time(rank.exposed_transfer_ns),
                Cell::from(rank.device.clone()),
                Cell::from(rank.host.clone()),
            ],
        )
    });
    Section::new("ranks", "Ranks", analysis.clocks.text()).with(Table::new("Rank", columns, rows.collect()))
}

fn collectives(analysis: &RankAnalysis) -> Section {
    let columns = vec![
        column("Count", "In steps of the phase that all ranks know"),
        column("Waiting", "Until the last rank had come: mean over ranks, a collective"),
        column("Transfer", "After that: mean over ranks, a collective"),
        column("Bytes", "Of a collective, where intervals say it"),
        column("On the bus", "Bytes a second over each link, of transfers of 8 MiB and more; measured"),
        column("Link", "Bytes a second in one direction; datasheet"),
    ];
    let rate = |value: Option<f64>| maybe(value, |rate| format!("{:.1} GB/s", rate / 1e9));
    let rows = analysis.collectives.iter().map(|of| {
        Row::new(
            format!("{} in {}", of.kind.name(), of.phase),
            vec![
                cell(of.count.to_string(), of.count as f64),
                maybe(of.waiting_ns, duration),
                cell(duration(of.transfer_ns), of.transfer_ns),
                maybe(of.bytes, bytes),
                rate(of.bus_bytes_per_s),
                rate(of.link_bytes_per_s),
            ],
        )
    });
    let note = "Until the last rank has come the others wait; after that all transfer. Between two ranks there is no such order.";
    Section::new("collectives", "Collectives", note)
        .with(Table::new("Operation", columns, rows.collect()))
        .or_say("None that is known on all ranks.")
}
