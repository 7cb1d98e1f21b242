//! Rendering in a process of its own, whose memory and time the system bounds.
//!
//! The process is this program once more: it reads the conversation from its standard input, sets its own limits, renders, answers and ends,
//! all inside [`isolate`]. What a template can do to it ends with it.

use super::jinja::Conversation;
use std::sync::atomic::{AtomicBool, Ordering};

/// Set for the process that renders.
const ASKED: &str = "CANDLESCOPE_CHAT_RENDERER";
/// Bytes that it may take beside what the program has when it starts, ...
const MEMORY: usize = 384 << 20;
/// ... and so many times the conversation more.
const MEMORY_A_BYTE: usize = 16;
/// Seconds that it may compute, ...
const SECONDS: u64 = 10;
/// ... and so many times longer until it has answered, as other processes want to compute, too.
const PATIENCE: u32 = 6;

static OFFERED: AtomicBool = AtomicBool::new(false);

/// Lets this program render chat templates of strangers, each in a process of its own with limits on memory and time. Call it first in
/// `main`: in such a process, which is this program started once more, it renders, answers and does not return.
///
/// Without this call a template that keeps texts in variables is refused on Unix, unless it is
/// [`trusted`](super::ChatTemplate::trusted). The limit on memory is kept by Linux.
///
/// ```
/// candlescope_models::chat::isolate();
/// // the program
/// ```
pub fn isolate() {
    if std::env::var_os(ASKED).is_some() {
        #[cfg(unix)]
        unix::serve();
    }
    OFFERED.store(true, Ordering::Relaxed);
}

/// Renders it in a process of its own.
pub(super) fn render(conversation: &Conversation<'_>) -> Result<String, String> {
    if !OFFERED.load(Ordering::Relaxed) {
        return Err("it keeps texts in variables, whose memory only a process of its own can bound, and this program offers none: \
                    call `candlescope_models::chat::isolate()` first in `main`, or `ChatTemplate::trusted` if you have read it"
            .to_string());
    }
    #[cfg(unix)]
    return unix::render(conversation);
    #[cfg(not(unix))]
    unreachable!("other systems render in this process: {conversation:?}")
}

#[cfg(unix)]
mod unix {
    use super::*;
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    use std::io::{self, ErrorKind, Read, Write};
    use std::net::Shutdown;
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixStream;
    use std::path::PathBuf;
    use std::process::{Child, Command, Stdio};
    use std::time::{Duration, Instant};

    /// What the process answers.
    type Answer = Result<String, String>;

    /// A process that is ended when nobody waits for it any more.
    struct Renderer(Child);

    impl Drop for Renderer {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    pub(super) fn render(conversation: &Conversation<'_>) -> Result<String, String> {
        let asked = serde_json::to_vec(conversation).map_err(|e| e.to_string())?;
        // A socket, because writing to a pipe whose reader died can end a program.
        let (mut ours, theirs) = UnixStream::pair().map_err(|e| format!("there is no socket to a process that renders it ({e})"))?;
        let mut renderer = start(theirs).map_err(|e| format!("there is no process to render it in ({e})"))?;
        let deadline = Instant::now() + Duration::from_secs(SECONDS) * PATIENCE;
        // Escapes and quotes take up to six bytes.
        let longest = conversation.longest_text().saturating_mul(6).saturating_add(1 << 10);
        match exchange(&mut ours, &asked, longest, deadline) {
            Ok(answer) if !answer.is_empty() => {
                serde_json::from_slice::<Answer>(&answer).unwrap_or_else(|_| Err(ended(&mut renderer, asked.len())))
            }
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                let waited = SECONDS * u64::from(PATIENCE);
                Err(format!("the process that renders it has not answered for {waited} s"))
            }
            _ => Err(ended(&mut renderer, asked.len())),
        }
    }

    fn start(stream: UnixStream) -> io::Result<Renderer> {
        // Unlike the program's path, this is the program also after that was replaced.
        let running = PathBuf::from("/proc/self/exe");
        let program = if running.exists() { running } else { std::env::current_exe()? };
        let output = stream.try_clone()?;
        let mut command = Command::new(program);
        command.env(ASKED, "1").stdin(Stdio::from(OwnedFd::from(stream))).stdout(Stdio::from(OwnedFd::from(output)));
        // Whatever it says on its way out is not the program's.
        command.stderr(Stdio::null()).spawn().map(Renderer)
    }

    fn exchange(stream: &mut UnixStream, asked: &[u8], longest: usize, deadline: Instant) -> io::Result<Vec<u8>> {
        let left = || -> io::Result<Option<Duration>> {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() { Err(ErrorKind::TimedOut.into()) } else { Ok(Some(left)) }
        };
        let mut rest = asked;
        while !rest.is_empty() {
            stream.set_write_timeout(left()?)?;
            match stream.write(rest) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(written) => rest = &rest[written..],
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        stream.shutdown(Shutdown::Write)?;
        let mut answer = Vec::new();
        let mut buffer = vec![0; 64 << 10];
        loop {
            stream.set_read_timeout(left()?)?;
            match stream.read(&mut buffer) {
                Ok(0) => return Ok(answer),
                Ok(read) if answer.len() + read > longest => return Err(ErrorKind::FileTooLarge.into()),
                Ok(read) => answer.extend_from_slice(&buffer[..read]),
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
    }

    /// Why there is no answer.
    fn ended(renderer: &mut Renderer, asked: usize) -> String {
        use std::os::unix::process::ExitStatusExt;
        // It closed its side, so it has ended or is about to.
        let signal = renderer.0.wait().ok().and_then(|status| status.signal());
        let (cpu, killed) = (rustix::process::Signal::XCPU.as_raw(), rustix::process::Signal::KILL.as_raw());
        match signal {
            Some(signal) if signal == cpu || signal == killed => {
                format!("it takes more than the limit of {SECONDS} s to render")
            }
            Some(_) => {
                format!("it takes more than the limit of {} MB to render, or nests too deep", memory(asked) >> 20)
            }
            None => "the process that renders it ended without an answer; it has to call \
                     `candlescope_models::chat::isolate()` before anything else"
                .to_string(),
        }
    }

    fn memory(asked: usize) -> usize {
        MEMORY.saturating_add(MEMORY_A_BYTE.saturating_mul(asked))
    }

    /// Renders what is asked for on the standard input, and ends the process.
    pub(super) fn serve() -> ! {
        let answer = answer();
        let sent = serde_json::to_vec(&answer).map(|answer| io::stdout().write_all(&answer).and_then(|()| io::stdout().flush()));
        std::process::exit(i32::from(!matches!(sent, Ok(Ok(())))));
    }

    fn answer() -> Answer {
        let limit = |resource, most: u64| {
            // A lower one from outside stays.
            let most = getrlimit(resource).maximum.map_or(most, |maximum| maximum.min(most));
            setrlimit(resource, Rlimit { current: Some(most), maximum: Some(most) })
                .map_err(|e| format!("the process that renders it can set itself no limits ({e})"))
        };
        limit(Resource::Core, 0)?;
        limit(Resource::Cpu, SECONDS)?;
        let mut asked = Vec::new();
        io::stdin().lock().read_to_end(&mut asked).map_err(|e| e.to_string())?;
        // Only Linux tells what there is already.
        if let Some(mapped) = mapped() {
            limit(Resource::As, mapped.saturating_add(u64::try_from(memory(asked.len())).unwrap_or(u64::MAX)))?;
        }
        let conversation: Conversation<'_> = serde_json::from_slice(&asked).map_err(|e| e.to_string())?;
        conversation.render_on_a_plain_stack()
    }

    /// Bytes of address space that the process has.
    fn mapped() -> Option<u64> {
        let pages: u64 = std::fs::read_to_string("/proc/self/statm").ok()?.split(' ').next()?.parse().ok()?;
        Some(pages.saturating_mul(u64::try_from(rustix::param::page_size()).ok()?))
    }
}
