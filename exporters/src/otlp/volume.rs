//! Which traces are sent at all: by an OpenTelemetry sampler, and by a rate that a trace store can handle.

use super::otlp_config::OtlpSampler;
use candlescope_core::{HostNs, TraceId};
use opentelemetry::trace::SpanKind;
use opentelemetry_sdk::trace::{Sampler, SamplingDecision, ShouldSample};

/// Seconds' worth of spans that may be sent at once.
const BURST_SECONDS: f64 = 10.0;

impl OtlpSampler {
    /// Whether a trace is sent. `caller` is its caller's decision, if there is one.
    pub(super) fn takes(self, trace: TraceId, caller: Option<bool>) -> bool {
        match caller.filter(|_| self.parent_based) {
            Some(sampled) => sampled,
            None => self.takes_root(trace),
        }
    }

    /// Whether a trace may be sent, before its caller's decision is known.
    pub(super) fn may_take(self, trace: TraceId) -> bool {
        self.parent_based || self.takes_root(trace)
    }

    /// By OpenTelemetry's own rule, so that all services that see a trace decide alike.
    fn takes_root(self, trace: TraceId) -> bool {
        let id = opentelemetry::trace::TraceId::from(trace.0);
        let sampler = Sampler::TraceIdRatioBased(self.ratio);
        let decided = sampler.should_sample(None, id, "", &SpanKind::Internal, &[], &[]).decision;
        decided == SamplingDecision::RecordAndSample
    }
}

/// A rate limit for spans, by the time in the records, so that a run from disk is sent as it would have been live.
#[derive(Debug)]
pub(super) struct Allowance {
    per_second: f64,
    left: f64,
    latest: Option<HostNs>,
}

impl Allowance {
    pub(super) fn new(per_second: u64) -> Self {
        let per_second = per_second as f64;
        Self { per_second, left: per_second * BURST_SECONDS, latest: None }
    }

    /// Whether anything may be sent at `now`. Sending may overdraw the allowance, which is made up for later, up to ten
    /// seconds' worth: after an hour of slow requests, which are always sent, others are not blocked for another hour.
    pub(super) fn is_left(&mut self, now: HostNs) -> bool {
        let latest = *self.latest.get_or_insert(now);
        if now > latest {
            let more = now.since(latest) as f64 / 1e9 * self.per_second;
            self.left = (self.left + more).min(self.per_second * BURST_SECONDS);
            self.latest = Some(now);
        }
        self.left > 0.0
    }

    pub(super) fn spend_one(&mut self) {
        self.left = (self.left - 1.0).max(-self.per_second * BURST_SECONDS);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_takes_its_share_and_callers_decide_where_they_may() {
        // Any odd multiplier spreads the ids.
        let trace = |n: u128| TraceId(n.wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835));
        let tenth = OtlpSampler::new(0.1);
        let taken = (1..=10_000).filter(|n| tenth.takes(trace(*n), None)).count();
        assert!((900..1_100).contains(&taken), "{taken}");
        assert!(tenth.takes(trace(1), Some(true)) && !tenth.takes(trace(1), Some(false)));
        assert!(tenth.may_take(trace(1)) && tenth.may_take(trace(2)));

        let never = OtlpSampler::new(0.0).parent_based(false);
        assert!(!never.takes(trace(1), Some(true)) && !never.may_take(trace(1)));
        let always = OtlpSampler::new(1.0).parent_based(false);
        assert!(always.takes(trace(1), Some(false)));
    }

    #[test]
    fn what_is_spent_comes_back_with_time_and_no_further_than_the_burst() {
        let second = |s: f64| HostNs((s * 1e9) as i64);
        let mut allowance = Allowance::new(100);
        let mut spend = |now: f64| {
            let mut spent = 0;
            while allowance.is_left(second(now)) {
                allowance.spend_one();
                spent += 1;
            }
            spent
        };
        assert_eq!(spend(5.0), 1_000, "ten seconds' worth at once");
        assert_eq!(spend(5.0), 0);
        assert_eq!(spend(5.5), 50);
        assert_eq!(spend(4.0), 0, "a record that is late brings nothing");
        assert_eq!(spend(1_000.0), 1_000);
        // Spans that are always sent overdraw it by no more than the burst.
        (0..100_000).for_each(|_| allowance.spend_one());
        assert!(!allowance.is_left(second(1_009.9)));
        assert!(allowance.is_left(second(1_010.1)));
        assert!(Allowance::new(u64::MAX).is_left(second(0.0)));
        assert!(!Allowance::new(0).is_left(second(0.0)));
    }
}
