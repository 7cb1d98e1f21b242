//! Ends a query that the engine cannot end: it can be stopped between pieces of its work, and a call of a function, such as
//! `replace` of long texts, is one piece, however long it takes and whatever it holds.

use crate::output::note;
use candlescope_reader::limits::ExceededLimit;
use candlescope_reader::{Limit, ReadLimits};
use candlescope_sql::QueryError;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// How much later than its limit a query is ended from outside: what the engine can end by itself has ended by then.
const GRACE: Duration = Duration::from_secs(3);
/// How often it is looked at.
const EVERY: Duration = Duration::from_millis(20);
/// What a query may hold beside twice its limit: pages that are decoded, and the engine itself.
const ROOM: u64 = 192 << 20;

/// Runs `ask`. The command ends with an error where it takes more than its limits and does not end by itself.
pub(crate) fn guard<T>(limits: &ReadLimits, ask: impl FnOnce() -> T) -> T {
    let (running, ended) = channel::<()>();
    let (seconds, bytes) = (limits.get(Limit::QuerySeconds), limits.get(Limit::QueryBytes));
    // Without the thread, the engine's own limits are all there is.
    let _ = std::thread::Builder::new().name("cs-query-guard".into()).spawn(move || {
        let (began, before) = (Instant::now(), resident().unwrap_or(0));
        let latest = Duration::from_secs(seconds).saturating_add(GRACE);
        let most = before.saturating_add(bytes.saturating_mul(2)).saturating_add(ROOM);
        while ended.recv_timeout(EVERY) == Err(RecvTimeoutError::Timeout) {
            let found = resident().unwrap_or(0);
            if found > most {
                give_up(
                    ExceededLimit { limit: Limit::QueryBytes, found: Some(found), allowed: bytes },
                    "the engine does not count all that it holds",
                );
            }
            if began.elapsed() > latest {
                give_up(
                    ExceededLimit { limit: Limit::QuerySeconds, found: None, allowed: seconds },
                    "the engine does not stop within a call of a function, such as replace of long texts",
                );
            }
        }
    });
    let answer = ask();
    drop(running);
    answer
}

fn give_up(exceeded: ExceededLimit, why: &str) -> ! {
    note(&format!("error: {}. It was ended from outside: {why}", QueryError::Limit(exceeded)));
    std::process::exit(1);
}

/// Bytes of memory that the process has.
#[cfg(target_os = "linux")]
fn resident() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = text.split(' ').nth(1)?.parse().ok()?;
    Some(pages.saturating_mul(rustix::param::page_size() as u64))
}

#[cfg(not(target_os = "linux"))]
fn resident() -> Option<u64> {
    None
}
