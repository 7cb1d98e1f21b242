//! The part of HTTP that a scrape needs: parses requests and formats responses. Pure.

/// Longest request head that is read. Prometheus sends some 300 bytes.
pub(super) const MAX_HEAD: usize = 8 * 1024;

/// The state of the bytes received so far.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ParsedHead<'a> {
    /// The head has not ended.
    Partial,
    /// The head is longer than [`MAX_HEAD`].
    TooLarge,
    /// The first line is not `METHOD /target HTTP/1.x`, one space between its words; answered with 400.
    Malformed,
    /// A request; bodies are ignored.
    Request { method: &'a str, path: &'a str, host: NamedHost<'a> },
}

/// The host that a request names.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NamedHost<'a> {
    /// None, which HTTP/1.0 allows.
    NotNeeded,
    /// None although it is required, more than one, or one that is not text.
    Wrong,
    /// This one, with its port if it has one.
    Host(&'a str),
}

/// Parses what has been received.
pub(super) fn parse(bytes: &[u8]) -> ParsedHead<'_> {
    let Some(end) = head_end(bytes) else {
        return if bytes.len() >= MAX_HEAD { ParsedHead::TooLarge } else { ParsedHead::Partial };
    };
    if end > MAX_HEAD {
        return ParsedHead::TooLarge;
    }
    let mut lines = bytes[..end].split(|&b| b == b'\n');
    let line = lines.next().unwrap_or_default();
    let Ok(line) = std::str::from_utf8(line) else { return ParsedHead::Malformed };
    let mut words = line.trim_end_matches('\r').split(' ');
    match (words.next(), words.next(), words.next(), words.next()) {
        (Some(method), Some(target), Some(version), None)
            if version.starts_with("HTTP/1.") && target.starts_with('/') && !method.is_empty() =>
        {
            let path = target.split(['?', '#']).next().unwrap_or(target);
            let host = match host(lines) {
                NamedHost::NotNeeded if version != "HTTP/1.0" => NamedHost::Wrong,
                host => host,
            };
            ParsedHead::Request { method, path, host }
        }
        _ => ParsedHead::Malformed,
    }
}

/// The one field `Host` of a head's lines.
fn host<'a>(lines: impl Iterator<Item = &'a [u8]>) -> NamedHost<'a> {
    let mut named = NamedHost::NotNeeded;
    for line in lines {
        let Some(colon) = line.iter().position(|&b| b == b':') else { continue };
        if !line[..colon].trim_ascii().eq_ignore_ascii_case(b"host") {
            continue;
        }
        named = match (named, std::str::from_utf8(&line[colon + 1..])) {
            (NamedHost::NotNeeded, Ok(name)) => NamedHost::Host(name.trim()),
            _ => return NamedHost::Wrong,
        };
    }
    named
}

/// Position of the empty line that ends a head.
fn head_end(bytes: &[u8]) -> Option<usize> {
    bytes.windows(2).position(|w| w == b"\n\n").or_else(|| bytes.windows(4).position(|w| w == b"\r\n\r\n"))
}

/// A response.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Response {
    pub(super) status: u16,
    pub(super) content_type: &'static str,
    pub(super) body: Vec<u8>,
}

impl Response {
    /// A response with a line of text.
    pub(super) fn text(status: u16, text: &str) -> Self {
        Self { status, content_type: "text/plain; charset=utf-8", body: format!("{text}\n").into_bytes() }
    }

    /// The response as bytes; without its body for `HEAD`. Each connection serves one request.
    pub(super) fn into_bytes(self, head_only: bool) -> Vec<u8> {
        let reason = match self.status {
            200 => "OK",
            400 => "Bad Request",
            404 => "Not Found",
            405 => "Method Not Allowed",
            421 => "Misdirected Request",
            408 => "Request Timeout",
            431 => "Request Header Fields Too Large",
            _ => "Internal Server Error",
        };
        let allow = if self.status == 405 { "Allow: GET, HEAD\r\n" } else { "" };
        let mut bytes = format!(
            "HTTP/1.1 {} {reason}\r\nContent-Type: {}\r\nContent-Length: {}\r\n{allow}Connection: close\r\n\r\n",
            self.status,
            self.content_type,
            self.body.len()
        )
        .into_bytes();
        if !head_only {
            bytes.extend_from_slice(&self.body);
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_read_as_they_trickle_in() {
        let whole = b"GET /metrics?x=1 HTTP/1.1\r\nHost: a\r\n\r\n";
        for n in 0..whole.len() {
            assert_eq!(parse(&whole[..n]), ParsedHead::Partial, "{n}");
        }
        assert_eq!(parse(whole), ParsedHead::Request { method: "GET", path: "/metrics", host: NamedHost::Host("a") });
        let old = ParsedHead::Request { method: "HEAD", path: "/healthz", host: NamedHost::NotNeeded };
        assert_eq!(parse(b"HEAD /healthz HTTP/1.0\n\n"), old);
    }

    #[test]
    fn the_host_is_the_one_field_of_that_name() {
        for (head, named) in [
            ("1.1\r\nAccept: a\r\nHOST:  b:1 \r\n", NamedHost::Host("b:1")),
            ("1.1\r\nX-Host: b\r\n", NamedHost::Wrong),
            ("1.1\r\nhost: a\r\nhost: a\r\n", NamedHost::Wrong),
            ("1.0\r\nhost : a\r\nhost: b\r\n", NamedHost::Wrong),
            ("1.0\r\nhost:\r\n", NamedHost::Host("")),
            ("1.0\r\n", NamedHost::NotNeeded),
        ] {
            let request = format!("GET / HTTP/{head}\r\n");
            let ParsedHead::Request { host, .. } = parse(request.as_bytes()) else {
                panic!("{request:?} is a request")
            };
            assert_eq!(host, named, "{request:?}");
        }
        assert!(matches!(
            parse(b"GET / HTTP/1.1\r\nHost: \xff\r\n\r\n"),
            ParsedHead::Request { host: NamedHost::Wrong, .. }
        ));
    }

    #[test]
    fn what_is_no_request_is_refused() {
        for bytes in
            [&b"GET\r\n\r\n"[..], b"GET / SPDY/3\r\n\r\n", b"GET x HTTP/1.1\r\n\r\n", b"\xff\xfe / HTTP/1.1\r\n\r\n"]
        {
            assert_eq!(parse(bytes), ParsedHead::Malformed, "{bytes:?}");
        }
        assert_eq!(parse(b"GET /a b HTTP/1.1\r\n\r\n"), ParsedHead::Malformed);
        assert_eq!(parse(&[b'a'; MAX_HEAD - 1]), ParsedHead::Partial);
        assert_eq!(parse(&[b'a'; MAX_HEAD]), ParsedHead::TooLarge);
        let mut long = b"GET / HTTP/1.1\r\nX: ".to_vec();
        long.resize(MAX_HEAD + 10, b'x');
        long.extend_from_slice(b"\r\n\r\n");
        assert_eq!(parse(&long), ParsedHead::TooLarge, "an end that comes too late is no help");
    }

    #[test]
    fn responses_say_how_long_they_are() {
        let bytes = Response::text(200, "ok").into_bytes(false);
        let text = String::from_utf8(bytes).unwrap();
        assert!(text.starts_with("HTTP/1.1 200 OK\r\n") && text.contains("Content-Length: 3\r\n"), "{text}");
        assert!(text.ends_with("\r\n\r\nok\n"));
        let head = String::from_utf8(Response::text(405, "no").into_bytes(true)).unwrap();
        assert!(head.contains("Allow: GET, HEAD") && head.contains("Content-Length: 3") && head.ends_with("\r\n\r\n"));
    }
}
