//! What else used the machine while runs were recorded: a comparison of such runs begins with it.

use candlescope_figures::Analysis;
use candlescope_schema::numbers::significant;
use candlescope_schema::run::{Code, Finding, env_key};
use serde_json::Value;
use std::collections::BTreeMap;

/// What disturbed the machine during a run, a short sentence each. Whether anything did is the verdict's to say: a
/// comparison must not call a run disturbed that its report calls free, nor the other way round.
pub(super) fn disturbances_of(analysis: &Analysis) -> Vec<String> {
    let manifest = &analysis.manifest;
    let on_gpu = manifest.gpu.as_ref().is_some_and(|gpu| !gpu.devices.is_empty());
    let before = || {
        let told = env_key::DISTURBANCES.of(&manifest.environment);
        told.into_iter().flatten().filter_map(Value::as_str).map(str::to_string)
    };
    // What others do on a GPU does not show in the host's samples.
    let mut found: Vec<String> = if on_gpu { before().collect() } else { Vec::new() };
    for finding in analysis.disturbances() {
        match told(finding) {
            Some(sentence) => found.push(sentence),
            None if finding.code == Code::MachineBusy && before().next().is_some() => {
                found.extend(before().filter(|_| !on_gpu));
            }
            None => found.push(format!("the run's own verdict says {}", finding.code.as_str())),
        }
    }
    found
}

/// What a finding that others were at work says of them; `None` if it has no figures.
fn told(finding: &Finding) -> Option<String> {
    let of = finding.figure("processors").map_or_else(String::new, |all| format!(" of {all}"));
    let others = |others| format!("other processes used {}{of} processors while steps ran", significant(others));
    finding.figure("others").map(others).or_else(|| {
        let (load, all) = finding.figure("load").zip(finding.figure("processors"))?;
        Some(format!("the load average was {} on {all} processors", significant(load)))
    })
}

/// What disturbed the runs of both sides, a sentence for each side; of each run its own [`disturbances_of`].
pub(super) fn disturbances(a: &[&[String]], b: &[&[String]]) -> Vec<String> {
    let mut said = Vec::new();
    for (letter, runs) in [("A", a), ("B", b)] {
        let hit = runs.iter().filter(|causes| !causes.is_empty()).count();
        if hit > 0 {
            let causes = in_one(runs.iter().copied().flatten()).into_iter().take(3).collect::<Vec<_>>().join("; ");
            said.push(match runs.len() {
                1 => format!("The run of {letter} was disturbed: {causes}"),
                all => format!("{hit} of {all} runs of {letter} were disturbed: {causes}"),
            });
        }
    }
    said
}

/// Sentences that differ in their first number alone are one, with the least and the greatest.
fn in_one<'a>(causes: impl Iterator<Item = &'a String>) -> Vec<String> {
    let mut all: BTreeMap<(&str, &str), Vec<&str>> = BTreeMap::new();
    for cause in causes {
        let is_number = |c: char| c.is_ascii_digit() || c == '.' || c == ',';
        let begin = cause.find(|c: char| c.is_ascii_digit()).unwrap_or(cause.len());
        let end = cause[begin..].find(|c| !is_number(c)).map_or(cause.len(), |after| begin + after);
        all.entry((&cause[..begin], &cause[end..])).or_default().push(&cause[begin..end]);
    }
    let value = |number: &&str| number.replace(',', "").parse::<f64>().unwrap_or(0.0);
    let one = |((head, tail), mut numbers): ((&str, &str), Vec<&str>)| {
        numbers.sort_by(|a, b| value(a).total_cmp(&value(b)));
        numbers.dedup();
        match numbers[..] {
            [least, .., most] => format!("{head}{least} to {most}{tail}"),
            _ => format!("{head}{}{tail}", numbers.concat()),
        }
    };
    all.into_iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_side_says_how_many_of_its_runs_were_disturbed() {
        let busy = ["other processes used 1.5 processors".to_string()];
        let found = disturbances(&[&busy, &[]], &[&[]]);
        assert_eq!(found, ["1 of 2 runs of A were disturbed: other processes used 1.5 processors"]);
        assert_eq!(disturbances(&[&[]], &[&busy]), ["The run of B was disturbed: other processes used 1.5 processors"]);
        assert!(disturbances(&[&[]], &[&[]]).is_empty());
        // What differs in a number is said once.
        let used = |n: &str| [format!("other processes used {n} of 2 processors while steps ran")];
        let (low, middle, high) = (used("1.90"), used("1.95"), used("2.00"));
        let found = disturbances(&[&high, &low, &middle, &busy], &[&["the swap is full".to_string()]]);
        let of_a = "4 of 4 runs of A were disturbed: other processes used 1.90 to 2.00 of 2 processors while steps ran; \
                    other processes used 1.5 processors";
        assert_eq!(found, [of_a, "The run of B was disturbed: the swap is full"]);
    }
}
