//! Rooflines: what they show, as documents, and as JSON.

mod calibration;
mod chart;
mod device_table;
mod load_sections;
mod run_sections;
mod section;
mod static_sections;

pub use calibration::{calibration_document, calibration_json, calibration_markdown, calibration_text};
pub use device_table::{devices_document, devices_json, devices_text};

use super::format::duration;
use candlescope_document::terminal::{Layout, draw};
use candlescope_document::{Document, Fact, Picture, Section};
use candlescope_predict::roofline::{HeatMap, LoadStage, Outlook, RunRoofline};
use section::predicted;
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
pub fn dynamic_json(runs: &[RunRoofline], contexts: Option<&HeatMap>) -> Value {
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

/// A document about rooflines.
fn document(title: &str, facts: Vec<Fact>, sections: Vec<Section>) -> Document {
    Document { kind: "roofline".to_string(), title: title.to_string(), facts, sections, ..Document::default() }
}

fn text(facts: Vec<Fact>, sections: Vec<Section>, width: usize) -> String {
    draw(&document("", facts, sections), Layout { width, color: false })
}

/// A load test beside its prediction, for a terminal.
pub fn load_text(outlook: &Outlook, stages: &[LoadStage], width: usize) -> String {
    let assumed = Section::new("assumptions", "Assumptions", "").list(outlook.assumptions.clone());
    let beware = Section::new("warnings", "Beware", "").list(outlook.warnings.clone());
    let sections = load_sections::sections(stages).into_iter().chain([beware, assumed]).collect();
    text(static_sections::facts(outlook), sections, width)
}

/// What `roofline.html` of a load test shows.
pub fn load_document(outlook: &Outlook, stages: &[LoadStage]) -> Document {
    let title = format!("{} on {} under load", outlook.model.name, outlook.device.name);
    let points = load_sections::points(outlook, stages);
    let sections = load_sections::sections(stages).into_iter().chain([points]).chain(all_predicted(outlook));
    document(&title, static_sections::facts(outlook), sections.collect())
}

fn all_predicted(outlook: &Outlook) -> impl Iterator<Item = Section> {
    static_sections::sections(outlook).into_iter().map(predicted)
}

/// A prediction for a terminal.
pub fn static_text(outlook: &Outlook, width: usize) -> String {
    text(static_sections::facts(outlook), static_sections::sections(outlook), width)
}

/// Runs against their rooflines, for a terminal.
pub fn dynamic_text(runs: &[RunRoofline], contexts: Option<&HeatMap>, width: usize) -> String {
    text(run_sections::facts(runs), run_sections::sections(runs, contexts), width)
}

/// What `roofline.html` of a prediction shows.
pub fn static_document(outlook: &Outlook) -> Document {
    let title = format!("{} on {}", outlook.model.name, outlook.device.name);
    document(&title, static_sections::facts(outlook), static_sections::sections(outlook))
}

/// The chart of a run against its roofs, with the looks of `report.html`; `None` without a roof or a point.
pub fn run_chart(run: &RunRoofline) -> Option<Picture> {
    run_sections::roofline_chart(run)
}

/// What was predicted and what was measured, in a sentence; `None` if nothing was predicted.
pub fn run_sentence(run: &RunRoofline) -> Option<String> {
    let told = run.comparisons.iter().map(|c| {
        format!("{} {} where {} was measured", c.figure, duration(c.predicted_ns.mid), duration(c.measured_ns))
    });
    let told: Vec<String> = told.collect();
    (!told.is_empty()).then(|| format!("the device allows, as predicted: {}", told.join(", ")))
}

/// What `roofline.html` of runs shows, with the prediction for the first one.
pub fn dynamic_document(runs: &[RunRoofline], contexts: Option<&HeatMap>) -> Document {
    let mut sections = run_sections::sections(runs, contexts);
    let first = runs.first();
    let outlook = first.and_then(|run| run.outlook.as_ref());
    sections.extend(outlook.into_iter().flat_map(all_predicted));
    let title = outlook.map_or("run", |outlook| outlook.model.name.as_str());
    document(title, run_sections::facts(runs), sections)
}
