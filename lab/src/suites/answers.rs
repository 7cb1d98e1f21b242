//! What the figures of a study mean, in words made of the figures themselves.

use super::bound::{self, PhaseBound};
use super::lm_options::SuiteName;
use super::recorded::{BUSY, RecordedCase, recorded};
use super::spread::{deviations, middle};
use super::suite_tables::{median, of_suite, prompt_tokens, size, throughput_gain};
use super::terminal::{ms, tokens};
use crate::study::CaseSummary;
use candlescope_figures::stats::percentile_of;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

/// Less gain than this from a larger batch does not pay: a share of the throughput before it.
const PAYS: f64 = 0.10;

/// A question and its answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    /// Short name, for machines.
    pub code: &'static str,
    /// What `text` answers, as reports print it; the same in every study.
    pub question: &'static str,
    /// The answer, or why there is none.
    pub text: String,
    /// The figures behind it; null where there is no answer.
    pub figures: Value,
}

impl Answer {
    pub(super) fn json(&self) -> Value {
        json!({ "code": self.code, "question": self.question, "answer": self.text, "figures": self.figures })
    }
}

/// The answers that a study's figures give. Recorded runs are read from `study`.
pub fn answers(study: &Path, summaries: &[CaseSummary]) -> Vec<Answer> {
    let analyses = recorded(study, summaries);
    vec![batching(summaries), prompts(summaries), idle(&analyses), bound(summaries, &analyses), spread(summaries)]
}

fn none(code: &'static str, question: &'static str, why: &str) -> Answer {
    Answer { code, question, text: why.into(), figures: Value::Null }
}

/// A batch that was measured.
struct Batch<'a> {
    size: usize,
    case: &'a CaseSummary,
    tokens_per_s: f64,
    tpot_ns: Option<f64>,
}

/// What a larger batch gains in tokens a second, for each doubling: a small step cannot gain much however well it scales.
struct Gain {
    each: f64,
    /// The 95 % interval over process starts.
    ci95: Option<(f64, f64)>,
    /// Where these are too few for one: its range.
    range: Option<(f64, f64)>,
}

impl Gain {
    fn of(from: &Batch<'_>, to: &Batch<'_>) -> Option<Self> {
        let over = throughput_gain(from.case, to.case)?;
        let doublings = (to.size as f64 / from.size.max(1) as f64).log2();
        let each = |ratio: f64| ratio.powf(1.0 / doublings) - 1.0;
        let both = |(low, high)| (each(low), each(high));
        Some(Self { each: each(over.ratio), ci95: over.ci95.map(both), range: over.range.map(both) })
    }

    fn words(&self) -> String {
        // Rounded to what pays, it would not be told apart from it.
        let shown = |gain: f64| match (gain * 100.0).round() == PAYS * 100.0 {
            true => format!("{:+.1}", gain * 100.0),
            false => format!("{:+.0}", gain * 100.0),
        };
        let interval = self.ci95.map(|(low, high)| format!(" (95 % {} to {} %)", shown(low), shown(high)));
        format!("{} %{}", shown(self.each), interval.unwrap_or_default())
    }

    /// Whether it may pay and may not: within its interval, or within its range where there is none.
    fn is_undecided(&self) -> bool {
        self.ci95.or(self.range).is_some_and(|(low, high)| low < PAYS && high >= PAYS)
    }
}

/// Where a larger batch pays, over all batches that were measured.
struct Curve {
    /// Steps that pay, each from a batch to the next one that gains enough: a place, a larger one, the gain.
    steps: Vec<(usize, usize, Gain)>,
    /// The last batch: none of the larger ones pays.
    at: usize,
    /// What each of the larger ones gains over it.
    beyond: Vec<Gain>,
}

impl Curve {
    /// A small gain between two batches may be a pause: what counts is whether any larger batch gains enough. `None`
    /// with fewer than two batches.
    fn of(known: &[Batch<'_>]) -> Option<Self> {
        let (mut at, mut steps) = (0, Vec::new());
        let larger = |at: usize| -> Vec<(usize, Gain)> {
            (at + 1..known.len()).filter_map(|to| Some((to, Gain::of(&known[at], &known[to])?))).collect()
        };
        if larger(0).is_empty() {
            return None;
        }
        loop {
            let gains = larger(at);
            match gains.iter().position(|(_, gain)| gain.each >= PAYS) {
                Some(place) => {
                    let (to, gain) = gains.into_iter().nth(place)?;
                    steps.push((at, to, gain));
                    at = to;
                }
                None => return Some(Self { steps, at, beyond: gains.into_iter().map(|(_, gain)| gain).collect() }),
            }
        }
    }

    /// Batches that gain too little, though a larger one pays.
    fn passed_over(&self) -> impl Iterator<Item = usize> + '_ {
        self.steps.iter().flat_map(|(from, to, _)| from + 1..*to)
    }

    /// ` With a pause at 4: from 1 to 4 +9 %, to 8 +24 %.`
    fn pauses(&self, known: &[Batch<'_>]) -> String {
        let mut text = String::new();
        for (from, to, gain) in self.steps.iter().filter(|(from, to, _)| to - from > 1) {
            let between: Vec<String> = known[from + 1..*to].iter().map(|batch| batch.size.to_string()).collect();
            let slow = Gain::of(&known[*from], &known[to - 1]).map(|gain| gain.words()).unwrap_or_default();
            let _ = write!(
                text,
                " There is a pause at {}: from {} on to {} it is {slow} for each doubling, and then on to {} {}.",
                between.join(", "),
                known[*from].size,
                known[to - 1].size,
                known[*to].size,
                gain.words()
            );
        }
        text
    }

    /// The gains on which the answer rests: the steps that pay, and what the larger batches gain.
    fn rests_on(&self) -> impl Iterator<Item = &Gain> {
        self.steps.iter().map(|(_, _, gain)| gain).chain(&self.beyond)
    }

    /// Whether these are known well enough. `None` if some have no interval, and none is known not to be.
    fn settled(&self) -> Option<bool> {
        match self.rests_on().any(Gain::is_undecided) {
            true => Some(false),
            false => self.rests_on().all(|gain| gain.ci95.is_some()).then_some(true),
        }
    }

    /// What there is to say against the answer, from so many process starts; a sentence behind it.
    fn doubt(&self, starts: usize) -> String {
        let pays = PAYS * 100.0;
        let starts = if starts == 1 { "one process start".to_string() } else { format!("{starts} process starts") };
        match self.settled() {
            Some(true) => String::new(),
            Some(false) if self.rests_on().any(|gain| gain.ci95.is_some() && gain.is_undecided()) => format!(
                " These process starts do not settle it: {pays} % for each doubling, from which on batching is said to \
                 pay, lies in an interval of a gain."
            ),
            Some(false) => format!(
                " It is not settled: {pays} % for each doubling, from which on batching is said to pay, lies within \
                 the range of a gain that {starts} gave."
            ),
            None if self.rests_on().any(|gain| gain.ci95.or(gain.range).is_none()) => {
                " Some batches were measured only once, which does not show how far measurements differ.".to_string()
            }
            None => format!(" This is from {starts}, too few for an interval."),
        }
    }
}

/// The batch with the most tokens a second: `best_batch` of `baseline_metrics.json`.
fn most_tokens<'a, 'b>(known: &'a [Batch<'b>]) -> Option<&'a Batch<'b>> {
    known.iter().max_by(|a, b| a.tokens_per_s.total_cmp(&b.tokens_per_s))
}

fn batching(summaries: &[CaseSummary]) -> Answer {
    let (code, question) = ("batching", "Where does batching stop paying?");
    let cases = of_suite(summaries, SuiteName::Throughput);
    let batch =
        |case: &&'_ CaseSummary| Some((size(case, "batch")?, median(case, "output_tps")?, median(case, "tpot_ns")));
    let mut known: Vec<Batch<'_>> = cases
        .iter()
        .filter_map(|case| batch(case).map(|(size, tokens_per_s, tpot_ns)| Batch { size, case, tokens_per_s, tpot_ns }))
        .collect();
    known.sort_by_key(|batch| batch.size);
    let curve = Curve::of(&known);
    let (Some(first), Some(best), Some(curve)) = (known.first(), most_tokens(&known), curve) else {
        return none(code, question, "Not measured: that takes the suite throughput with two batches at least.");
    };
    let at = &known[curve.at];
    let times = throughput_gain(first.case, at.case).filter(|_| curve.at > 0);
    let times = times.map(|gain| format!(", {:.1} times those of {}", gain.ratio, first.size)).unwrap_or_default();
    let so_far = format!("a batch of {} gives {} tokens/s{times}", at.size, tokens(at.tokens_per_s));
    let settled = curve.settled();
    let (ends, goes_on) = match settled {
        Some(false) => ("Undecided, so far at", "Undecided, so far not up to"),
        _ => ("At", "Not up to"),
    };
    let mut text = match (known.get(curve.at + 1), curve.beyond.first()) {
        (Some(next), Some(gain)) => {
            let longer = next.tpot_ns.zip(at.tpot_ns);
            let longer = longer.map(|(next, at)| format!(", and each token takes {:.2} times as long", next / at));
            format!(
                "{ends} {}: {so_far}; going on to {} gives {} tokens/s for each doubling{}.",
                at.size,
                next.size,
                gain.words(),
                longer.unwrap_or_default()
            )
        }
        _ => format!("{goes_on} {}, the largest batch measured: {so_far}.", at.size),
    };
    text += &curve.pauses(&known);
    if best.size != at.size {
        let _ = write!(
            text,
            " The most tokens/s were measured at {} ({}), which is less than {:.0} % more for each doubling.",
            best.size,
            tokens(best.tokens_per_s),
            PAYS * 100.0
        );
    }
    text += &curve.doubt(known.iter().map(|batch| batch.case.processes).max().unwrap_or(0));
    if let Some(case) = cases.iter().find(|case| case.plain.is_empty() && case.outcome().is_some()) {
        let batch = size(case, "batch").unwrap_or(0);
        text += &format!(" A batch of {batch} gave no figures: {}.", super::terminal::without(case));
    }
    let row = |place: usize| {
        let (batch, gain) =
            (&known[place], place.checked_sub(1).and_then(|before| Gain::of(&known[before], &known[place])));
        let [ci95, range] = [gain.as_ref().and_then(|gain| gain.ci95), gain.as_ref().and_then(|gain| gain.range)];
        json!({
            "batch": batch.size, "output_tps": batch.tokens_per_s, "gain_by_doubling": gain.map(|gain| gain.each),
            "gain_ci95": ci95, "gain_range": range,
        })
    };
    let rows: Vec<Value> = (0..known.len()).map(row).collect();
    let pauses: Vec<usize> = curve.passed_over().map(|place| known[place].size).collect();
    let figures = json!({
        "pays_up_to": at.size, "gain_from": PAYS, "settled": settled, "pauses": pauses, "best_batch": best.size,
        "batches": rows,
    });
    Answer { code, question, text, figures }
}

fn prompts(summaries: &[CaseSummary]) -> Answer {
    let (code, question) = ("prompt_length", "Does a prompt twice as long take twice as long?");
    let mut by_prompt: BTreeMap<usize, Vec<f64>> = BTreeMap::new();
    let mut by_context: BTreeMap<usize, f64> = BTreeMap::new();
    for case in of_suite(summaries, SuiteName::Seqlen) {
        let Some(prompt) = prompt_tokens(case) else { continue };
        by_prompt.entry(prompt).or_default().extend(median(case, "ttft_ns"));
        if let (Some(output), Some(tpot)) = (size(case, "output_tokens"), median(case, "tpot_ns")) {
            by_context.insert(prompt + output / 2, tpot);
        }
    }
    let ttft: Vec<(usize, f64)> =
        by_prompt.into_iter().filter_map(|(prompt, times)| Some((prompt, percentile_of(&times, 0.5)?))).collect();
    if ttft.len() < 2 {
        return none(code, question, "Not measured: that takes the suite seqlen with two prompt lengths at least.");
    }
    // The slope over logarithms says what doubling does, whatever the lengths are.
    let doubling = |a: (usize, f64), b: (usize, f64)| ((b.1 / a.1).ln() / (b.0 as f64 / a.0 as f64).ln()).exp2();
    let pairs: Vec<(usize, usize, f64)> =
        ttft.windows(2).map(|pair| (pair[0].0, pair[1].0, doubling(pair[0], pair[1]))).collect();
    let (from, to, factor) = pairs[pairs.len() - 1];
    let verdict = match factor {
        f if f < 1.6 => "No, less: a part of the time does not depend on the prompt",
        f if f <= 2.4 => "Yes, about",
        _ => "No, longer: attention grows with the square of the prompt",
    };
    let each: Vec<String> = pairs.iter().map(|(a, b, f)| format!("{f:.2} times from {a} to {b} tokens")).collect();
    let mut text = format!(
        "{verdict} (between {from} and {to} tokens). Time to first token for each doubling: {}.",
        each.join(", ")
    );
    if let (Some((near, short)), Some((far, long))) = (by_context.first_key_value(), by_context.last_key_value()) {
        let (short_ms, long_ms) = (ms(Some(*short)), ms(Some(*long)));
        text += &format!(" A token takes {short_ms} at a context of about {near} and {long_ms} at about {far}.");
    }
    let rows: Vec<Value> = pairs.iter().map(|(a, b, f)| json!({ "from": a, "to": b, "ttft_by_doubling": f })).collect();
    Answer { code, question, text, figures: json!({ "pairs": rows, "last_doubling": factor }) }
}

fn idle(analyses: &[RecordedCase<'_>]) -> Answer {
    let (code, question) = ("gpu_busy", "Is the GPU busy during a request?");
    let busy: Vec<(&CaseSummary, f64)> = analyses
        .iter()
        // Over the time that the same requests take unobserved: recording kernels itself makes steps longer.
        .filter_map(|recorded| Some((recorded.case, recorded.kernels_ns()? / recorded.case.host_ns()?.median)))
        .filter(|(_, share)| *share > 0.0)
        .collect();
    let Some((_, least)) = busy.iter().min_by(|a, b| a.1.total_cmp(&b.1)) else {
        let why = match analyses.iter().any(RecordedCase::has_kernels) {
            true => "Not known: the recorded requests have kernels of some phases only.",
            false => "Not known: no kernels of a GPU were recorded.",
        };
        return none(code, question, why);
    };
    let (case, most) = busy.iter().fold(&busy[0], |a, b| if b.1 > a.1 { b } else { a });
    let word = |share: f64| match share {
        s if s > BUSY.0 => "well used",
        s if s < BUSY.1 => "under-used",
        _ => "partly used",
    };
    let mut text =
        format!("Kernels run for {:.0} % of the time in {} ({})", most * 100.0, case.case.key(), word(*most));
    if busy.len() > 1 {
        let _ = write!(text, ", the most of all cases, and for {:.0} % in the least ({})", least * 100.0, word(*least));
    }
    text.push('.');
    let rows: Vec<Value> = busy.iter().map(|(case, share)| json!({ "case": case.case.key(), "busy": share })).collect();
    Answer { code, question, text, figures: json!({ "cases": rows, "good_above": BUSY.0, "under_used_below": BUSY.1 }) }
}

fn bound(summaries: &[CaseSummary], analyses: &[RecordedCase<'_>]) -> Answer {
    let (code, question) = ("bound", "Is it bound by arithmetic or by memory?");
    let mut parts = Vec::new();
    let mut figures = serde_json::Map::new();
    let bounds: Vec<PhaseBound<'_>> = analyses.iter().flat_map(PhaseBound::of_case).collect();
    let steps: Vec<(usize, f64)> = of_suite(summaries, SuiteName::Throughput)
        .iter()
        .filter_map(|case| Some((size(case, "batch")?, median(case, "tpot_ns")?)))
        .collect();
    let small = steps.iter().min_by_key(|(batch, _)| *batch);
    let large = steps.iter().max_by_key(|(batch, _)| *batch);
    if let (Some(small), Some(large)) = (small, large)
        && large.0 > small.0
    {
        let (rows, longer) = (large.0 as f64 / small.0 as f64, large.1 / small.1);
        // Work per row costs `share` of a row's step: 1 if all of it is work on rows, 0 if it is there once for all.
        let share = (longer - 1.0) / (rows - 1.0);
        let word = match share {
            s if s < 0.25 => "what all rows share bounds it: reading weights, or launching the work",
            s if s > 0.75 => "work on each row bounds it: arithmetic, or reading its keys and values",
            _ => "both count: what rows share, and the work on each",
        };
        // What a recorded case says of its phases is said below.
        let word = if bounds.is_empty() { format!(": {word}") } else { String::new() };
        parts.push(format!(
            "A decoding step of {} sequences takes {longer:.2} times as long as one of {}{word}.",
            large.0, small.0
        ));
        figures.insert("step_ratio".into(), json!({ "rows": rows, "time": longer, "share_of_rows": share }));
    }
    parts.extend(bound::words(&bounds));
    if !bounds.is_empty() {
        figures.insert("phases".into(), bounds.iter().map(PhaseBound::json).collect());
        figures.insert("utilisation".into(), analyses.iter().flat_map(utilisation).collect());
    }
    if parts.is_empty() {
        return none(code, question, "Not known: that takes two batches, or a recorded case.");
    }
    Answer { code, question, text: parts.join(" "), figures: figures.into() }
}

/// MFU, HFU and MBU of a case's phases against each peak, in the recorded requests.
fn utilisation(recorded: &RecordedCase<'_>) -> Vec<Value> {
    let all = candlescope_figures::peaks::utilisation(&recorded.analysis);
    let one = |used: candlescope_figures::peaks::Utilisation| {
        json!({
            "case": recorded.case.case.key(), "phase": used.phase, "metric": used.metric.name(), "ratio": used.ratio,
            "over": used.over.name(), "label": used.peak.label, "peak": used.peak.source,
        })
    };
    all.into_iter().map(one).collect()
}

fn spread(summaries: &[CaseSummary]) -> Answer {
    let (code, question) = ("spread", "How large is the spread?");
    let all = deviations(summaries);
    let (Some(widest), Some(middle)) = (all.iter().max_by(|a, b| a.1.total_cmp(&b.1)), middle(&all)) else {
        return none(code, question, "Not known: that takes two requests of a case.");
    };
    let mut text = format!(
        "Requests of a case deviate by {:.1} % of their mean in the middle case, and by {:.1} % in {}, whose longest \
         took {:.2} times the median.",
        middle * 100.0,
        widest.1 * 100.0,
        widest.0.case.key(),
        widest.2
    );
    let between: Vec<f64> = summaries.iter().filter_map(between_processes).collect();
    let between = between.into_iter().reduce(f64::max);
    text += &match between {
        Some(share) => format!(" Medians of process starts differ by up to {:.1} %.", share * 100.0),
        None => " All samples are of one process start: another one may differ by more.".to_string(),
    };
    let figures = json!({ "deviation_middle": middle, "deviation_most": widest.1, "between_processes": between });
    Answer { code, question, text, figures }
}

/// Largest less smallest median of a process start, over the median of all.
fn between_processes(case: &CaseSummary) -> Option<f64> {
    let mut by_process: BTreeMap<u32, Vec<f64>> = BTreeMap::new();
    for sample in &case.plain {
        by_process.entry(sample.process).or_default().push(sample.measurement.host_ns as f64);
    }
    let medians: Vec<f64> = by_process.values().filter_map(|times| percentile_of(times, 0.5)).collect();
    let (low, high) = (medians.iter().copied().reduce(f64::min)?, medians.iter().copied().reduce(f64::max)?);
    (medians.len() > 1).then(|| (high - low) / case.host_ns().map_or(f64::NAN, |e2e| e2e.median))
}
