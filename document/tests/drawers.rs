//! Each form draws every kind of block, and no text of others breaks out of it.
#![allow(missing_docs, reason = "a test")]

use candlescope_document::terminal::Layout;
use candlescope_document::*;

/// A section with every kind of block, each with a word of its own.
fn everything() -> Document {
    let part = |name: &str, share: f64| Part {
        name: name.to_string(),
        color: "decode".to_string(),
        share,
        percent: format!("{:.0} %", share * 100.0),
        amount: "3 ms".to_string(),
    };
    let row = |name: &str, bar: Bar, depth: usize| Row {
        bar,
        depth,
        ..Row::new(name, vec![cell("in-a-cell", 1.0).below("below-a-cell"), missing(), "in-words".to_string().into()])
    };
    let columns = vec![column("figures", "a-hint"), wide("only-in-files", ""), words("said")];
    let tree = vec![row("above/name-in-tree", Bar::Gauge(0.5, 0.2), 0), row("child-in-tree", Bar::Gauge(0.2, 0.1), 1)];
    let parts = vec![row("a-row-of-parts", Bar::Parts(vec![part("a-part-of-a-row", 0.5)]), 0)];
    let meter = vec![Row { link: Some("a/link.html".into()), ..row("a-metered-row", Bar::None, 0).meter(0.5) }];
    let folded =
        Block::Folded("folded-title".to_string(), Box::new(Block::Fixed("fixed  width\nsecond line".to_string())));
    let section = Section::new("all", "A section", "A note about `code`.")
        .with(Block::Text("a-paragraph".to_string()))
        .list(vec!["a-sentence".to_string()])
        .with(Block::Steps(vec!["a-step".to_string()]))
        .with(Block::Pairs("a-title", vec![("a-name".to_string(), "a-value".to_string())]))
        .with(Table::new("of", columns.clone(), tree).of_code(30))
        .with(Table::new("of", columns.clone(), parts))
        .with(Table { filter: true, sorted_by: Some(1), ..Table::new("of", columns, meter) })
        .with(Block::Notices(vec![Notice {
            mark: Mark::Warning,
            code: "a_code".to_string(),
            message: "a-message".to_string(),
            remedy: "a-remedy".to_string(),
        }]))
        .with(Block::Shares("shares-for-readers", vec![part("a-share", 0.75)]))
        .with(Block::Heat(Heat {
            corner: "a-corner".to_string(),
            columns: vec!["a-heat-column".to_string()],
            rows: vec![("a-heat-row".to_string(), vec![HeatCell { text: "hot".to_string(), ..HeatCell::default() }])],
        }))
        .with(folded)
        .with(Block::Files("All of it", vec!["a-file.json".to_string()]))
        .picture(Some("<svg id=\"a-picture\"></svg>".to_string()))
        .with(Block::Frames(vec![Frame { title: "a-frame".into(), drawn: Some(("<p>\"&".into(), 40)), wide: false }]))
        .with(Block::Html("<b>a-widget</b>".to_string()));
    Document {
        kind: "a-kind".to_string(),
        title: "A title".to_string(),
        before: vec!["said before".to_string()],
        conclusion: "the conclusion".to_string(),
        facts: vec![Fact::new("model", "a-fact")],
        verdict: Some(Verdict { ok: false, text: "a-verdict".to_string(), notices: Vec::new() }),
        sections: vec![
            section,
            Section::new("none", "Nothing here", ""),
            Section::new("x", "Said", "").or_say("nothing-there"),
        ],
    }
}

/// What every form shows, and what only pages do.
const EVERYWHERE: &[&str] = &[
    "aid before",
    "he conclusion",
    "a-fact",
    "A section",
    "a-paragraph",
    "a-sentence",
    "a-step",
    "a-name",
    "a-value",
    "figures",
    "in-a-cell",
    "below-a-cell",
    "in-words",
    "name-in-tree",
    "child-in-tree",
    "a-row-of-parts",
    "a-metered-row",
    "a-message",
    "a-remedy",
    "a-share",
    "75 %",
    "a-corner",
    "a-heat-column",
    "a-heat-row",
    "hot",
    "fixed  width",
    "second line",
    "a-file.json",
    "nothing-there",
];
const ON_PAGES: &[&str] = &[
    "a-kind",
    "a-hint",
    "a-part-of-a-row",
    "shares-for-readers",
    "<svg id=\"a-picture\">",
    "a-widget",
    "srcdoc=\"&lt;p&gt;&quot;&amp;\"",
    "<a href=\"a/link.html\">",
    "class=\"filter\"",
    "sort down",
    "class=\"parent\"",
    "folded-title</summary>",
    "<code>code</code>",
    "<small>below-a-cell</small>",
    "A-verdict",
];

#[test]
fn each_form_draws_every_block() {
    let document = everything();
    let (text, markdown, page) =
        (terminal::draw(&document, Layout::default()), markdown::draw(&document), html::page(&document));
    for word in EVERYWHERE {
        for (form, drawn) in [("terminal", &text), ("Markdown", &markdown), ("page", &page)] {
            assert!(drawn.contains(word), "{form} lacks {word}:\n{drawn}");
        }
    }
    for word in ON_PAGES {
        assert!(page.contains(word), "{word}: {page}");
        assert!(!text.contains("<svg") && !markdown.contains("a-widget"));
    }
    assert!(markdown.contains("only-in-files") && page.contains("only-in-files") && !text.contains("only-in-files"));
    assert!(
        markdown.contains("[a-metered-row](a/link.html)") && markdown.contains("A note about `code`."),
        "{markdown}"
    );
    assert!(text.contains("verdict  a-verdict") && text.contains("Said before.\nThe conclusion.\n"), "{text}");
    for drawn in [&text, &markdown, &page] {
        assert!(!drawn.contains("Nothing here"), "an empty section is left out");
    }
}

#[test]
fn a_form_shows_the_rows_it_has_room_for_and_says_how_many_it_leaves_out() {
    let rows = (0..10).map(|n| Row { depth: 1, share: f64::from(n) / 10.0, ..Row::new(format!("row-{n}."), vec![]) });
    let most = Most { smallest: [0.55, f64::MIN, f64::MIN], ..Most::of(3, 5, 7) };
    let table = Table::new("", vec![], rows.collect()).most(most, "paths", "in metrics.json");
    let document = Document { sections: vec![Section::new("a", "A", "").with(table)], ..Document::default() };
    let text = terminal::draw(&document, Layout::default());
    assert!(
        text.contains("row-6.") && text.contains("row-8.") && !text.contains("row-9.") && !text.contains("row-5."),
        "{text}"
    );
    assert!(text.contains("… and 7 more paths, in metrics.json"), "{text}");
    let markdown = markdown::draw(&document);
    assert!(
        markdown.contains("row-4.")
            && !markdown.contains("row-5.")
            && markdown.contains("5 more paths, in metrics.json")
    );
    let page = html::page(&document);
    assert!(
        page.contains("row-6.") && !page.contains("row-7.") && page.contains("3 more paths, in metrics.json"),
        "{page}"
    );
}

#[test]
fn a_form_shows_what_is_for_it() {
    let section = Section::new("a", "A", "the note")
        .brief("in brief")
        .with_in(Forms::TERMINAL, Block::Text("for terminals".into()))
        .with_in(Forms::FILES, Block::Text("for files".into()));
    let only = Section::new("b", "B", "").only(Forms::PAGE).with(Block::Text("for pages".into()));
    let document = Document { sections: vec![section, only], ..Document::default() };
    let (text, page) = (terminal::draw(&document, Layout::default()), html::page(&document));
    assert!(text.contains("A  in brief") && text.contains("for terminals") && !text.contains("the note"), "{text}");
    assert!(!text.contains("for files") && !text.contains("for pages"));
    assert!(
        page.contains("for files")
            && page.contains("for pages")
            && page.contains("the note")
            && !page.contains("in brief")
    );
    assert!(!markdown::draw(&document).contains("for pages"));
}

#[test]
fn no_text_of_others_breaks_out() {
    let evil = "<script>`|*x*`\u{1b}[31m\n## new\u{202e}`</td>`&\"'";
    let texts = || evil.to_string();
    let row = Row { whole: Some(texts()), remark: texts(), ..Row::new(evil, vec![cell(evil, 1.0), missing()]) };
    let rows = vec![row.clone(), Row { depth: 1, ..row }];
    let table = Table::new(texts(), vec![column(texts(), texts()), words(texts())], rows);
    let section = Section::new(evil, evil, evil)
        .with(Block::Text(texts()))
        .list(vec![texts()])
        .with(Block::Steps(vec![texts()]))
        .with(Block::Pairs("", vec![(texts(), texts())]))
        .with(Block::Pairs("t", vec![(texts(), texts())]))
        .with(Table { code: true, ..table.clone() })
        .with(table)
        .with(Block::Fixed(texts()))
        .with(Block::Notices(vec![Notice { mark: Mark::Note, code: texts(), message: texts(), remedy: texts() }]))
        .with(Block::Frames(vec![
            Frame { title: texts(), drawn: None, wide: true },
            Frame { title: texts(), drawn: None, wide: true },
        ]));
    let verdict = Verdict { ok: true, text: texts(), notices: Vec::new() };
    let document = Document {
        kind: String::new(),
        title: texts(),
        before: vec![texts()],
        conclusion: texts(),
        facts: vec![Fact::new("f", texts())],
        verdict: Some(verdict),
        sections: vec![section],
    };
    let page = html::page(&document);
    let script = page.matches("<script>").count();
    assert_eq!(script, 1, "the page's own");
    assert!(!page.contains("</td>`") && !page.contains('\u{202e}'));
    let heads = page.matches("<th").count() + page.matches("<td").count();
    let ends = page.matches("</th>").count() + page.matches("</td>").count();
    assert_eq!(heads - page.matches("<thead").count(), ends);
    for target in ["javascript:alert(1)", "/etc/passwd", "\\\\host", "https://x.y"] {
        let row = Row { link: Some(target.to_string()), ..Row::new("name", vec![]) };
        let section = Section::new("", "x", "")
            .with(Table::new("", vec![], vec![row]))
            .with(Block::Files("All of it", vec![target.to_string()]));
        let document = Document { sections: vec![section], ..Document::default() };
        let (page, text) = (html::page(&document), markdown::draw(&document));
        assert!(!page.contains("<a href=\"") || !page.contains(&format!("href=\"{target}")), "{target}: {page}");
        assert!(!text.contains("]("), "{target}: {text}");
    }
    let row = Row { link: Some("a b)|/c.html".to_string()), ..Row::new("name", vec![]) };
    let linked = markdown::section(&Section::new("", "x", "").with(Table::new("", vec![], vec![row])), 2);
    assert!(linked.contains("[name](a%20b%29%7C/c.html)"), "{linked}");
    let text = terminal::draw(&document, Layout::default());
    // Fixed text keeps its lines.
    assert!(!text.contains('\u{1b}') && !text.contains('\u{202e}'));
    let markdown = markdown::draw(&document);
    let (outside, fixed) = markdown.split_once("```text").expect("the fixed text");
    assert!(!outside.contains("\n## new") && !outside.contains("<script>`"), "{outside}");
    for line in outside.lines().filter(|line| line.starts_with('|')) {
        let cells = line.replace("\\|", "").matches('|').count();
        assert!([3, 4].contains(&cells), "{line}");
    }
    assert!(fixed.contains("\n```\n"));
    let longer = Section::new("", "x", "").with(Block::Fixed("```\n<b>&".to_string()));
    assert!(markdown::section(&longer, 2).contains("````text\n```\n<b>&\n````"));
}

#[test]
fn a_table_sorts_where_its_values_say_by_what() {
    let page = |cells: Vec<Cell>| {
        let table = Table::new("of", vec![column("x", ""), words("y")], vec![Row::new("a", cells)]);
        html::page(&Document { sections: vec![Section::new("s", "S", "").with(table)], ..Document::default() })
    };
    let texts = page(vec!["1 ms".to_string().into(), missing()]);
    assert!(!texts.contains("class=\"numbers sortable\"") && !texts.contains("data-v"), "{texts}");
    let values = page(vec![cell("1 ms", 1e6), cell("words", 3.0)]);
    assert!(
        values.contains("class=\"numbers sortable\"") && values.contains("<td data-v=\"1e6\">1 ms</td>"),
        "{values}"
    );
    assert!(values.contains("<td class=\"label\">words</td>"), "words sort as they read: {values}");
    let missing = page(vec![cell("1 ms", f64::MIN), missing()]);
    assert!(missing.len() < texts.len() + 400, "a number of a few digits");
}

#[test]
fn what_is_not_there_is_said_where_that_was_asked_for() {
    let hidden = Section::new("p", "P", "").only(Forms::PAGE).with(Block::Text("for pages".into()));
    let section = Section { parts: vec![hidden], ..Section::new("s", "S", "").or_say("nothing there") };
    let document = Document { sections: vec![section], ..Document::default() };
    assert!(markdown::draw(&document).contains("nothing there"));
    assert!(terminal::draw(&document, Layout::default()).contains("nothing there"));
    assert!(!html::page(&document).contains("nothing there"), "it has a part");
}

#[test]
fn a_name_that_is_cut_is_whole_in_its_tooltip() {
    let long = format!("decode/{}/linear", "block/".repeat(40));
    let table = Table::new("path", vec![], vec![Row::new(long.clone(), vec![])]).of_code(20);
    let section = |table: Table| Section::new("s", "S", "").with(table);
    let page = |table: Table| html::page(&Document { sections: vec![section(table)], ..Document::default() });
    assert!(
        markdown::section(&section(table.clone()), 2).contains(&long)
            && !page(table.clone()).contains("title=\"decode")
    );
    let cut = table.longest(100);
    assert!(markdown::section(&section(cut.clone()), 2).contains("`decode/…/"));
    let page = page(cut);
    assert!(page.contains(&format!("title=\"{long}\"")) && page.contains("decode/…/"), "{page}");
}

#[test]
fn a_narrow_terminal_gets_texts_of_its_width() {
    let long = "word ".repeat(60) + &"x".repeat(200);
    let section = Section::new("a", "A", long.clone()).list(vec![long.clone()]).with(Block::Text(long.clone()));
    let notice = Notice { mark: Mark::Error, code: "c".into(), message: long.clone(), remedy: long.clone() };
    let section = section.with(Block::Notices(vec![notice]));
    let document = Document { facts: vec![Fact::new("run", long)], sections: vec![section], ..Document::default() };
    for width in [60, 100] {
        let text = terminal::draw(&document, Layout { width, color: false });
        assert!(text.lines().all(|line| line.chars().count() <= width), "{text}");
    }
    let colored = terminal::draw(&document, Layout { width: 60, color: true });
    assert!(colored.contains("\u{1b}[31merror\u{1b}[0m") && colored.contains("\u{1b}[1mA\u{1b}[0m"));
}
