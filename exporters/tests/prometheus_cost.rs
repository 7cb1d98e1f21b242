//! The cost of a scrape, and the threads that pay for it. The tests have a process of their own and run one after the
//! other, so that nothing else runs beside them.
#![allow(missing_docs, reason = "a test")]

use candlescope_core::run::RunManifest;
use candlescope_core::{Exporter, Ledger, Session};
use candlescope_exporters::prometheus::{PrometheusConfig, PrometheusExporter};
use candlescope_testkit::records::many_paths;
use candlescope_testkit::services::get;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use tracing_subscriber::prelude::*;

static ALONE: Mutex<()> = Mutex::new(());

/// Bound: 5 ms for 1,000 series on a quiet machine. The median of many scrapes must be within four times that, for a
/// busy machine.
///
/// The figures in docs/measurements/prometheus.md are what this prints.
#[test]
fn a_scrape_is_cheap() {
    const SCRAPES: usize = 301;
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    for (paths, bound) in [(40, Some(Duration::from_millis(5))), (500, None)] {
        let mut exporter = PrometheusExporter::new(PrometheusConfig::new("127.0.0.1:0"));
        exporter.start(&RunManifest::default()).expect("starts");
        let address = exporter.endpoint().address().expect("listens");
        exporter.export(&many_paths(paths), &Ledger::new()).expect("takes it");
        let body = get(address, "/metrics").expect("metrics");
        let series = body.lines().filter(|line| !line.starts_with('#') && line.contains(' ')).count();
        let cpu = thread("cs-prom-http").map(|id| cpu_ns(&id));
        let mut times: Vec<Duration> = (0..SCRAPES)
            .map(|_| {
                let start = Instant::now();
                get(address, "/metrics").expect("metrics");
                start.elapsed()
            })
            .collect();
        times.sort();
        let median = times[SCRAPES / 2];
        let of_server = thread("cs-prom-http").zip(cpu).map(|(id, before)| (cpu_ns(&id) - before) / SCRAPES as u64);
        println!(
            "scrape of {series} series, {} bytes, over loopback, n = {SCRAPES}: median {median:?}, p10 {:?}, p90 {:?}; \
             CPU of the server's thread a scrape: {:?}",
            body.len(),
            times[SCRAPES / 10],
            times[SCRAPES * 9 / 10],
            of_server.map(Duration::from_nanos),
        );
        if let Some(bound) = bound {
            assert!(series >= 1_000, "{series}");
            assert!(median < bound * 4, "{median:?}");
        }
    }
}

/// The `/proc` directory of the thread with this name, if it exists.
fn thread(name: &str) -> Option<PathBuf> {
    let mut threads = std::fs::read_dir("/proc/self/task").ok()?.filter_map(|entry| Some(entry.ok()?.path()));
    threads.find(|at| std::fs::read_to_string(at.join("comm")).is_ok_and(|comm| comm.trim() == name))
}

/// Time that a thread has run.
fn cpu_ns(thread: &Path) -> u64 {
    let text = std::fs::read_to_string(thread.join("schedstat")).unwrap_or_default();
    text.split(' ').next().and_then(|ns| ns.parse().ok()).unwrap_or_default()
}

/// A waiting thread of the application is not woken by scrapes; their cost is on the exporter's own thread.
#[test]
#[cfg(target_os = "linux")]
fn scrapes_run_nothing_on_the_applications_threads() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let exporter = PrometheusExporter::new(PrometheusConfig::new("127.0.0.1:0"));
    let endpoint = exporter.endpoint();
    let (layer, session) = Session::builder().exporter(exporter).start().expect("starts");
    let address = endpoint.address().expect("listens");
    let (done, wait) = std::sync::mpsc::channel::<()>();
    let (ready, began) = std::sync::mpsc::channel();
    let application = std::thread::Builder::new().name("app".into());
    let application = application.spawn(move || {
        let _subscriber = tracing::subscriber::set_default(tracing_subscriber::registry().with(layer));
        let _step = candlescope_core::llm::decode(candlescope_core::llm::Tokens::new(1).context(1));
        ready.send(std::fs::read_link("/proc/thread-self").expect("/proc")).expect("heard");
        // In the middle of a step, like an application that waits for its device.
        let _ = wait.recv();
    });
    let application = application.expect("spawns");
    let at = Path::new("/proc").join(began.recv().expect("begins"));
    let asleep = || std::fs::read_to_string(at.join("stat")).is_ok_and(|stat| stat.contains(") S "));
    // On a busy machine the thread may be descheduled on the way there: only when it has not run for a while is it
    // really waiting.
    let state = || (cpu_ns(&at), switches(&at));
    loop {
        let before = state();
        std::thread::sleep(Duration::from_millis(50));
        if asleep() && state() == before {
            break;
        }
    }
    let server = thread("cs-prom-http").expect("a thread for the server");
    let (before, of_server) = (state(), cpu_ns(&server));
    for _ in 0..100 {
        get(address, "/metrics").expect("metrics");
    }
    assert_eq!(state(), before, "the application's thread ran while metrics were scraped");
    assert!(cpu_ns(&server) > of_server, "the server's thread did the work");
    drop(done);
    application.join().expect("ends");
    session.finish();
}

/// How often a thread was switched out, voluntarily or not.
#[cfg(target_os = "linux")]
fn switches(thread: &Path) -> Vec<String> {
    let status = std::fs::read_to_string(thread.join("status")).expect("/proc");
    status.lines().filter(|line| line.contains("ctxt_switches")).map(String::from).collect()
}
