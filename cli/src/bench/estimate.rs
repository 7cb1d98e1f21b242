//! How long a study will take, from the first repetition of its first cases, while there is time to ask for less.

use candlescope_lab::method::{Event, Method, StopReason};
use candlescope_lab::study::Manifest;
use std::collections::BTreeMap;
use std::time::Duration;

/// What takes less needs no word.
const LONG: Duration = Duration::from_secs(300);

/// Time that a study will take.
pub(super) struct Estimate {
    method: Method,
    cases: usize,
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
            cases: manifest.cases.len(),
            fewer: fewer.collect(),
            first: BTreeMap::new(),
            told: false,
        }
    }

    /// Learns from what happens. Returns what has to be said, once, as soon as a quarter of the cases is known.
    pub(super) fn learn(&mut self, event: &Event<'_>) -> Option<String> {
        match event {
            Event::WarmedUp { case, repetitions: 1, took, .. } => _ = self.first.insert(case.key(), *took),
            // It takes no time.
            Event::Stopped { stopped, .. } if stopped.reason == StopReason::Refused => {
                _ = self.first.insert(stopped.case.key(), Duration::ZERO);
            }
            _ => return None,
        }
        let whole = self.whole()?;
        if self.told || self.first.len() < self.cases.div_ceil(4) || whole < LONG {
            return None;
        }
        self.told = true;
        Some(self.words(whole))
    }

    /// The cases that are not known yet are taken to be like the others.
    fn whole(&self) -> Option<Duration> {
        let known: Duration = self.first.values().map(|took| self.of_case(*took)).sum();
        let n = u32::try_from(self.first.len()).ok().filter(|n| *n > 0)?;
        Some((known / n) * u32::try_from(self.cases).ok()?)
    }

    /// The most that a case may take whose repetition takes `took`: in each process start one for warming up and one
    /// sample at least, and all of its time where the rules do not stop it before.
    fn of_case(&self, took: Duration) -> Duration {
        let (method, starts) = (&self.method, self.method.processes.max(1));
        let plain = match method.runs {
            _ if took.is_zero() => Duration::ZERO,
            Some(runs) => took * (runs + starts),
            None => (took * 2 * starts).max(method.time_limit),
        };
        let recorded = if method.profiled_runs > 0 { took * (method.profiled_runs + 1) } else { Duration::ZERO };
        plain + recorded
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
        format!(
            "this will take up to {:.0} min: {} cases in {} process starts, and a repetition takes up to {}. Less to do: \
             {}",
            whole.as_secs_f64() / 60.0,
            self.cases,
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
    use candlescope_lab::method::CaseId;
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
        // 18 cases; of each a warm-up and a sample of 20 s in two starts, whatever its time limit.
        let method = Method::default().time_limit(Duration::from_secs(12)).processes(2);
        let (mut estimate, cases) = all(&method);
        let said: Vec<Option<String>> = cases.iter().map(|case| first(&mut estimate, case, 20)).collect();
        assert_eq!(said.iter().position(Option::is_some), Some(4), "a quarter of {}", cases.len());
        assert_eq!(said.iter().flatten().count(), 1, "once");
        let text = said[4].as_deref().unwrap();
        assert!(text.contains("up to 24 min: 18 cases in 2 process starts") && text.contains("up to 20 s"), "{text}");
        assert!(text.contains("--quick (a look), --processes 1, fewer --batches, --prompts, --outputs"), "{text}");
        assert!(!text.contains("--time-limit"), "the limit is not what takes the time: {text}");
    }

    #[test]
    fn a_short_one_is_not() {
        let (mut estimate, cases) = all(&Method::quick().runs(Some(3)).profiled_runs(1));
        assert!(cases.iter().all(|case| first(&mut estimate, case, 2).is_none()));
        // Recorded ones come with a warm-up of their own: (4 + 2) · 3 s · 18 cases are more than 5 minutes.
        let (mut estimate, cases) = all(&Method::quick().runs(Some(3)).profiled_runs(1));
        let text = cases.iter().find_map(|case| first(&mut estimate, case, 3)).unwrap();
        assert!(text.contains("up to 5 min") && !text.contains("--quick"), "{text}");
    }
}
