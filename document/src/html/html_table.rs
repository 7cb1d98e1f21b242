//! Tables: sorted by a click on a head, or folded like a tree.

use super::{Plain, Prose};
use crate::forms::Forms;
use crate::part::Part;
use crate::table::{Bar, Cell, Column, Row, Table};
use crate::text::{UNKNOWN, count, cut, is_beside};
use std::fmt::Write as _;

/// From so many rows on, a table scrolls by itself.
const TALL: usize = 14;

pub(super) fn draw(out: &mut String, table: &Table) {
    let (rows, more) = table.shown(Forms::PAGE);
    let columns = table.columns_in(Forms::PAGE);
    let is_tree = rows.iter().any(|row| row.depth > 0);
    let has_bar = rows.iter().any(|row| matches!(row.bar, Bar::Gauge(..) | Bar::Parts(_)));
    let is_sortable = !is_tree && rows.iter().any(|row| row.cells.iter().any(|cell| cell.sort().is_some()));
    out.push_str("  <div class=\"table\">\n");
    if is_tree {
        out.push_str(
            "  <p class=\"buttons\"><button class=\"expand\">Expand all</button><button class=\"collapse\">Collapse</button></p>\n",
        );
    }
    if table.filter {
        out.push_str("  <p class=\"tools\"><input type=\"search\" class=\"filter\" placeholder=\"Filter\" aria-label=\"Filter rows by name\"></p>\n");
    }
    legend(out, &rows);
    let class = if is_tree {
        " tree"
    } else if is_sortable {
        " sortable"
    } else {
        ""
    };
    let _ = write!(
        out,
        "  <div class=\"scroll{}\"><table class=\"numbers{class}\">\n    <thead><tr>{}{}",
        if rows.len() > TALL { " tall" } else { "" },
        column_head(0, &table.first, "", false, is_sortable, table.sorted_by == Some(0)),
        if has_bar { "<th class=\"wide\"></th>" } else { "" },
    );
    for (nth, (at, column)) in columns.iter().enumerate() {
        let place = nth + 1 + usize::from(has_bar);
        let sorted = table.sorted_by == Some(at + 1);
        out.push_str(&column_head(place, &column.name, &column.hint, column.words, is_sortable, sorted));
    }
    out.push_str("</tr></thead>\n    <tbody>\n");
    for (nth, row) in rows.iter().enumerate() {
        let has_children = rows.get(nth + 1).is_some_and(|next| next.depth > row.depth);
        name(out, table, row, is_tree, has_children);
        if has_bar {
            let _ = write!(out, "<td class=\"wide\">{}</td>", bar(&row.bar));
        }
        for (at, column) in &columns {
            value(out, row.cells.get(*at), column, is_sortable);
        }
        out.push_str("</tr>\n");
    }
    out.push_str("    </tbody>\n  </table></div>\n");
    if more > 0 {
        let _ = writeln!(out, "  <p class=\"note\">{} more {}, {}.</p>", count(more), table.what, Prose(table.rest));
    }
    out.push_str("  </div>\n");
}

fn column_head(place: usize, name: &str, hint: &str, words: bool, sortable: bool, sorted: bool) -> String {
    let hint = if hint.is_empty() { String::new() } else { format!(" title=\"{}\"", Plain(hint)) };
    let label = if words { "label " } else { "" };
    if !sortable {
        let class = if words { " class=\"label\"" } else { "" };
        return format!("<th{class}{hint}>{}</th>", Plain(name));
    }
    let down = if sorted { " down" } else { "" };
    format!("<th class=\"{label}sort{down}\" data-column=\"{place}\"{hint}><button>{}</button></th>", Plain(name))
}

fn name(out: &mut String, table: &Table, row: &Row, is_tree: bool, has_children: bool) {
    let text = cut(&row.name, table.longest);
    let whole = row.whole.as_ref().or(Some(&row.name).filter(|name| **name != text));
    let whole = whole.map_or(String::new(), |whole| format!(" title=\"{}\"", Plain(whole)));
    let shown = match (table.code, text.rsplit_once('/')) {
        (false, _) => Prose(&text).to_string(),
        (true, Some((above, name))) => {
            format!("<code><span class=\"above\">{}/</span>{}</code>", Plain(above), Plain(name))
        }
        (true, None) => format!("<code>{}</code>", Plain(&text)),
    };
    let shown = match row.link.as_ref().filter(|file| is_beside(file)) {
        Some(file) => format!("<a href=\"{}\">{shown}</a>", Plain(file)),
        None => shown,
    };
    let remark = if row.remark.is_empty() { String::new() } else { format!(" <small>{}</small>", Prose(&row.remark)) };
    let meter = match row.bar {
        Bar::Meter(share) => {
            format!("<span class=\"meter\" style=\"width:{}%\"></span>", share.clamp(0.0, 1.0) * 100.0)
        }
        _ => String::new(),
    };
    let _ = match (is_tree, has_children) {
        (false, _) => write!(out, "    <tr><th scope=\"row\"{whole}>{meter}{shown}{remark}</th>"),
        (true, _) => write!(
            out,
            "    <tr data-depth=\"{}\"{}><th scope=\"row\"{whole} style=\"padding-left:{:.1}rem\">{}{shown}{remark}</th>",
            row.depth,
            if has_children { " class=\"parent\"" } else { "" },
            row.depth.min(24) as f64 * 1.1 + 0.4,
            match has_children {
                true => "<button class=\"twist\" aria-label=\"Collapse or expand\" aria-expanded=\"true\"></button>",
                false => "<span class=\"twist\"></span>",
            }
        ),
    };
}

fn value(out: &mut String, cell: Option<&Cell>, column: &Column, sortable: bool) {
    let text = cell.and_then(Cell::text).unwrap_or(UNKNOWN);
    let class = match (column.words, column.long) {
        (true, true) => " class=\"label long\"",
        (true, false) => " class=\"label\"",
        (false, _) => "",
    };
    let sort = match cell.and_then(Cell::sort).filter(|_| sortable && !column.words) {
        Some(sort) => format!(" data-v=\"{sort:e}\""),
        None => String::new(),
    };
    let below = match cell.map_or("", Cell::below_it) {
        "" => String::new(),
        below => format!("<small>{}</small>", Prose(below)),
    };
    let _ = write!(out, "<td{class}{sort}>{}{below}</td>", Prose(text));
}

fn bar(bar: &Bar) -> String {
    match bar {
        Bar::Gauge(all, own) => format!(
            "<span class=\"gauge\"><i style=\"width:{}%\"></i><i class=\"own\" style=\"width:{}%\"></i></span>",
            all * 100.0,
            own * 100.0
        ),
        Bar::Parts(parts) => format!("<span class=\"parts\">{}</span>", parts.iter().map(part).collect::<String>()),
        Bar::None | Bar::Meter(_) => String::new(),
    }
}

/// What the colours of parts mean.
fn legend(out: &mut String, rows: &[&Row]) {
    let mut known: Vec<(&str, &str)> = Vec::new();
    for row in rows {
        let Bar::Parts(parts) = &row.bar else { continue };
        for part in parts {
            let pair = (part.color.as_str(), part.name.as_str());
            if !known.contains(&pair) {
                known.push(pair);
            }
        }
    }
    if !known.is_empty() {
        let items =
            known.iter().map(|(color, name)| format!("<li><i class=\"k-{}\"></i>{}</li>", Plain(color), Plain(name)));
        let _ = writeln!(out, "  <ul class=\"legend\">{}</ul>", items.collect::<String>());
    }
}

fn part(part: &Part) -> String {
    format!(
        "<i class=\"k-{}\" style=\"width:{}%\" title=\"{}: {}\"></i>",
        Plain(&part.color),
        part.share * 100.0,
        Plain(&part.name),
        Plain(&part.amount)
    )
}
