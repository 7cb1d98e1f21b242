//! A service level: limits that each request should keep, and limits of percentiles over all of them.

use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// Upper limits of a request's figures. Those that are absent are not checked.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Slo {
    /// Of the time to first token, in nanoseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ttft_ns: Option<u64>,
    /// Of the time per output token.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tpot_ns: Option<u64>,
    /// Of the end-to-end latency.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub e2e_ns: Option<u64>,
    /// Of percentiles, by figure and percentile; in JSON as `ttft_p99_ns`.
    #[serde(flatten)]
    percentiles: Percentiles,
}

/// A figure of a request that may have a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SloFigure {
    /// Time to first token.
    Ttft,
    /// Time per output token after the first.
    Tpot,
    /// End-to-end latency.
    E2e,
}

impl SloFigure {
    /// All of them, in the order in which they are shown.
    pub const ALL: [Self; 3] = [Self::Ttft, Self::Tpot, Self::E2e];

    /// As limits have it: `ttft`, `tpot` or `e2e`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ttft => "ttft",
            Self::Tpot => "tpot",
            Self::E2e => "e2e",
        }
    }
}

/// The percentiles that may have a limit.
const PERCENTS: [u8; 4] = [50, 90, 95, 99];

/// Limits in nanoseconds by figure and percentile, in the order of [`SloFigure::ALL`] and [`PERCENTS`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Percentiles([[Option<u64>; PERCENTS.len()]; SloFigure::ALL.len()]);

impl Percentiles {
    fn all(&self) -> impl Iterator<Item = PercentileLimit> {
        let figures = SloFigure::ALL.into_iter().zip(self.0);
        figures.flat_map(|(figure, limits)| {
            let limit = move |(percent, limit_ns): (u8, Option<u64>)| {
                Some(PercentileLimit { figure, percent, limit_ns: limit_ns? })
            };
            PERCENTS.into_iter().zip(limits).filter_map(limit)
        })
    }
}

impl Serialize for Percentiles {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for limit in self.all() {
            map.serialize_entry(&format!("{limit}_ns"), &limit.limit_ns)?;
        }
        map.end()
    }
}

/// A limit of a percentile: so many per cent of the requests have to be within it. It is shown by its name, `ttft_p99`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct PercentileLimit {
    /// What has the limit.
    pub figure: SloFigure,
    /// 50, 90, 95 or 99.
    pub percent: u8,
    /// The limit, in nanoseconds.
    pub limit_ns: u64,
}

impl PercentileLimit {
    /// The time within which so many per cent of `times` are, of fewer than a hundred the largest for 99; `None` of none.
    /// What is not known is infinite.
    pub fn reached(&self, mut times: Vec<f64>) -> Option<f64> {
        times.sort_by(f64::total_cmp);
        let within = (times.len() * usize::from(self.percent)).div_ceil(100);
        times.get(within.checked_sub(1)?).copied()
    }
}

impl fmt::Display for PercentileLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{}_p{}", self.figure.as_str(), self.percent))
    }
}

impl Slo {
    /// The limits of percentiles.
    pub fn percentiles(&self) -> impl Iterator<Item = PercentileLimit> {
        self.percentiles.all()
    }

    /// Whether a percentile has a limit.
    pub fn limits_percentiles(&self) -> bool {
        self.percentiles != Percentiles::default()
    }

    /// The first percentile that is above its limit, and what it is in nanoseconds; `times` are those of all requests that
    /// have the figure, infinite where a request failed or does not say it. `None` where all limits are kept, or there is
    /// no request.
    pub fn broken_percentile(&self, times: impl Fn(SloFigure) -> Vec<f64>) -> Option<(PercentileLimit, f64)> {
        self.percentiles().find_map(|limit| {
            let reached = limit.reached(times(limit.figure))?;
            (reached > limit.limit_ns as f64).then_some((limit, reached))
        })
    }

    /// The place of the limit of this name; `None` if there is no such figure or percentile.
    fn place(&mut self, name: &str) -> Option<&mut Option<u64>> {
        let (figure, percent) = name.split_once("_p").map_or((name, None), |(figure, percent)| (figure, Some(percent)));
        let at = SloFigure::ALL.iter().position(|known| known.as_str() == figure)?;
        let Some(percent) = percent else {
            return [&mut self.ttft_ns, &mut self.tpot_ns, &mut self.e2e_ns].into_iter().nth(at);
        };
        let of = PERCENTS.iter().position(|known| known.to_string() == percent)?;
        self.percentiles.0.get_mut(at)?.get_mut(of)
    }
}

/// A text that is no service level.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SloError {
    /// Not `name=time`, with a known name.
    #[error(
        "`{0}` is no limit: write ttft=200ms, tpot=50ms or e2e=5s, for a percentile of all requests ttft_p99=300ms (p50, p90, p95 or \
         p99), separated by commas"
    )]
    Limit(String),
    /// The limit is no time with a unit.
    #[error("`{0}` is no time: write 200ms, 1.5s or 800us")]
    Time(String),
    /// The same figure twice.
    #[error("{0} has two limits: leave one out")]
    Twice(String),
}

impl FromStr for Slo {
    type Err = SloError;

    fn from_str(text: &str) -> Result<Self, SloError> {
        let mut slo = Self::default();
        for part in text.split(',').map(str::trim) {
            let limit = || SloError::Limit(part.to_string());
            let (name, time) = part.split_once('=').ok_or_else(limit)?;
            let place = slo.place(name.trim()).ok_or_else(limit)?;
            if place.is_some() {
                return Err(SloError::Twice(name.trim().to_string()));
            }
            let time = parse_time(time.trim()).ok_or_else(|| SloError::Time(time.trim().to_string()))?;
            *place = Some(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
        }
        Ok(slo)
    }
}

/// A time with its unit: `200ms`, `1.5s`, `800us`.
fn parse_time(text: &str) -> Option<Duration> {
    let number = text.trim_end_matches(|c: char| c.is_alphabetic());
    let seconds = match text[number.len()..].trim() {
        "ns" => 1e-9,
        "us" | "µs" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        _ => return None,
    };
    let time = number.trim().parse::<f64>().ok()? * seconds;
    (time > 0.0).then(|| Duration::try_from_secs_f64(time).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_and_what_is_none() {
        let slo: Slo = "ttft=200ms, tpot=0.05s,e2e=1500us".parse().unwrap();
        assert_eq!((slo.ttft_ns, slo.tpot_ns, slo.e2e_ns), (Some(200_000_000), Some(50_000_000), Some(1_500_000)));
        assert_eq!("ttft".parse::<Slo>(), Err(SloError::Limit("ttft".into())));
        assert_eq!("itl=2ms".parse::<Slo>(), Err(SloError::Limit("itl=2ms".into())));
        for wrong in ["200", "ms", "-1ms", "0ms", "nanms", "1e400s", "5min"] {
            assert_eq!(format!("e2e={wrong}").parse::<Slo>(), Err(SloError::Time(wrong.into())), "{wrong}");
        }
        assert_eq!("tpot=1ms,tpot=2ms".parse::<Slo>(), Err(SloError::Twice("tpot".into())));
    }

    #[test]
    fn percentiles_have_limits_of_their_own() {
        let slo: Slo = "ttft_p99=300ms,tpot=50ms,tpot_p50=20ms,e2e_p95=5s".parse().unwrap();
        let all: Vec<(String, u64)> = slo.percentiles().map(|limit| (limit.to_string(), limit.limit_ns)).collect();
        let of = |name: &str, ns| (name.to_string(), ns);
        assert_eq!(all, [of("ttft_p99", 300_000_000), of("tpot_p50", 20_000_000), of("e2e_p95", 5_000_000_000)]);
        assert_eq!((slo.ttft_ns, slo.tpot_ns, slo.limits_percentiles()), (None, Some(50_000_000), true));
        assert!(!"ttft=1s".parse::<Slo>().unwrap().limits_percentiles());
        for wrong in ["ttft_p98=1s", "itl_p99=1s", "ttft_p=1s", "ttft_99=1s", "ttft_p099=1s"] {
            assert_eq!(wrong.parse::<Slo>(), Err(SloError::Limit(wrong.into())));
        }
        assert_eq!("e2e_p90=1s,e2e_p90=2s".parse::<Slo>(), Err(SloError::Twice("e2e_p90".into())));
        let json = serde_json::to_string(&slo).unwrap();
        assert_eq!(
            json,
            r#"{"tpot_ns":50000000,"ttft_p99_ns":300000000,"tpot_p50_ns":20000000,"e2e_p95_ns":5000000000}"#
        );
    }

    #[test]
    fn so_many_requests_have_to_be_within_a_percentiles_limit() {
        let slo: Slo = "ttft_p90=10ms".parse().unwrap();
        // Nine of ten, and the tenth failed.
        let nine = |last: f64| (0..9).map(f64::from).map(|ms| ms * 1e6).chain([last]).collect::<Vec<_>>();
        assert_eq!(slo.broken_percentile(|_| nine(f64::INFINITY)), None);
        let eight = |_| (0..8).map(f64::from).chain([11e6, f64::INFINITY]).collect();
        let (limit, reached) = slo.broken_percentile(eight).unwrap();
        assert_eq!((limit.to_string().as_str(), reached), ("ttft_p90", 11e6));
        assert_eq!(slo.broken_percentile(|_| Vec::new()), None);
        // Of fewer than a hundred, all have to be within the 99th.
        let all: Slo = "ttft_p99=10ms".parse().unwrap();
        assert!(all.broken_percentile(|_| nine(11e6)).is_some() && all.broken_percentile(|_| nine(9e6)).is_none());
    }
}
