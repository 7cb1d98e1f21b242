//! Charts: drawn for a page, and the figures that they are drawn from.

/// A chart.
#[derive(Debug, Clone, Default)]
pub struct Picture {
    /// The chart as SVG, made by us, for pages.
    pub svg: String,
    /// What stands below it; may be empty.
    pub caption: String,
    /// What it is drawn from, for JSON: one for each pair of axes.
    pub plots: Vec<Plot>,
}

impl Picture {
    /// A chart over one pair of axes, without a caption.
    pub fn new(svg: impl Into<String>, plot: Plot) -> Self {
        Self { svg: svg.into(), caption: String::new(), plots: vec![plot] }
    }

    /// With this below it.
    #[must_use]
    pub fn caption(mut self, caption: impl Into<String>) -> Self {
        self.caption = caption.into();
        self
    }
}

/// Lines and points over two axes.
#[derive(Debug, Clone, Default)]
pub struct Plot {
    /// What it shows; may be empty.
    pub title: String,
    /// Label of the horizontal axis, with its unit.
    pub x: String,
    /// Label of the vertical axis, with its unit.
    pub y: String,
    /// Whether both axes are logarithmic.
    pub log: bool,
    /// The lines and sets of points.
    pub lines: Vec<PlotLine>,
}

/// A line, or a set of points.
#[derive(Debug, Clone, Default)]
pub struct PlotLine {
    /// Its name; may be empty where there is one only.
    pub name: String,
    /// Whether the points are connected.
    pub connected: bool,
    /// The points, in order.
    pub points: Vec<PlotPoint>,
}

impl PlotLine {
    /// Of points without names and intervals: where each is along the horizontal axis, and its value.
    pub fn new(name: impl Into<String>, connected: bool, points: impl IntoIterator<Item = (f64, f64)>) -> Self {
        let points = points.into_iter().map(|(x, y)| PlotPoint { x, y, ..PlotPoint::default() }).collect();
        Self { name: name.into(), connected, points }
    }
}

/// A point.
#[derive(Debug, Clone, Default)]
pub struct PlotPoint {
    /// What it is; may be empty.
    pub name: String,
    /// Where it is along the horizontal axis.
    pub x: f64,
    /// Its value on the vertical axis.
    pub y: f64,
    /// The interval, or the range, of its value.
    pub spread: Option<(f64, f64)>,
}
