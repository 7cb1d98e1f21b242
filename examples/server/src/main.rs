//! A small OpenAI-compatible completion server over an instrumented model: an example of a program that is observed
//! while it runs. What it does for candlescope is in [`observe`] and in `capture.rs`; the rest is a server.
//!
//! ```text
//! cargo run -p candlescope-server -- --prometheus 9464 --otlp http://localhost:4318 --capture-token secret
//! curl localhost:8080/v1/completions --json '{"prompt": "Hello", "max_tokens": 32, "stream": true}'
//! curl -X POST -H 'Authorization: Bearer secret' 'localhost:8080/debug/capture?steps=50&wait=true'
//! ```

mod answer_time;
mod api;
mod batched;
mod capture;
mod connections;
mod engine;
mod error;
mod job;
mod open_files;
mod queue;
mod serve;
mod shared_stream;
mod shelf;

use anyhow::{Context, Result};
use axum::extract::DefaultBodyLimit;
use candle_core::Device;
use candlescope::Scope;
use candlescope::parquet::ParquetConfig;
use candlescope_models::slots::{BatcherOptions, KvCollector, SlotOptions};
use candlescope_models::{KvCacheDType, LoadOptions, ModelSource};
use clap::Parser;
use engine::{Engine, Size};
use serve::Limits;
use shelf::Shelf;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;

#[derive(Debug, Parser)]
#[command(about = "A small OpenAI-compatible completion server, observable with candlescope", version)]
struct Args {
    /// Model: embedded, a .gguf file, a directory, a hub id, or config:NAME
    #[arg(long, default_value = "embedded")]
    model: String,
    /// Device: cpu or cuda:N
    #[arg(long, default_value = "cpu")]
    device: String,
    /// Address that answers requests
    #[arg(long, default_value = "127.0.0.1:8080", value_name = "HOST:PORT")]
    listen: String,
    /// A further name in `Host` to answer to where the address is of this machine only, as a proxy on it hands names on;
    /// several are possible
    #[arg(long, value_name = "NAME")]
    allow_host: Vec<String>,
    /// Threads that generate, each with a model of its own. candle computes with RAYON_NUM_THREADS threads; if that is not
    /// set, the workers share the cores, and the embedded model takes one
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    workers: u16,
    /// Requests that each worker generates at once, in slots that are allocated at the start: they join and leave between
    /// two steps. Without it a worker generates one after the other
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=1000), value_name = "N")]
    max_num_seqs: Option<u16>,
    /// Most tokens of a request in a slot, prompt included; the model's context by default
    #[arg(long, requires = "max_num_seqs", value_parser = clap::value_parser!(u32).range(2..), value_name = "TOKENS")]
    max_model_len: Option<u32>,
    /// Allocate as many of the slots as fit if this share of the device's memory may be in use with them, those of all
    /// workers together; without it, all or none
    #[arg(long, requires = "max_num_seqs", value_parser = share, value_name = "SHARE")]
    gpu_memory_utilization: Option<f64>,
    /// How keys and values are held: auto, in the type of activations, or q8, in 8 bits with a scale for each position and
    /// head: about half the memory of 16 bits, so that more slots fit, and more work to read them
    #[arg(long, default_value = "auto", value_parser = kv_cache_dtype, value_name = "DTYPE")]
    kv_cache_dtype: KvCacheDType,
    /// Most tokens of a prompt that pass between two steps of the requests that generate (chunked prefill): fewer hold them up
    /// for less time, and make the prompt take longer
    #[arg(long, requires = "max_num_seqs", default_value_t = BatcherOptions::default().prompt_piece as u32,
        value_parser = clap::value_parser!(u32).range(1..), value_name = "TOKENS")]
    prompt_piece: u32,
    /// Compute every prompt whole, also where a slot holds its beginning
    #[arg(long, requires = "max_num_seqs")]
    no_prefix_reuse: bool,
    /// Capture the steps of the slots as CUDA graphs and replay them; needs a GPU and one worker
    #[arg(long, requires = "max_num_seqs")]
    cuda_graph: bool,
    /// Widen a GGUF's quantised weights, which a CUDA graph needs
    #[arg(long)]
    dequantize: bool,
    /// Requests that may wait; further ones are refused with status 429
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..))]
    queue: u16,
    /// Most tokens that one request may ask for
    #[arg(long, default_value_t = 1024, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    most_tokens: u32,
    /// Serve metrics for Prometheus here: HOST:PORT, or PORT for this machine only
    #[arg(long, value_name = "ADDR")]
    prometheus: Option<String>,
    /// Send traces to the OpenTelemetry collector at this address
    #[arg(long, value_name = "URL")]
    otlp: Option<String>,
    /// Write everything into this directory, as a run
    #[arg(long, value_name = "RUN")]
    parquet: Option<PathBuf>,
    /// Disk space of that run in MB; the oldest is removed beyond it
    #[arg(long, value_name = "MB", requires = "parquet")]
    disk_budget_mb: Option<u64>,
    /// Directory for runs captured on demand
    #[arg(long, value_name = "DIR", default_value = "runs/captures")]
    captures: PathBuf,
    /// Token that allows POST /debug/capture; without one it is off
    #[arg(long, env = "CAPTURE_TOKEN", hide_env_values = true, value_name = "TOKEN")]
    capture_token: Option<String>,
    /// Steps that are captured at the signal SIGUSR1
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..=capture::MOST_STEPS))]
    signal_steps: u64,
    /// Record kernels, too, in captures on a GPU. With --cuda-graph CUPTI then stays in the process, so that kernels of a
    /// replay are known by their layers, which costs each launch up to 0.8 µs
    #[arg(long)]
    capture_kernels: bool,
    /// Requests under way at once, waiting ones included, and connections that stay open. One more request is refused
    /// with status 503; of further connections, those are closed that have gone longest without sending a whole
    /// request, if they sent nothing for a second. By default 256, or 64 more than the requests that may wait and be
    /// answered at once
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..))]
    connections: Option<u16>,
    /// Seconds for a request's head, from the connection or the last response on; an idle connection is closed after
    /// the same time
    #[arg(long, default_value = "15", value_parser = seconds, value_name = "SECONDS")]
    head_seconds: Duration,
    /// Seconds for a request's body
    #[arg(long, default_value = "30", value_parser = seconds, value_name = "SECONDS")]
    body_seconds: Duration,
    /// Largest body of a request in KB; times --connections, this is the memory that bodies may take
    #[arg(long, default_value_t = 2048, value_parser = clap::value_parser!(u32).range(1..=1_048_576), value_name = "KB")]
    body_kb: u32,
    /// Seconds after which a client that reads nothing of its response is cut off
    #[arg(long, default_value = "30", value_parser = seconds, value_name = "SECONDS")]
    write_seconds: Duration,
    /// Seconds for a request from its arrival to the last token, waiting included; then the model goes on to the next
    /// one
    #[arg(long, default_value = "600", value_parser = seconds, value_name = "SECONDS")]
    request_seconds: Duration,
    /// Seconds for requests under way to end when the server stops; then they are cut off, and after the same time
    /// again, clients that are still connected are abandoned
    #[arg(long, default_value = "15", value_parser = seconds, value_name = "SECONDS")]
    stop_seconds: Duration,
    /// Disk space of the runs in --captures in MB; further captures are refused with status 507
    #[arg(long, default_value_t = 2000, value_parser = clap::value_parser!(u64).range(1..), value_name = "MB")]
    captures_mb: u64,
    /// Runs in --captures; further ones are refused with status 507
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..))]
    captures_most: u32,
    /// What is recorded and how, as the variable CANDLESCOPE has it: `cost=1%,nvml=off`. Destinations have options of their own
    #[arg(long, value_name = "OPTIONS")]
    record: Option<String>,
    /// Run without candlescope, to measure what it costs
    #[arg(long, conflicts_with = "record")]
    unobserved: bool,
}

/// A positive number of seconds: `0.5` or `30`.
fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().filter(|seconds| (0.001..=86_400.0).contains(seconds));
    seconds
        .map(Duration::from_secs_f64)
        .ok_or_else(|| "give seconds from 0.001 to 86400, such as 30 or 0.5".to_string())
}

/// A share: above 0, and at most 1.
fn share(text: &str) -> Result<f64, String> {
    let share = text.parse().ok().filter(|share| *share > 0.0 && *share <= 1.0);
    share.ok_or_else(|| "give a share above 0 and up to 1, such as 0.9".to_string())
}

/// How keys and values are held.
fn kv_cache_dtype(text: &str) -> Result<KvCacheDType, String> {
    let known = KvCacheDType::ALL.iter().copied().find(|dtype| dtype.as_str() == text);
    let names = || KvCacheDType::ALL.iter().map(|dtype| dtype.as_str()).collect::<Vec<_>>();
    known.ok_or_else(|| format!("there are {}", names().join(" and ")))
}

/// Everything that makes the server observable. Called before the models load, because their spans are made then.
fn observe(args: &Args, device: &Device) -> Result<Scope> {
    if args.unobserved {
        return Ok(Scope::disabled());
    }
    let mut observed = match &args.record {
        Some(options) => candlescope::env::EnvConfig::parse(options).context("--record")?.into_builder()?,
        None => candlescope::builder(),
    };
    #[cfg(feature = "cuda")]
    if let (true, Device::Cuda(cuda)) = (args.cuda_graph, device) {
        let stream = cuda.cuda_stream();
        let options = candlescope::gpu::CudaClockOptions::default().stream(stream.context().ordinal(), &stream);
        observed = observed.gpu_clock(options);
    }
    #[cfg(not(feature = "cuda"))]
    let _ = device;
    if let Some(address) = &args.prometheus {
        observed = observed.prometheus(address);
    }
    if let Some(endpoint) = &args.otlp {
        observed = observed.otlp(endpoint);
    }
    if let Some(run) = &args.parquet {
        let budget = args.disk_budget_mb.map(|mb| mb * 1_000_000);
        observed = observed.parquet_with(ParquetConfig::new(run).disk_budget(budget));
    }
    if args.max_num_seqs.is_some() {
        observed = observed.collector(KvCollector::default());
    }
    if args.capture_kernels {
        // Graphs are captured long before a capture asks for kernels: their nodes are followed from the beginning.
        observed = observed.cupti(candlescope::gpu::KernelWindows::OnRequest).cupti_graphs(args.cuda_graph);
    }
    // The web server's own spans are not steps.
    for target in ["axum", "hyper", "hyper_util", "h2", "tower", "tokio"] {
        observed = observed.exclude_target(target);
    }
    Ok(observed.report_at_end(true).install()?)
}

fn main() -> Result<()> {
    // Chat templates are programs that come with models; they run in processes of their own.
    candlescope_models::chat::isolate();
    let args = Args::parse();
    // A model that is not there needs no session, which would say that nothing was recorded.
    let source = ModelSource::parse(&args.model)?;
    // Nor does an address that somebody has.
    drop(std::net::TcpListener::bind(&args.listen).with_context(|| cannot_listen(&args))?);
    // Before anything starts a thread: without it candle counts the processors at each product.
    #[allow(unsafe_code, reason = "setting a variable is not safe while other threads read some")]
    // SAFETY: no other thread runs yet.
    unsafe {
        candlescope_models::threads::compute_on(compute_threads(&args));
    }
    let device = device(&args)?;
    let scope = observe(&args, &device)?;

    let (shelf, token) = (args.shelf(), args.capture_token.clone());
    let captures = Arc::new(capture::Captures::new(scope.handle().cloned(), shelf, token, args.request_seconds));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    {
        let _within = runtime.enter();
        capture::at_signal(captures.clone(), args.signal_steps)?;
    }

    let options = LoadOptions {
        device,
        slots: slots(&args),
        dequantize: args.dequantize,
        kv_cache_dtype: args.kv_cache_dtype,
        ..LoadOptions::default()
    };
    let engine = Engine::start(&source, &options, size(&args))?;
    if let Some(handle) = scope.handle() {
        for (key, value) in &engine.model.facts {
            handle.set_model(key, value.clone());
        }
    }
    let served = runtime.block_on(serve(&args, &engine, &captures));
    // Requests under way have ended by now. Waiting ones are refused, and the workers end before the run is closed.
    drop(runtime);
    engine.stop();
    scope.finish();
    if served? {
        std::process::exit(1);
    }
    Ok(())
}

/// Threads that compute one request: the embedded model's products are too small to be shared, and workers share the
/// processors.
fn compute_threads(args: &Args) -> usize {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    if args.model == candlescope_models::config::EMBEDDED { 1 } else { cores / usize::from(args.workers).max(1) }
}

/// Connections for whoever does not wait for an answer: health checks, and requests that are refused because the queue
/// is full.
const OTHER_CONNECTIONS: usize = 64;

impl Args {
    /// Requests that may wait or be answered at once.
    fn requests(&self) -> usize {
        usize::from(self.queue) + usize::from(self.workers) * usize::from(self.max_num_seqs.unwrap_or(1))
    }

    fn connections(&self) -> usize {
        self.connections.map_or_else(|| (self.requests() + OTHER_CONNECTIONS).max(256), usize::from)
    }

    /// What is odd about the options, though the server runs with them.
    fn warning(&self) -> Option<String> {
        let (connections, requests) = (self.connections(), self.requests());
        (connections < requests).then(|| {
            format!(
                "--connections {connections} is less than the {requests} requests that may wait and be answered at \
                 once: further ones get status 503 while the queue has room; leave --connections out, or give a smaller \
                 --queue"
            )
        })
    }

    fn limits(&self, this_machine_only: bool) -> Limits {
        let (connections, momentary) = open_files::connections(self.connections());
        Limits {
            this_machine_only,
            // The process has one server, to its end.
            other_names: Box::leak(self.allow_host.clone().into_boxed_slice()),
            connections,
            momentary,
            head: self.head_seconds,
            body: self.body_seconds,
            body_bytes: self.body_kb as usize * 1024,
            write: self.write_seconds,
            answer: self.request_seconds.saturating_add(self.write_seconds),
            // First requests under way may end, then they are cut off, then clients may read what they were sent.
            stop: self.stop_seconds.saturating_mul(2),
        }
    }

    fn shelf(&self) -> Shelf {
        Shelf {
            dir: self.captures.clone(),
            bytes: self.captures_mb.saturating_mul(1_000_000),
            runs: self.captures_most,
        }
    }
}

fn cannot_listen(args: &Args) -> String {
    format!("cannot listen on {}: choose another address with --listen", args.listen)
}

/// Returns whether clients were abandoned at the end.
async fn serve(args: &Args, engine: &Arc<Engine>, captures: &Arc<capture::Captures>) -> Result<bool> {
    let listener = TcpListener::bind(&args.listen).await.with_context(|| cannot_listen(args))?;
    let router = api::router(engine.clone(), args.most_tokens as usize, args.request_seconds)
        .merge(capture::router(captures.clone()))
        // The body was read already, within its limit.
        .layer(DefaultBodyLimit::disable());
    let address = listener.local_addr()?;
    let limits = args.limits(address.ip().is_loopback());
    if let Some(warning) = args.warning() {
        eprintln!("{warning}");
    }
    eprintln!("listening on http://{address}");
    let stop = told_to_stop(engine.clone(), captures.clone(), args.stop_seconds);
    let (counts, left) = serve::serve(listener, router, limits, stop).await;
    if left {
        eprintln!("clients that stay connected are abandoned");
    }
    eprintln!(
        "connections: {} accepted, {} closed without a request to make room; {} requests refused for want of one",
        counts.accepted, counts.made_way, counts.refused
    );
    Ok(left)
}

/// Ctrl-C or SIGTERM: no new requests, those under way get a while to end.
async fn told_to_stop(engine: Arc<Engine>, captures: Arc<capture::Captures>, patience: Duration) {
    let terminated = async {
        #[cfg(unix)]
        if let Ok(mut signal) = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate()) {
            signal.recv().await;
            return;
        }
        std::future::pending::<()>().await;
    };
    tokio::select! {
        _ = tokio::signal::ctrl_c() => {}
        () = terminated => {}
    }
    eprintln!("stopping");
    engine.refuse();
    captures.stop();
    tokio::spawn(async move {
        tokio::time::sleep(patience).await;
        eprintln!("requests still under way after {} s are cut off", patience.as_secs_f64());
        engine.hurry();
    });
}

fn size(args: &Args) -> Size {
    let workers = usize::from(args.workers);
    // Candle itself has no setting other than this variable.
    let threads = (candle_core::utils::get_num_threads() / workers).max(1);
    let usual = BatcherOptions::default();
    let least_shared = if args.no_prefix_reuse { usize::MAX } else { usual.least_shared };
    let batcher = BatcherOptions { prompt_piece: args.prompt_piece as usize, least_shared };
    Size { workers, threads, queue: usize::from(args.queue), batcher }
}

fn slots(args: &Args) -> Option<SlotOptions> {
    let context = args.max_model_len.map(|tokens| tokens as usize);
    args.max_num_seqs.map(|slots| SlotOptions {
        slots: slots.into(),
        context,
        memory: args.gpu_memory_utilization,
        models: args.workers.into(),
        cuda_graph: args.cuda_graph,
    })
}

/// The device, with a stream of its own for CUDA graphs, because the default one cannot be captured.
fn device(args: &Args) -> Result<Device> {
    let device = named_device(&args.device)?;
    if !args.cuda_graph {
        return Ok(device);
    }
    match device {
        #[cfg(feature = "cuda")]
        Device::Cuda(_) if args.workers > 1 => {
            anyhow::bail!(
                "--cuda-graph is for one worker: leave --workers out, and give it more slots with --max-num-seqs"
            )
        }
        #[cfg(feature = "cuda")]
        Device::Cuda(default) => {
            Ok(candlescope_models::slots::capturable_device(default.cuda_stream().context().ordinal())?)
        }
        _ => anyhow::bail!("--cuda-graph needs a GPU: add --device cuda:0"),
    }
}

fn named_device(name: &str) -> Result<Device> {
    match name.split_once(':') {
        None if name == "cpu" => Ok(Device::Cpu),
        Some(("cuda", number)) => {
            let number = number.parse().with_context(|| format!("--device {name}: write it like cuda:0"))?;
            Device::new_cuda(number)
                .map_err(|error| anyhow::anyhow!("--device {name}: {}", candlescope_models::candle_message(&error)))
        }
        _ => anyhow::bail!("--device {name}: use cpu or cuda:N"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(given: &[&str]) -> Args {
        Args::parse_from(["candlescope-server"].iter().chain(given))
    }

    #[test]
    fn there_are_connections_for_whoever_may_wait() {
        assert_eq!((args(&[]).connections(), args(&[]).warning()), (256, None));
        let many = args(&["--queue", "2000", "--max-num-seqs", "8", "--workers", "2"]);
        assert_eq!((many.connections(), many.warning()), (2_080, None));
        let few = args(&["--queue", "2000", "--connections", "256"]);
        assert_eq!(few.connections(), 256);
        assert!(few.warning().is_some_and(|text| text.contains("less than the 2001 requests")));
    }
}
