//! What bounds the phases of the recorded requests: launches on the host, memory, computing, or none of them.
//!
//! Recording makes steps longer, so that the times of kernels are held against the time that the same phase takes in plain
//! requests: the time to the first token for `prefill`, the time of a token for `decode`.

use super::recorded::{BUSY, RecordedCase};
use super::suite_tables::median;
use crate::study::CaseSummary;
use candlescope_figures::PhaseRow;
use candlescope_predict::roofline::{Bound, FAR_BELOW, Point, Status, UnderRoof, phase_points};
use candlescope_work::devices::Origin;
use serde_json::{Value, json};

/// A phase of a recorded case.
pub(super) struct PhaseBound<'a> {
    case: &'a CaseSummary,
    phase: String,
    /// What bounds it, or why that is not known.
    bound: Result<Bound, String>,
    /// Time of its kernels ÷ its time in plain requests.
    kernels_share: Option<f64>,
    /// FLOP/B, with activations.
    intensity: Option<f64>,
    roof: Option<UnderTheRoof>,
    /// `f16 for int8`: whose FLOP/s stand in for which.
    stands_in: Option<String>,
}

/// How far below its roof the phase is: the measured roof where that has what it takes, else the datasheet's.
struct UnderTheRoof {
    origin: Origin,
    /// FLOP/B.
    ridge: Option<f64>,
    /// Achieved ÷ attainable at this intensity; above 1 it is an error of measurement.
    share: f64,
    /// The time that it is over.
    over: &'static str,
}

const KERNELS: &str = "the time of kernels";
const STREAM: &str = "the recorded time in the stream";
const PLAIN: &str = "the time in plain requests";
const RECORDED: &str = "the recorded time";

impl<'a> PhaseBound<'a> {
    /// The phases of a case, in the order of its run; steps inside other steps are part of those.
    pub(super) fn of_case(recorded: &RecordedCase<'a>) -> Vec<Self> {
        let points = phase_points(&recorded.analysis, None);
        recorded
            .outermost()
            .filter(|row| row.is_phase && (row.work.flops.is_some() || row.work.io_bytes.is_some()))
            .map(|row| Self::of(recorded, row, &points))
            .collect()
    }

    fn of(recorded: &RecordedCase<'a>, row: &PhaseRow, points: &[Point]) -> Self {
        let at = |over: &str| points.iter().find(|point| point.name == row.name && point.over == over);
        // Nanoseconds of one step in plain requests, in which nothing is recorded. Where several requests are under way at once
        // their times have the steps of others in them, and tell nothing of a step's; only a request alone has this rate.
        let steps_a_request = row.steps as f64 / recorded.requests.max(1) as f64;
        let alone = median(recorded.case, "prefill_tps").is_some();
        let plain = match row.name.as_str() {
            "prefill" => median(recorded.case, "ttft_ns").map(|ttft| ttft / steps_a_request.max(1.0)),
            "decode" => median(recorded.case, "tpot_ns"),
            _ => None,
        };
        let plain = plain.filter(|_| alone);
        let kernels_share = recorded.kernels_of_step(row).zip(plain).map(|(kernels, plain)| kernels / plain);
        // What is over the host's time is over that of plain requests, where that is known.
        let (point, factor, over) = match (at("kernels"), at("stream elapsed"), at("wall")) {
            (Some(kernels), ..) => (Some(kernels), 1.0, KERNELS),
            (None, Some(stream), _) => (Some(stream), 1.0, STREAM),
            (None, None, wall) => match wall.and_then(|wall| wall.ns).zip(plain) {
                Some((recorded, plain)) => (wall, recorded / plain, PLAIN),
                None => (wall, 1.0, RECORDED),
            },
        };
        let usable = |under: &&UnderRoof| !matches!(under.status, Status::DataMissing(_));
        let under = point.and_then(|point| point.under.iter().find(usable).or(point.under.first()));
        let roof = under.and_then(|under| {
            let share = under.utilisation? * factor;
            Some(UnderTheRoof { origin: under.origin, ridge: under.ridge, share, over })
        });
        let bound = match (kernels_share, &roof, under) {
            (Some(share), ..) if share < BUSY.0 => Ok(Bound::Host),
            (_, _, None) => {
                Err("no peaks of this device are known, which `candlescope bench peaks` measures".to_string())
            }
            (_, Some(roof), _) if roof.share > 1.0 => {
                Err("these are more than the roof allows, an error of measurement".to_string())
            }
            (_, Some(roof), _) if roof.share < FAR_BELOW && over == STREAM => {
                Err("kernels were not recorded, without which waiting for launches looks like slow kernels".to_string())
            }
            (_, Some(roof), _) if roof.share < FAR_BELOW => Ok(Bound::Overhead),
            (_, Some(_), Some(UnderRoof { bound: Some(side), .. })) => Ok(*side),
            (_, _, Some(UnderRoof { status: Status::DataMissing(why), .. })) => Err(why.clone()),
            _ => Err("no utilisation".to_string()),
        };
        Self {
            case: recorded.case,
            phase: row.name.clone(),
            bound,
            kernels_share,
            intensity: point.and_then(|point| point.intensity),
            roof,
            stands_in: under
                .and_then(|under| Some(format!("{} for {}", under.stands_in?.name(), under.multiply?.name()))),
        }
    }

    /// Cases with the same are told together.
    fn kind(&self) -> (&Result<Bound, String>, Option<(Origin, &'static str)>) {
        (&self.bound, self.roof.as_ref().map(|roof| (roof.origin, roof.over)))
    }

    pub(super) fn json(&self) -> Value {
        let roof = self.roof.as_ref();
        json!({
            "case": self.case.case.key(), "phase": self.phase, "bound": self.bound.as_ref().ok(),
            "why_not_known": self.bound.as_ref().err(), "kernels_share": self.kernels_share,
            "flops_per_byte": self.intensity, "ridge": roof.and_then(|roof| roof.ridge),
            "roof": roof.map(|roof| roof.origin), "share_of_roof": roof.map(|roof| roof.share),
            "over": roof.map(|roof| roof.over), "flops_stand_in": self.stands_in,
        })
    }
}

/// The same of a single case.
pub(crate) fn bound_sentences(recorded: &RecordedCase<'_>) -> Vec<String> {
    words(&PhaseBound::of_case(recorded))
}

/// A sentence for each phase: what bounds it, in how many cases, and the figures that say so.
pub(super) fn words(all: &[PhaseBound<'_>]) -> Vec<String> {
    let mut phases: Vec<&str> = Vec::new();
    for one in all {
        if !phases.contains(&one.phase.as_str()) {
            phases.push(&one.phase);
        }
    }
    phases
        .iter()
        .map(|phase| sentence(phase, &all.iter().filter(|one| one.phase == *phase).collect::<Vec<_>>()))
        .collect()
}

fn sentence(phase: &str, cases: &[&PhaseBound<'_>]) -> String {
    let mut kinds = Vec::new();
    for one in cases {
        if !kinds.contains(&one.kind()) {
            kinds.push(one.kind());
        }
    }
    let clause = |kind: &_| {
        let group: Vec<&PhaseBound<'_>> = cases.iter().copied().filter(|one| one.kind() == *kind).collect();
        let number = match (group.len(), cases.len()) {
            (_, 1) => String::new(),
            (n, all) if n == all => format!(" in all {all} cases"),
            (n, all) => format!(" in {n} of {all} cases"),
        };
        let why = kind.0.as_ref().err().map_or_else(String::new, |why| format!(": {why}"));
        format!("{}{number}{}{why}", what(kind.0), details(&group, phase))
    };
    let clauses: Vec<String> = kinds.iter().map(clause).collect();
    format!("What bounds {phase}: {}.", clauses.join("; "))
}

fn what(bound: &Result<Bound, String>) -> String {
    match bound {
        Ok(Bound::Overhead) => "neither memory nor computing, but what operations cost beside their work".to_string(),
        Ok(bound) => bound.name().to_string(),
        Err(_) => "not known".to_string(),
    }
}

/// In brackets: what kernels take of the time, where the work stands on the roofline, and how far below the roof.
fn details(group: &[&PhaseBound<'_>], phase: &str) -> String {
    let time = match phase {
        "prefill" => "the time to the first token",
        "decode" => "the time of a token",
        _ => "the time",
    };
    let percent = |value: f64| format!("{:.0}", value * 100.0);
    let mut parts = Vec::new();
    if let Some(share) = range(group.iter().filter_map(|one| one.kernels_share), &percent) {
        parts.push(format!("kernels run for {share} % of {time}"));
    }
    if let Some(intensity) = range(group.iter().filter_map(|one| one.intensity), &|value| format!("{value:.2}")) {
        let ridge = group.iter().filter_map(|one| one.roof.as_ref()?.ridge);
        let ridge = range(ridge, &|value| format!("{value:.*}", if value < 10.0 { 2 } else { 0 }))
            .map(|ridge| format!(", the ridge at {ridge}"));
        parts.push(format!("{intensity} FLOP/B{}", ridge.unwrap_or_default()));
    }
    let roofs = || group.iter().filter_map(|one| one.roof.as_ref());
    if let (Some(share), Some(first)) = (range(roofs().map(|roof| roof.share), &percent), roofs().next()) {
        let origin = first.origin.name();
        let stands_in = group.iter().find_map(|one| one.stands_in.as_deref());
        let stands_in = stands_in.map_or_else(String::new, |which| format!(", with FLOP/s of {which}"));
        parts.push(format!("{share} % of the roof at that intensity ({origin}{stands_in}) over {}", first.over));
    }
    if parts.is_empty() { String::new() } else { format!(" ({})", parts.join("; ")) }
}

/// The smallest and the largest, or the one figure if they read alike.
fn range(values: impl Iterator<Item = f64>, shown: &dyn Fn(f64) -> String) -> Option<String> {
    let (low, high) = values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), v| (low.min(v), high.max(v)));
    if low > high {
        return None;
    }
    let (low, high) = (shown(low), shown(high));
    Some(if low == high { low } else { format!("{low} to {high}") })
}
