//! The OpenTelemetry collector that a run is sent to.

/// The OpenTelemetry collector at `endpoint`, or the one that the `OTEL_*` variables name.
pub(crate) fn collector(endpoint: Option<&str>) -> candlescope::otlp::OtlpConfig {
    let config = endpoint.map_or_else(candlescope::otlp::OtlpConfig::default, candlescope::otlp::OtlpConfig::new);
    // This program sets its service name, but a name given by the user has precedence.
    let named = std::env::var_os("OTEL_SERVICE_NAME").is_some_and(|name| !name.is_empty())
        || std::env::var("OTEL_RESOURCE_ATTRIBUTES").is_ok_and(|list| list.contains("service.name="));
    if named { config } else { config.service_name("candlescope") }
}
