//! The figures of a stage. Latencies are of its measured requests that succeeded; rates are of whatever happened in
//! its window, in which the load was steady.

use crate::failure::FailureKind;
use crate::level::Level;
use crate::record::{Part, RequestRecord, TokensBy};
use crate::trend::{Saturation, StageTrend, judge};
use candlescope_figures::Distribution;
use candlescope_figures::Price;
use candlescope_work::slo::{Slo, SloFigure};
use serde::Serialize;
use std::collections::BTreeMap;

/// Slices of the window in which requests under way are counted.
const SLICES: u64 = 24;

/// Chunks closer than this came together.
const TOGETHER_NS: f64 = 20e3;

/// A distribution without its samples, which are in the requests.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Spread {
    /// Number of samples that the statistics are of; at least 1.
    pub n: usize,
    /// Median, which is the 50th percentile, in the unit of the figure.
    pub median: f64,
    /// 90th percentile, from 10 samples on.
    pub p90: Option<f64>,
    /// 95th percentile, from 20 samples on.
    pub p95: Option<f64>,
    /// 99th percentile, from 100 samples on.
    pub p99: Option<f64>,
    /// Smallest sample, in the unit of the figure.
    pub min: f64,
    /// Largest sample, which is given also where there are too few for a percentile.
    pub max: f64,
    /// Arithmetic mean of the samples, in the unit of the figure.
    pub mean: f64,
    /// Sample standard deviation (n − 1); absent for one sample.
    pub stddev: Option<f64>,
    /// 95 % interval of the median, from 6 independent samples on.
    pub median_ci95: Option<(f64, f64)>,
}

impl Spread {
    fn of(samples: impl IntoIterator<Item = f64>) -> Option<Self> {
        Distribution::of(samples.into_iter().collect()).map(Self::from)
    }
}

impl From<Distribution> for Spread {
    fn from(d: Distribution) -> Self {
        let Distribution { n, median, p90, p95, p99, min, max, mean, stddev, median_ci95, .. } = d;
        Self { n, median, p90, p95, p99, min, max, mean, stddev, median_ci95 }
    }
}

/// Requests that kept the service level.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Goodput {
    /// The limits. At a given rate, latencies count from the planned arrival.
    pub slo: Slo,
    /// Share of the measured requests that kept all of them; failed ones did not.
    pub share: f64,
    /// Measured requests that kept all of them, a second of the window: never more than succeeded in it. 0 where a
    /// percentile is above its limit.
    pub requests_per_s: f64,
    /// The first percentile that is above its limit, and what it is in nanoseconds, absent where it has no end because
    /// requests failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub broken_percentile: Option<BrokenPercentile>,
}

/// A percentile above its limit.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct BrokenPercentile {
    /// Its name, as limits have it: `ttft_p99`.
    pub name: String,
    /// The limit, in nanoseconds.
    pub limit_ns: u64,
    /// What was reached, in nanoseconds; `None` where so many requests failed that there is no such time.
    pub reached_ns: Option<f64>,
}

/// How late the load generator itself ran.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
#[non_exhaustive]
pub struct Lateness {
    /// From the planned arrival of a request to its start, in nanoseconds: waiting for room under the most requests
    /// under way is part of it.
    pub start_ns: Option<Spread>,
    /// From a planned moment to the thread that sends and receives, in nanoseconds, a hundred times a second.
    pub beat_ns: Option<Spread>,
    /// Whether one of them is long enough to show in the latencies: its 95th percentile, or its largest value where
    /// there are too few, is above 1 ms and above a twentieth of the median time to first token.
    pub material: bool,
}

/// The figures of a stage. Times are in nanoseconds; what could not be measured is absent.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Figures {
    /// Length of the window.
    pub window_ns: u64,
    /// Measured requests, but for those that were given up because the load was ended.
    pub measured: u64,
    /// Those of them that succeeded.
    pub ok: u64,
    /// Those of them that failed, by kind.
    pub failed: BTreeMap<String, u64>,
    /// Requests that this side could not send, by kind; they say nothing about the server and are in no figure.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub unsent: BTreeMap<String, u64>,
    /// Measured requests that were sent a second time, because the server had closed a connection that was open.
    pub sent_again: u64,
    /// Time to first token.
    pub ttft_ns: Option<Spread>,
    /// The same from the planned arrival.
    pub ttft_from_planned_ns: Option<Spread>,
    /// Time per output token after the first.
    pub tpot_ns: Option<Spread>,
    /// Gaps between chunks with output, of all requests together; its interval is by request.
    pub itl_ns: Option<Spread>,
    /// Start to last token.
    pub e2e_ns: Option<Spread>,
    /// The same from the planned arrival.
    pub e2e_from_planned_ns: Option<Spread>,
    /// Tokens of the prompts.
    pub prompt_tokens: Option<Spread>,
    /// Share of the prompts' tokens that the server had in a cache of prefixes; absent where it does not tell. TTFT is
    /// shorter by the time that these would have taken.
    pub cached_share: Option<f64>,
    /// Tokens of the answers.
    pub output_tokens: Option<Spread>,
    /// Who counted them; absent if it was not the same for all.
    pub output_tokens_by: Option<TokensBy>,
    /// Chunks with output / output tokens: where it is not near 1, a gap between chunks is not one between tokens.
    pub chunks_per_token: Option<f64>,
    /// Share of the chunks that arrived together with the one before, within 20 µs: the server, the network or this
    /// machine held them back. Where it is not small, the median gap is not the pace of the model; TPOT is.
    pub arrived_together: Option<f64>,
    /// Requests that arrived in the window, a second.
    pub arrived_per_s: f64,
    /// Requests that succeeded in the window, a second.
    pub requests_per_s: f64,
    /// Output tokens that arrived in the window, a second. Absent where answers do not come in streams and are not
    /// counted.
    pub output_tokens_per_s: Option<f64>,
    /// US dollars for a million output tokens at this rate (derived), where the server has a price.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usd_per_million_output_tokens: Option<f64>,
    /// Mean number of requests under way.
    pub in_flight: f64,
    /// Requests that kept the service level, if there is one.
    pub goodput: Option<Goodput>,
    /// Whether the server kept up.
    pub saturation: Saturation,
    /// How late the load generator itself ran.
    pub generator: Lateness,
}

impl Figures {
    /// Of a stage with a window.
    pub(crate) fn of(
        records: &[RequestRecord],
        (from, to): (u64, u64),
        level: Level,
        slo: Option<Slo>,
        beats: &[u64],
    ) -> Self {
        let is_ours = |r: &RequestRecord| r.failure.as_ref().is_some_and(|f| f.kind.is_ours());
        let measured: Vec<&RequestRecord> =
            records.iter().filter(|r| r.part == Part::Measured && !is_ours(r)).collect();
        let ok: Vec<&RequestRecord> = measured.iter().copied().filter(|r| r.is_ok()).collect();
        let mut failed: BTreeMap<String, u64> = BTreeMap::new();
        for failure in measured.iter().filter_map(|r| r.failure.as_ref()) {
            *failed.entry(failure.kind.to_string()).or_default() += 1;
        }
        let mut unsent: BTreeMap<String, u64> = BTreeMap::new();
        for kind in records.iter().filter_map(|r| r.failure.as_ref()).map(|failure| failure.kind) {
            if kind == FailureKind::NoSockets {
                *unsent.entry(kind.to_string()).or_default() += 1;
            }
        }
        let window = to - from;
        let seconds = window as f64 / 1e9;
        let inside = |at: u64| (from..=to).contains(&at);
        let done = records.iter().filter(|r| inside(r.ended_at()) && r.is_ok()).count() as u64;
        let arrived = records.iter().filter(|r| inside(r.planned_ns.unwrap_or(r.start_ns))).count();
        let of = |f: &dyn Fn(&RequestRecord) -> Option<f64>| Spread::of(ok.iter().filter_map(|r| f(r)));
        let late = |r: &RequestRecord| r.late_ns();
        let ttft = |r: &RequestRecord| r.ttft_ns().map(|ns| ns as f64);
        let e2e = |r: &RequestRecord| r.e2e_ns().map(|ns| ns as f64);
        let ttft_planned = |r: &RequestRecord| Some(ttft(r)? + late(r)? as f64);
        let e2e_planned = |r: &RequestRecord| Some(e2e(r)? + late(r)? as f64);
        let gaps: Vec<Vec<f64>> = ok.iter().map(|r| r.gaps_ns().map(|ns| ns as f64).collect()).collect();
        let arrived_together = together(&gaps);
        let ttft_ns = of(&ttft);
        let generator =
            lateness(Spread::of(measured.iter().filter_map(|r| late(r)).map(|ns| ns as f64)), beats, &ttft_ns);
        let goodput = slo.filter(|_| !measured.is_empty()).map(|slo| {
            let kept = ok.iter().filter(|r| keeps(r, &slo)).count() as u64;
            let broken_percentile = broken_percentile(&measured, &slo);
            // Some of those measured in a time end after it: no more are done in it than succeeded.
            let counted = if broken_percentile.is_some() { 0 } else { kept.min(done) };
            let share = kept as f64 / measured.len() as f64;
            Goodput { slo, share, requests_per_s: counted as f64 / seconds, broken_percentile }
        });
        Self {
            window_ns: window,
            measured: measured.len() as u64,
            ok: ok.len() as u64,
            failed,
            unsent,
            sent_again: measured.iter().filter(|r| r.sent_again).count() as u64,
            ttft_from_planned_ns: of(&ttft_planned),
            ttft_ns,
            tpot_ns: of(&RequestRecord::tpot_ns),
            itl_ns: Distribution::clustered(gaps).map(Spread::from),
            e2e_ns: of(&e2e),
            e2e_from_planned_ns: of(&e2e_planned),
            prompt_tokens: of(&|r| r.prompt_tokens.map(|n| n as f64)),
            cached_share: cached_share(&ok),
            output_tokens: of(&|r| r.output_tokens.map(|n| n as f64)),
            output_tokens_by: counted_by(&ok),
            arrived_together,
            chunks_per_token: chunks_per_token(&ok),
            arrived_per_s: arrived as f64 / seconds,
            requests_per_s: done as f64 / seconds,
            output_tokens_per_s: tokens_between(records, from, to).map(|n| n / seconds),
            usd_per_million_output_tokens: None,
            in_flight: in_flight(records, from, to),
            goodput,
            saturation: saturation(records, &measured, (from, to), level),
            generator,
        }
    }
}

impl Figures {
    /// With what tokens cost at `usd_per_hour`.
    pub(crate) fn priced(self, usd_per_hour: Option<f64>) -> Self {
        let price = usd_per_hour.and_then(Price::given);
        let usd_per_million_output_tokens =
            price.zip(self.output_tokens_per_s).and_then(|(p, rate)| p.per_million(rate));
        Self { usd_per_million_output_tokens, ..self }
    }
}

fn counted_by(ok: &[&RequestRecord]) -> Option<TokensBy> {
    let first = ok.first()?.output_tokens_by?;
    ok.iter().all(|r| r.output_tokens_by == Some(first)).then_some(first)
}

fn cached_share(ok: &[&RequestRecord]) -> Option<f64> {
    // More than there are is no count of them.
    let told =
        ok.iter().filter_map(|r| Some((r.cached_tokens?, r.prompt_tokens?))).filter(|(cached, all)| cached <= all);
    // As real numbers: a server can say any count.
    let (cached, all) = told.fold((0.0, 0.0), |(cached, all), (c, n)| (cached + c as f64, all + n as f64));
    (all > 0.0).then(|| cached / all)
}

fn together(gaps: &[Vec<f64>]) -> Option<f64> {
    let all: usize = gaps.iter().map(Vec::len).sum();
    let near = gaps.iter().flatten().filter(|gap| **gap < TOGETHER_NS).count();
    (all > 0).then(|| near as f64 / all as f64)
}

fn chunks_per_token(ok: &[&RequestRecord]) -> Option<f64> {
    let streamed = || ok.iter().filter(|r| r.streamed && r.output_tokens_by == Some(TokensBy::Usage));
    let tokens: f64 = streamed().filter_map(|r| r.output_tokens).map(|tokens| tokens as f64).sum();
    (tokens > 0.0).then(|| streamed().map(|r| r.token_ns.len() as f64).sum::<f64>() / tokens)
}

/// Whether a request kept all limits. A figure that has a limit and could not be measured is not kept; a single token
/// has no time per output token, and keeps every limit of it.
fn keeps(r: &RequestRecord, slo: &Slo) -> bool {
    let late = r.late_ns().unwrap_or(0);
    let within = |limit: Option<u64>, value: Option<u64>| limit.is_none_or(|l| value.is_some_and(|v| v <= l));
    let one_token = r.output_tokens == Some(1);
    within(slo.ttft_ns, r.ttft_ns().map(|ns| ns + late))
        && within(slo.e2e_ns, r.e2e_ns().map(|ns| ns + late))
        && (one_token || slo.tpot_ns.is_none_or(|limit| r.tpot_ns().is_some_and(|ns| ns <= limit as f64)))
}

/// The first percentile over all requests that is above its limit. One that failed, or does not say the figure, has no
/// end; a single token has no time per output token.
fn broken_percentile(measured: &[&RequestRecord], slo: &Slo) -> Option<BrokenPercentile> {
    let times = |figure: SloFigure| {
        let of = |r: &&&RequestRecord| figure != SloFigure::Tpot || r.output_tokens != Some(1);
        let time = |r: &&RequestRecord| {
            let late = r.late_ns().unwrap_or(0);
            let ns = match figure {
                SloFigure::Ttft => r.ttft_ns().map(|ns| (ns + late) as f64),
                SloFigure::E2e => r.e2e_ns().map(|ns| (ns + late) as f64),
                SloFigure::Tpot => r.tpot_ns(),
            };
            ns.filter(|_| r.is_ok()).unwrap_or(f64::INFINITY)
        };
        measured.iter().filter(of).map(time).collect()
    };
    let (limit, reached) = slo.broken_percentile(times)?;
    let reached_ns = Some(reached).filter(|ns| ns.is_finite());
    Some(BrokenPercentile { name: limit.to_string(), limit_ns: limit.limit_ns, reached_ns })
}

/// Output tokens that arrived between two times. Where the server counted others than there were chunks, each chunk
/// has the same share of them; those of an answer that is no stream come at its end. An answer that was cut off before
/// its count has as many tokens a chunk as those that were counted, all together. What was no answer at all has none.
fn tokens_between(records: &[RequestRecord], from: u64, to: u64) -> Option<f64> {
    let by_usage = |r: &&RequestRecord| r.output_tokens_by == Some(TokensBy::Usage) && !r.token_ns.is_empty();
    let (all_tokens, all_chunks) = records.iter().filter(by_usage).fold((0.0, 0.0), |(tokens, chunks), r| {
        (tokens + r.output_tokens.unwrap_or(0) as f64, chunks + r.token_ns.len() as f64)
    });
    let a_chunk = if all_chunks > 0.0 { all_tokens / all_chunks } else { 1.0 };
    let (mut tokens, mut known) = (0.0, false);
    let is_answer =
        |r: &&RequestRecord| r.failure.as_ref().is_none_or(|failure| failure.kind != FailureKind::Malformed);
    for r in records.iter().filter(is_answer) {
        let chunks = r.token_ns.len();
        let counted = r.output_tokens.map(|n| n as f64);
        if chunks == 0 {
            let inside = (from..=to).contains(&r.ended_at());
            known |= counted.is_some();
            tokens += counted.filter(|_| inside).unwrap_or(0.0);
            continue;
        }
        known = true;
        let inside = r.token_ns.iter().filter(|ns| (from..=to).contains(&(r.start_ns + **ns))).count();
        // Those without a time of their own come by its end.
        let untimed = if (from..=to).contains(&r.ended_at()) { r.untimed_chunks } else { 0 };
        let all_chunks = chunks as f64 + r.untimed_chunks as f64;
        let own = counted.filter(|_| r.output_tokens_by == Some(TokensBy::Usage)).map(|n| n / all_chunks);
        tokens += (inside as f64 + untimed as f64) * own.unwrap_or(a_chunk);
    }
    known.then_some(tokens)
}

/// Mean number of requests under way between two times; at a given rate from their planned arrivals on.
fn in_flight(records: &[RequestRecord], from: u64, to: u64) -> f64 {
    let overlap = |r: &RequestRecord| {
        let start = r.planned_ns.unwrap_or(r.start_ns).max(from);
        r.ended_at().min(to).saturating_sub(start)
    };
    records.iter().map(|r| overlap(r) as f64).sum::<f64>() / (to - from).max(1) as f64
}

fn saturation(
    records: &[RequestRecord],
    measured: &[&RequestRecord],
    (from, to): (u64, u64),
    level: Level,
) -> Saturation {
    let arrival = |r: &RequestRecord| r.planned_ns.unwrap_or(r.start_ns);
    let late = |r: &RequestRecord| r.late_ns().unwrap_or(0);
    let points = |f: fn(&RequestRecord) -> Option<u64>| -> Vec<(u64, f64)> {
        measured.iter().filter_map(|r| Some((arrival(r), (f(r)? + late(r)) as f64))).collect()
    };
    let slice = |n: u64| from + (to - from) * n / SLICES;
    let in_flight: Vec<(u64, f64)> = match level {
        Level::Rate(_) => (0..SLICES).map(|n| (slice(n), in_flight(records, slice(n), slice(n + 1)))).collect(),
        Level::Concurrency(_) => Vec::new(),
    };
    let overloaded = |r: &&&RequestRecord| r.failure.as_ref().is_some_and(|f| f.kind.is_overload());
    // A client that is cut off at its limit of time may have got its tokens slowly for another reason.
    let timeouts =
        measured.iter().filter(|r| r.failure.as_ref().is_some_and(|f| f.kind == FailureKind::Timeout)).count();
    let refused =
        measured.iter().filter(overloaded).count() - if matches!(level, Level::Rate(_)) { 0 } else { timeouts };
    judge(&StageTrend {
        open_loop: matches!(level, Level::Rate(_)),
        window_ns: to - from,
        ttft: &points(RequestRecord::ttft_ns),
        e2e: &points(RequestRecord::e2e_ns),
        in_flight: &in_flight,
        refused: refused as f64 / measured.len().max(1) as f64,
    })
}

fn lateness(start_ns: Option<Spread>, beats: &[u64], ttft: &Option<Spread>) -> Lateness {
    let beat_ns = Spread::of(beats.iter().map(|ns| *ns as f64));
    let limit = ttft.as_ref().map_or(0.0, |t| t.median / 20.0).max(1e6);
    let late = |s: &Option<Spread>| s.as_ref().is_some_and(|s| s.p95.unwrap_or(s.max) > limit);
    Lateness { material: late(&start_ns) || late(&beat_ns), start_ns, beat_ns }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Failure;

    /// A request of three tokens, 10 ns apart, the first 5 ns after the start.
    fn request(number: u64, part: Part, start: u64) -> RequestRecord {
        RequestRecord {
            token_ns: vec![5, 15, 25],
            end_ns: 26,
            streamed: true,
            output_tokens: Some(3),
            output_tokens_by: Some(TokensBy::Usage),
            ..RequestRecord::new(0, number, part, 0, start)
        }
    }

    #[test]
    fn figures_by_hand() {
        let mut all: Vec<RequestRecord> = (0..6).map(|n| request(n, Part::Measured, 100 + 10 * n)).collect();
        all.push(request(6, Part::Warmup, 80));
        all.push(request(7, Part::After, 150));
        let mut failed = request(8, Part::Measured, 100);
        failed.failure = Some(Failure::new(FailureKind::HungUp, "x"));
        let mut ours = request(9, Part::Measured, 100);
        ours.failure = Some(Failure::new(FailureKind::Cancelled, "x"));
        all.extend([failed, ours]);
        let slo = "ttft=5ns,tpot=10ns".parse().ok();
        let f = Figures::of(&all, (100, 150), Level::Concurrency(2), slo, &[]);
        assert_eq!((f.measured, f.ok, f.failed["hung_up"]), (7, 6, 1));
        let (ttft, tpot, itl, e2e) = (f.ttft_ns.unwrap(), f.tpot_ns.unwrap(), f.itl_ns.unwrap(), f.e2e_ns.unwrap());
        assert_eq!((ttft.median, ttft.n, ttft.p90), (5.0, 6, None));
        assert_eq!((tpot.median, itl.median, itl.n, e2e.median), (10.0, 10.0, 12, 25.0));
        // Ended in the window: those that began at 80 to 120, and the one that failed.
        assert!((f.requests_per_s - 4.0 / 50e-9).abs() < 1.0, "{}", f.requests_per_s);
        let good = f.goodput.unwrap();
        assert!((good.share - 6.0 / 7.0).abs() < 1e-12 && (good.requests_per_s - 4.0 / 50e-9).abs() < 1.0);
        assert!(good.requests_per_s <= f.requests_per_s, "no more were good than succeeded");
        // Those of every part that arrived in the window count.
        let expected =
            all.iter().flat_map(|r| r.token_ns.iter().map(|t| t + r.start_ns)).filter(|t| (100..=150).contains(t));
        assert!((f.output_tokens_per_s.unwrap() * 50e-9 - expected.count() as f64).abs() < 1e-6);
        assert_eq!((f.chunks_per_token, f.output_tokens_by), (Some(1.0), Some(TokensBy::Usage)));
        assert_eq!(f.cached_share, None, "nobody said");
        let told = RequestRecord { prompt_tokens: Some(8), cached_tokens: Some(2), ..all[0].clone() };
        assert_eq!(cached_share(&[&told, &all[1]]), Some(0.25));
        let more = RequestRecord { prompt_tokens: Some(5), cached_tokens: Some(u64::from(u32::MAX)), ..told.clone() };
        assert_eq!((cached_share(&[&more]), cached_share(&[&more, &told])), (None, Some(0.25)));
    }

    #[test]
    fn counts_of_any_size_are_added_and_what_was_not_sent_is_told() {
        let told = |number, count| RequestRecord {
            output_tokens: Some(count),
            prompt_tokens: Some(count),
            cached_tokens: Some(count),
            ..request(number, Part::Measured, 100)
        };
        let mut unsent = request(2, Part::Measured, 100);
        unsent.failure = Some(Failure::new(FailureKind::NoSockets, "Too many open files"));
        let all = [told(0, u64::MAX), told(1, u64::MAX), unsent];
        let f = Figures::of(&all, (100, 150), Level::Concurrency(2), None, &[]);
        assert_eq!((f.measured, f.ok, f.failed.len(), f.unsent["no_sockets"]), (2, 2, 0, 1));
        assert_eq!(f.cached_share, Some(1.0));
        assert!(f.output_tokens_per_s.unwrap().is_finite() && f.chunks_per_token.unwrap() < 1e-18);
    }

    #[test]
    fn a_percentile_above_its_limit_leaves_no_goodput() {
        let all = |failed: u64| -> Vec<RequestRecord> {
            let of = |n| {
                let mut r = request(n, Part::Measured, 100);
                r.failure = (n < failed).then(|| Failure::new(FailureKind::HungUp, "x"));
                r
            };
            (0..10).map(of).collect()
        };
        let good = |failed, slo: &str| {
            let f = Figures::of(&all(failed), (100, 150), Level::Concurrency(2), slo.parse().ok(), &[]);
            f.goodput.unwrap()
        };
        // Each has its first token after 5 ns, and a token of 10.
        let kept = good(1, "ttft_p90=5ns,tpot_p50=10ns");
        assert!(kept.broken_percentile.is_none() && kept.requests_per_s > 0.0, "one of ten may fail: {kept:?}");
        let broken = good(0, "ttft_p50=4ns");
        assert_eq!((broken.requests_per_s, broken.share), (0.0, 1.0));
        let of = broken.broken_percentile.unwrap();
        assert_eq!((of.name.as_str(), of.limit_ns, of.reached_ns), ("ttft_p50", 4, Some(5.0)));
        let failed = good(2, "e2e_p90=1s").broken_percentile.unwrap();
        assert_eq!((failed.name.as_str(), failed.reached_ns), ("e2e_p90", None), "it has no end");
    }

    #[test]
    fn latencies_count_from_the_planned_arrival() {
        let mut r = request(0, Part::Measured, 120);
        r.planned_ns = Some(100);
        let f = Figures::of(&[r], (100, 200), Level::Rate(1.0), "ttft=20ns".parse().ok(), &[]);
        assert_eq!((f.ttft_ns.unwrap().median, f.ttft_from_planned_ns.unwrap().median), (5.0, 25.0));
        assert_eq!((f.e2e_ns.unwrap().median, f.e2e_from_planned_ns.unwrap().median), (25.0, 45.0));
        assert_eq!(f.goodput.unwrap().share, 0.0);
        assert_eq!(f.generator.start_ns.unwrap().median, 20.0);
    }

    #[test]
    fn chunks_of_several_tokens_share_them_and_a_whole_answer_counts_at_its_end() {
        let mut several = request(0, Part::Measured, 0);
        several.output_tokens = Some(9);
        let mut whole = request(1, Part::Measured, 0);
        (whole.token_ns, whole.streamed, whole.output_tokens) = (Vec::new(), false, Some(4));
        assert_eq!(tokens_between(&[several.clone()], 0, 20), Some(6.0));
        assert_eq!(tokens_between(&[several.clone(), whole.clone()], 0, 26), Some(13.0));
        // Cut off after two chunks, before it was counted.
        let mut cut = request(2, Part::Measured, 0);
        (cut.token_ns, cut.output_tokens, cut.output_tokens_by) = (vec![5, 15], Some(2), Some(TokensBy::Chunks));
        assert_eq!(tokens_between(&[cut.clone()], 0, 20), Some(2.0));
        assert_eq!(tokens_between(&[several, cut.clone()], 0, 20), Some(6.0 + 6.0));
        // What was no answer at all has no tokens.
        cut.failure = Some(Failure::new(FailureKind::Malformed, "no JSON"));
        assert_eq!(tokens_between(&[cut], 0, 20), None);
        whole.output_tokens = None;
        assert_eq!((tokens_between(&[whole.clone()], 0, 26), whole.ttft_ns(), whole.e2e_ns()), (None, None, Some(26)));
    }
}
