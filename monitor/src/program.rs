//! What a program's metrics say of its work: totals, and what happened between two readings. Pure.

use crate::figures::ProcessFigures;
use crate::metric_names::{
    COUNT, PHASE_SECONDS, REQUESTS_ACTIVE, RUN, STEP_TOKENS, SUM, TOKEN_RATE, TOKENS_IN_FLIGHT, TPOT, TTFT, is_read,
};
use candlescope_core::steers_screen;
use candlescope_exporters::prometheus::exposition::{label, parse_some};
use std::collections::BTreeMap;
use std::time::Duration;

/// Longest name that is shown.
const MOST_CHARS: usize = 60;

/// Sum and number of a histogram's values.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Sum {
    seconds: f64,
    n: f64,
}

impl Sum {
    fn mean(self) -> Option<f64> {
        (self.n > 0.0 && self.seconds >= 0.0).then(|| self.seconds / self.n)
    }

    fn since(self, before: Sum) -> Sum {
        Sum { seconds: self.seconds - before.seconds, n: self.n - before.n }
    }
}

/// The totals in a program's metrics.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct Counters {
    run: Option<String>,
    model: Option<String>,
    phase_seconds: BTreeMap<String, f64>,
    tokens: BTreeMap<String, f64>,
    rates: BTreeMap<String, f64>,
    ttft: Sum,
    tpot: Sum,
    requests_active: Option<f64>,
    tokens_in_flight: Option<f64>,
    process: ProcessFigures,
}

impl Counters {
    /// From an answer in Prometheus's text format; `None` if candlescope's metrics are not in it.
    pub fn of(text: &str) -> Option<Self> {
        let found = parse_some(text, is_read);
        if !found.keys().any(|series| series.starts_with("candlescope_")) {
            return None;
        }
        let mut all = Self::default();
        for (series, value) in &found {
            let name = series.split('{').next().unwrap_or_default();
            let phase = || label(series, "phase").as_deref().map(clean).unwrap_or_default();
            let add = |map: &mut BTreeMap<String, f64>| *map.entry(phase()).or_default() += value;
            match name {
                RUN => {
                    all.run = label(series, "run_id").as_deref().map(clean);
                    let model = label(series, "model").as_deref().map(clean);
                    all.model = model.filter(|model| !model.is_empty());
                }
                PHASE_SECONDS if label(series, "clock").as_deref() == Some("host") => {
                    add(&mut all.phase_seconds);
                }
                STEP_TOKENS => add(&mut all.tokens),
                TOKEN_RATE => add(&mut all.rates),
                REQUESTS_ACTIVE => all.requests_active = Some(*value),
                TOKENS_IN_FLIGHT => all.tokens_in_flight = Some(*value),
                _ => all.histogram(name, *value),
            }
        }
        all.process = ProcessFigures::of(found.iter().map(|(series, value)| (series.as_str(), *value)));
        Some(all)
    }

    /// All models together.
    fn histogram(&mut self, name: &str, value: f64) {
        let parts = [(TTFT, &mut self.ttft), (TPOT, &mut self.tpot)];
        for (metric, sum) in parts {
            match name.strip_prefix(metric) {
                Some(SUM) => sum.seconds += value,
                Some(COUNT) => sum.n += value,
                _ => {}
            }
        }
    }

    /// The phase whose tokens are told of first: `decode`, or the one with the most.
    fn main_phase(&self) -> Option<&str> {
        let most = || self.tokens.iter().filter(|(_, n)| **n > 0.0).max_by(|a, b| a.1.total_cmp(b.1));
        let decode = self.tokens.get_key_value("decode").filter(|(_, n)| **n > 0.0);
        decode.or_else(most).map(|(phase, _)| phase.as_str())
    }
}

/// Names come from another program: they become one short line.
pub(crate) fn clean(text: &str) -> String {
    line_of(text, MOST_CHARS)
}

/// As [`clean`], of a text that names a case with its parameters.
pub(crate) fn clean_long(text: &str) -> String {
    line_of(text, 2 * MOST_CHARS)
}

fn line_of(text: &str, most: usize) -> String {
    let plain = text.chars().map(|c| if steers_screen(c) { '\u{fffd}' } else { c });
    let mut short: String = plain.take(most + 1).collect();
    if short.chars().count() > most {
        short.truncate(short.char_indices().nth(most - 1).map_or(short.len(), |(at, _)| at));
        short.push('…');
    }
    short
}

/// What a program does.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Activity {
    /// Not known yet: it takes two readings.
    #[default]
    Unknown,
    /// Steps of this phase took most of the time since the reading before.
    Phase(String),
    /// Requests are open and no step has ended since.
    Waiting,
    /// No step has ended since, and no request is open.
    Idle,
}

/// A program's work, as two readings tell it.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct ProgramFigures {
    /// Name of the model that its run is of; `None` where its metrics name none.
    pub model: Option<String>,
    /// What it did since the reading before: the phase that took most time, waiting, or nothing.
    pub activity: Activity,
    /// The phase of `tokens_per_s`: `decode`, or, in a program without it, the one with the most tokens.
    pub token_phase: Option<String>,
    /// Tokens of that phase a second, over all the time since the reading before (derived).
    pub tokens_per_s: Option<f64>,
    /// The same over the time in which the phase worked, last 15 s: as the program says.
    pub working_tokens_per_s: Option<f64>,
    /// Mean time to first token of the requests that got one since the reading before, else of those before; seconds.
    pub ttft_seconds: Option<f64>,
    /// The same of all requests so far.
    pub ttft_mean_seconds: Option<f64>,
    /// Requests in that mean.
    pub ttft_requests: f64,
    /// Mean time for each further output token, of the requests that ended since the reading before, else of those
    /// before; seconds.
    pub tpot_seconds: Option<f64>,
    /// Requests that have begun and not ended.
    pub requests_active: Option<f64>,
    /// Their context, in tokens.
    pub tokens_in_flight: Option<f64>,
    /// Its process, as itself tells.
    pub process: ProcessFigures,
}

impl ProgramFigures {
    /// Those of `now`, with what happened since `before`, this long ago. `last` are the figures until now, of which the
    /// latest latencies stay until there are new ones.
    pub(crate) fn between(before: Option<(&Counters, Duration)>, now: &Counters, last: &ProgramFigures) -> Self {
        // Another run at the same address counts from zero.
        let before = before.filter(|(before, _)| before.run == now.run);
        let last = if before.is_some() { last.clone() } else { Self::default() };
        let seconds = before.map(|(_, time)| time.as_secs_f64()).filter(|seconds| *seconds > 0.0);
        let grown = |of: fn(&Counters) -> &BTreeMap<String, f64>, phase: &str| {
            let was = |(before, _): (&Counters, Duration)| of(before).get(phase).copied().unwrap_or(0.0);
            Some(of(now).get(phase)? - before.map(was)?)
        };
        let token_phase = now.main_phase().map(str::to_string);
        let per_second = token_phase.as_deref().and_then(|phase| Some(grown(|c| &c.tokens, phase)? / seconds?));
        let recent = |of: fn(&Counters) -> Sum| before.and_then(|(before, _)| of(now).since(of(before)).mean());
        let in_phases = now.phase_seconds.keys().filter_map(|phase| Some((phase, grown(|c| &c.phase_seconds, phase)?)));
        let longest = in_phases.filter(|(_, time)| *time > 0.0).max_by(|a, b| a.1.total_cmp(&b.1));
        let activity = match (longest, before.is_some()) {
            (_, false) => Activity::Unknown,
            (Some((phase, _)), _) => Activity::Phase(phase.clone()),
            (None, _) if now.requests_active.is_some_and(|n| n > 0.0) => Activity::Waiting,
            (None, _) => Activity::Idle,
        };
        Self {
            model: now.model.clone(),
            activity,
            tokens_per_s: per_second.filter(|rate| *rate >= 0.0),
            working_tokens_per_s: token_phase.as_deref().and_then(|phase| now.rates.get(phase).copied()),
            token_phase,
            ttft_seconds: recent(|c| c.ttft).or(last.ttft_seconds).or(now.ttft.mean()),
            ttft_mean_seconds: now.ttft.mean(),
            ttft_requests: now.ttft.n,
            tpot_seconds: recent(|c| c.tpot).or(last.tpot_seconds).or(now.tpot.mean()),
            requests_active: now.requests_active,
            tokens_in_flight: now.tokens_in_flight,
            process: now.process.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metrics(decode_tokens: u32, decode_seconds: f64, ttft: (f64, u32), active: u32) -> Counters {
        Counters::of(&format!(
            "candlescope_run_info{{run_id=\"r\",host=\"h\",model=\"m\"}} 1\n\
             candlescope_phase_seconds_total{{clock=\"host\",phase=\"decode\",source=\"\"}} {decode_seconds}\n\
             candlescope_phase_seconds_total{{clock=\"gpu\",phase=\"prefill\",source=\"event\"}} {}\n\
             candlescope_step_tokens_total{{phase=\"decode\"}} {decode_tokens}\n\
             candlescope_step_tokens_total{{phase=\"prefill\"}} 10000\n\
             candlescope_tokens_per_second{{phase=\"decode\"}} 77\n\
             candlescope_requests_active {active}\n\
             gen_ai_server_time_to_first_token_seconds_sum{{gen_ai_request_model=\"m\"}} {}\n\
             gen_ai_server_time_to_first_token_seconds_count{{gen_ai_request_model=\"m\"}} {}\n\
             process_threads 5\n",
            decode_seconds * 9.0,
            ttft.0,
            ttft.1
        ))
        .expect("candlescope's")
    }

    fn between(before: &Counters, now: &Counters) -> ProgramFigures {
        ProgramFigures::between(Some((before, Duration::from_secs(2))), now, &ProgramFigures::default())
    }

    #[test]
    fn two_readings_tell_rates_phase_and_new_latencies() {
        let (first, second) = (metrics(100, 1.0, (0.5, 5), 1), metrics(300, 2.5, (0.9, 7), 1));
        let figures = between(&first, &second);
        assert_eq!((figures.tokens_per_s, figures.working_tokens_per_s), (Some(100.0), Some(77.0)));
        assert_eq!(figures.activity, Activity::Phase("decode".into()));
        assert_eq!(figures.ttft_requests, 7.0);
        assert!((figures.ttft_seconds.unwrap() - 0.2).abs() < 1e-9, "of the two new requests");
        assert!((figures.ttft_mean_seconds.unwrap() - 0.9 / 7.0).abs() < 1e-9);
        assert_eq!((figures.tpot_seconds, figures.process.threads), (None, Some(5.0)));
        // Nothing new: the latest latency stays.
        let later = ProgramFigures::between(Some((&second, Duration::from_secs(1))), &second, &figures);
        assert_eq!((later.ttft_seconds, later.tokens_per_s), (figures.ttft_seconds, Some(0.0)));
        assert_eq!(later.activity, Activity::Waiting);
        assert_eq!(between(&metrics(1, 1.0, (0.0, 0), 0), &metrics(1, 1.0, (0.0, 0), 0)).activity, Activity::Idle);
    }

    #[test]
    fn one_reading_tells_no_rate_and_another_run_counts_anew() {
        let (first, mut second) = (metrics(100, 1.0, (0.5, 5), 1), metrics(50, 0.5, (0.1, 1), 1));
        let alone = ProgramFigures::between(None, &first, &ProgramFigures::default());
        assert_eq!((alone.tokens_per_s, alone.activity), (None, Activity::Unknown));
        assert_eq!(alone.ttft_seconds, Some(0.1), "the mean so far");
        second.run = Some("another".into());
        assert_eq!(between(&first, &second).tokens_per_s, None);
        // The same run never counts down; if it seems to, there is no rate.
        second.run = first.run.clone();
        assert_eq!(between(&first, &second).tokens_per_s, None);
    }

    #[test]
    fn a_page_without_our_metrics_is_none_of_ours() {
        assert_eq!(Counters::of("go_threads 5\nprocess_threads 2\n"), None);
        assert_eq!(Counters::of("<html>"), None);
        let hostile = Counters::of("candlescope_run_info{run_id=\"r\",model=\"\u{1b}[2Jx\"} 1\n").unwrap();
        assert_eq!(hostile.model.as_deref(), Some("\u{fffd}[2Jx"));
        assert_eq!(clean(&"x".repeat(500)).chars().count(), MOST_CHARS);
    }
}
