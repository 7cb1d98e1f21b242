//! A program's endpoint: its address, and one request to it.

use crate::program::Counters;
use candlescope_core::RedactedUrl;
use candlescope_exporters::prometheus::DEFAULT_PORT;
use std::io::Read;
use std::time::Duration;

/// Some 500 paths with all their buckets take 5 MB.
const MOST_BYTES: u64 = 32 << 20;

/// Completes `PORT`, `HOST`, `HOST:PORT` or a URL to the URL of the metrics.
pub(crate) fn url(address: &str) -> RedactedUrl {
    let text = address.trim();
    if let Some((scheme, rest)) = text.split_once("://") {
        let path = if rest.trim_end_matches('/').contains('/') { "" } else { "/metrics" };
        let rest = if path.is_empty() { rest } else { rest.trim_end_matches('/') };
        return format!("{scheme}://{rest}{path}").into();
    }
    let port = text.strip_prefix(':').unwrap_or(text);
    let place = match text.parse::<std::net::Ipv6Addr>() {
        Ok(ip) => format!("[{ip}]:{DEFAULT_PORT}"),
        Err(_) if port.parse::<u16>().is_ok() => format!("127.0.0.1:{port}"),
        Err(_) if text.contains("]:") || (text.contains(':') && !text.ends_with(']')) => text.to_string(),
        Err(_) => format!("{text}:{DEFAULT_PORT}"),
    };
    format!("http://{place}/metrics").into()
}

/// What an endpoint is called where its program is not known: its host and port.
pub(crate) fn place(url: &RedactedUrl) -> String {
    let shown = url.to_string();
    let rest = shown.split_once("://").map_or(shown.as_str(), |(_, rest)| rest);
    rest.split('/').next().unwrap_or(rest).to_string()
}

/// Reads the metrics.
///
/// # Errors
/// Why there are none, in one line without the address.
pub(crate) fn read(url: &RedactedUrl, timeout: Duration) -> Result<Counters, String> {
    let agent = ureq::AgentBuilder::new().timeout(timeout).redirects(0).build();
    let answer = match agent.get(url.expose()).call() {
        Ok(answer) => answer,
        Err(ureq::Error::Status(status, _)) => return Err(format!("it answers with status {status}")),
        Err(ureq::Error::Transport(error)) => return Err(reason(&error)),
    };
    let mut body = Vec::new();
    let read = answer.into_reader().take(MOST_BYTES + 1).read_to_end(&mut body);
    read.map_err(|error| format!("the answer breaks off: {error}"))?;
    if body.len() as u64 > MOST_BYTES {
        return Err(format!("the answer has more than {MOST_BYTES} bytes"));
    }
    let counters = Counters::of(&String::from_utf8_lossy(&body));
    counters.ok_or_else(|| "the answer has none of candlescope's metrics".to_string())
}

/// The innermost cause, which says it best and does not repeat the address.
pub(crate) fn reason(error: &ureq::Transport) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(next) = cause.source() {
        cause = next;
    }
    let text = cause.to_string();
    match std::ptr::addr_eq(cause, error) {
        // ureq's own message begins with the URL, which may hold a password.
        true => error.message().unwrap_or("no answer").to_string(),
        false => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::net::TcpListener;

    #[test]
    fn addresses_are_completed() {
        for (given, full) in [
            ("9464", "http://127.0.0.1:9464/metrics"),
            (":1", "http://127.0.0.1:1/metrics"),
            ("gpu-box", "http://gpu-box:9464/metrics"),
            (" gpu-box:80 ", "http://gpu-box:80/metrics"),
            ("::1", "http://[::1]:9464/metrics"),
            ("[::1]:80", "http://[::1]:80/metrics"),
            ("[::1]", "http://[::1]:9464/metrics"),
            ("http://h:1/", "http://h:1/metrics"),
            ("https://h/own", "https://h/own"),
        ] {
            assert_eq!(url(given).expose(), full);
        }
        assert!(!place(&url("http://user:secret@h:1/x")).contains("secret"));
        assert_eq!(place(&url("9464")), "127.0.0.1:9464");
    }

    /// Answers one request with these bytes.
    fn served(bytes: &'static [u8]) -> RedactedUrl {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = [0; 4096];
            let _ = stream.read(&mut request);
            let _ = stream.write_all(bytes);
        });
        url(&address.to_string())
    }

    #[test]
    fn what_is_no_metrics_is_told_in_one_line() {
        let limit = Duration::from_secs(30);
        let told = |bytes| read(&served(bytes), limit);
        assert!(told(b"HTTP/1.1 200 OK\r\n\r\ncandlescope_requests_active 1\n").is_ok());
        assert!(told(b"HTTP/1.1 503 No\r\n\r\n").unwrap_err().contains("503"));
        assert!(told(b"HTTP/1.1 200 OK\r\n\r\n<html>").unwrap_err().contains("none of candlescope's"));
        assert!(!told(b"\0\0").unwrap_err().contains('\n'));
        let nobody = read(&"http://user:secret@127.0.0.1:1/metrics".into(), limit).unwrap_err();
        assert!(nobody.to_lowercase().contains("refused") && !nobody.contains("secret"), "{nobody}");
    }
}
