//! Both flame graphs and their difference.

use crate::compare::Stacks;
use crate::render::html::flame::frame_of;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Frames with A, B and the difference; null where there is nothing to draw.
pub(super) fn frames(stacks: &Stacks) -> Value {
    let lines = |side: &BTreeMap<String, f64>| -> Vec<String> {
        // Hundredths of a nanosecond: graphs have whole numbers, and a step may be short.
        let weighed = side.iter().map(|(stack, ns)| (stack, (ns * 100.0).round() as u64));
        weighed.filter(|(_, weight)| *weight > 0).map(|(stack, weight)| format!("{stack} {weight}")).collect()
    };
    let mut own: BTreeMap<String, u64> = BTreeMap::new();
    for (stack, ns) in stacks.a.iter().chain(&stacks.b) {
        let name = stack.rsplit(';').next().unwrap_or(stack);
        *own.entry(name.to_string()).or_default() += (ns * 100.0) as u64;
    }
    let (a, b) = (lines(&stacks.a), lines(&stacks.b));
    let difference = difference(&a, &b);
    json!({
        "a": frame_of(&a, own.clone()),
        "b": frame_of(&b, own.clone()),
        "difference": frame_of(&difference, own),
    })
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
}
