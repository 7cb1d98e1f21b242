//! Services that a run is sent to: OpenTelemetry collectors and Prometheus.

use anyhow::Result;
use candlescope_core::RedactedUrl;

#[cfg(feature = "otlp")]
pub(crate) fn otlp(builder: candlescope::Builder, endpoint: &RedactedUrl) -> Result<candlescope::Builder> {
    Ok(builder.otlp_with(collector(Some(endpoint.expose()))))
}
#[cfg(not(feature = "otlp"))]
pub(crate) fn otlp(_: candlescope::Builder, _: &RedactedUrl) -> Result<candlescope::Builder> {
    Err(crate::lacking::default_feature("--otlp", "otlp"))
}

/// The OpenTelemetry collector at `endpoint`, or the one that the `OTEL_*` variables name.
#[cfg(feature = "otlp")]
pub(crate) fn collector(endpoint: Option<&str>) -> candlescope::OtlpConfig {
    let config = endpoint.map_or_else(candlescope::OtlpConfig::default, candlescope::OtlpConfig::new);
    // This program sets its service name, but a name given by the user has precedence.
    let named = std::env::var_os("OTEL_SERVICE_NAME").is_some_and(|name| !name.is_empty())
        || std::env::var("OTEL_RESOURCE_ATTRIBUTES").is_ok_and(|list| list.contains("service.name="));
    if named { config } else { config.service_name("candlescope") }
}

#[cfg(feature = "prometheus")]
pub(crate) fn prometheus(builder: candlescope::Builder, address: &str) -> Result<candlescope::Builder> {
    Ok(builder.prometheus(address))
}
#[cfg(not(feature = "prometheus"))]
pub(crate) fn prometheus(_: candlescope::Builder, _: &str) -> Result<candlescope::Builder> {
    Err(crate::lacking::default_feature("--prometheus", "prometheus"))
}
