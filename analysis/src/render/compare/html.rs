//! A comparison as one page that opens from disk and needs no network.

use super::flames::frames;
use super::tables::{Table, tables, tables_of_cases};
use super::words::{before_times, conclusion, conclusion_of_cases, divided, floor_source, followed};
use crate::compare::{CasesComparison, Comparison, Stacks};
use crate::render::format::{head, percent, plural, printable};
use crate::render::html::HtmlError;
use minijinja::Environment;
use minijinja::value::Serde;
use serde_json::{Value, json};

/// Characters of a path on the page.
const LONGEST_PATH: usize = 100;
/// Characters of a side's name in the page's title.
const LONGEST_NAME: usize = 40;

/// The page of a comparison of runs.
///
/// # Errors
/// If the template does not match the values, which its tests would find.
pub fn page(comparison: &Comparison) -> Result<String, HtmlError> {
    let floor = comparison.step.as_ref().map(|step| {
        let share = step.floor.share.map_or("not known".to_string(), percent);
        format!("A/A floor: {share}, {}", floor_source(&step.floor))
    });
    rendered(json!({
        "outcome": comparison.outcome.as_str(),
        "before": before_times(&comparison.disturbed, &comparison.differences)
            .into_iter()
            .chain(divided(comparison))
            .collect::<Vec<_>>(),
        "conclusion": conclusion(comparison),
        "a": title(&comparison.a.name),
        "b": title(&comparison.b.name),
        "facts": [
            printable(&comparison.a.machine),
            format!("A: {}", plural(comparison.a.runs.len() as u64, "run")),
            format!("B: {}", plural(comparison.b.runs.len() as u64, "run")),
            format!("margin {}", percent(comparison.margin)),
            floor.unwrap_or_default(),
            comparison.step.as_ref().and_then(|step| followed(step.estimate.as_ref()?)).unwrap_or_default(),
        ],
        "sections": sections(tables(comparison, LONGEST_PATH)),
        "flames": frames(&comparison.stacks),
    }))
}

/// The page of a comparison of cases. Its flame graphs are those of the case whose recorded runs differ most.
///
/// # Errors
/// As for [`page`].
pub fn page_of_cases(comparison: &CasesComparison) -> Result<String, HtmlError> {
    let mut all = tables_of_cases(comparison);
    let recorded = comparison.cases.iter().filter_map(|case| Some((case, case.recorded.as_ref()?)));
    let change = |recorded: &Comparison| {
        recorded.step.as_ref().and_then(|step| step.estimate).map_or(0.0, |estimate| estimate.change.abs())
    };
    let most = recorded.max_by(|a, b| change(a.1).total_cmp(&change(b.1)));
    if let Some((case, recorded)) = most {
        let of_runs = tables(recorded, LONGEST_PATH).into_iter().filter(|table| table.id != "differences");
        all.extend(
            of_runs.map(|table| Table { title: format!("{}: {}", printable(&case.case), table.title), ..table }),
        );
    }
    let stacks = most.map_or_else(Stacks::default, |(_, recorded)| recorded.stacks.clone());
    rendered(json!({
        "outcome": comparison.outcome.as_str(),
        "before": before_times(&[], &comparison.differences),
        "conclusion": conclusion_of_cases(comparison),
        "a": title(&comparison.a),
        "b": title(&comparison.b),
        "facts": [printable(&comparison.machine), format!("margin {}", percent(comparison.margin))],
        "sections": sections(all),
        "flames": frames(&stacks),
    }))
}

/// A side's name, as long as a heading bears. The facts below it, and the JSON, have the whole.
fn title(name: &str) -> String {
    head(&printable(name), LONGEST_NAME)
}

fn sections(tables: Vec<Table>) -> Vec<Value> {
    let section = |table: Table| {
        let words = |at: usize| table.words.contains(&at);
        let head = table.head.iter().enumerate().map(|(at, name)| json!({ "name": name, "words": words(at) }));
        let head: Vec<Value> = head.collect();
        json!({ "id": table.id, "title": table.title, "note": table.note, "head": head, "rows": table.rows })
    };
    tables.into_iter().map(section).collect()
}

fn rendered(mut values: Value) -> Result<String, HtmlError> {
    values["css"] = include_str!("../html/style.css").into();
    values["version"] = env!("CARGO_PKG_VERSION").into();
    let mut environment = Environment::new();
    environment.add_template("compare.html", include_str!("compare.html"))?;
    Ok(environment.get_template("compare.html")?.render(Serde(values))?)
}
