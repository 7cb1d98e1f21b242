//! Days of a history: how figures were whenever the same was measured on this machine before.

use super::change_points::median;
use super::run_facts::RunFacts;
use super::sampled::RunFigure;
use candlescope_schema::numbers::day_number;
use std::collections::BTreeMap;

/// Days, that of the baseline included, from which it shows how much days differ.
pub const LEAST_DAYS: usize = 4;

/// Figures of one day.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Day {
    /// When the first of its measurements was taken, Unix nanoseconds.
    pub time_ns: i64,
    /// Medians over the runs by figure, as [`figures_of`] gives them.
    pub figures: BTreeMap<String, f64>,
}

/// Days in order of time, each with one value of every figure that it has.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Days {
    days: Vec<Day>,
}

impl Days {
    /// One day for each date (UTC): of several measurements the median of each figure.
    pub fn of(measured: impl IntoIterator<Item = Day>) -> Self {
        let mut by_date: BTreeMap<i64, Vec<Day>> = BTreeMap::new();
        for day in measured {
            by_date.entry(day_number(day.time_ns)).or_default().push(day);
        }
        let day = |all: Vec<Day>| {
            let mut values: BTreeMap<String, Vec<f64>> = BTreeMap::new();
            for (name, value) in all.iter().flat_map(|day| &day.figures) {
                values.entry(name.clone()).or_default().push(*value);
            }
            let figures = values.into_iter().map(|(name, values)| (name, median(&values))).collect();
            Day { time_ns: all[0].time_ns, figures }
        };
        Self { days: by_date.into_values().map(day).collect() }
    }

    /// Measurements in order, each of which is a day of its own, whatever its date.
    pub(super) fn each(measured: impl IntoIterator<Item = Day>) -> Self {
        Self { days: measured.into_iter().collect() }
    }

    /// A baseline's runs by their dates.
    pub fn of_runs(runs: &[RunFacts]) -> Vec<Day> {
        let mut by_date: BTreeMap<i64, Vec<&RunFacts>> = BTreeMap::new();
        for run in runs {
            by_date.entry(day_number(run.started_ns)).or_default().push(run);
        }
        let day = |runs: Vec<&RunFacts>| Day { time_ns: runs[0].started_ns, figures: figures_of(&runs) };
        by_date.into_values().map(day).collect()
    }

    /// All days, the earliest first.
    pub fn days(&self) -> &[Day] {
        &self.days
    }

    /// A figure's values in order; days that lack it are left out.
    pub fn values(&self, figure: &str) -> Vec<f64> {
        self.days.iter().filter_map(|day| day.figures.get(figure).copied()).collect()
    }

    /// One standard deviation between days of a figure, as a share of it; `None` from too few days.
    pub(super) fn spread(&self, figure: &str) -> Option<f64> {
        let logs: Vec<f64> = self.values(figure).iter().filter(|value| **value > 0.0).map(|value| value.ln()).collect();
        let n = logs.len() as f64;
        let mean = logs.iter().sum::<f64>() / n;
        let variance = logs.iter().map(|log| (log - mean).powi(2)).sum::<f64>() / (n - 1.0);
        (logs.len() >= LEAST_DAYS).then(|| variance.sqrt())
    }
}

/// All figures that a comparison judges, as medians over runs, by their names in its result.
pub fn figures_of(runs: &[&RunFacts]) -> BTreeMap<String, f64> {
    let mut values: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    let mut add = |name: String, sampled: Option<&RunFigure>| {
        if let Some(sampled) = sampled {
            values.entry(name).or_default().push(sampled.value);
        }
    };
    for run in runs {
        add("step_ns".to_string(), run.step_ns.as_ref());
        for (kind, facts) in &run.kinds {
            add(format!("step_ns {kind}"), Some(&facts.host_ns));
            add(format!("gpu_ns {kind}"), facts.gpu_ns.as_ref());
        }
        run.figures.iter().for_each(|(name, sampled)| add(name.clone(), Some(sampled)));
    }
    values.into_iter().map(|(name, values)| (name, median(&values))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_date_is_one_day() {
        let at = |hours: i64, value: f64| Day {
            time_ns: hours * 3_600_000_000_000,
            figures: [("step_ns".to_string(), value)].into(),
        };
        let days = Days::of([at(1, 1.0), at(25, 2.0), at(30, 4.0), at(50, 8.0)]);
        assert_eq!(days.values("step_ns"), [1.0, 3.0, 8.0]);
        assert_eq!((days.spread("step_ns"), days.values("other").len()), (None, 0));
    }
}
