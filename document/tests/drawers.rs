//! Each form draws every kind of block, and no text of others breaks out of it.
#![allow(missing_docs, reason = "a test")]

use candlescope_document::terminal::Layout;
use candlescope_document::*;

/// A chart of one point.
fn plot(word: impl Fn(&'static str) -> String) -> Plot {
    let point = PlotPoint { name: word("name-of-point"), x: 1.0, y: 2.0, spread: Some((1.5, 2.5)) };
    let line = PlotLine { name: word("name-of-line"), connected: true, points: vec![point] };
    Plot { title: word("title-of-plot"), x: word("x-of-plot"), y: word("y-of-plot"), log: true, lines: vec![line] }
}

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
        .picture(Some(Picture::new("<svg id=\"a-picture\"></svg>", plot(|word| word.to_string()))))
        .with(Block::Frames(vec![Frame {
            title: "a-frame".into(),
            drawn: Some(("<p>\"&".into(), 40)),
            wide: false,
            stacks: vec!["outer;inner 40".into()],
        }]))
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
    "-verdict",
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
    let object = json::draw(&document).to_string();
    for word in EVERYWHERE {
        for (form, drawn) in [("terminal", &text), ("Markdown", &markdown), ("page", &page), ("JSON", &object)] {
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
    for drawn in [&text, &markdown, &page, &object] {
        assert!(!drawn.contains("Nothing here"), "an empty section is left out");
    }
}

/// The forms: a terminal without and with colour, Markdown, a page, JSON.
const FORMS: [&str; 5] = ["terminal", "terminal in colour", "Markdown", "page", "JSON"];
const TERMINALS: &[&str] = &["terminal", "terminal in colour"];
const TEXTS: &[&str] = &["terminal", "terminal in colour", "Markdown"];
const FILES: &[&str] = &["Markdown", "page"];
/// Pages have it as a drawing.
const BUT_JSON: &[&str] = &["terminal", "terminal in colour", "Markdown", "page"];
const BUT_PAGES: &[&str] = &["terminal", "terminal in colour", "Markdown", "JSON"];
/// Texts that a form leaves out: there is no place for them, or another stands there for them.
const LEFT_OUT: &[(&str, &[&str])] = &[
    ("kind-word", TEXTS),
    ("title-word", TERMINALS),
    // It has a section of its own there, for which whoever makes the document cares.
    ("code-of-verdict", TEXTS),
    ("message-of-verdict", TEXTS),
    ("remedy-of-verdict", TEXTS),
    ("nav-word", TEXTS),
    ("brief-word", FILES),
    ("note-word", TERMINALS),
    ("hint-of-column", TEXTS),
    ("whole-of-row", TEXTS),
    ("code-of-notice", TERMINALS),
    ("title-of-pairs", TERMINALS),
    ("title-of-folded", TERMINALS),
    ("name-of-shares", TEXTS),
    ("hint-of-heat", TEXTS),
    ("caption-of-picture", TEXTS),
    ("title-of-plot", BUT_JSON),
    ("x-of-plot", BUT_JSON),
    ("y-of-plot", BUT_JSON),
    ("name-of-line", BUT_JSON),
    ("name-of-point", BUT_JSON),
    ("frame-word", TEXTS),
    ("document-of-frame", BUT_PAGES),
    ("stack-of-frame", BUT_JSON),
    ("html-word", BUT_PAGES),
];

/// A document in which every text is a word of its own, with the words.
fn words_in_every_field() -> (Document, Vec<&'static str>) {
    // A field more than these is to be filled below, and its word looked for.
    let Document { kind: _, title: _, before: _, conclusion: _, facts: _, verdict: _, sections: _ } =
        Document::default();
    let Section {
        id: _,
        title: _,
        nav: _,
        brief: _,
        note: _,
        blocks: _,
        parts: _,
        side_by_side: _,
        forms: _,
        empty: _,
    } = Section::new("", "", "");
    let seen = std::cell::RefCell::new(Vec::new());
    let word = |word: &'static str| {
        seen.borrow_mut().push(word);
        format!("It {word}")
    };
    let notice = |code, message, remedy| Notice {
        mark: Mark::Error,
        code: word(code),
        message: word(message),
        remedy: word(remedy),
    };
    let part = |name, amount| Part {
        name: word(name),
        color: "decode".to_string(),
        share: 0.5,
        percent: "50 %".to_string(),
        amount: word(amount),
    };
    let row = Row {
        name: word("name-of-row"),
        whole: Some(word("whole-of-row")),
        link: None,
        remark: word("remark-of-row"),
        cells: vec![Cell::from(word("text-of-cell")).below(word("below-in-cell"))],
        bar: Bar::None,
        depth: 0,
        share: 1.0,
    };
    let table =
        Table::new(word("first-of-table"), vec![column(word("name-of-column"), word("hint-of-column"))], vec![row]);
    let heat = Heat {
        corner: word("corner-of-heat"),
        columns: vec![word("column-of-heat")],
        rows: vec![(
            word("row-of-heat"),
            vec![HeatCell { text: word("text-of-heat"), hint: word("hint-of-heat"), depth: Some(50), invalid: true }],
        )],
    };
    let frame = |title, drawn| Frame {
        title: word(title),
        drawn: Some((word(drawn), 40)),
        wide: false,
        stacks: vec![word("stack-of-frame")],
    };
    let inner = Section::new("inner", word("title-of-part"), word("note-of-part")).list(vec![word("list-word")]);
    let inner = Section { parts: vec![Section::new("none", "None", "").or_say("It empty-word")], ..inner };
    let section = Section::new("all", word("section-word"), word("note-word"))
        .nav(word("nav-word"))
        .brief(word("brief-word"))
        .with(Block::Text(word("paragraph-word")))
        .with(Block::Steps(vec![word("step-word")]))
        .with(Block::Pairs("title-of-pairs", vec![(word("name-of-pair"), word("value-of-pair"))]))
        .with(table)
        .with(Block::Notices(vec![notice("code-of-notice", "message-of-notice", "remedy-of-notice")]))
        .with(Block::Shares("name-of-shares", vec![part("share-word", "amount-word")]))
        .with(Block::Heat(heat))
        .with(Block::Fixed(word("fixed-word")))
        .with(Block::Files("what-of-files", vec!["file-word.json".to_string()]))
        .with(Block::Folded(word("title-of-folded"), Box::new(Block::Text(word("folded-word")))))
        .picture(Some(Picture::new("<svg></svg>", plot(word)).caption(word("caption-of-picture"))))
        .with(Block::Frames(vec![frame("frame-word", "document-of-frame"), frame("frame-word", "document-of-frame")]))
        .with(Block::Html(word("html-word")));
    let section = Section { parts: vec![inner], side_by_side: true, ..section };
    let verdict = Verdict {
        ok: false,
        text: word("verdict-word"),
        notices: vec![notice("code-of-verdict", "message-of-verdict", "remedy-of-verdict")],
    };
    let document = Document {
        kind: word("kind-word"),
        title: word("title-word"),
        before: vec![word("before-word")],
        conclusion: word("conclusion-word"),
        facts: vec![Fact { label: "label-word", text: word("fact-word"), forms: Forms::ALL }],
        verdict: Some(verdict),
        sections: vec![section],
    };
    let constant = ["empty-word", "title-of-pairs", "name-of-shares", "what-of-files", "file-word.json", "label-word"];
    let mut words = seen.borrow().clone();
    words.extend(constant);
    (document, words)
}

#[test]
fn every_text_of_a_document_is_in_every_form_but_where_it_is_said_why_not() {
    let (document, words) = words_in_every_field();
    let on_terminal = |color| terminal::draw(&document, Layout { color, ..Layout::default() });
    let object = json::draw(&document).to_string();
    let drawn = [on_terminal(false), on_terminal(true), markdown::draw(&document), html::page(&document), object];
    for word in &words {
        let left_out = LEFT_OUT.iter().find(|(of, _)| of == word).map_or(&[][..], |(_, forms)| forms);
        for (form, text) in FORMS.iter().zip(&drawn) {
            assert_eq!(text.contains(word), !left_out.contains(form), "{word} in {form}:\n{text}");
        }
    }
    assert!(LEFT_OUT.iter().all(|(word, _)| words.contains(word)), "{words:?}");
    // What cannot be trusted is told apart from what can, in words of each form.
    let bad = [
        "verdict  It verdict-word",
        "\u{1b}[31mIt verdict-word",
        "**verdict: It verdict-word**",
        "verdict bad",
        "\"ok\":false",
    ];
    for (mark, text) in bad.iter().zip(&drawn) {
        assert!(text.contains(mark), "{mark}:\n{text}");
    }
}

#[test]
fn a_form_shows_the_rows_it_has_room_for_and_says_how_many_it_leaves_out() {
    let rows = (0..10).map(|n| Row { depth: 1, share: f64::from(n) / 10.0, ..Row::new(format!("row-{n}."), vec![]) });
    let most = MostRows { smallest: [0.55, f64::MIN, f64::MIN], ..MostRows::of(3, 5, 7) };
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
    let object = json::draw(&document);
    let rows = object["sections"][0]["blocks"][0]["rows"].as_array().map(Vec::len);
    assert_eq!(rows, Some(10), "JSON leaves none out: {object}");
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
    let object = json::draw(&document).to_string();
    assert!(
        object.contains("for files") && !object.contains("for pages") && !object.contains("for terminals"),
        "{object}"
    );
}

#[test]
fn json_has_numbers_beside_their_texts_and_units_where_the_text_says_them() {
    let cells =
        vec![maybe(Some(1_203_456.0), |_| "1.20 ms".into()), figure("12.5 %", 0.125), sorted("1 – 4", 3.0), missing()];
    let columns = ["a", "b", "c", "d"].map(|name| column(name, "")).into_iter();
    let columns = columns.chain([words("e").only(Forms::PAGE), words("f")]).collect();
    let cells = cells.into_iter().chain(["hidden".to_string().into(), Cell::from("text".to_string()).below("more")]);
    let row = Row { link: Some("https://elsewhere".into()), depth: 2, ..Row::new("row", cells.collect()) }.meter(0.25);
    let table = Table { sorted_by: Some(6), ..Table::new("names", columns, vec![row]) };
    let document = Document { sections: vec![Section::new("a", "A", "").with(table)], ..Document::default() };
    let object = json::draw(&document);
    let drawn = &object["sections"][0]["blocks"][0];
    assert_eq!(drawn["columns"].as_array().map(Vec::len), Some(5), "{drawn}");
    assert_eq!(drawn["sorted_by"], 5, "among the columns that are there: {drawn}");
    let row = serde_json::json!({
        "name": "row", "depth": 2, "meter": 0.25,
        "cells": [
            { "text": "1.20 ms", "value": 1_203_456.0, "unit": "ns" },
            { "text": "12.5 %", "value": 0.125, "unit": "ratio" },
            { "text": "1 – 4" },
            null,
            { "text": "text", "below": "more" },
        ],
    });
    assert_eq!(drawn["rows"][0], row);
    assert_eq!((&object["format"], &object["format_version"]), (&"candlescope-document".into(), &1.into()));
}

#[test]
fn json_leaves_out_numbers_that_are_not_finite_and_no_row() {
    let points = [(1.0, f64::NAN), (f64::INFINITY, 1.0), (1.0, 2.0)];
    let mut line = PlotLine::new("", true, points);
    line.points[2].spread = Some((f64::NEG_INFINITY, 2.0));
    let plot = Plot { lines: vec![line], ..Plot::default() };
    let row = Row { depth: 1, share: f64::NAN, ..Row::new("below", vec![cell("–", f64::NAN)]) };
    let table = Table::new("names", vec![column("a", "")], vec![row.meter(f64::NAN)]);
    let section = Section::new("a", "A", "").with(table).picture(Some(Picture::new("<svg></svg>", plot)));
    let object = json::draw(&Document { sections: vec![section], ..Document::default() });
    let blocks = &object["sections"][0]["blocks"];
    let row = serde_json::json!({ "name": "below", "depth": 1, "cells": [{ "text": "–" }] });
    assert_eq!(blocks[0]["rows"], serde_json::json!([row]));
    let lines = &blocks[1]["charts"][0]["plots"][0]["lines"];
    assert_eq!(lines[0]["points"], serde_json::json!([{ "x": 1.0, "y": 2.0 }]));
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
            Frame { title: texts(), drawn: None, wide: true, stacks: vec![] },
            Frame { title: texts(), drawn: None, wide: true, stacks: vec![] },
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

#[test]
fn a_table_that_is_too_wide_breaks_its_texts_and_no_number() {
    let said = "a sentence of many words about what was seen there and what is to be done about it";
    let path = "decode/model.layers/attention/projection/linear";
    let row =
        |depth| Row { depth, ..Row::new(path, vec![figure("1,234.5 MiB", 1.0), missing(), said.to_string().into()]) };
    let columns = vec![column("kept at the end", ""), column("of all", ""), words("what it is")];
    let table = Table::new("path", columns, vec![row(0), row(2)]);
    let drawn = |table: &Table, width| terminal::table(table, Layout { width, color: false });
    let widest = |text: &str| text.lines().map(|line| line.chars().count()).max().unwrap_or(0);
    for width in [70, 100] {
        let text = drawn(&table, width);
        assert!(widest(&text) <= width, "{width}:\n{text}");
        let header = text.lines().next().unwrap_or_default();
        assert!(header.contains("kept at the end") && header.contains("of all"), "{text}");
        assert_eq!(text.matches("1,234.5 MiB").count(), 2, "{text}");
        for part in said.split(' ').chain(path.split_inclusive('/')) {
            assert!(text.matches(part).count() >= 2, "{part}:\n{text}");
        }
    }
    // What goes on below stays as far in as it began.
    let narrow = drawn(&table, 70);
    assert!(narrow.contains("\n attention/") && narrow.contains("\n     attention/"), "{narrow}");
    // Colour is no width.
    let colored = terminal::table(&table, Layout { width: 70, color: true });
    assert_eq!(colored.lines().count(), narrow.lines().count(), "{colored}");
    // A table that fits is as it is, to the last column.
    let whole = drawn(&table, usize::MAX);
    assert_eq!(whole.lines().count(), 4, "{whole}");
    assert_eq!(drawn(&table, widest(&whole)), whole);
    assert!(drawn(&table, widest(&whole) - 1).lines().count() > 4);
    // Numbers that are too wide by themselves stay, and so do the names: breaking these would not help.
    let row = Row::new(path, (0..9).map(|_| figure("1,234.5 MiB", 1.0)).collect());
    let numbers = Table::new("path", (0..9).map(|_| column("n", "")).collect(), vec![row]);
    assert_eq!(drawn(&numbers, 60), drawn(&numbers, usize::MAX));
}
