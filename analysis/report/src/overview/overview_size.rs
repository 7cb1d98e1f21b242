//! Holds an overview to its size, whatever the run.

use super::overview_parts::Overview;

/// Most bytes of its JSON.
pub(super) const MOST_BYTES: usize = 8_000;

/// What goes first where there is too much, down to how many.
#[derive(Clone, Copy)]
enum List {
    Reasons,
    Figures,
    Findings,
    Paths,
    Next,
}

/// At first no list has more than this.
const AT_FIRST: [(List, usize); 4] = [(List::Reasons, 5), (List::Figures, 20), (List::Findings, 5), (List::Paths, 6)];

/// Then these go, one after another, until the rest fits.
const ORDER: [(List, usize); 12] = [
    (List::Paths, 3),
    (List::Reasons, 2),
    (List::Findings, 3),
    (List::Figures, 14),
    (List::Paths, 1),
    (List::Findings, 1),
    (List::Reasons, 1),
    (List::Next, 3),
    (List::Figures, 4),
    (List::Paths, 0),
    (List::Reasons, 0),
    (List::Findings, 0),
];

/// Cuts the lists to what fits, and counts what was left out.
pub(super) fn fit(overview: &mut Overview) {
    for (list, most) in AT_FIRST {
        while length(overview, list) > most {
            drop_last(overview, list);
        }
    }
    let mut order = ORDER.into_iter().peekable();
    while size(overview) > MOST_BYTES {
        let Some((list, least)) = order.peek().copied() else { return };
        if length(overview, list) > least {
            drop_last(overview, list);
        } else {
            order.next();
        }
    }
}

/// Bytes of its JSON.
pub(super) fn size(overview: &Overview) -> usize {
    serde_json::to_string(overview).map_or(0, |text| text.len())
}

fn length(overview: &Overview, list: List) -> usize {
    match list {
        List::Reasons => overview.trust.reasons.len(),
        List::Figures => overview.figures.len(),
        List::Findings => overview.findings.len(),
        List::Paths => overview.paths.len(),
        List::Next => overview.next.len(),
    }
}

fn drop_last(overview: &mut Overview, list: List) {
    let left_out = &mut overview.left_out;
    match list {
        List::Reasons => left_out.reasons += usize::from(overview.trust.reasons.pop().is_some()),
        List::Figures => left_out.figures += usize::from(overview.figures.pop().is_some()),
        List::Findings => left_out.findings += usize::from(overview.findings.pop().is_some()),
        List::Paths => left_out.paths += usize::from(overview.paths.pop().is_some()),
        List::Next => drop(overview.next.pop()),
    }
}
