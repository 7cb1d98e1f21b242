//! A document as JSON, for programs that show it their own way. `docs/schemas/document.json` has its fields.
//!
//! It has all that any other form shows: whole names, every row of a table, the number beside its text where that is
//! known, what charts are drawn from. Of two texts that say the same to different forms it has the longer one. Fields
//! that would be empty are left out, but for those that every document, section and row has.

use crate::document::{Block, Document, Frame, Heat, Notice, Section, Verdict};
use crate::forms::Forms;
use crate::part::Part;
use crate::picture::{Picture, Plot, PlotLine, PlotPoint};
use crate::quantity::unit_of;
use crate::table::{Bar, Cell, Column, Row, Table};
use crate::text::is_beside;
use serde_json::{Map, Value, json};

/// Name of the format.
pub const FORMAT: &str = "candlescope-document";
/// Its version: within one, fields and blocks are added, and none is changed or removed.
pub const FORMAT_VERSION: u32 = 1;

/// The whole document. Texts are as they were given, names between backticks.
pub fn draw(document: &Document) -> Value {
    let facts = document.facts.iter().filter(|fact| fact.is_in(Forms::JSON));
    let facts = facts.map(|fact| Fields::new().text("label", fact.label).set("text", fact.text.as_str()).done());
    Fields::new()
        .set("format", FORMAT)
        .set("format_version", FORMAT_VERSION)
        .text("kind", &document.kind)
        .set("title", document.title.as_str())
        .list("before", &document.before)
        .text("conclusion", &document.conclusion)
        .set("facts", facts.collect::<Vec<_>>())
        .some("verdict", document.verdict.as_ref().map(verdict))
        .set("sections", sections(&document.sections))
        .done()
}

/// The fields of an object; what is empty is left out but by `set`.
struct Fields(Map<String, Value>);

impl Fields {
    fn new() -> Self {
        Self(Map::new())
    }

    fn set(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.0.insert(key.to_string(), value.into());
        self
    }

    fn some(self, key: &str, value: Option<impl Into<Value>>) -> Self {
        match value {
            Some(value) => self.set(key, value),
            None => self,
        }
    }

    fn text(self, key: &str, text: &str) -> Self {
        self.some(key, Some(text).filter(|text| !text.is_empty()))
    }

    fn list(self, key: &str, list: &[String]) -> Self {
        self.some(key, Some(list.to_vec()).filter(|list| !list.is_empty()))
    }

    fn is(self, key: &str, is: bool) -> Self {
        self.some(key, Some(true).filter(|_| is))
    }

    fn done(self) -> Value {
        Value::Object(self.0)
    }
}

fn block_of(kind: &str) -> Fields {
    Fields::new().set("block", kind)
}

fn verdict(verdict: &Verdict) -> Value {
    json!({ "ok": verdict.ok, "text": verdict.text, "notices": notices(&verdict.notices) })
}

fn notices(notices: &[Notice]) -> Vec<Value> {
    let of = |notice: &Notice| {
        let Notice { mark, code, message, remedy } = notice;
        json!({ "mark": mark.name(), "code": code, "message": message, "remedy": remedy })
    };
    notices.iter().map(of).collect()
}

fn sections(all: &[Section]) -> Vec<Value> {
    all.iter().filter(|section| section.is_in(Forms::JSON)).map(section).collect()
}

fn section(section: &Section) -> Value {
    let empty = if section.says_empty(Forms::JSON) { section.empty.as_str() } else { "" };
    let nav = section.nav.as_deref().filter(|nav| *nav != section.title);
    Fields::new()
        .set("id", section.id.as_str())
        .set("title", section.title.as_str())
        .text("nav", nav.unwrap_or_default())
        .text("brief", section.brief.as_deref().unwrap_or_default())
        .text("note", &section.note)
        .text("empty", empty)
        .set("blocks", section.shown(Forms::JSON).filter_map(block).collect::<Vec<_>>())
        .set("sections", sections(&section.parts))
        .done()
}

/// `None` for what is for pages alone.
fn block(block: &Block) -> Option<Value> {
    let fields = match block {
        Block::Text(text) => block_of("text").set("text", text.as_str()),
        Block::List(items) => block_of("list").set("items", items.clone()),
        Block::Steps(items) => block_of("steps").set("items", items.clone()),
        Block::Pairs(title, pairs) => {
            let pairs = pairs.iter().map(|(name, value)| json!({ "name": name, "value": value }));
            block_of("pairs").text("title", title).set("pairs", pairs.collect::<Vec<_>>())
        }
        Block::Table(it) => table(it),
        Block::Notices(all) => block_of("notices").set("notices", notices(all)),
        Block::Shares(name, all) => block_of("shares").set("name", *name).set("parts", parts(all)),
        Block::Heat(map) => heat(map),
        Block::Fixed(text) => block_of("fixed").set("text", text.as_str()),
        Block::Files(what, files) => block_of("files").set("what", *what).set("files", files.clone()),
        Block::Folded(title, inner) => {
            let inner = self::block(inner)?;
            block_of("folded").set("title", title.as_str()).set("content", inner)
        }
        Block::Pictures(all) => block_of("charts").set("charts", all.iter().map(picture).collect::<Vec<_>>()),
        Block::Frames(all) => block_of("flames").set("flames", all.iter().map(flame).collect::<Vec<_>>()),
        Block::Html(_) => return None,
    };
    Some(fields.done())
}

fn table(table: &Table) -> Fields {
    let (rows, _) = table.shown(Forms::JSON);
    let columns = table.columns_in(Forms::JSON);
    let sorted_by = table.sorted_by.and_then(|at| match at {
        0 => Some(0),
        at => columns.iter().position(|(place, _)| place + 1 == at).map(|at| at + 1),
    });
    let heads = columns.iter().map(|(_, column)| head(column)).collect::<Vec<_>>();
    let rows = rows.into_iter().map(|row| {
        let cells = columns.iter().map(|(at, _)| row.cells.get(*at).map_or(Value::Null, cell));
        of_row(row).set("cells", cells.collect::<Vec<_>>()).done()
    });
    block_of("table")
        .set("names", table.first.as_ref())
        .is("code", table.code)
        .some("sorted_by", sorted_by)
        .set("columns", heads)
        .set("rows", rows.collect::<Vec<_>>())
}

fn head(column: &Column) -> Value {
    Fields::new().set("name", column.name.as_ref()).text("hint", &column.hint).is("words", column.words).done()
}

fn of_row(row: &Row) -> Fields {
    let fields = Fields::new()
        .set("name", row.name.as_str())
        .some("whole", row.whole.as_deref().filter(|whole| *whole != row.name))
        .some("link", row.link.as_deref().filter(|link| is_beside(link)))
        .text("remark", &row.remark)
        .some("depth", Some(row.depth).filter(|depth| *depth > 0));
    match &row.bar {
        Bar::None => fields,
        Bar::Meter(share) => fields.some("meter", Some(*share).filter(|share| share.is_finite())),
        Bar::Gauge(all, own) => fields.some("gauge", Some(vec![*all, *own]).filter(|_| (all + own).is_finite())),
        Bar::Parts(all) => fields.set("parts", parts(all)),
    }
}

/// Null where there is no value.
fn cell(cell: &Cell) -> Value {
    let Some(text) = cell.text() else { return Value::Null };
    let unit = cell.value().and_then(|value| unit_of(text, value));
    Fields::new().set("text", text).text("below", cell.below_it()).some("value", cell.value()).some("unit", unit).done()
}

fn parts(parts: &[Part]) -> Vec<Value> {
    let of = |part: &Part| {
        let Part { name, color, share, percent, amount } = part;
        json!({ "name": name, "color": color, "share": share, "percent": percent, "amount": amount })
    };
    parts.iter().map(of).collect()
}

fn heat(heat: &Heat) -> Fields {
    let rows = heat.rows.iter().map(|(name, cells)| {
        let cells = cells.iter().map(|cell| {
            Fields::new()
                .set("text", cell.text.as_str())
                .text("hint", &cell.hint)
                .some("depth", cell.depth)
                .is("invalid", cell.invalid)
                .done()
        });
        json!({ "name": name, "cells": cells.collect::<Vec<_>>() })
    });
    block_of("heat")
        .set("corner", heat.corner.as_str())
        .set("columns", heat.columns.clone())
        .set("rows", rows.collect::<Vec<_>>())
}

fn picture(picture: &Picture) -> Value {
    let plots: Vec<Value> = picture.plots.iter().map(plot).collect();
    Fields::new().text("caption", &picture.caption).set("plots", plots).done()
}

fn plot(plot: &Plot) -> Value {
    Fields::new()
        .text("title", &plot.title)
        .set("x", plot.x.as_str())
        .set("y", plot.y.as_str())
        .is("log", plot.log)
        .set("lines", plot.lines.iter().map(line).collect::<Vec<_>>())
        .done()
}

/// JSON lacks numbers that are not finite: such a point is left out.
fn line(line: &PlotLine) -> Value {
    let points: Vec<Value> = line.points.iter().filter(|point| (point.x + point.y).is_finite()).map(point).collect();
    Fields::new().text("name", &line.name).set("connected", line.connected).set("points", points).done()
}

fn point(point: &PlotPoint) -> Value {
    let spread = point.spread.filter(|(low, high)| (low + high).is_finite()).map(|(low, high)| vec![low, high]);
    Fields::new().text("name", &point.name).set("x", point.x).set("y", point.y).some("spread", spread).done()
}

fn flame(frame: &Frame) -> Value {
    json!({ "title": frame.title, "stacks": frame.stacks })
}
