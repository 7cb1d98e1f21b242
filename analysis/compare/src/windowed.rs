//! A figure in windows of time.

use super::change_points::median;

/// A stretch of time, and what a figure was in parts of it, one after the other.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Window {
    /// When it began, Unix nanoseconds.
    pub from_ns: i64,
    /// Values of its parts; parts without any are left out.
    pub values: Vec<f64>,
}

/// A figure in several windows.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct WindowedFigure {
    /// Its name, from which its unit follows and which direction is the better one.
    pub name: String,
    /// The windows before, in order of time.
    pub before: Vec<Window>,
    /// The window that is judged.
    pub now: Window,
}

impl WindowedFigure {
    /// Medians of the windows before that have `least` values.
    pub(super) fn medians(&self, least: usize) -> Vec<f64> {
        self.before.iter().filter(|window| window.values.len() >= least).map(|window| median(&window.values)).collect()
    }
}
