//! Tables and views of SQL with their columns, of no run in particular.

use candlescope_core::nearest::suggest;
use candlescope_reader::ReadLimits;
use candlescope_sql::{Sources, SqlValue, VIEWS, names, query};
use serde_json::{Map, Value, json};

/// What there is, or the columns of one table or view with what they hold.
///
/// # Errors
/// If there is no such table.
pub(super) fn tables(one: Option<&str>, limits: &ReadLimits) -> Result<Value, String> {
    match one {
        None => all(limits),
        Some(name) if VIEWS.iter().any(|view| view.name == name) => {
            let view = VIEWS.iter().find(|view| view.name == name).ok_or("there is no such view")?;
            let columns = columns_of(name, limits)?;
            Ok(json!({ "view": name, "meaning": view.meaning(), "columns": columns, "query": view.query() }))
        }
        Some(name) if names().contains(&name) => {
            let rows = listed(limits)?;
            let of = rows.iter().filter(|row| row[0] == name);
            let columns =
                of.map(|[_, column, kind, meaning]| json!({ "column": column, "type": kind, "meaning": meaning }));
            Ok(json!({ "table": name, "columns": columns.collect::<Vec<_>>() }))
        }
        Some(name) => Err(format!("there is no table or view `{name}`{}", suggest(name, names()))),
    }
}

fn all(limits: &ReadLimits) -> Result<Value, String> {
    let mut tables: Map<String, Value> = Map::new();
    for [table, column, ..] in listed(limits)? {
        if let Some(columns) = tables.entry(table).or_insert_with(|| json!([])).as_array_mut() {
            columns.push(column.into());
        }
    }
    let views = VIEWS.iter().map(|view| {
        Ok((view.name.to_string(), json!({ "meaning": view.meaning(), "columns": columns_of(view.name, limits)? })))
    });
    let views = views.collect::<Result<Map<_, _>, String>>()?;
    Ok(json!({ "tables": tables, "views": views }))
}

fn columns_of(name: &str, limits: &ReadLimits) -> Result<Vec<String>, String> {
    let answer = query(&format!("SELECT * FROM {name} LIMIT 0"), &Sources::default(), limits, 1);
    answer.map(|answer| answer.columns).map_err(|error| error.to_string())
}

/// Table, column, type and meaning.
fn listed(limits: &ReadLimits) -> Result<Vec<[String; 4]>, String> {
    const SQL: &str = "SELECT table_name, column_name, \"type\", meaning FROM columns";
    let answer = query(SQL, &Sources::default(), limits, 0).map_err(|error| error.to_string())?;
    let text = |value: &SqlValue| match value {
        SqlValue::Text(text) => text.clone(),
        _ => String::new(),
    };
    let row = |row: &Vec<SqlValue>| <[String; 4]>::try_from(row.iter().map(text).collect::<Vec<_>>()).ok();
    Ok(answer.rows.iter().filter_map(row).collect())
}

#[cfg(test)]
mod tests {
    use super::super::answer_size::MOST_BYTES;
    use super::*;

    #[test]
    fn every_table_and_view_has_columns_and_all_fit_in_an_answer() {
        let limits = ReadLimits::default();
        let all = tables(None, &limits).unwrap();
        assert!(all.to_string().len() < MOST_BYTES, "{} bytes", all.to_string().len());
        for view in VIEWS {
            assert!(!all["views"][view.name]["columns"].as_array().unwrap().is_empty(), "{}", view.name);
        }
        assert!(all["tables"]["steps"].as_array().unwrap().contains(&"host_dur_ns".into()));
        let steps = tables(Some("steps"), &limits).unwrap();
        assert!(steps["columns"].as_array().unwrap().iter().all(|column| column["meaning"] != ""));
        assert!(tables(Some("operators"), &limits).unwrap()["query"].as_str().unwrap().contains("self_ns"));
        assert!(tables(Some("step"), &limits).unwrap_err().contains("steps"));
    }
}
