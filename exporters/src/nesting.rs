//! Turns intervals into properly nested slices on a timeline, as timeline formats require.
//!
//! Host intervals nest by construction. Device times are measured one by one and may exceed their parent by a rounding
//! error, so every slice is clipped to its parent and to what came before it. Ranges by start and end cross them, and
//! get tracks of their own. Pure.

use candlescope_core::SpanRecord;
use candlescope_core::injected::is_start_end;

/// The begin or end of a slice, in the order that a timeline needs: every begin has its end, and ends come innermost
/// first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Edge {
    /// Slice of the interval with this index begins at this time and will end at that.
    Begin { index: usize, start: i64, end: i64 },
    /// The innermost open slice, that of the interval with this index, ends.
    End { index: usize, end: i64 },
}

struct OpenSlice {
    index: usize,
    end: i64,
    /// No later slice inside this one starts before this time.
    cursor: i64,
}

/// Ranges that began by a start and are part of nothing: they may cross each other and the intervals of their thread.
pub(crate) fn crossing(spans: &[SpanRecord]) -> impl Iterator<Item = &SpanRecord> {
    spans.iter().filter(|span| is_start_end(&span.path.target))
}

/// Tracks on which no two of these ranges meet.
#[derive(Debug, Default)]
pub(crate) struct CrossingTracks {
    /// When the last range of each one ends.
    ends: Vec<i64>,
}

impl CrossingTracks {
    /// A track for a range: the first one that is free. Few are needed where they come in the order of their ends, as
    /// they are recorded.
    pub(crate) fn track(&mut self, start: i64, end: i64) -> usize {
        match self.ends.iter().position(|last| *last <= start) {
            Some(at) => {
                self.ends[at] = end;
                at
            }
            None => {
                self.ends.push(end);
                self.ends.len() - 1
            }
        }
    }
}

/// Edges of the intervals for which `time` gives a start and a duration. `spans` are ordered as in a batch: those of
/// one step together, in enter order; those that [cross](crossing) have none. Times on one thread never go backwards
/// from edge to edge within a step.
pub(crate) fn edges(spans: &[SpanRecord], time: impl Fn(&SpanRecord) -> Option<(i64, u64)>) -> Vec<Edge> {
    let mut edges = Vec::with_capacity(spans.len() * 2);
    // Intervals that are open according to parent links, with the position in `open` for those that have a slice.
    let mut ancestors: Vec<(u64, usize)> = Vec::new();
    let mut open: Vec<OpenSlice> = Vec::new();
    for (index, span) in spans.iter().enumerate().filter(|(_, span)| !is_start_end(&span.path.target)) {
        let depth = match span.parent_seq {
            Some(parent) => ancestors.iter().rposition(|(seq, _)| *seq == parent).map_or(0, |at| at + 1),
            None => 0,
        };
        ancestors.truncate(depth);
        let keep = ancestors.last().map_or(0, |(_, open)| *open);
        close(&mut open, keep, &mut edges);
        if let Some((start, duration)) = time(span) {
            let mut end = start.saturating_add_unsigned(duration);
            let mut from = start;
            if let Some(parent) = open.last_mut() {
                from = from.clamp(parent.cursor, parent.end);
                end = end.clamp(from, parent.end);
                parent.cursor = end;
            }
            edges.push(Edge::Begin { index, start: from, end });
            open.push(OpenSlice { index, end, cursor: from });
        }
        ancestors.push((span.seq, open.len()));
    }
    close(&mut open, 0, &mut edges);
    edges
}

fn close(open: &mut Vec<OpenSlice>, keep: usize, edges: &mut Vec<Edge>) {
    while open.len() > keep {
        if let Some(slice) = open.pop() {
            edges.push(Edge::End { index: slice.index, end: slice.end });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use candlescope_core::{GpuSource, GpuTime, HostNs, PathInfo};
    use candlescope_testkit::with;

    fn span(seq: u64, parent: Option<u64>, start: i64, dur: u64) -> SpanRecord {
        with(candlescope_testkit::records::span(seq, parent, "p", 0, dur), |r| r.host_start = HostNs(start))
    }

    fn host(span: &SpanRecord) -> Option<(i64, u64)> {
        Some((span.host_start.0, span.host_dur_ns))
    }

    fn text(edges: &[Edge]) -> String {
        let one = |e: &Edge| match e {
            Edge::Begin { index, start, .. } => format!("({index}@{start}"),
            Edge::End { index, end } => format!("{index}@{end})"),
        };
        edges.iter().map(one).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn children_close_before_parents_and_siblings_follow() {
        let spans = [
            span(1, None, 0, 100),
            span(2, Some(1), 10, 20),
            span(3, Some(2), 12, 5),
            span(4, Some(1), 30, 0),
            span(5, None, 200, 1),
        ];
        assert_eq!(text(&edges(&spans, host)), "(0@0 (1@10 (2@12 2@17) 1@30) (3@30 3@30) 0@100) (4@200 4@201)");
    }

    #[test]
    fn what_sticks_out_is_clipped() {
        let spans = [span(1, None, 10, 100), span(2, Some(1), 5, 30), span(3, Some(1), 20, 500)];
        assert_eq!(text(&edges(&spans, host)), "(0@10 (1@10 1@35) (2@35 2@110) 0@110)");
    }

    #[test]
    fn a_parent_without_device_time_is_passed_over() {
        let mut spans =
            vec![span(1, None, 0, 9), span(2, Some(1), 1, 2), span(3, Some(2), 1, 2), span(4, Some(1), 5, 2)];
        for at in [0, 2, 3] {
            let (start, dur_ns) = (HostNs(spans[at].host_start.0 + 100), spans[at].host_dur_ns);
            spans[at].gpu = Some(GpuTime { start, dur_ns, source: GpuSource::Event });
        }
        let gpu = |s: &SpanRecord| s.gpu.map(|g| (g.start.0, g.dur_ns));
        assert_eq!(text(&edges(&spans, gpu)), "(0@100 (2@101 2@103) (3@105 3@107) 0@109)");
    }

    #[test]
    fn a_parent_in_another_batch_leaves_a_root() {
        let spans = [span(7, Some(1), 0, 5), span(8, Some(7), 1, 2), span(9, Some(1), 10, 5)];
        assert_eq!(text(&edges(&spans, host)), "(0@0 (1@1 1@3) 0@5) (2@10 2@15)");
    }

    #[test]
    fn ranges_that_cross_have_tracks_of_their_own() {
        let crosses = |seq, start, dur| {
            let path = PathInfo::new(1, "p", "p", "nvtx::start_end");
            with(span(seq, Some(1), start, dur), |r| r.path = path.into())
        };
        let spans =
            [crosses(2, 20, 10), crosses(3, 5, 40), crosses(4, 30, 60), span(1, None, 10, 100), crosses(5, 91, 5)];
        assert_eq!(text(&edges(&spans, host)), "(3@10 3@110)");
        let mut tracks = CrossingTracks::default();
        let of = crossing(&spans).map(|s| tracks.track(s.host_start.0, s.host_start.0 + s.host_dur_ns as i64));
        assert_eq!(of.collect::<Vec<_>>(), [0, 1, 0, 0]);
    }
}
