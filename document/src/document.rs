//! A document, its sections, and what these hold.

use crate::forms::Forms;
use crate::part::Part;
use crate::picture::Picture;
use crate::table::Table;

/// All that a report shows.
#[derive(Debug, Clone, Default)]
pub struct Document {
    /// What kind of report it is, in a few words for a window's title; empty for a run's own.
    pub kind: String,
    /// Heading of the report and title of a page's window; a terminal leaves it out.
    pub title: String,
    /// What has to be known before anything else.
    pub before: Vec<String>,
    /// The conclusion, in a sentence or two.
    pub conclusion: String,
    /// What it is about.
    pub facts: Vec<Fact>,
    /// Whether its figures can be trusted, if it judges that.
    pub verdict: Option<Verdict>,
    /// Sections of the first level, in the order in which every form draws them.
    pub sections: Vec<Section>,
}

/// Whether the figures of a document can be trusted.
#[derive(Debug, Clone)]
pub struct Verdict {
    /// Whether they can; pages, Markdown and terminals in colour mark the verdict by it.
    pub ok: bool,
    /// The same in a sentence.
    pub text: String,
    /// What it rests on, which a page and JSON show with it; elsewhere it has a section of its own.
    pub notices: Vec<Notice>,
}

/// A fact in a document's head.
#[derive(Debug, Clone)]
pub struct Fact {
    /// A word for it, where a form has room; may be empty.
    pub label: &'static str,
    /// The fact, as a text.
    pub text: String,
    /// Where it is shown.
    pub forms: Forms,
}

impl Fact {
    /// A fact for all forms.
    pub fn new(label: &'static str, text: impl Into<String>) -> Self {
        Self { label, text: text.into(), forms: Forms::ALL }
    }

    /// Shows it in these forms only.
    #[must_use]
    pub fn only(mut self, forms: Forms) -> Self {
        self.forms = forms;
        self
    }

    /// Whether a form shows it.
    pub(crate) fn is_in(&self, form: Forms) -> bool {
        self.forms.has(form) && !self.text.is_empty()
    }
}

/// A part of a document.
#[derive(Debug, Clone)]
pub struct Section {
    /// Its name in a page's addresses.
    pub id: String,
    /// Heading; names between backticks are code in Markdown and on pages.
    pub title: String,
    /// Its name in a page's navigation, if that is to be shorter than the heading; empty to leave it out.
    pub nav: Option<String>,
    /// What stands beside the heading on a terminal in place of `note`.
    pub brief: Option<String>,
    /// A paragraph below the heading.
    pub note: String,
    /// Its content, each with the forms that show it.
    pub blocks: Vec<(Forms, Block)>,
    /// Sections below its own blocks, with headings one level deeper in Markdown and on pages.
    pub parts: Vec<Section>,
    /// Whether a page sets its blocks side by side where there is room.
    pub side_by_side: bool,
    /// Where it is shown.
    pub forms: Forms,
    /// What is said in place of the content where there is none; without that, an empty section is left out.
    pub empty: String,
}

impl Section {
    /// An empty section for all forms.
    pub fn new(id: impl Into<String>, title: impl Into<String>, note: impl Into<String>) -> Self {
        Self {
            id: id.into(),
            title: title.into(),
            nav: None,
            brief: None,
            note: note.into(),
            blocks: Vec::new(),
            parts: Vec::new(),
            side_by_side: false,
            forms: Forms::ALL,
            empty: String::new(),
        }
    }

    /// Adds a block for all forms.
    #[must_use]
    pub fn with(self, block: impl Into<Block>) -> Self {
        self.with_in(Forms::ALL, block)
    }

    /// Adds a block for some forms.
    #[must_use]
    pub fn with_in(mut self, forms: Forms, block: impl Into<Block>) -> Self {
        self.blocks.push((forms, block.into()));
        self
    }

    /// Adds sentences for all forms.
    #[must_use]
    pub fn list(self, sentences: Vec<String>) -> Self {
        self.with(Block::List(sentences))
    }

    /// Adds a chart, if there is one.
    #[must_use]
    pub fn picture(self, picture: Option<Picture>) -> Self {
        self.with(Block::Pictures(picture.into_iter().collect()))
    }

    /// Says this beside the heading on a terminal, in place of the note.
    #[must_use]
    pub fn brief(mut self, brief: impl Into<String>) -> Self {
        self.brief = Some(brief.into());
        self
    }

    /// Has this name in a page's navigation; none if it is empty.
    #[must_use]
    pub fn nav(mut self, name: impl Into<String>) -> Self {
        self.nav = Some(name.into());
        self
    }

    /// Is shown in these forms only.
    #[must_use]
    pub fn only(mut self, forms: Forms) -> Self {
        self.forms = forms;
        self
    }

    /// Says this where there is nothing to show.
    #[must_use]
    pub fn or_say(mut self, empty: impl Into<String>) -> Self {
        self.empty = empty.into();
        self
    }

    /// The blocks that a form shows, empty ones left out.
    pub(crate) fn shown(&self, form: Forms) -> impl Iterator<Item = &Block> {
        self.blocks.iter().filter(move |(forms, block)| forms.has(form) && !block.is_empty()).map(|(_, block)| block)
    }

    /// Whether a form shows it.
    pub(crate) fn is_in(&self, form: Forms) -> bool {
        self.forms.has(form) && (!self.empty.is_empty() || self.has_content(form))
    }

    /// Whether a form says that there is nothing.
    pub(crate) fn says_empty(&self, form: Forms) -> bool {
        !self.empty.is_empty() && !self.has_content(form)
    }

    fn has_content(&self, form: Forms) -> bool {
        self.shown(form).next().is_some() || self.parts.iter().any(|part| part.is_in(form))
    }
}

/// One kind of content.
#[derive(Debug, Clone)]
pub enum Block {
    /// A paragraph; names between backticks are code in Markdown and on pages.
    Text(String),
    /// Sentences, each a point.
    List(Vec<String>),
    /// Sentences, each with its number.
    Steps(Vec<String>),
    /// Names with their values, below a heading that may be empty.
    Pairs(&'static str, Vec<(String, String)>),
    /// A table, of which each form takes the columns and rows for which it has room.
    Table(Table),
    /// What was noticed, each with its remedy.
    Notices(Vec<Notice>),
    /// Shares of a whole, drawn as one bar with a legend, with a name for who does not see it.
    Shares(&'static str, Vec<Part>),
    /// A map of shares in colour.
    Heat(Heat),
    /// Text in a fixed width, as a terminal shows it.
    Fixed(String),
    /// Files with more, relative to the document, and what they are called together.
    Files(&'static str, Vec<String>),
    /// A block that a page shows when asked to, with what it is.
    Folded(String, Box<Block>),
    /// Charts, which pages draw, and whose figures JSON has.
    Pictures(Vec<Picture>),
    /// Flame graphs, which pages draw in frames, and whose stacks JSON has.
    Frames(Vec<Frame>),
    /// Markup made by us, in which every text is escaped. Only pages draw it: what it says stands in another block for the
    /// other forms.
    Html(String),
}

impl Block {
    fn is_empty(&self) -> bool {
        match self {
            Self::Text(text) | Self::Html(text) | Self::Fixed(text) => text.is_empty(),
            Self::List(list) | Self::Steps(list) | Self::Files(_, list) => list.is_empty(),
            Self::Folded(_, block) => block.is_empty(),
            Self::Pairs(_, pairs) => pairs.is_empty(),
            Self::Table(table) => table.rows.is_empty(),
            Self::Notices(notices) => notices.is_empty(),
            Self::Shares(_, parts) => parts.is_empty(),
            Self::Heat(heat) => heat.rows.is_empty(),
            Self::Frames(frames) => frames.is_empty(),
            Self::Pictures(pictures) => pictures.is_empty(),
        }
    }
}

impl From<Table> for Block {
    fn from(table: Table) -> Self {
        Self::Table(table)
    }
}

/// How much a notice matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mark {
    /// Figures cannot be trusted.
    Error,
    /// Some figures are less certain, and may mislead.
    Warning,
    /// Good to know: figures are as exact as they would be without it.
    Note,
}

impl Mark {
    /// `error`, `warning` or `note`: its word in Markdown and on pages, and the class of its colour there.
    pub fn name(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warning => "warning",
            Self::Note => "note",
        }
    }
}

/// Something noticed, with what to do about it.
#[derive(Debug, Clone)]
pub struct Notice {
    /// How much it matters.
    pub mark: Mark,
    /// Its name for programs.
    pub code: String,
    /// What was noticed, in a sentence; names between backticks are code in Markdown and on pages.
    pub message: String,
    /// What to do about it; a terminal shows it below the message, behind an arrow.
    pub remedy: String,
}

/// A flame graph: a document of its own, inside a page.
#[derive(Debug, Clone)]
pub struct Frame {
    /// What it shows: its heading where there are several frames, and its name for who does not see it.
    pub title: String,
    /// The document and its height in pixels; `None` if there is nothing to draw.
    pub drawn: Option<(String, u32)>,
    /// Whether it takes the whole width beside others.
    pub wide: bool,
    /// What it is drawn from, as collapsed stacks: names from the outermost one, between semicolons, then a space and the
    /// weight; of a difference two weights, before and after.
    pub stacks: Vec<String>,
}

/// A map: cells coloured by their share.
#[derive(Debug, Clone)]
pub struct Heat {
    /// What the first column and the first row are.
    pub corner: String,
    /// Names of the columns.
    pub columns: Vec<String>,
    /// Rows with their names.
    pub rows: Vec<(String, Vec<HeatCell>)>,
}

/// A cell of a map.
#[derive(Debug, Clone, Default)]
pub struct HeatCell {
    /// What stands in the cell, in every form.
    pub text: String,
    /// More of it, as a tooltip of a page; there is none if this is empty.
    pub hint: String,
    /// Colour from 0 to 100, if there is a share to show.
    pub depth: Option<u8>,
    /// Whether it is marked as out of bounds.
    pub invalid: bool,
}
