//! Goodput: requests that keep every limit of a service level, a second.
//!
//! A request is judged as a load test judges it (`docs/load.md`): one that failed keeps no limit, a figure that has a
//! limit and is not known does not keep it, and a request of one token, which has no time per token, keeps any limit of
//! that. A request of several sequences at once is as many requests: all of them have its times.

use candlescope_figures::{Latency, RequestFigures};
use candlescope_schema::Outcome as RequestOutcome;
use candlescope_work::slo::Slo;

/// Measured requests that kept every limit, a second from the start of the first to the end of the last; `None` without
/// measured requests.
pub(super) fn goodput(latency: &Latency, slo: &Slo) -> Option<f64> {
    let measured = || latency.requests.iter().filter(|request| !request.warmup);
    if latency.wall_ns == 0 || measured().next().is_none() {
        return None;
    }
    let kept: f64 = measured().filter(|request| keeps(request, slo)).map(sequences).sum();
    Some(kept * 1e9 / latency.wall_ns as f64)
}

fn sequences(request: &RequestFigures) -> f64 {
    f64::from(request.batch.unwrap_or(1).max(1))
}

fn keeps(request: &RequestFigures, slo: &Slo) -> bool {
    let within = |limit: Option<u64>, value: Option<f64>| {
        limit.is_none_or(|limit| value.is_some_and(|value| value <= limit as f64))
    };
    let ended_well = matches!(request.outcome, None | Some(RequestOutcome::Done));
    let one_token = request.output_tokens.is_some_and(|tokens| tokens > 0 && tokens as f64 <= sequences(request));
    ended_well
        && within(slo.ttft_ns, request.ttft_ns.map(|ns| ns as f64))
        && within(slo.e2e_ns, request.e2e_ns.map(|ns| ns as f64))
        && (one_token || within(slo.tpot_ns, request.tpot_ns))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn request(ttft_ms: u64, tpot_ms: f64, e2e_ms: u64) -> RequestFigures {
        RequestFigures {
            ttft_ns: Some(ttft_ms * MS),
            tpot_ns: Some(tpot_ms * MS as f64),
            e2e_ns: Some(e2e_ms * MS),
            output_tokens: Some(10),
            ..RequestFigures::default()
        }
    }

    fn of(requests: Vec<RequestFigures>, slo: &str) -> Option<f64> {
        // Two seconds from the first to the last.
        goodput(&Latency { requests, wall_ns: 2_000 * MS, ..Latency::default() }, &slo.parse().unwrap())
    }

    #[test]
    fn requests_count_that_keep_every_limit() {
        let slo = "ttft=100ms,tpot=10ms,e2e=300ms";
        let requests =
            vec![request(100, 10.0, 300), request(101, 1.0, 200), request(50, 10.1, 200), request(1, 1.0, 301)];
        // The medians of these are within all limits, and one request is.
        assert_eq!(of(requests.clone(), slo), Some(0.5));
        assert_eq!(of(requests, "ttft=100ms"), Some(1.5), "a limit that is not given is kept");
        assert_eq!(of(vec![request(101, 1.0, 1)], slo), Some(0.0), "none kept is 0 and not unknown");
        assert_eq!(of(Vec::new(), slo), None);
    }

    #[test]
    fn failures_warm_up_and_what_is_not_known_keep_nothing() {
        let slo = "tpot=10ms";
        let good = || request(1, 1.0, 1);
        let failed = RequestFigures { outcome: Some(RequestOutcome::Failed), ..good() };
        let warm_up = RequestFigures { warmup: true, ..good() };
        let unknown = RequestFigures { tpot_ns: None, ..good() };
        assert_eq!(of(vec![failed, warm_up, unknown.clone()], slo), Some(0.0));
        let one_token = RequestFigures { output_tokens: Some(1), ..unknown.clone() };
        assert_eq!(of(vec![one_token], slo), Some(0.5));
        let batch = |tokens| RequestFigures { batch: Some(4), output_tokens: Some(tokens), ..unknown.clone() };
        assert_eq!(of(vec![batch(4)], slo), Some(2.0), "four sequences of one token each");
        assert_eq!(of(vec![batch(8)], slo), Some(0.0));
    }
}
