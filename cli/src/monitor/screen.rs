//! The whole screen: the terminal's modes, keys and redrawing.

use super::watched::WatchedReadings;
use anyhow::{Context, Result, bail};
use candlescope_monitor::{Reading, Sampler, draw};
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::time::{Duration, Instant};

/// Longest time until a key or a new reading is noticed.
const NOTICE: Duration = Duration::from_millis(100);

/// Puts the terminal back into its modes, however the screen ends. A panic does the same before its message is printed:
/// `ratatui::try_init` sees to that.
struct Modes;

impl Drop for Modes {
    fn drop(&mut self) {
        // A terminal that is gone, as a closed connection leaves it, has no modes any more.
        let _ = ratatui::try_restore();
    }
}

/// A reading, and whether everything that was named has ended.
type News = (Reading, bool);

/// Shows readings until somebody ends it, the time is over, or what was named has ended.
pub(super) fn show(
    sampler: Sampler,
    watched: &mut WatchedReadings,
    period: Duration,
    end: Option<Duration>,
    stopped: &Receiver<()>,
) -> Result<()> {
    if sampler.is_over() {
        return Ok(());
    }
    let (news, readings) = channel();
    // Programs may be slow to answer; keys are not to wait for them. The thread ends with the command.
    let looking = move || look(sampler, period, &news);
    std::thread::Builder::new().name("cs-monitor".into()).spawn(looking).context("cannot start a thread")?;
    let modes = Modes;
    let mut terminal = ratatui::try_init().context("cannot use the terminal: --plain prints lines instead")?;
    let began = Instant::now();
    let mut changed = true;
    let outcome = loop {
        if changed && terminal.draw(|frame| draw(frame, &watched.monitor)).is_err() {
            // The terminal is gone: a connection was closed.
            break Ok(());
        }
        changed = false;
        match key() {
            Some(Key::End) | None => break Ok(()),
            Some(Key::Resized) => changed = true,
            Some(Key::Nothing) => {}
        }
        if !matches!(stopped.try_recv(), Err(TryRecvError::Empty)) || end.is_some_and(|end| began.elapsed() >= end) {
            break Ok(());
        }
        match take(&readings, watched) {
            Ok(TakeOutcome { any, over }) => {
                changed |= any;
                if over {
                    break Ok(());
                }
            }
            Err(error) => break Err(error),
        }
    };
    drop(modes);
    outcome
}

struct TakeOutcome {
    any: bool,
    over: bool,
}

/// Takes the readings that have come meanwhile.
fn take(readings: &Receiver<News>, watched: &mut WatchedReadings) -> Result<TakeOutcome> {
    let mut any = false;
    loop {
        match readings.try_recv() {
            Ok((reading, over)) => {
                watched.take(reading)?;
                any = true;
                if over {
                    return Ok(TakeOutcome { any, over });
                }
            }
            Err(TryRecvError::Empty) => return Ok(TakeOutcome { any, over: false }),
            Err(TryRecvError::Disconnected) => bail!("reading figures has failed: a bug in candlescope"),
        }
    }
}

/// Reads figures once a period, as long as somebody takes them.
fn look(mut sampler: Sampler, period: Duration, news: &Sender<News>) {
    let mut next = Instant::now();
    loop {
        next = (next + period).max(Instant::now());
        std::thread::sleep(next.saturating_duration_since(Instant::now()));
        let reading = sampler.look();
        let over = sampler.is_over();
        if news.send((reading, over)).is_err() || over {
            return;
        }
    }
}

enum Key {
    End,
    Resized,
    Nothing,
}

/// What happened on the terminal in a short time; `None` if it is gone.
fn key() -> Option<Key> {
    if !event::poll(NOTICE).ok()? {
        return Some(Key::Nothing);
    }
    Some(match event::read().ok()? {
        Event::Resize(..) => Key::Resized,
        Event::Key(key) if key.kind == KeyEventKind::Press => match key.code {
            KeyCode::Char('q' | 'Q') | KeyCode::Esc => Key::End,
            KeyCode::Char('c' | 'd') if key.modifiers.contains(KeyModifiers::CONTROL) => Key::End,
            _ => Key::Nothing,
        },
        _ => Key::Nothing,
    })
}
