//! Services that a run goes to: OpenTelemetry collectors and Prometheus.

use anyhow::Result;
use candlescope_core::RedactedUrl;

#[cfg(feature = "otlp")]
pub(crate) fn otlp(builder: candlescope::Builder, endpoint: &RedactedUrl) -> Result<candlescope::Builder> {
    Ok(builder.otlp_with(collector(Some(endpoint.expose()))))
}
#[cfg(not(feature = "otlp"))]
pub(crate) fn otlp(_: candlescope::Builder, _: &RedactedUrl) -> Result<candlescope::Builder> {
    anyhow::bail!("--otlp needs a build with the feature otlp, which is on by default")
}

/// The collector at `endpoint`, or the one that the `OTEL_*` variables name.
#[cfg(feature = "otlp")]
pub(crate) fn collector(endpoint: Option<&str>) -> candlescope::OtlpConfig {
    let config = endpoint.map_or_else(candlescope::OtlpConfig::default, candlescope::OtlpConfig::new);
    // This program is no `unknown_service`, but what somebody calls it goes before.
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
    anyhow::bail!("--prometheus needs a build with the feature prometheus, which is on by default")
}
