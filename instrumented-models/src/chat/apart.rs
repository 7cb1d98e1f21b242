//! Renders in a process of its own, whose memory and time the operating system bounds.
//!
//! The process is another instance of this program: it reads the conversation, sets its own limits, renders, sends the
//! result and ends, all inside [`isolate`]. Whatever a template does to it ends with the process.

use super::ChatError;
use super::jinja::Conversation;
use std::sync::atomic::{AtomicBool, Ordering};

static OFFERED: AtomicBool = AtomicBool::new(false);

/// Lets this program render untrusted chat templates, each in a process of its own with limits on memory and time. Call
/// it first in `main`, before anything is printed or read: such a process is another instance of this program, started
/// without arguments, in which this call renders, sends the result and does not return.
///
/// Without this call, a template that does more than put texts together is refused on Linux, unless it is
/// [`trusted`](super::ChatTemplate::trusted). Elsewhere this does nothing.
///
/// ```
/// candlescope_models::chat::isolate();
/// // the program
/// ```
pub fn isolate() {
    #[cfg(target_os = "linux")]
    linux::serve_if_asked();
    OFFERED.store(true, Ordering::Relaxed);
}

/// Renders the conversation in a process of its own, or in this one on systems that cannot bound that process's memory.
#[cfg(not(target_os = "linux"))]
pub(super) fn render(conversation: &Conversation<'_>) -> Result<String, ChatError> {
    conversation.render_on_a_large_stack()
}
#[cfg(target_os = "linux")]
pub(super) fn render(conversation: &Conversation<'_>) -> Result<String, ChatError> {
    if !OFFERED.load(Ordering::Relaxed) {
        let why = "only a process of its own can bound the memory and time of this one, and this program offers none: call \
                   `candlescope_models::chat::isolate()` first in `main`, or `ChatTemplate::trusted` if you have read the template";
        return Err(ChatError::Host(why.to_string()));
    }
    linux::render(conversation)
}

#[cfg(target_os = "linux")]
mod linux {
    use super::{ChatError, Conversation};
    use rustix::process::{DumpableBehavior, Resource, Rlimit, Signal};
    use rustix::process::{getppid, getrlimit, set_dumpable_behavior, setrlimit};
    use std::io::{self, ErrorKind, Read, Write};
    use std::net::Shutdown;
    use std::os::fd::{AsFd, OwnedFd};
    use std::os::unix::net::UnixStream;
    use std::os::unix::process::ExitStatusExt;
    use std::process::{Child, Command, Stdio};
    use std::sync::{Condvar, Mutex, PoisonError};
    use std::time::{Duration, Instant};

    /// Variable that is set for the rendering process, to the id of the process that waits for it.
    const ASKED: &str = "CANDLESCOPE_CHAT_RENDERER";
    /// Bytes of address space that the process may take in addition to what the program has when it starts, ...
    const MEMORY: usize = 384 << 20;
    /// ... plus this many for each byte of the messages.
    const MEMORY_A_BYTE: usize = 16;
    /// Seconds of CPU time that it may take, ...
    const SECONDS: u64 = 10;
    /// ... and the wall time until its result is needed, which is longer because other processes run, too.
    const PATIENCE: Duration = Duration::from_secs(60);
    /// Environment variables that the program may need to start at all. A process that runs untrusted code gets no
    /// others.
    const VARIABLES: [&str; 3] = ["LD_LIBRARY_PATH", "PATH", "TMPDIR"];

    /// Number of these processes that are running.
    static RUNNING: Mutex<usize> = Mutex::new(0);
    static ENDED: Condvar = Condvar::new();

    /// Leave to run one process. There are as many as the machine has CPUs, because each process takes memory.
    struct ProcessPermit;

    impl ProcessPermit {
        fn take(deadline: Instant) -> Option<Self> {
            let most = std::thread::available_parallelism().map_or(1, usize::from);
            let running = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
            let left = deadline.saturating_duration_since(Instant::now());
            let waited = ENDED.wait_timeout_while(running, left, |running| *running >= most);
            let (mut running, waited) = waited.unwrap_or_else(PoisonError::into_inner);
            if waited.timed_out() {
                return None;
            }
            *running += 1;
            Some(Self)
        }
    }

    impl Drop for ProcessPermit {
        fn drop(&mut self) {
            *RUNNING.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
            ENDED.notify_one();
        }
    }

    /// A process that is killed when it is no longer waited for.
    struct Renderer(Child);

    impl Drop for Renderer {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    pub(super) fn render(conversation: &Conversation<'_>) -> Result<String, ChatError> {
        let asked = serde_json::to_vec(conversation).map_err(|e| ChatError::template(e.to_string()))?;
        let deadline = Instant::now() + PATIENCE;
        let late =
            || ChatError::Host(format!("the process that renders it has not answered for {} s", PATIENCE.as_secs()));
        let _permit = ProcessPermit::take(deadline).ok_or_else(late)?;
        // A socket, because writing to a pipe whose reader has ended can kill a program.
        let pair = UnixStream::pair()
            .map_err(|e| ChatError::Host(format!("there is no socket to a process of its own ({e})")))?;
        let (mut ours, theirs) = pair;
        let mut renderer = start(theirs).map_err(|e| {
            ChatError::Host(format!(
                "no process of its own can be started ({e}): raise `ulimit -u` or the limit on processes"
            ))
        })?;
        // Escapes take up to six bytes.
        let longest = conversation.longest_text().saturating_mul(6).saturating_add(1 << 16);
        let outcome = exchange(&mut ours, &asked, longest, deadline);
        drop(ours);
        match outcome.map(|answer| serde_json::from_slice::<Result<String, ChatError>>(&answer)) {
            Ok(Ok(answer)) => answer,
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => Err(late()),
            _ => Err(ended(&mut renderer, conversation.said(), deadline)),
        }
    }

    fn start(stream: UnixStream) -> io::Result<Renderer> {
        // Unlike the program's path, this is the same program even if the file was replaced.
        let mut command = Command::new("/proc/self/exe");
        command.env_clear().env(ASKED, std::process::id().to_string()).env("MALLOC_ARENA_MAX", "1");
        command.envs(VARIABLES.iter().filter_map(|name| Some((name, std::env::var_os(name)?))));
        // Its output must not become the program's.
        command.stdin(Stdio::from(OwnedFd::from(stream))).stdout(Stdio::null()).stderr(Stdio::null());
        command.spawn().map(Renderer)
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

    /// Why there is no result. Kills the process if it still runs.
    fn ended(renderer: &mut Renderer, said: usize, deadline: Instant) -> ChatError {
        // It closed its side, so it has ended, or should end soon.
        let status = loop {
            match renderer.0.try_wait() {
                Ok(None) if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(1)),
                Ok(Some(status)) => break status,
                Ok(None) => {
                    return ChatError::Host("the process that renders it answers nothing that can be read".into());
                }
                Err(e) => {
                    return ChatError::Host(format!("what became of the process that renders it cannot be told ({e})"));
                }
            }
        };
        let megabytes = memory(said) >> 20;
        match status.signal() {
            Some(signal) if signal == Signal::XCPU.as_raw() => {
                ChatError::template(format!("it takes more than the limit of {SECONDS} s to render"))
            }
            // The operating system kills it if the machine runs out of memory, or at a lower limit set from outside.
            Some(signal) if signal == Signal::KILL.as_raw() => ChatError::template(format!(
                "the process that renders it was killed: it takes more than {SECONDS} s, or the memory there is"
            )),
            Some(signal) if [Signal::ABORT, Signal::SEGV, Signal::BUS].iter().any(|s| s.as_raw() == signal) => {
                ChatError::template(format!(
                    "it takes more than the limit of {megabytes} MB to render, or nests too deep"
                ))
            }
            Some(signal) => ChatError::Host(format!("the process that renders it was ended by signal {signal}")),
            None => ChatError::Host(format!(
                "the process that renders it ended without an answer ({status}): `candlescope_models::chat::isolate()` has to be \
                 called before anything else in `main`"
            )),
        }
    }

    fn memory(said: usize) -> usize {
        MEMORY.saturating_add(MEMORY_A_BYTE.saturating_mul(said))
    }

    /// If this process was started to render, does so and ends the process.
    pub(super) fn serve_if_asked() {
        let Some(asked) = std::env::var_os(ASKED) else { return };
        let parent = getppid().map(|pid| pid.as_raw_nonzero().get().to_string());
        let stdin = io::stdin();
        let Ok(stream) = stdin.as_fd().try_clone_to_owned() else { return };
        let mut stream = UnixStream::from(stream);
        // Otherwise somebody set the variable but wants to run the program.
        if parent.is_none_or(|parent| asked != *parent) || stream.local_addr().is_err() {
            return;
        }
        let mut asked = Vec::new();
        let answer = match stream.read_to_end(&mut asked) {
            Ok(_) => answer(&asked),
            Err(e) => Err(ChatError::Host(format!("the process that renders it cannot read what is asked for ({e})"))),
        };
        let sent = serde_json::to_vec(&answer).map_err(io::Error::other).and_then(|answer| stream.write_all(&answer));
        // The result is complete, whatever the program's libraries do at exit.
        let _ = stream.shutdown(Shutdown::Both);
        std::process::exit(i32::from(sent.is_err()));
    }

    fn answer(asked: &[u8]) -> Result<String, ChatError> {
        let conversation: Conversation<'_> = serde_json::from_slice(asked)
            .map_err(|e| ChatError::Host(format!("the conversation cannot be read ({e})")))?;
        let limit = |resource, most: u64, end: u64| {
            let now = getrlimit(resource);
            // Lower limits set from outside are kept.
            let kept = |most| [now.current, now.maximum].into_iter().flatten().fold(most, u64::min);
            setrlimit(resource, Rlimit { current: Some(kept(most)), maximum: Some(kept(end)) })
                .map_err(|e| ChatError::Host(format!("the process that renders it can set itself no limits ({e})")))
        };
        limit(Resource::Core, 0, 0)?;
        // At the first limit comes a signal of its own, which tells it from a lack of memory.
        limit(Resource::Cpu, SECONDS, SECONDS + 1)?;
        let memory = u64::try_from(memory(conversation.said())).unwrap_or(u64::MAX);
        let memory = mapped().unwrap_or(0).saturating_add(memory);
        limit(Resource::As, memory, memory)?;
        // Core dumps that are piped to a program ignore the limit.
        let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
        conversation.render_on_a_plain_stack()
    }

    /// Bytes of address space that the process has.
    fn mapped() -> Option<u64> {
        let status = std::fs::read_to_string("/proc/self/status").ok()?;
        let size = status.lines().find_map(|line| line.strip_prefix("VmSize:"))?;
        size.trim().strip_suffix(" kB")?.parse::<u64>().ok()?.checked_mul(1 << 10)
    }
}
