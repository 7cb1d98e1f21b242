//! Rooflines as text, JSON and HTML. What all of them show is prepared as sections (`section`).

mod calibration;
mod chart;
mod device_table;
mod html;
mod load_sections;
mod run_sections;
mod section;
mod static_sections;
mod terminal;

pub use calibration::{calibration_json, calibration_markdown, calibration_text};
pub use device_table::{devices_json, devices_page, devices_text};

use super::format::duration;
use super::html::HtmlError;
use crate::roofline::{HeatMap, LoadStage, Measured, Outlook};
use section::Section;
use serde_json::{Value, json};

/// Name of `static_analysis.json`'s format.
pub const STATIC_FORMAT: &str = "candlescope-static-analysis";
/// Name of `dynamic_analysis.json`'s format.
pub const DYNAMIC_FORMAT: &str = "candlescope-dynamic-analysis";

/// The content of `static_analysis.json`. Times are nanoseconds, sizes bytes, rates a second.
pub fn static_json(outlook: &Outlook) -> Value {
    let mut value = serde_json::to_value(outlook).unwrap_or(Value::Null);
    if let Some(object) = value.as_object_mut() {
        object.insert("format".into(), STATIC_FORMAT.into());
        object.insert("format_version".into(), 1.into());
        object.insert("label".into(), "derived".into());
    }
    value
}

/// The content of `dynamic_analysis.json`.
pub fn dynamic_json(runs: &[Measured], contexts: Option<&HeatMap>) -> Value {
    json!({
        "format": DYNAMIC_FORMAT,
        "format_version": 1,
        "runs": serde_json::to_value(runs).unwrap_or(Value::Null),
        "batch_and_context": serde_json::to_value(contexts).unwrap_or(Value::Null),
    })
}

/// The content of `dynamic_analysis.json` of a load test.
pub fn load_json(model: &str, stages: &[LoadStage]) -> Value {
    json!({
        "format": DYNAMIC_FORMAT,
        "format_version": 1,
        "model": model,
        "load": serde_json::to_value(stages).unwrap_or(Value::Null),
    })
}

/// A load test beside its prediction, for a terminal.
pub fn load_text(outlook: &Outlook, stages: &[LoadStage], width: usize) -> String {
    let assumed = Section { list: outlook.assumptions.clone(), ..Section::new("assumptions", "Assumptions", "") };
    let beware = Section { list: outlook.warnings.clone(), ..Section::new("warnings", "Beware", "") };
    let sections: Vec<Section> = load_sections::sections(stages).into_iter().chain([beware, assumed]).collect();
    terminal::text(&static_sections::facts(outlook), &sections, width)
}

/// `roofline.html` of a load test.
///
/// # Errors
/// As of [`static_page`].
pub fn load_page(outlook: &Outlook, stages: &[LoadStage]) -> Result<String, HtmlError> {
    let title = format!("{} on {} under load", outlook.model.name, outlook.device.name);
    let predicted = static_sections::sections(outlook).into_iter().map(Section::predicted);
    let points = load_sections::points(outlook, stages);
    let sections: Vec<Section> = load_sections::sections(stages).into_iter().chain([points]).chain(predicted).collect();
    html::page(&title, &static_sections::facts(outlook), &sections)
}

/// A prediction for a terminal.
pub fn static_text(outlook: &Outlook, width: usize) -> String {
    terminal::text(&static_sections::facts(outlook), &static_sections::sections(outlook), width)
}

/// Runs against their rooflines, for a terminal.
pub fn dynamic_text(runs: &[Measured], contexts: Option<&HeatMap>, width: usize) -> String {
    let facts = runs.first().map_or_else(Vec::new, run_sections::facts);
    terminal::text(&facts, &run_sections::sections(runs, contexts), width)
}

/// `roofline.html` of a prediction.
///
/// # Errors
/// If the template does not match the values, which its tests would find.
pub fn static_page(outlook: &Outlook) -> Result<String, HtmlError> {
    let title = format!("{} on {}", outlook.model.name, outlook.device.name);
    html::page(&title, &static_sections::facts(outlook), &static_sections::sections(outlook))
}

/// The chart of a run against its roofs, as SVG with the looks of `report.html`; `None` without a roof or a point.
pub fn run_chart(run: &Measured) -> Option<String> {
    run_sections::roofline(run).svg
}

/// What was predicted and what was measured, in a sentence; `None` if nothing was predicted.
pub fn run_sentence(run: &Measured) -> Option<String> {
    let told = run.comparisons.iter().map(|c| {
        format!("{} {} where {} was measured", c.figure, duration(c.predicted_ns.mid), duration(c.measured_ns))
    });
    let told: Vec<String> = told.collect();
    (!told.is_empty()).then(|| format!("the device allows, as predicted: {}", told.join(", ")))
}

/// `roofline.html` of runs, with the prediction for the first one.
///
/// # Errors
/// As of [`static_page`].
pub fn dynamic_page(runs: &[Measured], contexts: Option<&HeatMap>) -> Result<String, HtmlError> {
    let mut sections = run_sections::sections(runs, contexts);
    let first = runs.first();
    if let Some(outlook) = first.and_then(|run| run.outlook.as_ref()) {
        sections.extend(static_sections::sections(outlook).into_iter().map(Section::predicted));
    }
    let title = first.and_then(|run| run.outlook.as_ref()).map_or("run", |outlook| outlook.model.name.as_str());
    html::page(title, &first.map_or_else(Vec::new, run_sections::facts), &sections)
}
