//! OTLP over gRPC.
//!
//! tonic needs a tokio runtime. It gets one that runs on the exporter's thread and only while that thread sends: the
//! application needs no runtime, and one that it has is not used.

use super::attempt::{Attempt, Message, SendError, reason};
use super::settings::Settings;
use candlescope_core::exporter::describe;
use opentelemetry_proto::tonic::collector::metrics::v1::metrics_service_client::MetricsServiceClient;
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_client::TraceServiceClient;
use prost::Message as _;
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};
use tonic::codec::CompressionEncoding;
use tonic::metadata::{MetadataKey, MetadataMap, MetadataValue};
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};

pub(super) struct Grpc {
    endpoint: Endpoint,
    metadata: MetadataMap,
    gzip: bool,
    connected: Option<GrpcConnection>,
}

impl std::fmt::Debug for Grpc {
    /// Without the address and the metadata, which may hold credentials.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Grpc").field("gzip", &self.gzip).field("connected", &self.connected).finish_non_exhaustive()
    }
}

/// Made with the first message, on the thread that sends: the thread that starts a session may belong to a runtime.
#[derive(Debug)]
struct GrpcConnection {
    channel: Channel,
    runtime: Option<Runtime>,
}

impl Drop for GrpcConnection {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            // Looking up a name may take minutes, and ending a session must not wait for that.
            runtime.shutdown_background();
        }
    }
}

impl Grpc {
    pub(super) fn new(settings: &Settings) -> Result<Self, SendError> {
        let client = |e: tonic::transport::Error| SendError::Client(describe(&e));
        let mut endpoint = Endpoint::from_shared(settings.endpoint.expose().to_string())
            .and_then(|e| e.user_agent(concat!("OTel-OTLP-Exporter-candlescope/", env!("CARGO_PKG_VERSION"))))
            .map_err(client)?;
        if settings.endpoint.expose().starts_with("https://") {
            endpoint = endpoint.tls_config(settings.tls.for_grpc()).map_err(client)?;
        }
        let mut metadata = MetadataMap::new();
        for (name, value) in settings.headers.iter() {
            let wrong = || SendError::Client(format!("`{name}` and its value are no header of gRPC"));
            let key = MetadataKey::from_bytes(name.as_bytes()).map_err(|_| wrong())?;
            metadata.insert(key, MetadataValue::try_from(value.as_str()).map_err(|_| wrong())?);
        }
        Ok(Self { endpoint, metadata, gzip: settings.gzip, connected: None })
    }

    pub(super) fn attempt(&mut self, message: &Message, timeout: Duration) -> Attempt {
        if let Err(error) = self.connect() {
            return Attempt::Done(Err(SendError::Client(error.to_string())));
        }
        let Some(GrpcConnection { channel, runtime: Some(runtime) }) = &self.connected else {
            return Attempt::Done(Err(SendError::NoTime));
        };
        let channel = channel.clone();
        let send = async {
            match message {
                Message::Traces(message) => {
                    let mut client = TraceServiceClient::new(channel);
                    if self.gzip {
                        client = client.send_compressed(CompressionEncoding::Gzip);
                    }
                    let answer = client.export(self.request(message.clone())).await?.into_inner();
                    Ok(answer.partial_success.map_or(0, |partial| partial.rejected_spans))
                }
                Message::Metrics(message) => {
                    let mut client = MetricsServiceClient::new(channel);
                    if self.gzip {
                        client = client.send_compressed(CompressionEncoding::Gzip);
                    }
                    let answer = client.export(self.request(message.clone())).await?.into_inner();
                    Ok(answer.partial_success.map_or(0, |partial| partial.rejected_data_points))
                }
            }
        };
        match runtime.block_on(async { tokio::time::timeout(timeout, send).await }) {
            Err(_) => Attempt::Again(SendError::Unreachable("no answer in time".into()), None),
            Ok(Ok(rejected)) => Attempt::Done(Ok(u64::try_from(rejected).unwrap_or(0))),
            Ok(Err(status)) => failed(&status),
        }
    }

    fn request<T>(&self, message: T) -> tonic::Request<T> {
        let mut request = tonic::Request::new(message);
        *request.metadata_mut() = self.metadata.clone();
        request
    }

    /// The connection itself is made by the first message, and made again when it is lost.
    fn connect(&mut self) -> std::io::Result<()> {
        if self.connected.is_none() {
            let runtime = Builder::new_current_thread().enable_all().thread_name("cs-otlp-dns").build()?;
            let channel = {
                let _inside = runtime.enter();
                self.endpoint.connect_lazy()
            };
            self.connected = Some(GrpcConnection { channel, runtime: Some(runtime) });
        }
        Ok(())
    }
}

/// What OTLP specifies for a status.
fn failed(status: &Status) -> Attempt {
    let name = format!("{:?}", status.code());
    let said = reason(status.message());
    // An error made by the client itself has a cause; a status from a server has none.
    if let Some(cause) = std::error::Error::source(status) {
        return Attempt::Again(SendError::Unreachable(describe(cause)), None);
    }
    match (status.code(), asked_to_wait(status.details())) {
        (Code::InvalidArgument, _) => Attempt::Done(Err(SendError::Unwanted(name, said))),
        (Code::ResourceExhausted, Some(wait)) => Attempt::Again(SendError::Refused(name, said), Some(wait)),
        (
            Code::Cancelled
            | Code::DeadlineExceeded
            | Code::Aborted
            | Code::OutOfRange
            | Code::Unavailable
            | Code::DataLoss,
            wait,
        ) => Attempt::Again(SendError::Refused(name, said), wait),
        _ => Attempt::Done(Err(SendError::Refused(name, said))),
    }
}

/// The part of `google.rpc.Status` that is needed here.
#[derive(Clone, PartialEq, prost::Message)]
struct RpcStatus {
    #[prost(message, repeated, tag = "3")]
    details: Vec<Any>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Any {
    #[prost(string, tag = "1")]
    type_url: String,
    #[prost(bytes = "vec", tag = "2")]
    value: Vec<u8>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct RetryInfo {
    #[prost(message, optional, tag = "1")]
    retry_delay: Option<Delay>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Delay {
    #[prost(int64, tag = "1")]
    seconds: i64,
    #[prost(int32, tag = "2")]
    nanos: i32,
}

/// How long to wait before the next attempt, if the collector allows one.
fn asked_to_wait(details: &[u8]) -> Option<Duration> {
    let status = RpcStatus::decode(details).ok()?;
    let info = status.details.iter().find(|any| any.type_url.ends_with("google.rpc.RetryInfo"))?;
    let delay = RetryInfo::decode(info.value.as_slice()).ok()?.retry_delay.unwrap_or_default();
    Some(Duration::new(u64::try_from(delay.seconds).unwrap_or(0), u32::try_from(delay.nanos).unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_collector_out_of_resources_is_asked_again_only_if_it_says_when() {
        let info = RetryInfo { retry_delay: Some(Delay { seconds: 2, nanos: 500_000_000 }) }.encode_to_vec();
        let any = Any { type_url: "type.googleapis.com/google.rpc.RetryInfo".into(), value: info };
        let details = RpcStatus { details: vec![any] }.encode_to_vec();
        assert_eq!(asked_to_wait(&details), Some(Duration::from_millis(2_500)));
        assert_eq!(asked_to_wait(b"\xff nonsense"), None);
        let full = Status::with_details(Code::ResourceExhausted, "full", details.into());
        assert!(matches!(failed(&full), Attempt::Again(SendError::Refused(..), Some(_))));
        assert!(matches!(failed(&Status::resource_exhausted("full")), Attempt::Done(Err(SendError::Refused(..)))));
        assert!(matches!(failed(&Status::invalid_argument("no")), Attempt::Done(Err(SendError::Unwanted(..)))));
        assert!(matches!(failed(&Status::unavailable("later")), Attempt::Again(..)));
        assert!(matches!(failed(&Status::unimplemented("never")), Attempt::Done(Err(SendError::Refused(..)))));
    }
}
