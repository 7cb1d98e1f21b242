//! Prometheus' HTTP API: one question, one answer.

use super::answer::{NoResult, Series, series};
use super::plan::Span;
use super::prometheus_error::PrometheusError;
use crate::endpoint::reason;
use candlescope_core::RedactedUrl;
use candlescope_core::redacted_url::scrub;
use std::io::Read;
use std::time::Duration;

/// Larger answers are none to these questions.
const MOST_BYTES: u64 = 32 << 20;
/// Characters of what Prometheus says that an error shows.
const MOST_SAID: usize = 300;

/// Where questions go.
pub(super) struct Prometheus {
    url: RedactedUrl,
    key: Option<String>,
    agent: ureq::Agent,
}

impl Prometheus {
    /// # Errors
    /// When the address is none of HTTP.
    pub(super) fn new(url: RedactedUrl, key: Option<String>, timeout: Duration) -> Result<Self, PrometheusError> {
        let text = url.expose().trim().trim_end_matches('/');
        let place = text.strip_prefix("http://").or_else(|| text.strip_prefix("https://"));
        if place.is_none_or(|place| place.is_empty() || place.contains(['?', '#'])) {
            return Err(PrometheusError::NoAddress { url });
        }
        let agent = ureq::AgentBuilder::new().timeout(timeout).redirects(0).build();
        Ok(Self { url: text.into(), key, agent })
    }

    /// Its address, which shows no credentials.
    pub(super) fn url(&self) -> RedactedUrl {
        self.url.clone()
    }

    /// The series of a query at the end of each part of a window.
    ///
    /// # Errors
    /// When there is no answer.
    pub(super) fn range(&self, query: &str, span: Span, every_s: i64) -> Result<Vec<Series>, PrometheusError> {
        let (start, end, step) = ((span.from_s + every_s).to_string(), span.to_s.to_string(), every_s.to_string());
        self.ask("query_range", &[("query", query), ("start", &start), ("end", &end), ("step", &step)])
    }

    /// The series of a query at one time.
    ///
    /// # Errors
    /// When there is no answer.
    pub(super) fn at(&self, query: &str, time_s: i64) -> Result<Vec<Series>, PrometheusError> {
        self.ask("query", &[("query", query), ("time", &time_s.to_string())])
    }

    fn ask(&self, what: &str, arguments: &[(&str, &str)]) -> Result<Vec<Series>, PrometheusError> {
        let mut request = self.agent.get(&format!("{}/api/v1/{what}", self.url.expose()));
        for (name, value) in arguments {
            request = request.query(name, value);
        }
        if let Some(key) = &self.key {
            request = request.set("Authorization", &format!("Bearer {key}"));
        }
        let answer = match request.call() {
            Ok(answer) | Err(ureq::Error::Status(_, answer)) => answer,
            Err(ureq::Error::Transport(error)) => return Err(self.silent(&reason(&error))),
        };
        let status = answer.status();
        if matches!(status, 401 | 403 | 407) {
            return Err(PrometheusError::NotAllowed { url: self.url(), status });
        }
        let body = self.body(answer)?;
        series(&body).map_err(|error| match error {
            NoResult::Error(why) => self.refused(status, &why),
            NoResult::Other(why) if status == 200 => PrometheusError::NoPrometheus { url: self.url(), why },
            NoResult::Other(why) => {
                let why = format!("it answers with status {status}, and {why}");
                PrometheusError::NoPrometheus { url: self.url(), why }
            }
        })
    }

    fn body(&self, answer: ureq::Response) -> Result<String, PrometheusError> {
        let mut body = Vec::new();
        let read = answer.into_reader().take(MOST_BYTES + 1).read_to_end(&mut body);
        read.map_err(|error| self.silent(&format!("its answer breaks off: {error}")))?;
        if body.len() as u64 > MOST_BYTES {
            let why = format!("its answer has more than {MOST_BYTES} bytes");
            return Err(PrometheusError::NoPrometheus { url: self.url(), why });
        }
        Ok(String::from_utf8_lossy(&body).into_owned())
    }

    fn silent(&self, why: &str) -> PrometheusError {
        PrometheusError::Silent { url: self.url(), why: self.shown(why) }
    }

    fn refused(&self, status: u16, why: &str) -> PrometheusError {
        let hint = match status {
            400 => "; if you gave --select, correct it: matchers as in PromQL, such as job=\"api\"",
            422 | 503 => "; try a shorter --last, or fewer --windows",
            _ => "",
        };
        PrometheusError::Refused { url: self.url(), why: self.shown(why), hint }
    }

    /// The words of others in one line, without credentials.
    fn shown(&self, said: &str) -> String {
        let said = scrub(&self.url.scrub(said), self.key.as_deref());
        let plain: String = said.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        plain.chars().take(MOST_SAID).collect()
    }
}
