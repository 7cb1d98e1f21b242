//! `stakeholder_summary.md`: one page for somebody who decides.

use super::super::stakeholder_facts::stakeholder_facts;
use super::text::{code, escape, table};
use crate::passes::Analysis;
use std::fmt::Write as _;

/// `stakeholder_summary.md`.
pub fn stakeholder_summary(analysis: &Analysis) -> String {
    let facts = stakeholder_facts(analysis, code);
    let mut out = format!("# {}\n\n**{}**\n", escape(&facts.title), facts.conclusion);
    let list = |out: &mut String, title: &str, items: &[(&'static str, String)]| {
        let _ = writeln!(out, "\n## {title}\n");
        for (label, text) in items {
            let _ = writeln!(out, "- {label}: {}", escape(text));
        }
    };
    list(&mut out, "What ran", &facts.ran);
    let _ = writeln!(out, "\n## How fast\n");
    if facts.speed.is_empty() {
        out.push_str("Not known: the run marks no requests, so there is no latency. `report.md` has its steps.\n");
    } else {
        let rows = facts.speed.into_iter().map(|row| vec![row.title, row.central, row.spread, row.n, row.label.into()]);
        out.push_str(&table(&["", "median", "spread", "n", "label"], rows));
    }
    list(&mut out, "What it costs", &facts.cost);
    let lines = |out: &mut String, items: &[String]| {
        for item in items {
            let _ = writeln!(out, "- {}", escape(item));
        }
    };
    // Its paths are code already.
    let _ = writeln!(out, "\n## What limits it\n\n- {}", facts.limit);
    lines(&mut out, &facts.limits);
    let _ = writeln!(out, "\n## What to do\n");
    // Their paths are code already, and their words are ours.
    facts.changes.iter().for_each(|change| out.push_str(&format!("- {change}\n")));
    lines(&mut out, &facts.todo);
    if !facts.changes.is_empty() {
        out.push_str(
            "\nA gain is a share of the time named with it, in brackets from the least that can be hoped for to the most; \
             gains do not add up.\n",
        );
    }
    out.push_str(
        "\nMeasured: read off a clock or a sensor. Derived: computed from that. `assumptions.md` has peaks and formulas, \
         `report.html` the layers, `inputs.yaml` what to run again.\n",
    );
    out
}
