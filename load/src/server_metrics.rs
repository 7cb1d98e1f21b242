//! What the server's own metrics say about the load: read before and after it.

use crate::address::Address;
use crate::budget::Budget;
use crate::clock::Clock;
use crate::connect::Connections;
use crate::exchange::Client;
use candlescope_core::RedactedUrl;
use candlescope_exporters::prometheus::exposition::{label, parse};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

/// Longest wait for an answer.
const LIMIT: Duration = Duration::from_secs(5);
/// More series than this are not kept.
const MOST_CHANGED: usize = 2000;
/// The series of candlescope that names the run.
const RUN_INFO: &str = "candlescope_run_info{";

/// A series whose value changed.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct ChangedSeries {
    /// Before the first stage; absent for a series that was not there.
    pub before: Option<f64>,
    /// After the last one.
    pub after: f64,
}

/// The server's metrics before and after the load.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct ServerMetrics {
    /// Where they were looked for.
    pub url: RedactedUrl,
    /// Why there are none, or none after the load.
    pub absent: Option<String>,
    /// Whether they were read before the load.
    #[serde(skip)]
    pub(crate) found_before: bool,
    /// The run of candlescope that observes the server, if it says so.
    pub run: Option<String>,
    /// Series that changed, warm-up and first requests included.
    pub changed: BTreeMap<String, ChangedSeries>,
    /// Means of the histograms that changed: change of the sum / change of the count, in the histogram's unit.
    pub means: BTreeMap<String, f64>,
}

/// Metrics before the load.
pub(crate) struct MetricsBefore {
    url: RedactedUrl,
    read: Result<BTreeMap<String, f64>, String>,
}

/// Reads metrics; the key for the API is not sent.
async fn read(url: &RedactedUrl, ca_file: Option<&Path>, clock: Clock) -> Result<BTreeMap<String, f64>, String> {
    let address = Address::parse(url).map_err(|e| e.to_string())?;
    let connections = Connections::to(&address, ca_file).await.map_err(|e| e.to_string())?;
    let client = Client::new(clock, Budget::new(u64::MAX), connections, &address.authority(), url.clone(), None)?;
    let plain = client.get(&address.exact(), LIMIT).await.map_err(|f| f.to_string())?;
    if plain.status != 200 {
        return Err(format!("status {}", plain.status));
    }
    let found = parse(&String::from_utf8_lossy(&plain.body));
    if found.is_empty() { Err("the answer has no metrics in Prometheus's format".to_string()) } else { Ok(found) }
}

impl MetricsBefore {
    pub(crate) async fn read(url: RedactedUrl, ca_file: Option<&Path>, clock: Clock) -> Self {
        let read = read(&url, ca_file, clock).await;
        Self { url, read }
    }

    /// Reads them again.
    pub(crate) async fn after(&self, ca_file: Option<&Path>, clock: Clock) -> ServerMetrics {
        match &self.read {
            Ok(before) => match read(&self.url, ca_file, clock).await {
                Ok(after) => compare(self.url.clone(), before, &after),
                Err(why) => self.absent(run_of(before), format!("read before the load, and not after it: {why}")),
            },
            Err(why) => self.absent(None, why.clone()),
        }
    }

    fn absent(&self, run: Option<String>, why: String) -> ServerMetrics {
        let (changed, means) = (BTreeMap::new(), BTreeMap::new());
        ServerMetrics { url: self.url.clone(), absent: Some(why), found_before: self.read.is_ok(), run, changed, means }
    }
}

fn compare(url: RedactedUrl, before: &BTreeMap<String, f64>, after: &BTreeMap<String, f64>) -> ServerMetrics {
    let mut changed = BTreeMap::new();
    let mut means = BTreeMap::new();
    for (series, &value) in after {
        let was = before.get(series).copied();
        if was == Some(value) {
            continue;
        }
        if let Some((sum, count)) = histogram(series).and_then(|(sum, count)| Some((after.get(&sum)?, count))) {
            let grown = |series: &str, now: f64| now - before.get(series).copied().unwrap_or(0.0);
            let (sum_of, n) = (histogram(series).map_or_else(String::new, |h| h.0), grown(series, value));
            // A server that began anew meanwhile counts from zero.
            if n > 0.0 && grown(&sum_of, *sum) >= 0.0 {
                means.insert(count, grown(&sum_of, *sum) / n);
            }
        }
        if changed.len() < MOST_CHANGED {
            changed.insert(series.clone(), ChangedSeries { before: was, after: value });
        }
    }
    ServerMetrics { url, absent: None, found_before: true, run: run_of(after), changed, means }
}

/// The run that a server of ours names.
fn run_of(series: &BTreeMap<String, f64>) -> Option<String> {
    let info = series.keys().find(|series| series.starts_with(RUN_INFO))?;
    label(info, "run_id")
}

/// For `name_count{…}` the series of its sum, and the histogram itself.
fn histogram(series: &str) -> Option<(String, String)> {
    let (name, labels) = series.split_at(series.find('{').unwrap_or(series.len()));
    let name = name.strip_suffix("_count")?;
    Some((format!("{name}_sum{labels}"), format!("{name}{labels}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_changed_and_the_means_of_histograms() {
        let before = parse("a 1\nb 5\nh_sum{m=\"x\"} 1.0\nh_count{m=\"x\"} 2\nrequests_count 3\n");
        let after = parse(
            "a 1\nb 7\nc 1\nh_sum{m=\"x\"} 4.0\nh_count{m=\"x\"} 8\nrequests_count 4\ncandlescope_run_info{host=\"h\",run_id=\"r-1\"} 1\n",
        );
        let found = compare("http://h".into(), &before, &after);
        assert_eq!(found.run.as_deref(), Some("r-1"));
        assert_eq!(found.means, BTreeMap::from([("h{m=\"x\"}".to_string(), 0.5)]));
        assert_eq!(found.changed["b"], ChangedSeries { before: Some(5.0), after: 7.0 });
        assert_eq!(found.changed["c"], ChangedSeries { before: None, after: 1.0 });
        assert!(!found.changed.contains_key("a"));
        // The server began anew: what it counted before is not taken off.
        let anew = parse("h_sum{m=\"x\"} 0.5\nh_count{m=\"x\"} 1\n");
        assert!(compare("http://h".into(), &before, &anew).means.is_empty());
    }
}
