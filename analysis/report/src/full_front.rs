//! How the page of a full analysis begins: five sentences, what to change, and the charts.

use super::charts::flame;
use super::conclusion;
use super::plain_changes::{changes, count_of};
use super::report::stakeholder::{limits, work};
use candlescope_document::text::sentence;
use candlescope_document::{Frame, Picture};
use candlescope_figures::Analysis;

/// Changes that are listed; the run's own report has all.
const MOST_CHANGES: usize = 8;

/// Sentences, changes, charts. Names in texts are between backticks.
#[derive(Debug, Clone, Default)]
pub struct Front {
    /// What ran, how fast, what limits it, how near it comes to the device, whether that can be trusted.
    pub(super) sentences: Vec<String>,
    /// What to change, the largest gain first.
    pub(super) changes: Vec<String>,
    pub(super) more: usize,
    pub(super) roofline: Option<Picture>,
    pub(super) flame: Option<Frame>,
}

impl Front {
    /// Sentences, changes and flame graph of a run; the roofline comes with [`predicted`](Self::predicted).
    pub fn of(analysis: &Analysis) -> Self {
        let limit = conclusion::plain_limit(analysis);
        let said = [
            Some(format!("the figures rest on {}", work(analysis))),
            conclusion::speed(analysis),
            Some(limit.unwrap_or_else(|| "what limits it is not known: no intervals were recorded".to_string())),
            limits(analysis).pop(),
            Some(conclusion::verdict_line(analysis)),
        ];
        Self {
            sentences: said.into_iter().flatten().map(|text| sentence(&text)).collect(),
            changes: changes(analysis, MOST_CHANGES).iter().map(|text| sentence(text)).collect(),
            more: count_of(analysis).saturating_sub(MOST_CHANGES),
            roofline: None,
            flame: flame::of_run(analysis).into_iter().next(),
        }
    }

    /// What was predicted, in a sentence before the last one, and the chart.
    #[must_use]
    pub fn predicted(mut self, text: Option<String>, chart: Option<Picture>) -> Self {
        let last = self.sentences.len().saturating_sub(1);
        if let Some(text) = text {
            // It says how near to the device it comes, so the sentence about peaks is not needed.
            if self.sentences.len() >= 5 {
                self.sentences.remove(last - 1);
            }
            self.sentences.insert(self.sentences.len().saturating_sub(1), sentence(&text));
        }
        self.roofline = chart;
        self
    }
}
