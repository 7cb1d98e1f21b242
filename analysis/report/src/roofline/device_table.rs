//! Several devices side by side.

use super::section::{shown, table_of};
use super::static_sections::{bound, facts, rate_of, time_of};
use super::{document, text};
use crate::format::{count, duration, significant};
use candlescope_document::text::UNKNOWN;
use candlescope_document::{Document, Fact, Section};
use candlescope_predict::roofline::{DeviceRow, Outlook};
use serde_json::{Value, json};

/// Name of the format of a table over devices.
const FORMAT: &str = "candlescope-devices";

/// The devices' rows, each with the whole prediction.
pub fn devices_json(all: &[(Outlook, DeviceRow)]) -> Value {
    let rows = all.iter().map(|(outlook, row)| {
        let mut value = serde_json::to_value(row).unwrap_or(Value::Null);
        if let Some(object) = value.as_object_mut() {
            object.insert("warnings".into(), json!(outlook.warnings));
            object.insert("assumptions".into(), json!(outlook.assumptions));
            object.insert("missing".into(), json!(outlook.missing));
        }
        value
    });
    let first = all.first().map(|(outlook, _)| outlook);
    json!({
        "format": FORMAT,
        "format_version": 1,
        "label": "derived",
        "model": first.map(|outlook| &outlook.model.name),
        "scenario": first.map(|outlook| serde_json::to_value(&outlook.scenario).unwrap_or(Value::Null)),
        "devices": rows.collect::<Vec<_>>(),
    })
}

/// The table for a terminal.
pub fn devices_text(all: &[(Outlook, DeviceRow)], width: usize) -> String {
    text(head(all), sections(all), width)
}

/// What a page with the table shows.
pub fn devices_document(all: &[(Outlook, DeviceRow)]) -> Document {
    let model = all.first().map_or("devices", |(outlook, _)| outlook.model.name.as_str());
    document(&format!("{model} on {} devices", all.len()), head(all), sections(all))
}

/// Model and question, which all share.
fn head(all: &[(Outlook, DeviceRow)]) -> Vec<Fact> {
    let facts = all.first().map_or_else(Vec::new, |(outlook, _)| facts(outlook));
    facts.into_iter().filter(|fact| fact.label != "device").collect()
}

fn sections(all: &[(Outlook, DeviceRow)]) -> Vec<Section> {
    let priced = all.iter().any(|(_, row)| row.price_per_hour.is_some());
    let rows = all.iter().map(|(_, row)| {
        let unknown = row.launches_unknown;
        let number = |n: Option<u64>| n.map_or_else(|| UNKNOWN.to_string(), count);
        let mut cells = vec![
            row.device.clone(),
            match row.fits {
                Some(true) => "yes".to_string(),
                Some(false) => "no".to_string(),
                None => UNKNOWN.to_string(),
            },
            time_of(row.ttft_ns, unknown),
            time_of(row.tpot_ns, unknown),
            shown(row.tpot_least_ns, duration),
            bound(row.bound),
            rate_of(row.tokens_per_s, unknown),
            number(row.largest_batch),
            number(row.recommended_batch),
            rate_of(row.recommended_tokens_per_s, unknown),
        ];
        if priced {
            let price = |value: Option<f64>| {
                shown(value, |value| format!("{}{}", if unknown { "≥ " } else { "" }, significant(value)))
            };
            cells.push(shown(row.price_per_hour, significant));
            cells.push(price(row.price_per_million));
            cells.push(price(row.recommended_price_per_million));
        }
        cells
    });
    let mut head = vec![
        "device",
        "fits",
        "first token",
        "output token",
        "least",
        "bound by",
        "tokens/s",
        "largest batch",
        "good batch",
        "tokens/s at it",
    ];
    if priced {
        head.extend(["price an hour", "of 10⁶ tokens", "at the good batch"]);
    }
    let unknown: Vec<&str> =
        all.iter().filter(|(_, row)| row.launches_unknown).map(|(_, row)| row.device.as_str()).collect();
    let mut list: Vec<String> = all.first().map_or_else(Vec::new, |(outlook, _)| outlook.warnings.clone());
    if !unknown.is_empty() {
        list.push(format!(
            "what launches cost on {} is not known and left out: ≥ and ≤ are bounds; `least`, which no program can undercut on a \
             device, is the column that compares all of them",
            unknown.join(", ")
        ));
    }
    list.push(
        "the good batch is the one recommended for the goal, else the smallest with four fifths of the highest throughput; \
         one device alone shows what its figures rest on"
            .to_string(),
    );
    let note = "Datasheets, not measured here, unless said otherwise. Ranges are those of launch costs on other hosts.";
    vec![Section::new("devices", "Devices", note).with(table_of(&head, rows.collect())).list(list)]
}
