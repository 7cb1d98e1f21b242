//! `candlescope monitor`.

mod screen;
mod watch;
mod watched;

use crate::durations::time;
use crate::interrupts::on_interrupt;
use crate::output::{say, say_if_read};
use anyhow::{Context, Result, bail};
use candlescope_core::files::write_whole;
use candlescope_monitor::{IdleRule, Monitor, MonitorOptions, Rows, Sampler, line, picture, snapshot, summary};
use clap::Args;
use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};
use watched::WatchedReadings;

pub(crate) const EXAMPLES: &str = "\
Examples:
  candlescope monitor
      GPUs, and every program of yours that serves candlescope's metrics, on the whole screen; q ends it
  candlescope monitor --csv use.csv --duration 10m | tee use.log
      a line a second, and a file for a notebook; idle periods at the end
  candlescope monitor --pid 4711 --idle-below 20 --idle-for 5s
      any process, until it ends
  watch candlescope monitor
      one snapshot each time";

/// Readings closer together than this mostly repeat each other, and cost what they measure.
const SHORTEST_PERIOD: Duration = Duration::from_millis(100);
/// Time between the two readings of a snapshot.
const SNAPSHOT_TIME: Duration = Duration::from_millis(500);
/// Size of the picture, in characters.
const PICTURE: (u16, u16) = (100, 26);

#[derive(Debug, Args)]
pub(crate) struct MonitorArgs {
    /// Watch this process, until it ends; several are possible
    #[arg(long, value_name = "PID")]
    pid: Vec<u32>,
    /// Watch the program that serves metrics here, until it ends: HOST:PORT, PORT, or a URL [default: programs of
    /// yours on this machine, as they come and go]
    #[arg(long, value_name = "ADDR")]
    endpoint: Vec<String>,
    /// Watch these GPUs only, by index or UUID of nvidia-smi [default: all]
    #[arg(long, value_name = "GPU")]
    gpu: Vec<String>,
    /// Time between readings
    #[arg(long, value_name = "TIME", default_value = "1s")]
    period: String,
    /// End after this time [default: at q, Ctrl-C, or when what was named has ended]
    #[arg(long, value_name = "TIME")]
    duration: Option<String>,
    /// Print one snapshot and end
    #[arg(long, conflicts_with = "duration")]
    once: bool,
    /// Print a line each period instead of filling the screen; the default where the output is no terminal
    #[arg(long)]
    plain: bool,
    /// Write every reading into this file, too
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Replace the file that is there
    #[arg(long, requires = "csv")]
    overwrite: bool,
    /// A GPU or process that is used less than this is idle: percent of the GPU's time, or of one core
    #[arg(long, value_name = "PERCENT", default_value_t = 5.0, allow_negative_numbers = true)]
    idle_below: f64,
    /// Shortest idle period that is listed
    #[arg(long, value_name = "TIME", default_value = "1s")]
    idle_for: String,
    /// Write what the screen shows at the end as SVG
    #[arg(long, value_name = "FILE", hide = true)]
    svg: Option<PathBuf>,
}

pub(crate) fn run(args: &MonitorArgs) -> Result<()> {
    let period = time(&args.period).context("--period")?;
    if period < SHORTEST_PERIOD {
        bail!("--period {}: at least 100ms", args.period);
    }
    let end = args.duration.as_deref().map(time).transpose().context("--duration")?;
    let rule = rule(args, period)?;
    if let Some(path) = args.csv.as_ref().filter(|path| path.is_file() && !args.overwrite) {
        bail!("{} is there already: name another file with --csv, or --overwrite it", path.display());
    }
    let no_port = |text: &&String| {
        let digits = text.strip_prefix(':').unwrap_or(text);
        !digits.is_empty()
            && digits.bytes().all(|b| b.is_ascii_digit())
            && !digits.parse().is_ok_and(|port: u16| port > 0)
    };
    if let Some(wrong) = args.endpoint.iter().find(no_port) {
        bail!("--endpoint {wrong}: ports are from 1 to 65535");
    }
    let options = MonitorOptions::new().pids(args.pid.iter().copied()).endpoints(&args.endpoint).gpus(&args.gpu);
    let mut sampler = Sampler::new(options)?;
    let rows = args.csv.as_deref().map(Rows::create).transpose()?;
    let mut watched = WatchedReadings { monitor: Monitor::new(rule), rows };
    let (stop, stopped) = channel();
    let stop = move || {
        // Nobody listens any more where it is ending already.
        let _ = stop.send(());
    };
    on_interrupt(Duration::from_secs(1), stop).context("cannot listen for Ctrl-C")?;
    watched.take(sampler.look())?;

    let on_terminal = std::io::stdout().is_terminal() && std::io::stdin().is_terminal();
    if args.once || (!on_terminal && !args.plain && end.is_none() && watch::is_above()) {
        if matches!(stopped.recv_timeout(SNAPSHOT_TIME.min(period)), Err(RecvTimeoutError::Timeout)) {
            watched.take(sampler.look())?;
        }
        say(&snapshot(&watched.monitor))?;
        return draw(args, &watched.monitor);
    }
    // What was seen is told even if something fails on the way.
    let outcome = match on_terminal && !args.plain && std::env::var_os("TERM").is_none_or(|term| term != "dumb") {
        true => screen::show(sampler, &mut watched, period, end, &stopped),
        false => print_lines(&mut sampler, &mut watched, period, end, &stopped),
    };
    say(&summary(&watched.monitor))?;
    outcome?;
    if let Some(path) = &args.csv {
        say(&format!("written: {}", path.display()))?;
    }
    draw(args, &watched.monitor)
}

fn rule(args: &MonitorArgs, period: Duration) -> Result<IdleRule> {
    if !(0.0..=10_000.0).contains(&args.idle_below) {
        bail!("--idle-below {}: percent from 0 on", args.idle_below);
    }
    let at_least = time(&args.idle_for).context("--idle-for")?;
    Ok(IdleRule::default().at_most(args.idle_below / 100.0).at_least(at_least).most_gap(period * 3))
}

fn draw(args: &MonitorArgs, monitor: &Monitor) -> Result<()> {
    let Some(path) = &args.svg else { return Ok(()) };
    let svg = picture(monitor, PICTURE.0, PICTURE.1);
    write_whole(path, |file| file.write_all(svg.as_bytes()))
        .with_context(|| format!("cannot write {}: name another file with --svg", path.display()))
}

/// A line each period, until what was named has ended, nobody reads any more, or somebody ends it.
fn print_lines(
    sampler: &mut Sampler,
    watched: &mut WatchedReadings,
    period: Duration,
    end: Option<Duration>,
    stopped: &Receiver<()>,
) -> Result<()> {
    let began = Instant::now();
    let mut next = began;
    loop {
        if !say_if_read(&line(&watched.monitor))? || sampler.is_over() {
            return Ok(());
        }
        if end.is_some_and(|end| began.elapsed() >= end) {
            return Ok(());
        }
        // After a suspension, readings go on at their pace instead of catching up.
        next = (next + period).max(Instant::now());
        let until = end.map_or(next, |end| next.min(began + end));
        if !matches!(
            stopped.recv_timeout(until.saturating_duration_since(Instant::now())),
            Err(RecvTimeoutError::Timeout)
        ) {
            return Ok(());
        }
        watched.take(sampler.look())?;
    }
}
