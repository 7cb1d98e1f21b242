//! Blocks other than tables.

use super::html_table;
use super::texts::{EscapedText, Plain, Prose};
use crate::document::{Block, Frame, Heat, Notice, Verdict};
use crate::part::Part;
use crate::picture::Picture;
use crate::text::{capital, is_beside, printable_lines};
use std::fmt::Write as _;

pub(super) fn draw(out: &mut String, block: &Block) {
    let _ = match block {
        Block::Text(text) => writeln!(out, "  <p class=\"note\">{}</p>", Prose(text)),
        Block::List(list) => {
            let items: String = list.iter().map(|text| format!("<li>{}</li>", Prose(text))).collect();
            writeln!(out, "  <ul class=\"plain\">{items}</ul>")
        }
        Block::Steps(list) => {
            let items: String = list.iter().map(|text| format!("<li>{}</li>", Prose(text))).collect();
            writeln!(out, "  <ol class=\"changes\">{items}</ol>")
        }
        Block::Pairs(title, pairs) => return draw_pairs(out, title, pairs),
        Block::Table(it) => return html_table::draw(out, it),
        Block::Notices(notices) => return draw_notices(out, notices),
        Block::Shares(name, parts) => return shares(out, name, parts),
        Block::Heat(heat) => return draw_heat(out, heat),
        Block::Pictures(pictures) => return draw_pictures(out, pictures),
        Block::Fixed(text) => writeln!(out, "  <pre>{}</pre>", EscapedText(&printable_lines(text))),
        Block::Files(what, files) => {
            let links = files.iter().map(|file| match is_beside(file) {
                true => format!("<a href=\"{0}\">{0}</a>", Plain(file)),
                false => Plain(file).to_string(),
            });
            let links = links.collect::<Vec<_>>();
            writeln!(out, "  <p class=\"note\">{}: {}</p>", Plain(what), links.join(", "))
        }
        Block::Folded(title, block) => {
            let _ = write!(out, "  <details><summary>{}</summary>", Prose(title));
            draw(out, block);
            writeln!(out, "</details>")
        }
        Block::Frames(frames) => return draw_frames(out, frames),
        Block::Html(html) => writeln!(out, "{html}"),
    };
}

/// The verdict with what it rests on.
pub(super) fn verdict(out: &mut String, verdict: &Verdict) {
    let class = if verdict.ok { "ok" } else { "bad" };
    let _ = writeln!(
        out,
        "<section class=\"verdict {class}\" aria-label=\"Verdict\">\n  <p class=\"headline\"><span class=\"dot\"></span>{}</p>",
        Prose(&capital(&verdict.text))
    );
    draw_notices(out, &verdict.notices);
    out.push_str("</section>\n");
}

fn draw_notices(out: &mut String, notices: &[Notice]) {
    if notices.is_empty() {
        return;
    }
    out.push_str("  <ul class=\"findings\">\n");
    for notice in notices {
        let mark = notice.mark.name();
        let _ = writeln!(
            out,
            "    <li><span class=\"chip {mark}\" title=\"{}\">{mark}</span><div><p>{}</p><p class=\"remedy\">{}</p></div></li>",
            Plain(&notice.code),
            Prose(&notice.message),
            Prose(&notice.remedy)
        );
    }
    out.push_str("  </ul>\n");
}

fn draw_pairs(out: &mut String, title: &str, pairs: &[(String, String)]) {
    let heading = if title.is_empty() { String::new() } else { format!("<h3>{}</h3>", Plain(title)) };
    let rows: String = pairs
        .iter()
        .map(|(name, value)| format!("<tr><th scope=\"row\">{}</th><td>{}</td></tr>", Plain(name), Prose(value)))
        .collect();
    let _ = writeln!(out, "  <div>{heading}<table class=\"pairs\"><tbody>{rows}</tbody></table></div>");
}

fn shares(out: &mut String, name: &str, parts: &[Part]) {
    let _ = write!(out, "  <div class=\"bar\" role=\"img\" aria-label=\"{}\">", Plain(name));
    for part in parts {
        let (width, shown) = (part.share * 100.0, format!("{} {}", part.name, part.percent));
        let _ = write!(
            out,
            "<span class=\"k-{}\" style=\"width:{width}%\" title=\"{}: {}, {}\">{}</span>",
            Plain(&part.color),
            Plain(&part.name),
            Plain(&part.amount),
            Plain(&part.percent),
            Plain(if width > 9.0 { &shown } else { "" })
        );
    }
    out.push_str("</div>\n");
    let _ = writeln!(out, "  <ul class=\"legend\">{}</ul>", parts.iter().map(legend).collect::<String>());
}

fn legend(part: &Part) -> String {
    let (color, name) = (Plain(&part.color), Plain(&part.name));
    format!(
        "<li><i class=\"k-{color}\"></i>{name} <b>{}</b> <small>{}</small></li>",
        Plain(&part.percent),
        Plain(&part.amount)
    )
}

fn draw_heat(out: &mut String, heat: &Heat) {
    let columns: String = heat.columns.iter().map(|name| format!("<th>{}</th>", Plain(name))).collect();
    let _ = write!(
        out,
        "  <div class=\"scroll tall\"><table class=\"heat\">\n    <thead><tr><th>{}</th>{columns}</tr></thead>\n    <tbody>\n",
        Plain(&heat.corner)
    );
    for (name, cells) in &heat.rows {
        let _ = write!(out, "    <tr><th scope=\"row\">{}</th>", Plain(name));
        for cell in cells {
            let hint = if cell.hint.is_empty() { String::new() } else { format!(" title=\"{}\"", Plain(&cell.hint)) };
            let class = if cell.invalid { " class=\"bad\"" } else { "" };
            let color = cell.depth.map_or(String::new(), |depth| {
                format!(" style=\"background:color-mix(in srgb,var(--accent) {depth}%,var(--card))\"")
            });
            let _ = write!(out, "<td{hint}{class}{color}>{}</td>", Plain(&cell.text));
        }
        out.push_str("</tr>\n");
    }
    out.push_str("    </tbody>\n  </table></div>\n");
}

fn draw_pictures(out: &mut String, pictures: &[Picture]) {
    let drawn = pictures.iter().map(|picture| match (&picture.svg, picture.caption.as_str()) {
        (svg, "") => format!("<figure>{svg}</figure>"),
        (svg, text) => format!("<figure>{svg}<figcaption>{}</figcaption></figure>", Prose(text)),
    });
    let drawn: String = drawn.collect();
    let _ = match pictures.len() {
        1 => writeln!(out, "  {drawn}"),
        _ => writeln!(out, "  <div class=\"plots\">{drawn}</div>"),
    };
}

fn draw_frames(out: &mut String, frames: &[Frame]) {
    let several = frames.len() > 1;
    out.push_str(if several { "  <div class=\"flames\">\n" } else { "" });
    for frame in frames {
        let (title, class) = (Plain(&frame.title), if frame.wide { " class=\"whole\"" } else { "" });
        let (heading, of) = match several {
            true => (format!("<h3>{title}</h3>"), format!("Flame graph of {title}")),
            false => (String::new(), title.to_string()),
        };
        let drawn = match &frame.drawn {
            Some((document, height)) => format!(
                "<iframe class=\"flame\" sandbox=\"allow-scripts allow-modals\" style=\"height:{height}px\" title=\"{of}\" \
                 srcdoc=\"{}\"></iframe>",
                EscapedText(document)
            ),
            None => "<p class=\"empty\">There is nothing to draw.</p>".to_string(),
        };
        let _ = writeln!(out, "    <div{class}>{heading}{drawn}</div>");
    }
    out.push_str(if several { "  </div>\n" } else { "" });
}
