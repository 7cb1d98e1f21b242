//! The server's address, and where its API is.

use crate::error::LoadError;
use candlescope_core::RedactedUrl;
use url::Url;

/// What people give as a server's address, with or without the API's path, taken apart.
#[derive(Debug, Clone)]
pub(crate) struct Address {
    url: Url,
    /// Path of the API without a slash at its end: `/v1`.
    base: String,
    /// The endpoint, if the address names it.
    pub(crate) endpoint: Option<&'static str>,
}

pub(crate) const CHAT: &str = "/chat/completions";
pub(crate) const COMPLETIONS: &str = "/completions";

impl Address {
    pub(crate) fn parse(given: &RedactedUrl) -> Result<Self, LoadError> {
        let wrong = |why: String| LoadError::Address { url: given.clone(), why };
        let text = given.expose().trim();
        let with_scheme = if text.contains("://") { text.to_string() } else { format!("http://{text}") };
        let url = Url::parse(&with_scheme).map_err(|e| wrong(e.to_string()))?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(wrong(format!("the scheme {} is not spoken", url.scheme())));
        }
        if url.host_str().is_none_or(str::is_empty) {
            return Err(wrong("it has no host".to_string()));
        }
        if !url.username().is_empty() || url.password().is_some() {
            let why = "user and password in an address are not sent: name a variable with the key by --api-key-env";
            return Err(wrong(why.to_string()));
        }
        let path = url.path().trim_end_matches('/').to_string();
        let ends = [CHAT, COMPLETIONS].into_iter().find(|end| path.ends_with(end));
        let base = ends.map_or(path.as_str(), |end| &path[..path.len() - end.len()]);
        // A path that ends in a version is the API's own; anything else stands before it.
        let is_version =
            |name: &str| name.strip_prefix('v').is_some_and(|n| !n.is_empty() && n.chars().all(|c| c.is_ascii_digit()));
        let versioned = ends.is_some() || base.rsplit('/').next().is_some_and(is_version);
        let base = if versioned { base.to_string() } else { format!("{base}/v1") };
        Ok(Self { url, base, endpoint: ends })
    }

    pub(crate) fn is_tls(&self) -> bool {
        self.url.scheme() == "https"
    }

    /// Host as in the address, for TLS and for looking it up: without the brackets of IPv6.
    pub(crate) fn host(&self) -> &str {
        self.url.host_str().unwrap_or_default().trim_start_matches('[').trim_end_matches(']')
    }

    pub(crate) fn port(&self) -> u16 {
        self.url.port_or_known_default().unwrap_or(80)
    }

    /// For the header `Host`.
    pub(crate) fn authority(&self) -> String {
        let host = self.url.host_str().unwrap_or_default();
        self.url.port().map_or_else(|| host.to_string(), |port| format!("{host}:{port}"))
    }

    /// Path and query of an endpoint of the API, such as `/models`.
    pub(crate) fn target(&self, endpoint: &str) -> String {
        let query = self.url.query().map_or_else(String::new, |query| format!("?{query}"));
        format!("{}{endpoint}{query}", self.base)
    }

    /// Path and query exactly as given.
    pub(crate) fn exact(&self) -> String {
        let query = self.url.query().map_or_else(String::new, |query| format!("?{query}"));
        format!("{}{query}", self.url.path())
    }

    /// The address of an endpoint, as it may be shown.
    pub(crate) fn shown(&self, endpoint: &str) -> RedactedUrl {
        RedactedUrl::new(format!("{}://{}{}", self.url.scheme(), self.authority(), self.target(endpoint)))
    }

    /// The server's `/metrics`, where it usually is.
    pub(crate) fn metrics(&self) -> RedactedUrl {
        RedactedUrl::new(format!("{}://{}/metrics", self.url.scheme(), self.authority()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_as_people_give_them() {
        for (given, target) in [
            ("localhost:8080", "/v1/models"),
            ("http://localhost:8080/", "/v1/models"),
            ("http://h/v1/", "/v1/models"),
            ("https://h/api/paas/v4", "/api/paas/v4/models"),
            ("https://h/openai", "/openai/v1/models"),
            ("http://h/v1/chat/completions", "/v1/models"),
            ("http://h/v1?api-version=2", "/v1/models?api-version=2"),
            ("http://[::1]:9", "/v1/models"),
        ] {
            let address = Address::parse(&given.into()).unwrap();
            assert_eq!(address.target("/models"), target, "{given}");
        }
        let chat = Address::parse(&"http://h/v1/chat/completions".into()).unwrap();
        assert_eq!(chat.endpoint, Some(CHAT));
        let v6 = Address::parse(&"http://[::1]:9/x".into()).unwrap();
        assert_eq!((v6.host(), v6.port(), v6.authority().as_str()), ("::1", 9, "[::1]:9"));
        assert_eq!(Address::parse(&"https://h".into()).unwrap().port(), 443);
        assert_eq!(v6.metrics().expose(), "http://[::1]:9/metrics");
    }

    #[test]
    fn what_is_no_address_is_said_without_its_secrets() {
        for given in ["ftp://h", "http://", "http://user:hunter22@h", "http://a b"] {
            let error = Address::parse(&given.into()).unwrap_err().to_string();
            assert!(error.contains("http://HOST:PORT") && !error.contains("hunter22"), "{error}");
        }
    }
}
