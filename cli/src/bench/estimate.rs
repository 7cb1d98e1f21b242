//! How long a study will take, from the first repetition of its first cases, while there is time to ask for less.

use candlescope_lab::method::{CaseId, Event, Method, StopReason};
use candlescope_lab::study::Manifest;
use candlescope_lab::suites::request_size;
use std::collections::BTreeMap;
use std::time::Duration;

/// What takes less needs no word.
const LONG: Duration = Duration::from_secs(300);

/// After this much of first repetitions enough is known, however few they are.
const KNOWN: Duration = Duration::from_secs(60);
/// Less than this share of the time is not worth leaving something out for.
const WORTH: f64 = 0.1;

/// Options whose largest value can be left out, the suite that they belong to, and the parameter of its cases.
const AXES: [(&str, &str, &str); 3] = [
    ("--prompts", "seqlen", "prompt_tokens"),
    ("--outputs", "seqlen", "output_tokens"),
    ("--batches", "throughput", "batch"),
];

/// Time that a study will take.
pub(super) struct Estimate {
    method: Method,
    cases: Vec<CaseId>,
    /// Options that make fewer cases.
    fewer: Vec<&'static str>,
    /// First repetitions, by case.
    first: BTreeMap<String, Duration>,
    told: bool,
}

impl Estimate {
    pub(super) fn new(manifest: &Manifest) -> Self {
        let has = |suite: &str| manifest.cases.iter().filter(|case| case.suite() == suite).count() > 1;
        let fewer = [("throughput", &["--batches"][..]), ("seqlen", &["--prompts", "--outputs"])];
        let fewer = fewer.into_iter().filter(|(suite, _)| has(suite)).flat_map(|(_, options)| options.to_vec());
        Self {
            method: manifest.method.clone(),
            cases: manifest.cases.clone(),
            fewer: fewer.collect(),
            first: BTreeMap::new(),
            told: false,
        }
    }

    /// Learns from what happens. Returns what has to be said, once, as soon as a quarter of the cases is known, or a
    /// minute of them.
    pub(super) fn learn(&mut self, event: &Event<'_>) -> Option<String> {
        match event {
            Event::WarmedUp { case, repetitions: 1, took, .. } => _ = self.first.insert(case.key(), *took),
            // It takes no time.
            Event::Stopped { stopped, .. } if stopped.reason == StopReason::Refused => {
                _ = self.first.insert(stopped.case.key(), Duration::ZERO);
            }
            _ => return None,
        }
        let whole = self.all(|_| true)?;
        let known = self.first.len() >= self.cases.len().div_ceil(4) || self.first.values().sum::<Duration>() >= KNOWN;
        if self.told || !known || whole < LONG {
            return None;
        }
        self.told = true;
        Some(self.words(whole))
    }

    /// The time of those cases that are `wanted`. A case that is not known yet takes as much for each token as the known
    /// ones: the small ones are measured first.
    fn all(&self, wanted: impl Fn(&CaseId) -> bool) -> Option<Duration> {
        let known = self.cases.iter().filter_map(|case| Some((case, *self.first.get(&case.key())?)));
        let known: Vec<(&CaseId, Duration)> = known.filter(|(_, took)| !took.is_zero()).collect();
        let tokens: u64 = known.iter().map(|(case, _)| request_size(case)).sum();
        let time: f64 = known.iter().map(|(_, took)| took.as_secs_f64()).sum();
        let unknown = |case: &CaseId| match tokens {
            0 => time / known.len().max(1) as f64,
            tokens => time * request_size(case) as f64 / tokens as f64,
        };
        let of = |case: &CaseId| match self.first.get(&case.key()) {
            Some(took) => *took,
            None => Duration::try_from_secs_f64(unknown(case)).unwrap_or(Duration::MAX / 1_000_000),
        };
        let all = self.cases.iter().filter(|case| wanted(case)).map(|case| self.of_case(of(case)));
        (!self.first.is_empty()).then(|| all.fold(Duration::ZERO, Duration::saturating_add))
    }

    /// How long it takes without the largest value of an option, the shortest first.
    fn without(&self, whole: Duration) -> Vec<String> {
        let less = AXES.iter().filter_map(|(option, suite, name)| {
            let of = |case: &CaseId| case.int(name).filter(|_| case.suite() == *suite);
            let largest = self.cases.iter().filter_map(of).max()?;
            // The only value cannot be left out.
            self.cases.iter().filter_map(of).find(|value| *value != largest)?;
            let rest = self.all(|case| of(case) != Some(largest))?;
            let worth = rest.as_secs_f64() < (1.0 - WORTH) * whole.as_secs_f64();
            worth.then(|| (rest, format!("{largest} in {option} up to {:.0} min", rest.as_secs_f64() / 60.0)))
        });
        let mut less: Vec<(Duration, String)> = less.collect();
        less.sort();
        less.into_iter().map(|(_, words)| words).collect()
    }

    /// The most that a case may take whose repetition takes `took`: in each process start one for warming up and one
    /// sample at least, and all of its time where the rules do not stop it before.
    fn of_case(&self, took: Duration) -> Duration {
        let (method, starts) = (&self.method, self.method.processes.max(1));
        let plain = match method.runs {
            _ if took.is_zero() => Duration::ZERO,
            Some(runs) => took.saturating_mul(runs + starts),
            // The first repetition of a start is its sample then.
            None if took >= method.time_limit / starts => took.saturating_mul(starts),
            None => (took * 2 * starts).max(method.time_limit),
        };
        let recorded =
            if method.profiled_runs > 0 { took.saturating_mul(method.profiled_runs + 1) } else { Duration::ZERO };
        plain.saturating_add(recorded)
    }

    fn words(&self, whole: Duration) -> String {
        let (method, slowest) = (&self.method, self.first.values().max().copied().unwrap_or_default());
        let quick = method.runs == Some(3) && method.processes == 1;
        let few = format!("fewer {}", self.fewer.join(", "));
        let time_limit = method.runs.is_none() && slowest * 4 * method.processes < method.time_limit;
        let shorter = [
            (!quick, "--quick (a look)"),
            (method.processes > 1, "--processes 1"),
            (time_limit, "a shorter --time-limit"),
            (!self.fewer.is_empty(), few.as_str()),
            (method.profiled_runs > 0, "--profiled 0"),
            (true, "shorter prompts and outputs"),
        ];
        let shorter: Vec<&str> = shorter.iter().filter(|(can, _)| *can).map(|(_, how)| *how).take(4).collect();
        let without = match self.without(whole) {
            less if less.is_empty() => String::new(),
            less => format!(". Without {}", less.join(", without ")),
        };
        format!(
            "this will take up to {:.0} min: {} cases in {} process starts, and a repetition takes up to {}. Less to do: \
             {}{without}",
            whole.as_secs_f64() / 60.0,
            self.cases.len(),
            method.processes,
            seconds(slowest),
            shorter.join(", ")
        )
    }
}

fn seconds(time: Duration) -> String {
    let seconds = time.as_secs_f64();
    if seconds < 10.0 { format!("{seconds:.1} s") } else { format!("{seconds:.0} s") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use candlescope_lab::suites::LmOptions;

    fn all(method: &Method) -> (Estimate, Vec<CaseId>) {
        let cases = LmOptions::default().case_ids();
        (Estimate::new(&Manifest::new("suite", cases.clone(), method)), cases)
    }

    fn first(estimate: &mut Estimate, case: &CaseId, seconds: u64) -> Option<String> {
        let took = Duration::from_secs(seconds);
        estimate.learn(&Event::WarmedUp { case, repetitions: 1, took })
    }

    #[test]
    fn a_long_study_is_told_after_its_first_repetitions_with_what_to_leave_out() {
        // 18 cases, the smallest first; a token takes 0.1 s.
        let method = Method::default().time_limit(Duration::from_secs(12)).processes(2);
        let (mut estimate, mut cases) = all(&method);
        cases.sort_by_key(request_size);
        let said: Vec<Option<String>> =
            cases.iter().map(|case| first(&mut estimate, case, request_size(case) / 10)).collect();
        // 6, 9, 9, 10 s and so on of 60, 96, 96, 100 tokens: a quarter of them are less than a minute.
        assert_eq!(said.iter().position(Option::is_some), Some(4), "a quarter of {}", cases.len());
        assert_eq!(said.iter().flatten().count(), 1, "once");
        let text = said[4].as_deref().unwrap();
        // Of each a sample in two starts, whatever its time limit: that is the first repetition itself.
        let tokens: u64 = cases.iter().map(request_size).sum();
        let minutes = tokens as f64 * 0.1 * 2.0 / 60.0;
        let told: f64 = text.split(' ').nth(5).unwrap().parse().unwrap();
        assert!((told / minutes - 1.0).abs() < 0.1, "{minutes}: {text}");
        assert!(text.contains("18 cases in 2 process starts"), "{text}");
        assert!(text.contains("--quick (a look), --processes 1, fewer --batches, --prompts, --outputs"), "{text}");
        assert!(!text.contains("--time-limit"), "the limit is not what takes the time: {text}");
        assert!(
            text.contains(". Without 1000 in --prompts up to ") && text.contains("without 32 in --batches"),
            "{text}"
        );
    }

    #[test]
    fn a_minute_is_enough_to_tell_of_a_very_slow_one() {
        let (mut estimate, mut cases) = all(&Method::default().time_limit(Duration::from_secs(8)).processes(2));
        cases.sort_by_key(request_size);
        let text = first(&mut estimate, &cases[0], 64).expect("told after the first repetition of the smallest case");
        assert!(text.contains("ithout 1000 in --prompts"), "{text}");
    }

    #[test]
    fn a_short_one_is_not() {
        let (mut estimate, cases) = all(&Method::quick().runs(Some(3)).profiled_runs(1));
        assert!(cases.iter().all(|case| first(&mut estimate, case, 2).is_none()));
        // Recorded ones come with a warm-up of their own: (4 + 2) · 3 s · 18 cases are more than 5 minutes, and cases that
        // are not known yet are longer than the first ones.
        let (mut estimate, cases) = all(&Method::quick().runs(Some(3)).profiled_runs(1));
        let text = cases.iter().find_map(|case| first(&mut estimate, case, 3)).unwrap();
        assert!(text.contains("up to 6 min") && !text.contains("--quick"), "{text}");
    }
}
