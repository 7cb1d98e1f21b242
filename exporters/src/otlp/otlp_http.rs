//! OTLP over HTTP with protobuf bodies.
//!
//! The client is ureq, which works on the calling thread: an attempt ends at its timeout, whatever the collector does.

use super::attempt::{Attempt, Message, SendError, reason};
use super::sealed::Address;
use super::settings::{Settings, Signal};
use flate2::Compression;
use flate2::write::GzEncoder;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceResponse;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceResponse;
use prost::Message as _;
use std::error::Error as _;
use std::io::{Read, Write};
use std::time::Duration;

/// Longest response that is read. Collectors send nothing or a sentence.
const MAX_ANSWER: u64 = 64 * 1024;

const PORT: &str = "HTTP port (usually 4318)";

#[derive(Debug)]
pub(super) struct Http {
    agent: ureq::Agent,
    address: Address,
    gzip: bool,
}

/// A request that may be made more than once.
#[derive(Debug)]
pub(super) struct Post {
    body: Vec<u8>,
    signal: Signal,
}

impl Http {
    pub(super) fn new(settings: &Settings) -> Result<Self, SendError> {
        let tls = settings.tls.for_http().map_err(|e| SendError::Client(e.to_string()))?;
        let address = Address::new(&settings.endpoint, &settings.headers, tls)?;
        // Redirects are not followed, because headers may contain credentials.
        let agent = ureq::AgentBuilder::new()
            .redirects(0)
            .user_agent(concat!("OTel-OTLP-Exporter-candlescope/", env!("CARGO_PKG_VERSION")))
            .tls_connector(address.connector.clone());
        Ok(Self { agent: agent.build(), address, gzip: settings.gzip })
    }

    pub(super) fn prepare(&self, message: Message) -> Result<Post, SendError> {
        let (body, signal) = match message {
            Message::Traces(message) => (message.encode_to_vec(), Signal::Traces),
            Message::Metrics(message) => (message.encode_to_vec(), Signal::Metrics),
        };
        if !self.gzip {
            return Ok(Post { body, signal });
        }
        let mut encoder = GzEncoder::new(Vec::with_capacity(body.len() / 4), Compression::fast());
        let compressed = encoder.write_all(&body).and_then(|()| encoder.finish());
        compressed.map(|body| Post { body, signal }).map_err(|e| SendError::Client(e.to_string()))
    }

    pub(super) fn attempt(&self, post: &Post, timeout: Duration) -> Attempt {
        let mut request =
            self.agent.post(&self.address.url).timeout(timeout).set("content-type", "application/x-protobuf");
        if self.gzip {
            request = request.set("content-encoding", "gzip");
        }
        for (name, value) in &self.address.fields {
            request = request.set(name, value);
        }
        match request.send_bytes(&post.body) {
            Ok(answer) => Attempt::Done(accepted(answer, post.signal)),
            Err(ureq::Error::Status(status, answer)) => {
                let asked = answer.header("retry-after").and_then(|s| s.trim().parse().ok()).map(Duration::from_secs);
                let mut text = Vec::new();
                // A body that cannot be read is ignored.
                let _ = answer.into_reader().take(1_000).read_to_end(&mut text);
                let said = reason(std::str::from_utf8(&text).unwrap_or_default());
                // The statuses that OTLP says to retry.
                match status {
                    429 | 502 | 503 | 504 => Attempt::Again(SendError::Refused(status.to_string(), said), asked),
                    400 | 413 => Attempt::Done(Err(SendError::Unwanted(status.to_string(), said))),
                    _ => Attempt::Done(Err(SendError::Refused(status.to_string(), said))),
                }
            }
            Err(ureq::Error::Transport(error)) => {
                let fault = SendError::Unreachable(without_url(&error));
                match error.kind() {
                    ureq::ErrorKind::BadStatus | ureq::ErrorKind::BadHeader => {
                        Attempt::Done(Err(SendError::NotOtlp(PORT)))
                    }
                    ureq::ErrorKind::InvalidUrl | ureq::ErrorKind::UnknownScheme => Attempt::Done(Err(fault)),
                    _ => Attempt::Again(fault, None),
                }
            }
        }
    }
}

/// The error without the address: its own text begins with the whole URL, including credentials.
fn without_url(error: &ureq::Transport) -> String {
    let mut text = error.kind().to_string();
    let source = error.source().map(ToString::to_string);
    for part in error.message().map(str::to_string).into_iter().chain(source) {
        text.push_str(": ");
        text.push_str(&part);
    }
    text
}

/// Reads a success response: how many items were rejected all the same.
fn accepted(answer: ureq::Response, signal: Signal) -> Result<u64, SendError> {
    if answer.status() != 200 {
        // 204 and the like say nothing more.
        return match answer.status() {
            201..=299 => Ok(0),
            status => Err(SendError::Refused(status.to_string(), String::new())),
        };
    }
    let mut body = Vec::new();
    let read = answer.into_reader().take(MAX_ANSWER + 1).read_to_end(&mut body);
    // Many invalid bodies decode as unknown fields; a body of this length is invalid in any case.
    if read.map_err(|e| SendError::Unreachable(e.to_string()))? as u64 > MAX_ANSWER {
        return Err(SendError::NotOtlp(PORT));
    }
    let rejected = match signal {
        Signal::Traces => ExportTraceServiceResponse::decode(body.as_slice())
            .map(|message| message.partial_success.map_or(0, |partial| partial.rejected_spans)),
        Signal::Metrics => ExportMetricsServiceResponse::decode(body.as_slice())
            .map(|message| message.partial_success.map_or(0, |partial| partial.rejected_data_points)),
    };
    Ok(u64::try_from(rejected.map_err(|_| SendError::NotOtlp(PORT))?).unwrap_or(0))
}
