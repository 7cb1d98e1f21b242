//! A service level: limits that each request should keep.

use serde::Serialize;
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
}

/// A text that is no service level.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SloError {
    /// Not `name=time`, with a known name.
    #[error("`{0}` is no limit: write ttft=200ms, tpot=50ms or e2e=5s, separated by commas")]
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
            let place = match name.trim() {
                "ttft" => &mut slo.ttft_ns,
                "tpot" => &mut slo.tpot_ns,
                "e2e" => &mut slo.e2e_ns,
                _ => return Err(limit()),
            };
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
}
