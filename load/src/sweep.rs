//! Which level comes next, until it is known what the server carries. Without I/O.

use crate::level::Level;

/// Rates at most.
const MOST_RATES: usize = 16;
/// The search ends when what is carried and what is not are this close together.
const CLOSE: f64 = 1.2;

/// What a stage showed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct StageResult {
    pub(crate) level: Level,
    pub(crate) requests_per_s: f64,
    /// As far as it is known.
    pub(crate) saturated: Option<bool>,
}

/// First one client, which shows what a request takes without others beside it; then from half the rate that this is
/// in requests a second, doubled until the server does not keep up; then in between. A rate with too few requests to
/// tell ends the search: at the next one there would be as few.
pub(crate) fn next(tried: &[StageResult]) -> Option<Level> {
    let Some(alone) = tried.first() else { return Some(Level::Concurrency(1)) };
    let (carried, not) = bounds(tried);
    let untold = tried.last().is_some_and(|t| matches!(t.level, Level::Rate(_)) && t.saturated.is_none());
    if untold || tried.len() > MOST_RATES || alone.requests_per_s <= 0.0 {
        return None;
    }
    let rate = match (carried, not) {
        (None, None) => alone.requests_per_s / 2.0,
        (Some(carried), None) => carried * 2.0,
        (None, Some(not)) => not / 2.0,
        (Some(carried), Some(not)) if not / carried > CLOSE => (carried * not).sqrt(),
        _ => return None,
    };
    // Three digits are enough, and read better.
    let digits = 10f64.powi(2 - rate.log10().floor() as i32);
    Some(Level::Rate((rate * digits).round() / digits))
}

/// The highest rate that was carried, below the lowest that was not, and that one.
pub(crate) fn bounds(tried: &[StageResult]) -> (Option<f64>, Option<f64>) {
    let rates = |saturated: bool| {
        tried.iter().filter_map(move |t| match t.level {
            Level::Rate(rate) if t.saturated == Some(saturated) => Some(rate),
            _ => None,
        })
    };
    let not = rates(true).reduce(f64::min);
    let carried = rates(false).filter(|rate| not.is_none_or(|not| *rate < not)).reduce(f64::max);
    (carried, not)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_search_brackets_what_the_server_carries() {
        for capacity in [0.7, 3.0, 11.0, 900.0] {
            let mut tried = Vec::new();
            while let Some(level) = next(&tried) {
                let (requests_per_s, saturated) = match level {
                    Level::Concurrency(_) => (2.0, None),
                    Level::Rate(rate) => (rate.min(capacity), Some(rate > capacity)),
                };
                tried.push(StageResult { level, requests_per_s, saturated });
                assert!(tried.len() < 20);
            }
            let (carried, not) = bounds(&tried);
            let (carried, not) = (carried.unwrap(), not.unwrap());
            assert!(carried <= capacity && capacity < not && not / carried < 1.25, "{capacity}: {carried} {not}");
        }
    }

    #[test]
    fn a_server_that_answers_nothing_is_not_searched() {
        let alone = StageResult { level: Level::Concurrency(1), requests_per_s: 0.0, saturated: None };
        assert_eq!(next(&[alone]), None);
    }

    #[test]
    fn a_rate_of_which_too_little_is_known_ends_the_search() {
        let alone = StageResult { level: Level::Concurrency(1), requests_per_s: 2.0, saturated: None };
        let at = |rate, saturated| StageResult { level: Level::Rate(rate), requests_per_s: rate, saturated };
        let tried = [alone, at(1.0, Some(false)), at(2.0, None)];
        assert_eq!((next(&tried[..2]), next(&tried)), (Some(Level::Rate(2.0)), None));
        assert_eq!((bounds(&tried), bounds(&[alone, at(1.0, None)])), ((Some(1.0), None), (None, None)));
    }
}
