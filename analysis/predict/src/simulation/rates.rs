//! Kernels whose time follows from what they compute and move: fewer bits, another clock, more sequences.

use super::abstain::{Abstain, MOST_UNKNOWN};
use super::change::Change;
use super::selection::needs_device;
use super::step_model::{Facts, NOWHERE, Parts, StepInterval, StepModel};
use super::together;
use candlescope_work::estimate::Case;

/// Bits that scales add to a weight in blocks of 32, as GGML stores them (`block_q8_0`: 34 bytes for 32 weights).
const SCALE_BITS: f64 = 0.5;

/// Weights with so many bits: what streams them takes less.
///
/// At worst a kernel saves the bytes at the peak bandwidth and keeps whatever else takes its time; at best all its time
/// shrinks with its bytes.
pub(super) fn bits(
    model: &StepModel,
    parts: &mut Parts,
    change: &Change,
    bits: u32,
    case: Case,
) -> Result<(), Abstain> {
    needs_device(parts, change)?;
    let facts = model.facts();
    let bandwidth = bandwidth(facts, change)?;
    let Some(present) = facts.weight_bits else {
        return Err(Abstain::UnknownStep { change: change.to_string(), what: "the type of the model's weights" });
    };
    // Floats of 16 bits have no scales.
    let scales = if bits < 16 { SCALE_BITS } else { 0.0 };
    let ratio = (f64::from(bits) + scales) / present;
    let nothing = |why: &str| Abstain::NothingToChange { change: change.to_string(), why: why.to_string() };
    if ratio >= 1.0 {
        return Err(nothing("weights have no more bits now"));
    }
    let mut any = false;
    for (place, kernels) in by_place(model, parts) {
        let place = &model.places[place as usize];
        let (Some(weights), true) = (place.bytes, !place.reads_cache()) else { continue };
        let all = place.io_bytes.unwrap_or(weights).max(weights);
        if all <= 0.0 || !is_bound_by_memory(facts, place) {
            continue;
        }
        any = true;
        let ns: f64 = kernels.iter().map(|at| parts.works[*at].ns).sum();
        let shrunk = 1.0 - weights / all * (1.0 - ratio);
        let fast = ns * shrunk;
        let slow = (ns - weights * (1.0 - ratio) / bandwidth * 1e9).max(fast);
        scale(parts, &kernels, ns, between(fast, slow, case));
    }
    if any { Ok(()) } else { Err(nothing("no interval says how many bytes of weights its kernels read")) }
}

/// Another clock: what is bound by computing follows it, what is bound by memory does not, and of the rest that is not
/// known.
pub(super) fn clock(
    model: &StepModel,
    parts: &mut Parts,
    change: &Change,
    factor: f64,
    case: Case,
) -> Result<(), Abstain> {
    needs_device(parts, change)?;
    let facts = model.facts();
    bandwidth(facts, change)?;
    if facts.flops.is_none() {
        return Err(Abstain::NoPeak { change: change.to_string(), what: "FLOP/s in the type that it multiplies" });
    }
    let known = |place: &StepInterval| place.flops.is_some() || place.bytes.or(place.io_bytes).is_some();
    enough_known(model, parts, change, known)?;
    for work in parts.works.iter_mut().filter(|work| work.is_kernel()) {
        let place = model.places.get(work.place as usize).filter(|place| known(place));
        let scaled = work.ns / factor;
        work.ns = match place {
            Some(place) if is_bound_by_memory(facts, place) => work.ns,
            Some(_) => scaled,
            None => between(scaled.min(work.ns), scaled.max(work.ns), case),
        };
    }
    Ok(())
}

/// A decode step of so many sequences: weights are read once, keys, values and activations for each sequence.
///
/// At best a kernel takes what its further bytes and FLOPs take at the peaks, at worst its time grows as its roof does;
/// what does not say is between its present time and that of each sequence by itself. The host does what it did; a step
/// without a device is the host's ([`together`]).
pub(super) fn batch(
    model: &StepModel,
    parts: &mut Parts,
    change: &Change,
    sequences: u32,
    case: Case,
) -> Result<(), Abstain> {
    if !model.is_decode {
        let why = "only steps of decoding take more sequences as they are".to_string();
        return Err(Abstain::NothingToChange { change: change.to_string(), why });
    }
    let Some(present) = model.sequences.filter(|n| *n > 0) else {
        return Err(Abstain::UnknownStep { change: change.to_string(), what: "the number of their sequences" });
    };
    if parts.works.is_empty() {
        return together::batch(model, parts, change, (present, sequences), case);
    }
    let facts = model.facts();
    bandwidth(facts, change)?;
    let known = |place: &StepInterval| place.io_bytes.or(place.bytes).is_some();
    enough_known(model, parts, change, known)?;
    let times = f64::from(sequences) / f64::from(present);
    let roof = |place: &StepInterval, times: f64| {
        let bytes = place.bytes.unwrap_or(0.0);
        let weights = if !place.reads_cache() { bytes } else { 0.0 };
        let others = (place.io_bytes.unwrap_or(bytes) - weights).max(0.0);
        let moving = facts.bandwidth.map_or(0.0, |peak| (weights + others * times) / peak);
        let computing = place.flops.zip(facts.flops).map_or(0.0, |(flops, peak)| flops * times / peak);
        moving.max(computing) * 1e9
    };
    for (at, kernels) in by_place(model, parts) {
        let place = &model.places[at as usize];
        let ns: f64 = kernels.iter().map(|at| parts.works[*at].ns).sum();
        let (now, then) = (roof(place, 1.0), roof(place, times));
        let (added, grown) =
            if known(place) && now > 0.0 { ((ns + then - now).max(0.0), ns * then / now) } else { (ns, ns * times) };
        scale(parts, &kernels, ns, between(added.min(grown), added.max(grown), case));
    }
    let rest: Vec<usize> = works_of(parts).filter(|at| parts.works[*at].place == NOWHERE).collect();
    let ns: f64 = rest.iter().map(|at| parts.works[*at].ns).sum();
    scale(parts, &rest, ns, between(ns.min(ns * times), ns.max(ns * times), case));
    Ok(())
}

fn between(low: f64, high: f64, case: Case) -> f64 {
    match case {
        Case::Low => low,
        Case::Mid => f64::midpoint(low, high),
        Case::High => high,
    }
}

/// Gives kernels that take `from` together the time `to`.
fn scale(parts: &mut Parts, kernels: &[usize], from: f64, to: f64) {
    if from > 0.0 {
        kernels.iter().for_each(|at| parts.works[*at].ns *= to / from);
    }
}

fn works_of(parts: &Parts) -> impl Iterator<Item = usize> + '_ {
    parts.works.iter().enumerate().filter(|(_, work)| work.is_kernel() && !work.gone).map(|(at, _)| at)
}

/// The kernels of each interval that launched any itself.
fn by_place(model: &StepModel, parts: &Parts) -> Vec<(u32, Vec<usize>)> {
    let mut all: std::collections::BTreeMap<u32, Vec<usize>> = std::collections::BTreeMap::new();
    for at in works_of(parts) {
        let place = parts.works[at].place;
        if (place as usize) < model.places.len() {
            all.entry(place).or_default().push(at);
        }
    }
    all.into_iter().collect()
}

fn bandwidth(facts: &Facts, change: &Change) -> Result<f64, Abstain> {
    facts.bandwidth.ok_or_else(|| Abstain::NoPeak { change: change.to_string(), what: "memory bandwidth" })
}

fn enough_known(
    model: &StepModel,
    parts: &Parts,
    change: &Change,
    known: impl Fn(&StepInterval) -> bool,
) -> Result<(), Abstain> {
    let (mut all, mut unknown) = (0.0, 0.0);
    for at in works_of(parts) {
        let work = &parts.works[at];
        all += work.ns;
        if !model.places.get(work.place as usize).is_some_and(&known) {
            unknown += work.ns;
        }
    }
    let share = if all > 0.0 { unknown / all } else { 1.0 };
    if share <= MOST_UNKNOWN { Ok(()) } else { Err(Abstain::UnknownWork { change: change.to_string(), share }) }
}

/// Whether moving its bytes takes longer than computing its FLOPs, at the peaks.
fn is_bound_by_memory(facts: &Facts, place: &StepInterval) -> bool {
    let Some(bytes) = place.io_bytes.or(place.bytes) else { return false };
    let moving = facts.bandwidth.map_or(0.0, |peak| bytes / peak);
    let computing = place.flops.zip(facts.flops).map_or(0.0, |(flops, peak)| flops / peak);
    moving >= computing
}
