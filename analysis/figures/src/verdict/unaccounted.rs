//! Step time in no child interval.

use crate::Analysis;
use crate::tree::ratio;
use candlescope_schema::run::{Code, Finding, Place};

/// From this share of step time in no child interval on, there is a finding.
const UNACCOUNTED: f64 = 0.05;

pub(super) fn find(run: &Analysis) -> Vec<Finding> {
    let tree = &run.tree;
    let share = ratio(tree.unaccounted_ns(), tree.total_ns);
    if share <= UNACCOUNTED {
        return Vec::new();
    }
    let finding = Finding::new(
        Code::Unaccounted,
        "{share:.1%} of step time is in no child interval[; most of it in `{path}` ({most:.1%})]",
        "Wrap the operations there in spans of their own to see what they are",
    );
    let finding = finding.ratio("share", share);
    let worst = tree.rows.iter().filter(|row| row.has_children).max_by_key(|row| row.self_ns);
    vec![match worst {
        Some(row) => finding.at(Place::Path, row.rollup.as_str()).ratio("most", ratio(row.self_ns, tree.total_ns)),
        None => finding,
    }]
}
