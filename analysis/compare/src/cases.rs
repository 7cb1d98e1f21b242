//! Two sets of cases compared, such as those of two studies: each case of the one with the same case of the other.

use super::comparability::{CompareError, Difference, comparable};
use super::comparison::{Comparison, FigureChange, Side, compare, figure_change};
use super::discoveries::adjusted;
use super::estimate::Design;
use super::fingerprint::Fingerprint;
use super::options::CompareOptions;
use super::outcome::Outcome;
use super::run_facts::RunFacts;
use super::sampled::RunFigure;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// What was measured of one case: values of each figure by process start.
#[derive(Debug, Clone, Default)]
pub struct CaseValues {
    /// Name of the figure that decides.
    pub decisive: String,
    /// By the figure's name (`host_ns`, `memory_bytes`, …): one value for each process start.
    pub figures: BTreeMap<String, Vec<RunFigure>>,
    /// A recorded run of it.
    pub recorded: Option<RunFacts>,
}

/// Cases by their names, and who measured them where.
#[derive(Debug, Clone, Default)]
pub struct CasesSide {
    /// What people call the side.
    pub name: String,
    /// Who measured what where; of several studies, the first.
    pub fingerprint: Fingerprint,
    /// The same of each study, by the name that stands before its cases: empty where there is a single one.
    pub studies: BTreeMap<String, Fingerprint>,
    /// What was measured, by the case's name; cases are compared where both sides have that name.
    pub cases: BTreeMap<String, CaseValues>,
}

/// A case that both sides have, compared by its decisive figure.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CaseComparison {
    /// Name of the case, the same on both sides.
    pub case: String,
    /// What it comes to.
    pub outcome: Outcome,
    /// The figure that decides.
    pub decisive: Option<FigureChange>,
    /// Probability that its change is none, after all the cases beside it (Benjamini and Hochberg).
    pub adjusted_p: Option<f64>,
    /// Figures beside the decisive one that both sides have; they do not decide.
    pub figures: Vec<FigureChange>,
    /// The recorded runs: counts and paths.
    pub recorded: Option<Comparison>,
    /// Why there is no comparison of recorded runs although both have one.
    pub not_recorded: Option<String>,
}

/// Two sets of cases compared. Its JSON is stable like that of [`Comparison`].
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CasesComparison {
    /// Version of this object.
    pub schema: u32,
    /// Worse if a case is, else undecided if a case is, else better if one is.
    pub outcome: Outcome,
    /// Share up to which changes are the same.
    pub margin: f64,
    /// Probability with which an interval may miss the truth.
    pub alpha: f64,
    /// What people call the side that changes are from.
    pub a: String,
    /// What people call the side that changes lead to.
    pub b: String,
    /// The machine of A in one line.
    pub machine: String,
    /// What differs between the sides.
    pub differences: Vec<Difference>,
    /// Cases that both have.
    pub cases: Vec<CaseComparison>,
    /// Cases that only A has.
    pub only_a: Vec<String>,
    /// Cases that only B has.
    pub only_b: Vec<String>,
}

/// Compares each case of `b` with the same case of `a`.
///
/// # Errors
/// When the two must not be compared, or have no case in common.
pub fn compare_cases(a: &CasesSide, b: &CasesSide, options: &CompareOptions) -> Result<CasesComparison, CompareError> {
    let differences = differences(a, b, options)?;
    let names = |side: &CasesSide| side.cases.keys().cloned().collect::<BTreeSet<String>>();
    let (of_a, of_b) = (names(a), names(b));
    let both: Vec<&String> = of_a.intersection(&of_b).collect();
    if both.is_empty() {
        let list = |names: &BTreeSet<String>| match names.is_empty() {
            true => "none".to_string(),
            false => names.iter().take(3).cloned().collect::<Vec<_>>().join(", "),
        };
        return Err(CompareError::NothingInCommon { a: list(&of_a), b: list(&of_b) });
    }
    let mut cases: Vec<CaseComparison> =
        both.into_iter().map(|name| case(name, &a.cases[name], &b.cases[name], options)).collect();
    let tested = |case: &CaseComparison| case.decisive.as_ref().and_then(|change| change.estimate).map(|e| e.p);
    let p_values: Vec<f64> = cases.iter().filter_map(tested).collect();
    let mut after = adjusted(&p_values).into_iter();
    for case in &mut cases {
        case.adjusted_p = tested(case).and_then(|_| after.next());
        let clear = case.adjusted_p.is_some_and(|p| p <= options.alpha);
        if matches!(case.outcome, Outcome::Worse | Outcome::Better) && !clear {
            case.outcome = Outcome::Undecided;
        }
    }
    Ok(CasesComparison {
        schema: 1,
        outcome: together(cases.iter().map(|case| case.outcome)),
        margin: options.margin,
        alpha: options.alpha,
        a: a.name.clone(),
        b: b.name.clone(),
        machine: a.fingerprint.machine_name(),
        differences,
        cases,
        only_a: of_a.difference(&of_b).cloned().collect(),
        only_b: of_b.difference(&of_a).cloned().collect(),
    })
}

/// What differs between the sides: of several studies, between those of one name, since their cases are compared. What
/// more than one of them shows is told once.
fn differences(a: &CasesSide, b: &CasesSide, options: &CompareOptions) -> Result<Vec<Difference>, CompareError> {
    let mut found: Vec<Difference> = Vec::new();
    let both = a.studies.iter().filter_map(|(name, one)| Some((name, one, b.studies.get(name)?)));
    let both: Vec<(&String, &Fingerprint, &Fingerprint)> = both.collect();
    if both.is_empty() {
        return comparable(&a.fingerprint, &b.fingerprint, options);
    }
    for (name, one, other) in both {
        for difference in comparable(one, other, options).map_err(|error| of_study(error, name))? {
            if !found.contains(&difference) {
                found.push(difference);
            }
        }
    }
    Ok(found)
}

/// The error with the name of the study.
fn of_study(error: CompareError, name: &str) -> CompareError {
    match error {
        CompareError::Different { what, key, a, b, remedy } => {
            CompareError::Different { what, key: format!("{key} of {name}"), a, b, remedy }
        }
        other => other,
    }
}

/// Worse if one is; undecided if one is; else equivalent if all are.
fn together(outcomes: impl Iterator<Item = Outcome>) -> Outcome {
    let outcomes: BTreeSet<Outcome> = outcomes.collect();
    let has = |outcome| outcomes.contains(&outcome);
    match () {
        () if has(Outcome::Worse) => Outcome::Worse,
        () if has(Outcome::Undecided) || outcomes.is_empty() => Outcome::Undecided,
        () if has(Outcome::Better) => Outcome::Better,
        () => Outcome::Equivalent,
    }
}

fn case(name: &str, a: &CaseValues, b: &CaseValues, options: &CompareOptions) -> CaseComparison {
    let side = |values: Option<&Vec<RunFigure>>| -> Vec<Option<RunFigure>> {
        values.into_iter().flatten().cloned().map(Some).collect()
    };
    let change = |figure: &str| {
        figure_change(figure, &Design::apart(), &side(a.figures.get(figure)), &side(b.figures.get(figure)), options)
    };
    let decisive = change(&a.decisive).filter(|_| a.decisive == b.decisive);
    let others = a.figures.keys().filter(|figure| **figure != a.decisive);
    let recorded = a.recorded.clone().zip(b.recorded.clone()).map(|(a, b)| {
        let of = |letter: &str, run: RunFacts| Side { name: format!("{letter}: {name}"), runs: vec![run] };
        compare(&of("A", a), &of("B", b), options)
    });
    let (recorded, not_recorded) = match recorded {
        Some(Ok(comparison)) => (Some(comparison), None),
        Some(Err(error)) => (None, Some(error.to_string())),
        None => (None, None),
    };
    CaseComparison {
        case: name.to_string(),
        outcome: decisive.as_ref().and_then(|change| change.outcome).unwrap_or(Outcome::Undecided),
        decisive,
        adjusted_p: None,
        figures: others.filter_map(|figure| change(figure)).collect(),
        recorded,
        not_recorded,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn side(cases: &[(&str, f64)]) -> CasesSide {
        let values = |middle: f64| -> Vec<RunFigure> {
            [0.997, 1.0, 1.003, 1.0, 0.9985, 1.0015].iter().map(|f| RunFigure::whole(f * middle)).collect()
        };
        let case = |middle: f64| CaseValues {
            decisive: "host_ns".to_string(),
            figures: [("host_ns".to_string(), values(middle)), ("memory_bytes".to_string(), values(1e6))].into(),
            recorded: None,
        };
        let cases = cases.iter().map(|(name, middle)| (name.to_string(), case(*middle))).collect();
        CasesSide { name: "study".to_string(), cases, ..CasesSide::default() }
    }

    #[test]
    fn the_worst_case_decides() {
        let a = side(&[("latency", 100.0), ("seqlen", 50.0), ("gone", 1.0)]);
        let b = side(&[("latency", 100.0), ("seqlen", 55.0), ("new", 1.0)]);
        let found = compare_cases(&a, &b, &CompareOptions::default()).unwrap();
        assert_eq!(
            (found.outcome, found.cases[0].outcome, found.cases[1].outcome),
            (Outcome::Worse, Outcome::Equivalent, Outcome::Worse)
        );
        assert_eq!((found.only_a, found.only_b), (vec!["gone".to_string()], vec!["new".to_string()]));
        // Studies are held against those of the same name.
        let on = |machines: [&str; 2]| {
            let mut side = side(&[("one: latency", 100.0), ("two: latency", 50.0)]);
            for (name, cpu) in ["one", "two"].into_iter().zip(machines) {
                let mut fingerprint = Fingerprint::default();
                fingerprint.machine.insert("cpu_model".to_string(), cpu.into());
                side.studies.insert(name.to_string(), fingerprint);
            }
            side
        };
        let compared = |b: [&str; 2], options: CompareOptions| compare_cases(&on(["x", "y"]), &on(b), &options);
        assert!(compared(["x", "y"], CompareOptions::default()).unwrap().differences.is_empty());
        let error = compared(["x", "z"], CompareOptions::default()).unwrap_err().to_string();
        assert!(error.contains("machine cpu_model of two is y in A, and z in B"), "{error}");
        let allowed = compared(["x", "z"], CompareOptions::default().allow(vec!["machine".to_string()])).unwrap();
        assert_eq!(allowed.differences.len(), 1);
        let none = compare_cases(&side(&[("x", 1.0)]), &side(&[("y", 1.0)]), &CompareOptions::default());
        assert!(none.unwrap_err().to_string().contains("no kind of step in common"));
    }
}
