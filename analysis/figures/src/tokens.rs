//! Latency of each decoding step against the length of its context: does generation slow down as the text grows?

use super::step_rows::StepRow;
use candlescope_schema::Phase;
use std::collections::{BTreeMap, BTreeSet};

/// Decoding steps, and how their time grows with the context.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Tokens {
    /// Decoding steps of measured requests in order of start.
    pub points: Vec<TokenPoint>,
    /// Straight line through those whose kernels were not recorded, or, where these are too few, through the others; if
    /// contexts differ enough.
    pub trend: Option<Trend>,
}

/// One measured decoding step, as a point of duration over context.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TokenPoint {
    /// Request it belongs to.
    pub request: Option<u64>,
    /// Number within its request, from 1 (the prefill's token is 0).
    pub index: u64,
    /// Context length after it, in tokens.
    pub context_len: Option<u32>,
    /// Duration on the host in nanoseconds.
    pub dur_ns: u64,
    /// Whether its kernels were recorded, which takes time.
    pub recorded: bool,
}

/// Least-squares line of duration over context length.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Trend {
    /// Points that it is fitted to.
    pub n: usize,
    /// Nanoseconds for each further token of context.
    pub slope_ns: f64,
    /// Half the 95 % interval of the slope, 1.96 standard errors.
    pub slope_ci95_ns: f64,
    /// Duration at no context, extrapolated.
    pub intercept_ns: f64,
    /// Shortest and longest context seen.
    pub context: (u32, u32),
}

impl Tokens {
    /// The decoding steps of `steps`, which are in order of start, without the warm-up requests; `recorded` are the steps
    /// with recorded kernels.
    pub fn of(steps: &[StepRow], warmup: &BTreeSet<u64>, recorded: &BTreeSet<u64>) -> Self {
        let mut next: BTreeMap<Option<u64>, u64> = BTreeMap::new();
        let mut points = Vec::new();
        for step in steps {
            match step.phase {
                // A prefill begins a new text even if no request is marked.
                Some(Phase::Prefill) => {
                    next.insert(step.request, 0);
                }
                Some(Phase::Decode) if step.is_measured(warmup) => {
                    let index = next.entry(step.request).or_default();
                    *index += 1;
                    points.push(TokenPoint {
                        request: step.request,
                        index: *index,
                        context_len: step.context_len,
                        dur_ns: step.dur_ns,
                        recorded: recorded.contains(&step.step),
                    });
                }
                _ => {}
            }
        }
        // Recording kernels makes a step longer, whatever its context.
        let trend = trend(&points, false).or_else(|| trend(&points, true));
        Self { points, trend }
    }
}

/// The line through the points with or without recorded kernels.
fn trend(points: &[TokenPoint], recorded: bool) -> Option<Trend> {
    let points = || points.iter().filter(|p| p.recorded == recorded);
    let known: Vec<(f64, f64)> = points().filter_map(|p| Some((f64::from(p.context_len?), p.dur_ns as f64))).collect();
    let contexts = || points().filter_map(|p| p.context_len);
    let context = (contexts().min()?, contexts().max()?);
    let n = known.len();
    // With fewer points, or all within a few tokens, a line means nothing.
    if n < 8 || context.1 - context.0 < 8 {
        return None;
    }
    let mean = |f: fn(&(f64, f64)) -> f64| known.iter().map(f).sum::<f64>() / n as f64;
    let (mx, my) = (mean(|p| p.0), mean(|p| p.1));
    let sxx: f64 = known.iter().map(|p| (p.0 - mx).powi(2)).sum();
    let sxy: f64 = known.iter().map(|p| (p.0 - mx) * (p.1 - my)).sum();
    let slope = sxy / sxx;
    let intercept = my - slope * mx;
    let residual: f64 = known.iter().map(|p| (p.1 - intercept - slope * p.0).powi(2)).sum();
    let error = (residual / (n - 2) as f64 / sxx).sqrt();
    Some(Trend { n, slope_ns: slope, slope_ci95_ns: 1.96 * error, intercept_ns: intercept, context })
}
