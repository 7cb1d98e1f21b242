//! Several sequences at once on a host: what its libraries take for many rows is seen in other steps of the run.
//!
//! A product of one row reads its weights; of many rows, such as a prompt's, it computes. Where those take `r` a FLOP,
//! `n` rows take `r·n` at least, and no less than reading the weights; at most both after each other, with rows rounded
//! up to a tile of [`TILE`] as the kernels compute them. Attention reads keys and values of each sequence, so nothing
//! is shared.

use super::abstain::{Abstain, MOST_UNKNOWN};
use super::change::Change;
use super::many_rows::{DoneTogether, ManyRows};
use super::step_model::{HostPart, Parts, StepInterval, StepModel};
use candlescope_work::estimate::{Case, Estimate};
use rustc_hash::{FxHashMap, FxHashSet};

/// Rows that a kernel of a product computes at once, at most.
const TILE: f64 = 8.0;

/// What steps of many rows take, of those that there are.
pub(super) fn many_rows<'a>(models: impl Iterator<Item = &'a StepModel>) -> ManyRows {
    let mut all = Vec::new();
    for model in models {
        let Some(rows) = model.rows else { continue };
        for (at, (ns, _)) in own_times(&model.parts) {
            let Some(place) = model.places.get(at as usize) else { continue };
            let product_flops = place.flops.filter(|_| is_product(place));
            all.push(DoneTogether { path: below_step(&place.path), ns, work: work(place), rows, product_flops });
        }
    }
    ManyRows::of(&all)
}

/// A decode step of `sequences` sequences instead of `present` ones.
pub(super) fn batch(
    model: &StepModel,
    parts: &mut Parts,
    change: &Change,
    (present, sequences): (u32, u32),
    case: Case,
) -> Result<(), Abstain> {
    let times = f64::from(sequences) / f64::from(present);
    let outer: FxHashSet<u32> = model.places.iter().map(|place| place.parent).collect();
    let (mut all, mut unknown) = (0.0, 0.0);
    for (at, (ns, of_place)) in own_times(parts) {
        all += ns;
        let place = model.places.get(at as usize);
        // What an interval states of those inside it is not its own.
        let each = place.filter(|_| !outer.contains(&at)).map_or(0.0, work) / f64::from(present);
        let many = |rows: f64| {
            place.and_then(|place| model.many_rows.of_rows(below_step(&place.path), is_product(place), rows, each))
        };
        let rows = f64::from(sequences);
        let changed = match place.zip(many(rows)) {
            // Fewer rows take their share at best, and at worst what all took.
            _ if times <= 1.0 => Estimate { low: ns * times, mid: f64::midpoint(ns * times, ns), high: ns },
            Some((place, computing)) => {
                let reading = if place.reads_cache() { ns } else { reading(model, place).min(ns) };
                let low = reading.max(computing).min(ns * times);
                let tiled = ns + many((rows / TILE).ceil() * TILE).unwrap_or(computing);
                let high = if place.reads_cache() { ns * times } else { tiled.min(ns * times) };
                Estimate { low, mid: f64::midpoint(low.max(ns), high), high: high.max(low) }
            }
            None => {
                unknown += ns;
                Estimate { low: ns, mid: f64::midpoint(ns, ns * times), high: ns * times }
            }
        };
        if ns > 0.0 {
            let factor = changed.at(case) / ns;
            for part in of_place {
                if let Some(HostPart::Work { ns, .. }) = parts.host.get_mut(part) {
                    *ns *= factor;
                }
            }
        }
    }
    let share = if all > 0.0 { unknown / all } else { 1.0 };
    if share <= MOST_UNKNOWN { Ok(()) } else { Err(Abstain::NoManyRows { change: change.to_string(), share }) }
}

/// What each place takes itself, and which parts of the host's that are; [`NOWHERE`](super::step_model::NOWHERE) has
/// the rest.
fn own_times(parts: &Parts) -> FxHashMap<u32, (f64, Vec<usize>)> {
    let mut all: FxHashMap<u32, (f64, Vec<usize>)> = FxHashMap::default();
    for (index, part) in parts.host.iter().enumerate() {
        if let HostPart::Work { ns, place, .. } = part {
            let own = all.entry(*place).or_default();
            own.0 += ns;
            own.1.push(index);
        }
    }
    all
}

/// What reading a place's weights takes at the memory's rate, in nanoseconds; 0 where that is not known.
fn reading(model: &StepModel, place: &StepInterval) -> f64 {
    place.bytes.zip(model.facts().bandwidth).map_or(0.0, |(bytes, peak)| bytes / peak * 1e9)
}

/// What a place states to do: FLOPs, or bytes where it computes nothing.
fn work(place: &StepInterval) -> f64 {
    place.flops.filter(|flops| *flops > 0.0).or(place.io_bytes).or(place.bytes).unwrap_or(0.0)
}

/// Whether it multiplies by weights.
fn is_product(place: &StepInterval) -> bool {
    !place.reads_cache() && place.flops.zip(place.bytes).is_some_and(|(flops, bytes)| flops > 0.0 && bytes > 0.0)
}

/// A path without the step's own name: `block[3]/mlp` of `decode/block[3]/mlp`.
fn below_step(path: &str) -> &str {
    path.split_once('/').map_or("", |(_, below)| below)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_the_same_in_steps_of_all_kinds() {
        assert_eq!((below_step("decode/block[3]/mlp"), below_step("decode")), ("block[3]/mlp", ""));
    }
}
