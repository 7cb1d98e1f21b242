//! A scripted OpenTelemetry collector in this process.

use crate::http_request::{HttpRequest, read};
use std::collections::HashMap;
use std::io::{BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// One request as the server got it.
#[derive(Debug, Clone)]
pub struct Got {
    /// The path of the request.
    pub path: String,
    /// By their names in lower case.
    pub headers: HashMap<String, String>,
    /// As long as `content-length` says.
    pub body: Vec<u8>,
}

/// Answers each request with `answer`, which gets its number, from 0. Returns the address and the requests so far.
///
/// # Panics
/// If there is no port.
pub fn serve(answer: impl Fn(usize, &mut TcpStream) + Send + 'static) -> (SocketAddr, Arc<Mutex<Vec<Got>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("address");
    let got = Arc::new(Mutex::new(Vec::new()));
    let seen = got.clone();
    let answer = Arc::new(Mutex::new(answer));
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let Ok(reader) = stream.try_clone() else { return };
            let (seen, answer) = (seen.clone(), answer.clone());
            // Clients keep connections open: one that waits for another's end would wait for long.
            std::thread::spawn(move || {
                let mut reader = BufReader::new(reader);
                while let Ok(Some(HttpRequest { path, headers, body, .. })) = read(&mut reader) {
                    let n = {
                        let mut seen = seen.lock().unwrap();
                        seen.push(Got { path, headers: headers.into_iter().collect(), body });
                        seen.len() - 1
                    };
                    answer.lock().unwrap()(n, &mut stream);
                }
            });
        }
    });
    (address, got)
}

/// Answers with a status line, more headers, each with its line's end, and a body.
pub fn reply(stream: &mut TcpStream, status: &str, headers: &str, body: &[u8]) {
    let head = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n{headers}\r\n", body.len());
    // It does not matter if the client has gone away.
    let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body));
}

/// A response that accepts everything.
pub fn ok(_: usize, stream: &mut TcpStream) {
    reply(stream, "200 OK", "content-type: application/x-protobuf\r\n", &[]);
}

/// An address where nobody listens.
///
/// # Panics
/// If there is no port.
pub fn nobody() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a port")
}
