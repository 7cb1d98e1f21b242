//! `roofline.html`: one file that opens from disk, with the looks of `report.html`.

use super::section::{Heat, Section};
use crate::render::format::printable;
use crate::render::html::{HtmlError, coded};
use minijinja::Environment;
use minijinja::value::Serde;
use serde_json::{Value, json};

pub(super) fn page(title: &str, facts: &[String], sections: &[Section]) -> Result<String, HtmlError> {
    let mut environment = Environment::new();
    coded::add_filter(&mut environment);
    environment.add_template("roofline.html", include_str!("roofline.html"))?;
    let facts: Vec<String> = facts.iter().map(|fact| printable(fact)).collect();
    let values = json!({
        "css": include_str!("../html/style.css"),
        "version": env!("CARGO_PKG_VERSION"),
        "title": printable(title),
        "facts": facts,
        "sections": sections.iter().filter(|section| !section.is_empty()).map(value).collect::<Vec<_>>(),
    });
    Ok(environment.get_template("roofline.html")?.render(Serde(values))?)
}

fn value(section: &Section) -> Value {
    let clean = |list: &[String]| list.iter().map(|text| printable(text)).collect::<Vec<_>>();
    json!({
        "id": section.id,
        "title": section.title,
        "note": printable(&section.note),
        "head": section.head,
        "rows": section.rows.iter().map(|row| clean(row)).collect::<Vec<_>>(),
        "list": clean(&section.list),
        "svg": section.svg,
        "heat": section.heat.as_ref().map(heat),
    })
}

fn heat(heat: &Heat) -> Value {
    let rows = heat.rows.iter().map(|(name, cells)| {
        let cells = cells.iter().map(|cell| {
            json!({ "text": cell.text, "hint": printable(&cell.hint), "depth": cell.depth, "invalid": cell.invalid })
        });
        json!({ "name": printable(name), "cells": cells.collect::<Vec<_>>() })
    });
    let columns: Vec<String> = heat.columns.iter().map(|text| printable(text)).collect();
    json!({ "corner": heat.corner, "columns": columns, "rows": rows.collect::<Vec<_>>() })
}
