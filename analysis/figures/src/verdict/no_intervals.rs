//! A run without intervals.

use crate::Analysis;
use candlescope_schema::run::{Code, Finding};

pub(super) fn find(run: &Analysis) -> Vec<Finding> {
    if run.intervals.count > 0 || run.intervals.above_steps > 0 {
        return Vec::new();
    }
    let unread = [Code::SegmentUnfinished, Code::SegmentCorrupt, Code::SegmentForeign];
    vec![if run.verdict.findings.iter().any(|finding| unread.contains(&finding.code)) {
        Finding::new(
            Code::NoReadableSpans,
            "none of the run's intervals can be read: no segment of table `spans` is whole",
            "See the findings about its segments. A run that may be killed should rotate them more often",
        )
    } else {
        Finding::new(
            Code::NoSpans,
            "the run holds no intervals: there is nothing to say about operators",
            "Install the layer before the model loads (candle makes its spans then), and do not build with a \
             `release_max_level_*` feature of tracing below trace",
        )
    }]
}
