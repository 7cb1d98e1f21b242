//! `report.html` of a study of variants: the chart, and what `profiling_report.md` says.

use candlescope_analysis::render::html::STYLE;
use std::fmt::Write as _;

/// The page, of the report's Markdown as it is written here: headings, tables, lists, paragraphs, `code` and links.
pub(super) fn page(title: &str, chart: Option<&str>, markdown: &str) -> String {
    let title = escaped(title);
    let chart = chart.map_or_else(String::new, |svg| format!("<figure>{}</figure>\n", crate::suites::scaled(svg)));
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n<title>{title} · candlescope</title>\n<style>{STYLE}\n\
         figure{{background:#fff;margin:.9rem 0}}figure svg{{display:block;width:100%;height:auto}}\
         .text th,.text td{{text-align:left}}\n</style>\n</head>\n<body>\n<header>\n  <div class=\"wrap\">\n    \
         <p class=\"brand\">candlescope</p>\n    <h1>{title}</h1>\n  </div>\n</header>\n<main class=\"wrap\">\n{chart}{}\
         </main>\n</body>\n</html>\n",
        html(markdown)
    )
}

fn html(markdown: &str) -> String {
    let mut out = String::new();
    let mut lines = markdown.lines().peekable();
    while let Some(line) = lines.next() {
        if line.trim().is_empty() || line.starts_with("# ") {
            // The page has its own title.
            continue;
        }
        if let Some(text) = line.strip_prefix("## ") {
            let _ = writeln!(out, "<h2>{}</h2>", inline(text));
        } else if let Some(text) = line.strip_prefix("### ") {
            let _ = writeln!(out, "<h3>{}</h3>", inline(text));
        } else if line.starts_with('|') {
            let mut rows = vec![line];
            while let Some(next) = lines.next_if(|next| next.starts_with('|')) {
                rows.push(next);
            }
            table(&mut out, &rows);
        } else if line.starts_with("- ") {
            let mut items = vec![line];
            while let Some(next) = lines.next_if(|next| next.starts_with("- ")) {
                items.push(next);
            }
            let items: String = items.iter().map(|item| format!("<li>{}</li>", inline(&item[2..]))).collect();
            let _ = writeln!(out, "<ul>{items}</ul>");
        } else {
            let _ = writeln!(out, "<p>{}</p>", inline(line));
        }
    }
    out
}

/// The second row only says that the first one is the head.
fn table(out: &mut String, rows: &[&str]) {
    let cells = |row: &str| {
        let inner = row.trim().trim_start_matches('|').trim_end_matches('|').replace("\\|", "\u{0}");
        inner.split('|').map(|cell| inline(&cell.trim().replace('\u{0}', "|"))).collect::<Vec<_>>()
    };
    let row = |tag: &str, row: &str| {
        let cells: String = cells(row).iter().map(|cell| format!("<{tag}>{cell}</{tag}>")).collect();
        format!("<tr>{cells}</tr>")
    };
    let head = rows.first().map(|head| row("th", head)).unwrap_or_default();
    let body: String = rows.iter().skip(2).map(|one| row("td", one)).collect();
    let _ = writeln!(
        out,
        "<div class=\"scroll\"><table class=\"text\"><thead>{head}</thead><tbody>{body}</tbody></table></div>"
    );
}

/// `code` and links; everything else is text.
fn inline(text: &str) -> String {
    let mut out = String::new();
    for (at, part) in text.split('`').enumerate() {
        if at % 2 == 1 {
            let _ = write!(out, "<code>{}</code>", escaped(part));
            continue;
        }
        let mut rest = part;
        while let Some((before, name, target, after)) = link(rest) {
            let _ = write!(out, "{}<a href=\"{}\">{}</a>", escaped(before), escaped(target), escaped(name));
            rest = after;
        }
        out.push_str(&escaped(rest));
    }
    out
}

/// `before [name](target) after`; only to what lies beside the page.
fn link(text: &str) -> Option<(&str, &str, &str, &str)> {
    let begin = text.find('[')?;
    let middle = begin + text[begin..].find("](")?;
    let end = middle + text[middle..].find(')')?;
    let target = &text[middle + 2..end];
    let beside = !target.contains(':') && !target.starts_with('/');
    beside.then(|| (&text[..begin], &text[begin + 1..middle], target, &text[end + 1..]))
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_report_is_made_of() {
        let text = "# t\n\n## Speed <1>\n\n| a | b |\n|---|---|\n| `x\\|y` | 1 |\n\n- one [report](runs/a/report.html)\n- [x](http://e)\n\n\
                    Text with `code`.\n";
        let html = html(text);
        for told in [
            "<h2>Speed &lt;1&gt;</h2>",
            "<th>a</th><th>b</th>",
            "<td><code>x|y</code></td><td>1</td>",
            "<a href=\"runs/a/report.html\">report</a>",
            "<li>[x](http://e)</li>",
            "<p>Text with <code>code</code>.</p>",
        ] {
            assert!(html.contains(told), "{told}: {html}");
        }
        assert!(page("a<b", None, text).contains("<title>a&lt;b · candlescope</title>"));
    }
}
