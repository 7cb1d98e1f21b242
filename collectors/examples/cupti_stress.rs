//! Looks for crashes and losses of kernel windows: thousands of windows are opened and closed while threads launch,
//! streams and contexts come and go, marks are read back, and sessions begin and end, also within windows.
//!
//! ```sh
//! cargo run --example cupti_stress --features cuda,cupti,host -- --sessions 20 --threads 4 --churn all
//! ```
//!
//! `--churn` takes what comes and goes beside the launching threads: `streams`, `contexts`, `threads`, or `all`.
//! `--order LETTERS` does one thing after the other on one thread instead, in a window or not: `e` opens a window, `x` ends
//! it, `l` launches, which detaches CUPTI after `x`; `c`, `u` and `k` make, use and end a context.
//!
//! Prints one JSON object: what was recorded, and whether everything that steps of windows launched has arrived. A crash
//! tells its signal, thread and stack.
#![allow(clippy::print_stdout, reason = "a program for people and scripts")]

#[allow(dead_code, reason = "shared with another program")]
#[path = "cupti_kernels/sys.rs"]
mod sys;

#[path = "../../cli/src/crash_report/mod.rs"]
#[allow(dead_code, reason = "shared with the command")]
mod crash_report;

use candlescope_collectors::cuda::{CudaClock, CudaClockOptions, PoolMemory};
use candlescope_collectors::cupti::{Cupti, CuptiOptions};
use candlescope_core::gpu::{Activity, ActivityError, ActivitySink, GpuTiming};
use candlescope_core::{GpuTier, HostNs, MemoryExporter, Schedule, Session};
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use sys::{Gpu, Kernel, PER_THREAD};
use tracing::trace_span;
use tracing_subscriber::prelude::*;

/// Kernels that a step launches, in two intervals.
const KERNELS: u64 = 24;

/// How long a session lasts: a recorder opens 64 windows without a distance between them.
const SESSION: Duration = Duration::from_secs(4);

struct Options {
    sessions: u64,
    threads: u64,
    seconds: u64,
    kernel_ns: u32,
    /// Whether a step waits for the device, as one that samples a token does.
    waits: bool,
    churn: Vec<String>,
    order: Option<String>,
    /// Whether sessions may end within a window.
    cut: bool,
}

fn options() -> Result<Options, String> {
    let mut options = Options {
        sessions: 5,
        threads: 1,
        seconds: 60,
        kernel_ns: 2_000,
        waits: true,
        churn: Vec::new(),
        order: None,
        cut: false,
    };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let number = |words: &mut dyn Iterator<Item = String>| {
            let value = words.next().ok_or_else(|| format!("{word} needs a number"))?;
            value.parse::<u64>().map_err(|_| format!("{word}: `{value}` is no number"))
        };
        match word.as_str() {
            "--order" => options.order = words.next(),
            "--churn" => {
                let what = words.next().ok_or("--churn needs a word")?;
                let all = ["streams", "contexts", "threads"];
                options.churn = match what.as_str() {
                    "all" => all.map(String::from).to_vec(),
                    one if all.contains(&one) => vec![what],
                    other => return Err(format!("`{other}` cannot come and go")),
                };
            }
            "--sessions" => options.sessions = number(&mut words)?,
            "--threads" => options.threads = number(&mut words)?.max(1),
            "--seconds" => options.seconds = number(&mut words)?,
            "--kernel-ns" => options.kernel_ns = u32::try_from(number(&mut words)?).map_err(|e| e.to_string())?,
            "--async" => options.waits = false,
            "--cut" => options.cut = true,
            other => return Err(format!("`{other}` is not known")),
        }
    }
    Ok(options)
}

/// One step: an interval of kernels as candle launches them, and one of plain launches.
fn step(gpu: &Gpu, options: &Options) -> Result<(), String> {
    let step = trace_span!("decode", candlescope.phase = "decode");
    let _step = step.enter();
    {
        let _span = trace_span!("attn").entered();
        let mut took = [Duration::ZERO; 6];
        for _ in 0..KERNELS / 2 {
            gpu.launch_as_candle_does(PER_THREAD, options.kernel_ns, &mut took)?;
        }
    }
    {
        let _span = trace_span!("mlp").entered();
        for _ in 0..KERNELS / 2 {
            gpu.launch(Kernel::Other, PER_THREAD, 2, options.kernel_ns)?;
        }
    }
    if options.waits { gpu.synchronize(PER_THREAD) } else { Ok(()) }
}

fn come_and_go(gpu: &Gpu, what: &str) -> Result<(), String> {
    match what {
        "streams" => gpu.stream_comes_and_goes(),
        "contexts" => {
            let context = gpu.make_context()?;
            gpu.use_context(&context)?;
            gpu.end_context(context)
        }
        // A thread that launches once and ends.
        _ => std::thread::scope(|short| {
            short.spawn(|| gpu.use_here().and_then(|()| gpu.launch(Kernel::Other, PER_THREAD, 2, 0))).join()
        })
        .map_err(|_| "a thread panicked".to_string())?,
    }
}

/// One thing after the other, with the recorder alone.
fn in_order(gpu: &Gpu, order: &str) -> Result<(), String> {
    let text = |error: ActivityError| error.to_string();
    let mut recorder = Cupti::new(CuptiOptions::default());
    recorder.prepare().map_err(text)?;
    let mut contexts = Vec::new();
    for letter in order.chars() {
        match letter {
            'e' => recorder.enable().map_err(text)?,
            'x' => {
                recorder.disable().map_err(text)?;
                gpu.synchronize_all()?;
                recorder.collect(true, &HostNs::now, &mut ActivitySink::default()).map_err(text)?;
                recorder.release().map_err(text)?;
            }
            'l' => {
                // The first one detaches CUPTI, the second one finds it gone.
                gpu.launch(Kernel::Other, PER_THREAD, 2, 0)?;
                gpu.launch(Kernel::Other, PER_THREAD, 2, 0)?;
                gpu.synchronize(PER_THREAD)?;
            }
            'c' => contexts.push(gpu.make_context()?),
            'u' => contexts.iter().try_for_each(|context| gpu.use_context(context))?,
            'k' => contexts.pop().map_or(Ok(()), |context| gpu.end_context(context))?,
            other => return Err(format!("`{other}` is not known")),
        }
    }
    Ok(())
}

/// What one session recorded.
#[derive(Default)]
struct Account {
    windows: u64,
    window_steps: u64,
    kernels: u64,
    dropped: u64,
    late: u64,
    /// Steps of windows with fewer or more kernels than they launched.
    incomplete: u64,
    errors: BTreeMap<String, u64>,
}

fn session(gpu: &Gpu, options: &Options, until: Instant, account: &mut Account) -> Result<(), String> {
    let memory = MemoryExporter::new();
    let schedule = Schedule { skip_first: 0, wait: 3, warmup: 0, active: 4, repeat: 0 };
    let clock = CudaClock::new(CudaClockOptions::default()).map_err(|e| e.to_string())?;
    let (layer, session) = Session::builder()
        .gpu(clock, GpuTiming::tier(GpuTier::Steps))
        .kernels(Cupti::new(CuptiOptions::default()), Some(schedule))
        .collector(PoolMemory::with_period(Duration::from_millis(1)).map_err(|e| e.to_string())?)
        .exporter(memory.clone())
        .start()
        .map_err(|e| e.to_string())?;
    let handle = session.handle().clone();
    let dispatch = tracing::Dispatch::new(tracing_subscriber::registry().with(layer));
    let (stop, steps) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| -> Result<(), String> {
        let launching: Vec<_> = (0..options.threads)
            .map(|_| {
                let (dispatch, stop, steps) = (dispatch.clone(), &stop, &steps);
                scope.spawn(move || -> Result<(), String> {
                    gpu.use_here()?;
                    tracing::dispatcher::with_default(&dispatch, || {
                        while !stop.load(Ordering::Relaxed) {
                            step(gpu, options)?;
                            steps.fetch_add(1, Ordering::Relaxed);
                        }
                        gpu.synchronize(PER_THREAD)
                    })
                })
            })
            .collect();
        let churning: Vec<_> = (options.churn.iter())
            .map(|what| {
                let stop = &stop;
                scope.spawn(move || -> Result<(), String> {
                    gpu.use_here()?;
                    while !stop.load(Ordering::Relaxed) {
                        come_and_go(gpu, what)?;
                    }
                    Ok(())
                })
            })
            .collect();
        let end = until.min(Instant::now() + SESSION);
        while Instant::now() < end && !launching.iter().any(|thread| thread.is_finished()) {
            std::thread::sleep(Duration::from_millis(2));
        }
        if options.cut {
            // While threads launch, whatever the window's state is.
            handle.flush(Duration::from_secs(5)).map_err(|e| e.to_string())?;
        }
        stop.store(true, Ordering::Relaxed);
        for thread in launching.into_iter().chain(churning) {
            thread.join().map_err(|_| "a thread panicked".to_string())??;
        }
        Ok(())
    })?;
    drop(dispatch);
    let manifest = session.finish();
    let kernels = manifest.gpu.and_then(|gpu| gpu.kernels).unwrap_or_default();
    account.windows += kernels.windows;
    account.window_steps += kernels.steps;
    account.kernels += kernels.attributed;
    account.dropped += kernels.dropped;
    account.late += kernels.late;
    if let Some(error) = kernels.error {
        *account.errors.entry(error).or_default() += 1;
    }
    let batch = memory.batch();
    let mut launched: BTreeMap<u64, u64> = BTreeMap::new();
    for kernel in batch.kernels.iter().filter(|kernel| kernel.launch == Some("cuLaunchKernel")) {
        if let Some(step) = kernel.step {
            *launched.entry(step).or_default() += 1;
        }
    }
    account.incomplete += launched.values().filter(|n| **n != KERNELS).count() as u64;
    Ok(())
}

fn run() -> Result<bool, String> {
    crash_report::install();
    let options = options()?;
    let gpu = Gpu::new()?;
    if let Some(order) = &options.order {
        in_order(&gpu, order)?;
        println!("{}", json!({ "order": order, "whole": true }));
        return Ok(true);
    }
    let began = Instant::now();
    let until = began + Duration::from_secs(options.seconds);
    let (mut account, mut sessions) = (Account::default(), 0);
    while sessions < options.sessions && Instant::now() < until {
        crash_report::doing("a session");
        session(&gpu, &options, until, &mut account)?;
        sessions += 1;
    }
    let whole = account.dropped == 0 && account.late == 0 && account.incomplete == 0 && account.errors.is_empty();
    println!(
        "{}",
        json!({
            "sessions": sessions, "threads": options.threads, "windows": account.windows,
            "window_steps": account.window_steps, "kernels": account.kernels, "dropped": account.dropped,
            "late": account.late, "incomplete_steps": account.incomplete, "errors": account.errors,
            "seconds": began.elapsed().as_secs_f64(), "whole": whole,
        })
    );
    Ok(whole)
}

fn main() -> std::process::ExitCode {
    match run() {
        Ok(true) => std::process::ExitCode::SUCCESS,
        Ok(false) => std::process::ExitCode::from(2),
        Err(error) => {
            eprintln!("error: {error}");
            std::process::ExitCode::FAILURE
        }
    }
}
