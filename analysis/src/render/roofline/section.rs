//! A part of a roofline report: what the terminal and the page both show.

/// One part.
#[derive(Default)]
pub(super) struct Section {
    /// Name in the page's addresses.
    pub(super) id: String,
    pub(super) title: String,
    pub(super) note: String,
    pub(super) head: Vec<String>,
    /// Rows of the table; the first cell is a name.
    pub(super) rows: Vec<Vec<String>>,
    /// Rows that the terminal shows.
    pub(super) terminal_rows: usize,
    /// Sentences.
    pub(super) list: Vec<String>,
    /// A chart, for the page.
    pub(super) svg: Option<String>,
    /// A map, for the page.
    pub(super) heat: Option<Heat>,
}

/// A map's cells, as shown.
pub(super) struct Heat {
    pub(super) corner: String,
    pub(super) columns: Vec<String>,
    pub(super) rows: Vec<(String, Vec<HeatText>)>,
}

/// One cell.
#[derive(Default)]
pub(super) struct HeatText {
    pub(super) text: String,
    pub(super) hint: String,
    /// Percent of colour, if there is a share to show.
    pub(super) depth: Option<u8>,
    pub(super) invalid: bool,
}

impl Section {
    pub(super) fn new(id: &str, title: &str, note: impl Into<String>) -> Self {
        Self { id: id.into(), title: title.into(), note: note.into(), terminal_rows: 40, ..Self::default() }
    }

    pub(super) fn table(mut self, head: &[&str], rows: Vec<Vec<String>>) -> Self {
        self.head = head.iter().map(|text| text.to_string()).collect();
        self.rows = rows;
        self
    }

    /// The same on a page that also has measured figures.
    pub(super) fn predicted(mut self) -> Self {
        self.id = format!("predicted-{}", self.id);
        self.title = format!("Predicted: {}", self.title.to_lowercase());
        self
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rows.is_empty() && self.list.is_empty() && self.svg.is_none() && self.heat.is_none()
    }
}

/// What is not known.
pub(super) const UNKNOWN: &str = "–";

/// A prediction's error, which is a share.
pub(super) fn signed(error: f64) -> String {
    format!("{:+.1} %", error * 100.0)
}

/// A value, or what is shown where there is none.
pub(super) fn shown(value: Option<f64>, show: impl Fn(f64) -> String) -> String {
    value.filter(|value| value.is_finite()).map_or_else(|| UNKNOWN.to_string(), show)
}
