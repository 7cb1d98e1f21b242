//! A table that every form shows: made once, each drawer takes the columns and rows for which it has room.

use crate::forms::Forms;
use crate::part::Part;
use std::borrow::Cow;

/// One table. Each row has a name, which stands in the first column, and a cell for each further column.
#[derive(Debug, Clone)]
pub struct Table {
    /// Head of the first column.
    pub first: Cow<'static, str>,
    /// Whether names are code: paths, kernels, metrics.
    pub code: bool,
    /// Characters of a name on a terminal.
    pub name_width: usize,
    /// Characters of a name elsewhere. A page has the whole name as a tooltip.
    pub longest: usize,
    /// The columns after that of the names; a row without a cell for one shows `–` there.
    pub columns: Vec<Column>,
    /// The rows, in order.
    pub rows: Vec<Row>,
    /// What rows are called where it is said that some are not shown.
    pub what: &'static str,
    /// What is said of the rows that are not shown: `in metrics.json`.
    pub rest: &'static str,
    /// How many are shown.
    pub most: MostRows,
    /// The column that a page marks as the one by which the rows are ordered; 0 is that of the names.
    pub sorted_by: Option<usize>,
    /// Whether a page has a field to filter rows by name.
    pub filter: bool,
}

impl Table {
    /// A table of rows with plain names that a page can sort, all of its rows shown.
    pub fn new(first: impl Into<Cow<'static, str>>, columns: Vec<Column>, rows: Vec<Row>) -> Self {
        Self {
            first: first.into(),
            code: false,
            name_width: usize::MAX,
            longest: usize::MAX,
            columns,
            rows,
            what: "rows",
            rest: "in the files",
            most: MostRows::default(),
            sorted_by: None,
            filter: false,
        }
    }

    /// A table of texts with the heads of all its columns, of which the first holds names.
    pub fn of_texts<H: AsRef<str>>(heads: &[H], rows: Vec<Vec<String>>) -> Self {
        let mut heads = heads.iter().map(|head| head.as_ref().to_string());
        let first = heads.next().unwrap_or_default();
        Self::new(first, heads.map(|head| column(head, "")).collect(), rows.into_iter().map(Row::of_texts).collect())
    }

    /// The columns with these heads hold words.
    #[must_use]
    pub fn words(mut self, of: &[&str]) -> Self {
        self.columns.iter_mut().for_each(|column| column.words |= of.contains(&column.name.as_ref()));
        self
    }

    /// Names are code, cut to so many characters on a terminal.
    #[must_use]
    pub fn of_code(mut self, name_width: usize) -> Self {
        (self.code, self.name_width) = (true, name_width);
        self
    }

    /// Names have at most so many characters outside a terminal.
    #[must_use]
    pub fn longest(mut self, characters: usize) -> Self {
        self.longest = characters;
        self
    }

    /// Shows so many of its rows, which are called `what`; `rest` says where the others are.
    #[must_use]
    pub fn most(mut self, most: MostRows, what: &'static str, rest: &'static str) -> Self {
        (self.most, self.what, self.rest) = (most, what, rest);
        self
    }

    /// Rows that a form shows, and how many it leaves out; JSON leaves none out.
    pub(crate) fn shown(&self, form: Forms) -> (Vec<&Row>, usize) {
        if form == Forms::JSON {
            return (self.rows.iter().collect(), 0);
        }
        let (most, smallest) = match form {
            Forms::TERMINAL => (self.most.terminal, self.most.smallest[0]),
            Forms::MARKDOWN => (self.most.markdown, self.most.smallest[1]),
            _ => (self.most.page, self.most.smallest[2]),
        };
        let rows: Vec<&Row> =
            self.rows.iter().filter(|row| row.share >= smallest || row.depth == 0).take(most).collect();
        let more = self.rows.len() - rows.len();
        (rows, more)
    }

    /// Columns that a form shows, with their places.
    pub(crate) fn columns_in(&self, form: Forms) -> Vec<(usize, &Column)> {
        self.columns.iter().enumerate().filter(|(_, column)| column.forms.has(form)).collect()
    }
}

/// Rows that a form shows at most, and the smallest share that a row below the first level needs to be shown there
/// (terminal, Markdown, page), so that it does not hide the rest. JSON has all rows.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MostRows {
    /// Most rows on a terminal, of those whose share is large enough.
    pub terminal: usize,
    /// Most rows in Markdown, of those whose share is large enough.
    pub markdown: usize,
    /// Most rows on a page, of those whose share is large enough.
    pub page: usize,
    /// The smallest share in each.
    pub smallest: [f64; 3],
}

impl Default for MostRows {
    fn default() -> Self {
        Self::of(usize::MAX, usize::MAX, usize::MAX)
    }
}

impl MostRows {
    /// So many rows in each form, whatever their share.
    pub fn of(terminal: usize, markdown: usize, page: usize) -> Self {
        Self { terminal, markdown, page, smallest: [f64::MIN; 3] }
    }
}

/// A column after the first.
#[derive(Debug, Clone)]
pub struct Column {
    /// Its head in every form; on a terminal `short` takes its place if there is one.
    pub name: Cow<'static, str>,
    /// Its head on a terminal, if that is shorter.
    pub short: Option<&'static str>,
    /// What it means, as a tooltip.
    pub hint: Cow<'static, str>,
    /// Whether it holds words, which are set to the left.
    pub words: bool,
    /// Whether these are sentences, which a page breaks into lines.
    pub long: bool,
    /// Where it is shown.
    pub forms: Forms,
}

impl Column {
    /// Has this head on a terminal.
    #[must_use]
    pub fn short(mut self, short: &'static str) -> Self {
        self.short = Some(short);
        self
    }

    /// Is shown in these forms only.
    #[must_use]
    pub fn only(mut self, forms: Forms) -> Self {
        self.forms = forms;
        self
    }
}

/// A column of figures for all forms.
pub fn column(name: impl Into<Cow<'static, str>>, hint: impl Into<Cow<'static, str>>) -> Column {
    Column { name: name.into(), short: None, hint: hint.into(), words: false, long: false, forms: Forms::ALL }
}

/// A column of figures for which a terminal is too narrow.
pub fn wide(name: impl Into<Cow<'static, str>>, hint: impl Into<Cow<'static, str>>) -> Column {
    column(name, hint).only(Forms::FILES)
}

/// A column of words for all forms.
pub fn words(name: impl Into<Cow<'static, str>>) -> Column {
    Column { words: true, ..column(name, "") }
}

/// A column of sentences for files.
pub fn sentences(name: impl Into<Cow<'static, str>>) -> Column {
    Column { words: true, long: true, ..wide(name, "") }
}

/// One row: a name, and a cell for each column after the first.
#[derive(Debug, Clone)]
pub struct Row {
    /// What stands in the first column; it is cut to as many characters as the table allows for names.
    pub name: String,
    /// More of its name: what it is short for, or where it comes from. A page's tooltip.
    pub whole: Option<String>,
    /// A file with all of it, relative to the document, to which the name leads.
    pub link: Option<String>,
    /// A remark behind the name, set apart on a page.
    pub remark: String,
    /// Its values, one for each column.
    pub cells: Vec<Cell>,
    /// What a page draws of it.
    pub bar: Bar,
    /// Depth in a tree. The rows below one are those after it that are deeper.
    pub depth: usize,
    /// Its share of the whole, by which small ones are left out.
    pub share: f64,
}

impl Row {
    /// A row without a bar.
    pub fn new(name: impl Into<String>, cells: Vec<Cell>) -> Self {
        let name = name.into();
        Self { name, whole: None, link: None, remark: String::new(), cells, bar: Bar::None, depth: 0, share: 1.0 }
    }

    /// A row of texts, of which the first is its name.
    pub fn of_texts(texts: Vec<String>) -> Self {
        let mut texts = texts.into_iter();
        let name = texts.next().unwrap_or_default();
        Self::new(name, texts.map(Cell::from).collect())
    }

    /// With a bar behind its name.
    #[must_use]
    pub fn meter(mut self, share: f64) -> Self {
        self.bar = Bar::Meter(share);
        self
    }
}

/// What a page draws of a row; shares are from 0 to 1.
#[derive(Debug, Clone, Default)]
pub enum Bar {
    /// Nothing; a table without gauges and parts has no column for bars at all.
    #[default]
    None,
    /// A bar behind the name.
    Meter(f64),
    /// A bar of its own, with a solid part: all of it, and that part.
    Gauge(f64, f64),
    /// A bar of its own, made of parts.
    Parts(Vec<Part>),
}

/// One value as a text, with its number where that is known. Small, because a tree of paths has a hundred thousand.
#[derive(Debug, Clone)]
pub struct Cell {
    /// What is shown; `None` if it is not known.
    text: Option<Box<str>>,
    below: Box<str>,
    /// NaN for none.
    sort: f64,
    /// NaN for none.
    value: f64,
}

impl Cell {
    /// With this below it.
    #[must_use]
    pub fn below(mut self, below: impl Into<String>) -> Self {
        self.below = below.into().into_boxed_str();
        self
    }

    /// What is shown; `None` if it is not known.
    pub fn text(&self) -> Option<&str> {
        self.text.as_deref()
    }

    /// What stands below the text, or behind it where a form has no room for that; may be empty.
    pub fn below_it(&self) -> &str {
        &self.below
    }

    /// What a page sorts by, in a column of figures: a figure without one comes last. Where no cell of a table has one,
    /// it is not sorted.
    pub fn sort(&self) -> Option<f64> {
        Some(self.sort).filter(|v| v.is_finite())
    }

    /// The number that the text shows, of several the leading one, in the unit in which it was computed (ns, bytes, 1
    /// for all of a share), as exact as that; for JSON.
    pub fn value(&self) -> Option<f64> {
        Some(self.value).filter(|v| v.is_finite())
    }

    /// Everything on one line.
    pub(crate) fn line(&self) -> Option<String> {
        let text = self.text()?;
        Some(if self.below.is_empty() { text.to_string() } else { format!("{text} ({})", self.below) })
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Self { text: Some(text.into_boxed_str()), ..missing() }
    }
}

/// A value that is shown as `text` and sorted by `sort`, if that is finite.
pub fn cell(text: impl Into<String>, sort: f64) -> Cell {
    Cell { sort, ..figure(text, sort) }
}

/// A value that is shown as `text`, in a table that is not sorted by it.
pub fn figure(text: impl Into<String>, value: f64) -> Cell {
    Cell { value, ..Cell::from(text.into()) }
}

/// A text that a page sorts by a number which it does not show: a rank, the width of a range.
pub fn sorted(text: impl Into<String>, sort: f64) -> Cell {
    Cell { sort, ..Cell::from(text.into()) }
}

/// A value of several, shown as `text` and sorted by another number than the one that it begins with.
pub fn of_several(text: impl Into<String>, value: f64, sort: f64) -> Cell {
    Cell { sort, ..figure(text, value) }
}

/// A value that may be missing.
pub fn maybe(value: Option<f64>, show: impl Fn(f64) -> String) -> Cell {
    value.filter(|v| v.is_finite()).map_or(missing(), |v| cell(show(v), v))
}

/// No value: every form shows `–`, and a page sorts it behind the others.
pub fn missing() -> Cell {
    Cell { text: None, below: Box::default(), sort: f64::NAN, value: f64::NAN }
}
