//! Several devices side by side, each with the same model and the same question.

use super::outlook::Outlook;
use super::predict::Bound;
use candlescope_work::devices::Origin;
use candlescope_work::estimate::Estimate;
use serde::Serialize;

/// One device's latencies, throughput and price for the model and question that all rows share.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DeviceRow {
    /// Name of the device, of which there may be several.
    pub device: String,
    /// Where its peaks come from.
    pub origin: Origin,
    /// Whether the batch fits; `None` if its memory is not known.
    pub fits: Option<bool>,
    /// Time to first token in nanoseconds.
    pub ttft_ns: Option<Estimate>,
    /// Time per output token in nanoseconds.
    pub tpot_ns: Option<Estimate>,
    /// What launches cost is not known and left out: times are lower bounds, rates upper ones.
    pub launches_unknown: bool,
    /// A prefill on the device alone, in nanoseconds.
    pub ttft_on_device_ns: Option<f64>,
    /// A token on the device alone, in nanoseconds. It has what a small kernel takes at least only where that is known.
    pub tpot_on_device_ns: Option<f64>,
    /// The least time of a token, which no program can undercut, in nanoseconds: what can be compared between all devices.
    pub tpot_least_ns: Option<f64>,
    /// What decides a token's time.
    pub bound: Option<Bound>,
    /// Output tokens a second of all sequences.
    pub tokens_per_s: Option<f64>,
    /// The most sequences that fit.
    pub largest_batch: Option<u64>,
    /// The batch that is recommended: that of the goal, else the knee.
    pub recommended_batch: Option<u64>,
    /// Output tokens a second at that batch.
    pub recommended_tokens_per_s: Option<f64>,
    /// Price of all devices for an hour.
    pub price_per_hour: Option<f64>,
    /// Price of a million output tokens at the batch asked for.
    pub price_per_million: Option<f64>,
    /// The same at the recommended batch.
    pub recommended_price_per_million: Option<f64>,
}

/// The row of a prediction; `price` is what one device costs for an hour.
pub fn device_row(outlook: &Outlook, price: Option<f64>) -> DeviceRow {
    let price_per_hour = price.map(|price| price * outlook.scenario.devices as f64);
    let per_million = |rate: Option<f64>| {
        let rate = rate.filter(|rate| *rate > 0.0)?;
        Some(price_per_hour? / 3_600.0 / rate * 1e6)
    };
    let recommended_batch = outlook.recommended.batch.or(outlook.recommended.knee);
    let recommended_tokens_per_s = recommended_batch.and_then(|batch| outlook.tokens_per_s_at(batch));
    let fits = outlook.largest_batch.map(|most| outlook.scenario.batch <= most);
    // What does not fit makes no tokens, and costs nothing.
    let tokens_per_s = outlook.tokens_per_s.filter(|_| fits != Some(false));
    DeviceRow {
        device: outlook.device.name.clone(),
        origin: outlook.device.origin,
        fits,
        ttft_ns: outlook.prefill.ns,
        tpot_ns: outlook.decode.ns,
        launches_unknown: outlook.decode.launches_unknown,
        ttft_on_device_ns: outlook.prefill.device_ns,
        tpot_on_device_ns: outlook.decode.device_ns,
        tpot_least_ns: outlook.decode.least_ns,
        bound: outlook.decode.bound,
        tokens_per_s,
        largest_batch: outlook.largest_batch,
        recommended_batch,
        recommended_tokens_per_s,
        price_per_hour,
        price_per_million: per_million(tokens_per_s),
        recommended_price_per_million: per_million(recommended_tokens_per_s),
    }
}
