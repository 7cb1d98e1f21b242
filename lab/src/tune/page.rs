//! `report.html` of a search, without anything from outside.

use super::outcome::Tuned;
use super::words::{cells, heads, lines};
use crate::study::{Manifest, told_once};
use candlescope_analysis::render::html::STYLE;
use minijinja::Environment;
use minijinja::value::Serde;
use serde_json::json;

const TEMPLATE: &str = include_str!("report.html.j2");

/// The page. Names and messages are escaped; only the charts, which are made here, are put in as they are.
pub(super) fn page(manifest: &Manifest, tuned: &Tuned, charts: &[String]) -> String {
    let mut environment = Environment::new();
    environment.set_auto_escape_callback(|_| minijinja::AutoEscape::Html);
    let charts: Vec<String> = charts.iter().map(|svg| crate::suites::scaled(svg)).collect();
    let rows: Vec<Vec<String>> = tuned.points.iter().map(|point| cells(point, tuned)).collect();
    let rendered = environment.template_from_str(TEMPLATE).and_then(|template| {
        template.render(Serde(json!({
            "css": STYLE, "version": env!("CARGO_PKG_VERSION"),
            "study": manifest.study, "lines": lines(tuned), "heads": heads(tuned), "rows": rows, "charts": charts,
            "prompt": tuned.prompt_tokens, "output": tuned.output_tokens, "threads": manifest.threads(), "surroundings": manifest.surroundings,
            "seconds": manifest.method.time_limit.as_secs_f64(),
            "disturbances": told_once(&manifest.disturbances),
        })))
    });
    rendered.unwrap_or_else(|error| format!("<!doctype html><p>The report cannot be made: {error}"))
}
