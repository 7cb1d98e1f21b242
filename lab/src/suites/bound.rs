//! What bounds the phases of the recorded requests: launches on the host, memory, computing, or none of them.
//!
//! Recording makes steps longer, so that the times of kernels are held against the time that the same phase takes in plain
//! requests: the time to the first token for `prefill`, the time of a token for `decode`.

use super::recorded::{BUSY, Recorded};
use super::suite_tables::median;
use crate::study::CaseSummary;
use candlescope_analysis::devices::Origin;
use candlescope_analysis::passes::PhaseRow;
use candlescope_analysis::roofline::{Bound, FAR_BELOW, Point, Status, phase_points};
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
}

/// How far below its roof the phase is: the measured roof where there is one.
struct UnderTheRoof {
    origin: Origin,
    /// FLOP/B.
    ridge: Option<f64>,
    /// Achieved ÷ attainable at this intensity.
    share: f64,
    /// The time that it is over.
    over: &'static str,
}

impl<'a> PhaseBound<'a> {
    /// The phases of a case, in the order of its run; steps inside other steps are part of those.
    pub(super) fn of_case(recorded: &Recorded<'a>) -> Vec<Self> {
        let points = phase_points(&recorded.analysis, None);
        let rows = recorded.analysis.phases.rows.iter();
        rows.filter(|row| row.is_phase && row.inside.is_none() && (row.flops.is_some() || row.io_bytes.is_some()))
            .map(|row| Self::of(recorded, row, &points))
            .collect()
    }

    fn of(recorded: &Recorded<'a>, row: &PhaseRow, points: &[Point]) -> Self {
        let at = |over: &str| points.iter().find(|point| point.name == row.name && point.over == over);
        let (kernels, wall) = (at("kernels"), at("wall"));
        // Nanoseconds of one step in plain requests, in which nothing is recorded.
        let steps_a_request = row.steps as f64 / recorded.requests.max(1) as f64;
        let plain = match row.name.as_str() {
            "prefill" => median(recorded.case, "ttft_ns").map(|ttft| ttft / steps_a_request.max(1.0)),
            "decode" => median(recorded.case, "tpot_ns"),
            _ => None,
        };
        let longer = |point: &Point| Some(point.ns? / plain?);
        let kernels_share = kernels.and_then(longer);
        let decisive = kernels.or_else(|| at("stream elapsed")).or(wall);
        let (roof, status) = match decisive {
            Some(point) => under(point, longer(point)),
            None => (None, Status::DataMissing("no time".to_string())),
        };
        let side = decisive.and_then(|point| point.under.first()?.bound);
        let bound = match (kernels_share, &roof, side, status) {
            (Some(share), ..) if share < BUSY.0 => Ok(Bound::Host),
            (_, Some(roof), Some(_), _) if roof.share < FAR_BELOW => Ok(Bound::Overhead),
            (_, Some(_), Some(side), _) => Ok(side),
            (.., Status::DataMissing(why) | Status::Invalid(why)) => Err(why),
            _ => Err("no utilisation".to_string()),
        };
        Self {
            case: recorded.case,
            phase: row.name.clone(),
            bound,
            kernels_share,
            intensity: decisive.and_then(|point| point.intensity),
            roof,
        }
    }

    pub(super) fn json(&self) -> Value {
        let roof = self.roof.as_ref();
        json!({
            "case": self.case.case.key(), "phase": self.phase, "bound": self.bound.as_ref().ok(),
            "why_not_known": self.bound.as_ref().err(), "kernels_share": self.kernels_share,
            "flops_per_byte": self.intensity, "ridge": roof.and_then(|roof| roof.ridge),
            "roof": roof.map(|roof| roof.origin), "share_of_roof": roof.map(|roof| roof.share),
            "over": roof.map(|roof| roof.over),
        })
    }
}

/// A point under the first roof: the measured one, if there is one. `longer` is its time ÷ the plain one.
fn under(point: &Point, longer: Option<f64>) -> (Option<UnderTheRoof>, Status) {
    let Some(under) = point.under.first() else {
        let why = "no peaks of this device are known: `candlescope bench peaks` measures them";
        return (None, Status::DataMissing(why.to_string()));
    };
    // What is over the host's time is over that of plain requests.
    let (factor, over) = match (point.over, longer) {
        ("wall", Some(longer)) => (longer, "the unobserved time"),
        ("wall", None) => (1.0, "the recorded time"),
        ("kernels", _) => (1.0, "the time of kernels"),
        _ => (1.0, "the time in the stream"),
    };
    let share = under.utilisation.map(|share| share * factor).filter(|_| under.status == Status::Ok);
    match share {
        Some(share) if share > 1.0 => {
            let why = format!("{share:.2} times what the {} roof allows", under.origin.name());
            (None, Status::Invalid(why))
        }
        Some(share) => {
            (Some(UnderTheRoof { origin: under.origin, ridge: under.ridge, share, over }), under.status.clone())
        }
        None => (None, under.status.clone()),
    }
}

/// A sentence for each phase: what bounds it, in how many cases, and the figures that say so.
pub(super) fn words(all: &[PhaseBound<'_>]) -> Vec<String> {
    let mut phases: Vec<&str> = Vec::new();
    for one in all {
        if !phases.contains(&one.phase.as_str()) {
            phases.push(&one.phase);
        }
    }
    let sentence = |phase: &&str| {
        let of: Vec<&PhaseBound<'_>> = all.iter().filter(|one| one.phase == *phase).collect();
        let mut kinds: Vec<&Result<Bound, String>> = Vec::new();
        for one in &of {
            if !kinds.contains(&&one.bound) {
                kinds.push(&one.bound);
            }
        }
        let clause = |kind: &&Result<Bound, String>| {
            let group: Vec<&PhaseBound<'_>> = of.iter().copied().filter(|one| one.bound == **kind).collect();
            let number = match (group.len(), of.len()) {
                (_, 1) => String::new(),
                (n, all) if n == all => format!(" in all {all} cases"),
                (n, all) => format!(" in {n} of {all} cases"),
            };
            format!("{}{number}{}", what(kind), details(&group, phase))
        };
        let clauses: Vec<String> = kinds.iter().map(clause).collect();
        format!("What bounds {phase}: {}.", clauses.join("; "))
    };
    phases.iter().map(sentence).collect()
}

fn what(bound: &Result<Bound, String>) -> String {
    match bound {
        Ok(Bound::Overhead) => "neither memory nor computing, but what operations cost beside their work".to_string(),
        Ok(bound) => bound.name().to_string(),
        Err(why) => format!("not known, {why}"),
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
        let ridge = range(ridge, &|value| format!("{value:.0}")).map(|ridge| format!(", the ridge at {ridge}"));
        parts.push(format!("{intensity} FLOP/B{}", ridge.unwrap_or_default()));
    }
    let roofs = || group.iter().filter_map(|one| one.roof.as_ref());
    if let (Some(share), Some(first)) = (range(roofs().map(|roof| roof.share), &percent), roofs().next()) {
        let origin = first.origin.name();
        parts.push(format!("{share} % of the roof at that intensity ({origin}) over {}", first.over));
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
