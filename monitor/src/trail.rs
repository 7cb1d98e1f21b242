//! The course of a figure: its last values.

use std::collections::VecDeque;

/// Values kept: more than a terminal is wide.
const MOST: usize = 512;

/// The last values of a figure, oldest first; `None` where it was not known.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Trail(VecDeque<Option<f64>>);

impl Trail {
    pub(crate) fn push(&mut self, value: Option<f64>) {
        if self.0.len() == MOST {
            self.0.pop_front();
        }
        self.0.push_back(value);
    }

    /// The last `n` values.
    pub(crate) fn last(&self, n: usize) -> impl Iterator<Item = Option<f64>> + '_ {
        self.0.iter().skip(self.0.len().saturating_sub(n)).copied()
    }
}
