//! Both flame graphs and their difference.

use crate::charts::flame::frame_of;
use candlescope_compare::Stacks;
use candlescope_document::Frame;
use std::collections::BTreeMap;

/// Widest graph, in its own unit: some hours of a step, and far from where whole numbers end.
const MOST_WIDTH: f64 = 1e15;
/// Longest time of a stack, so that sums of them stay finite.
const MOST_NS: f64 = 1e100;

/// Frames with A, B and the difference.
pub(super) fn frames(stacks: &Stacks) -> Vec<Frame> {
    // Hundredths of a nanosecond: graphs have whole numbers, and a step may be short. Numbers that no step can take, as
    // in a baseline that was written by hand, are drawn in a smaller unit: their sums have to fit.
    let usable = |ns: &f64| if ns.is_finite() && *ns > 0.0 { ns.min(MOST_NS) } else { 0.0 };
    let sum: f64 = stacks.a.values().chain(stacks.b.values()).map(usable).sum();
    let unit = 100.0 / (sum * 100.0 / MOST_WIDTH).max(1.0);
    let width = |ns: &f64| (usable(ns) * unit).round() as u64;
    let lines = |side: &BTreeMap<String, f64>| -> Vec<String> {
        let weighed = side.iter().map(|(stack, ns)| (stack, width(ns)));
        weighed.filter(|(_, weight)| *weight > 0).map(|(stack, weight)| format!("{stack} {weight}")).collect()
    };
    let mut own: BTreeMap<String, u64> = BTreeMap::new();
    for (stack, ns) in stacks.a.iter().chain(&stacks.b) {
        let name = stack.rsplit(';').next().unwrap_or(stack);
        *own.entry(name.to_string()).or_default() += width(ns);
    }
    let (a, b) = (lines(&stacks.a), lines(&stacks.b));
    let difference = difference(&a, &b);
    vec![
        frame_of(a, own.clone(), "A"),
        frame_of(b, own.clone(), "B"),
        Frame { wide: true, ..frame_of(difference, own, "B less A") },
    ]
}

/// Lines with both weights.
fn difference(a: &[String], b: &[String]) -> Vec<String> {
    let mut out = Vec::new();
    let made = inferno::differential::from_readers(
        inferno::differential::Options::default(),
        a.join("\n").as_bytes(),
        b.join("\n").as_bytes(),
        &mut out,
    );
    let text = made.ok().and_then(|()| String::from_utf8(out).ok()).unwrap_or_default();
    let mut lines: Vec<String> = text.lines().map(str::to_string).collect();
    lines.sort();
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_difference_has_both_weights() {
        let lines = |text: &[&str]| text.iter().map(|line| line.to_string()).collect::<Vec<_>>();
        let found = difference(&lines(&["decode;mlp 100", "decode;attn 50"]), &lines(&["decode;mlp 180"]));
        assert_eq!(found, ["decode;attn 50 0", "decode;mlp 100 180"]);
    }

    #[test]
    fn numbers_that_no_step_can_take_are_drawn_all_the_same() {
        for ns in [1e19, 1.8e19, f64::MAX, f64::INFINITY, f64::NAN, -1e19] {
            let side = || BTreeMap::from([("decode;mlp".to_string(), ns), ("decode;attn;mlp".to_string(), ns)]);
            let made = frames(&Stacks { a: side(), b: side() });
            assert_eq!(made[0].drawn.is_some(), ns.is_finite() && ns > 0.0, "{ns}: {made:?}");
        }
    }
}
