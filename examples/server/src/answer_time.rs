//! A connection with a time limit for sending a response. Without it, a client that reads a few bytes now and then
//! would never be idle, and could keep its connection for hours.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::Notify;
use tokio::time::{Instant, Sleep, sleep_until};

/// The time by which the response on a connection must be sent.
#[derive(Debug)]
pub(crate) struct AnswerTime {
    longest: Duration,
    state: Mutex<State>,
    /// Notified when a whole request was received.
    begun: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// The limit for the oldest response that is not sent.
    end: Option<Instant>,
    /// Whether more of the newest response is to come.
    going_on: bool,
}

impl AnswerTime {
    pub(crate) fn new(longest: Duration) -> Arc<Self> {
        Arc::new(Self { longest, state: Mutex::default(), begun: Notify::new() })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A whole request was received.
    pub(crate) fn begin(&self) {
        let mut state = self.state();
        state.end.get_or_insert(Instant::now() + self.longest);
        state.going_on = true;
        self.begun.notify_one();
    }

    /// Completes when some of a response is to be sent.
    pub(crate) async fn is_to_be_sent(&self) {
        while !self.is_unsent() {
            self.begun.notified().await;
        }
    }

    /// The whole response was handed over.
    pub(crate) fn end(&self) {
        self.state().going_on = false;
    }

    /// Whether some of a response is still to be sent.
    pub(crate) fn is_unsent(&self) -> bool {
        self.state().end.is_some()
    }

    /// Everything that was handed over has been sent.
    fn sent(&self) {
        let mut state = self.state();
        if !state.going_on {
            state.end = None;
        }
    }
}

/// A stream that can be written until the response's time is over.
pub(crate) struct TimedStream<S, H> {
    stream: S,
    time: Arc<AnswerTime>,
    timer: Pin<Box<Sleep>>,
    /// Called when the client has sent something.
    heard: H,
}

impl<S, H> TimedStream<S, H> {
    pub(crate) fn new(stream: S, time: Arc<AnswerTime>, heard: H) -> Self {
        Self { stream, time, timer: Box::pin(sleep_until(Instant::now())), heard }
    }

    /// Fails once the time is over; until then the task wakes up at its end.
    fn check(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        let Some(end) = self.time.state().end else { return Ok(()) };
        if self.timer.deadline() != end {
            self.timer.as_mut().reset(end);
        }
        match self.timer.as_mut().poll(cx) {
            Poll::Ready(()) => Err(io::Error::new(io::ErrorKind::TimedOut, "the client took its answer too slowly")),
            Poll::Pending => Ok(()),
        }
    }
}

impl<S: AsyncRead + Unpin, H: Fn() + Unpin> AsyncRead for TimedStream<S, H> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buffer.filled().len();
        let read = Pin::new(&mut this.stream).poll_read(cx, buffer);
        if buffer.filled().len() > before {
            (this.heard)();
        }
        read
    }
}

impl<S: AsyncWrite + Unpin, H: Unpin> AsyncWrite for TimedStream<S, H> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        this.check(cx)?;
        Pin::new(&mut this.stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        this.check(cx)?;
        Pin::new(&mut this.stream).poll_write_vectored(cx, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    /// hyper calls this when it has written everything it has.
    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let flushed = Pin::new(&mut this.stream).poll_flush(cx)?;
        if flushed.is_ready() {
            this.time.sent();
        }
        flushed.map(Ok)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

    async fn trickle(mut client: DuplexStream) {
        while client.read_u8().await.is_ok() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    #[tokio::test]
    async fn a_client_that_takes_a_byte_now_and_then_is_cut_off() {
        let (server, client) = tokio::io::duplex(16);
        tokio::spawn(trickle(client));
        let time = AnswerTime::new(Duration::from_millis(300));
        let mut stream = TimedStream::new(server, time.clone(), || ());
        time.begin();
        let started = Instant::now();
        // Ten minutes' worth at this pace.
        let cut = tokio::time::timeout(Duration::from_secs(30), stream.write_all(&[0; 60_000])).await.expect("an end");
        assert_eq!(cut.unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert!(started.elapsed() >= Duration::from_millis(300));
    }

    #[tokio::test]
    async fn the_time_is_that_of_one_answer() {
        let (server, client) = tokio::io::duplex(16);
        tokio::spawn(trickle(client));
        let time = AnswerTime::new(Duration::from_millis(500));
        let mut stream = TimedStream::new(server, time.clone(), || ());
        for _ in 0..3 {
            time.begin();
            tokio::time::sleep(Duration::from_millis(200)).await;
            stream.write_all(&[0; 8]).await.expect("in time");
            time.end();
            stream.flush().await.expect("sent");
        }
        // Nothing is to be sent, and no time runs.
        tokio::time::sleep(Duration::from_millis(600)).await;
        stream.write_all(&[0; 8]).await.expect("of no answer");
        // A response that is still being produced counts as unsent, even if everything so far was sent.
        time.begin();
        stream.flush().await.expect("nothing yet");
        tokio::time::sleep(Duration::from_millis(600)).await;
        assert_eq!(stream.write_all(&[0; 8]).await.unwrap_err().kind(), io::ErrorKind::TimedOut);
    }
}
