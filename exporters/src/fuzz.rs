//! Access to private parsers for the fuzz targets in `tests/fuzz`. Not part of the API: anything here may change at any
//! time.

/// Whether the bytes are a request that the metrics endpoint reads.
#[cfg(feature = "prometheus")]
pub fn http_request(bytes: &[u8]) -> bool {
    crate::prometheus::reads_request(bytes)
}

/// Whether both kinds of OTLP settings can be made of the variables that `env` has; the variable `url` is the address
/// that the program gives.
#[cfg(feature = "otlp")]
pub fn otlp_settings(env: impl Fn(&str) -> Option<String>) -> bool {
    crate::otlp::settings_resolve(env)
}
