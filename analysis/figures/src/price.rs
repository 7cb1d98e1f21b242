//! What output tokens cost, from a price per hour that somebody gave. No price is ever guessed.

use candlescope_schema::run::{RunManifest, option_key};
use serde_json::Value;

/// The price among the options of a run or a study: US dollars an hour.
pub const PRICE_PER_HOUR: &str = option_key::PRICE_PER_HOUR.name();

/// What the machine costs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Price {
    /// US dollars an hour.
    pub usd_per_hour: f64,
    /// Whether it was given for this report, and not with the run.
    pub given_for_report: bool,
}

impl Price {
    /// The price that was given with the run.
    pub fn of(manifest: &RunManifest) -> Option<Self> {
        Self::of_option(manifest.options.get(PRICE_PER_HOUR))
    }

    /// The price that the option [`PRICE_PER_HOUR`] of a run or a study has.
    pub fn of_option(value: Option<&Value>) -> Option<Self> {
        let usd_per_hour = value?.as_f64()?;
        Self::valid(usd_per_hour).map(|usd_per_hour| Self { usd_per_hour, given_for_report: false })
    }

    /// A price given for a report; `None` if it is negative or no number.
    pub fn given(usd_per_hour: f64) -> Option<Self> {
        Self::valid(usd_per_hour).map(|usd_per_hour| Self { usd_per_hour, given_for_report: true })
    }

    fn valid(usd_per_hour: f64) -> Option<f64> {
        Some(usd_per_hour).filter(|price| price.is_finite() && *price >= 0.0)
    }

    /// US dollars for a million output tokens at `tokens_per_s`.
    pub fn per_million(self, tokens_per_s: f64) -> Option<f64> {
        (tokens_per_s > 0.0).then(|| self.usd_per_hour / (tokens_per_s * 3600.0) * 1e6)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dollars_by_hand() {
        // 1,000 tokens/s are 3.6 million an hour.
        let price = Price::given(3.6).unwrap();
        assert!((price.per_million(1000.0).unwrap() - 1.0).abs() < 1e-12);
        assert_eq!(price.per_million(0.0), None);
        assert_eq!((Price::given(-1.0), Price::given(f64::NAN)), (None, None));
        assert_eq!(Price::given(0.0).unwrap().per_million(5.0), Some(0.0));
        let mut manifest = RunManifest::default();
        assert_eq!(Price::of(&manifest), None);
        manifest.options.insert(PRICE_PER_HOUR.to_string(), serde_json::json!(2));
        assert_eq!(Price::of(&manifest), Some(Price { usd_per_hour: 2.0, given_for_report: false }));
    }
}
