//! Programs made up so that each has the cause of a finding, recorded as any program is. They wait for what takes
//! time and compute next to nothing, so that the cause is there on a busy machine, too.

use super::common::*;
use super::{Busy, OUT, analysed, as_a_program, figure, findings, recorded};
use candlescope::llm::{self, Request, Tokens};
use candlescope::{Annotation, Builder, DType, Schedule, Scope, annotate};
use candlescope_core::run::{env_key, model_key};
use serde_json::{Value, json};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::{Barrier, OnceLock};
use std::time::{Duration, Instant};
use tracing::trace_span;
use tracing_subscriber::prelude::*;

/// Runs of these programs.
pub(super) struct Made {
    /// Of waits whose lengths are known.
    pub(super) waits: PathBuf,
    /// The same while other programs keep all processors busy.
    pub(super) crowded: PathBuf,
    /// Weights that are read at nearly the memory's rate.
    pub(super) streams: PathBuf,
    /// Without a KV cache.
    pub(super) again: PathBuf,
    /// Padded prompts, and steps that grow with the context.
    pub(super) batches: PathBuf,
    /// A cache of keys and values that is copied at each token.
    pub(super) copies: PathBuf,
    /// Nothing but steps.
    pub(super) bare: PathBuf,
    /// A model of candle whose steps have no phase, every other one of them recorded.
    pub(super) unmarked: PathBuf,
    /// In the kernel all the time.
    pub(super) in_kernel: PathBuf,
}

impl Made {
    /// Those of which figures and gains mean something.
    pub(super) fn sound(&self) -> [&Path; 5] {
        [&self.waits, &self.streams, &self.again, &self.batches, &self.copies]
    }

    pub(super) fn all(&self) -> Vec<PathBuf> {
        let others = [&self.crowded, &self.bare, &self.unmarked, &self.in_kernel];
        self.sound().into_iter().map(Path::to_path_buf).chain(others.into_iter().cloned()).collect()
    }
}

pub(super) fn made() -> &'static Made {
    static MADE: OnceLock<Made> = OnceLock::new();
    MADE.get_or_init(|| {
        let run = |name: &str, program: &str| as_a_program(&recorded().dir, name, &format!("scenes::{program}"), None);
        let crowded = {
            let _busy = Busy::begin();
            run("crowded", "waits")
        };
        Made {
            waits: run("waits", "waits"),
            crowded,
            streams: run("streams", "streams"),
            again: run("again", "again"),
            batches: run("batches", "batches"),
            copies: run("copies", "copies"),
            bare: run("bare", "bare"),
            unmarked: run("unmarked", "unmarked"),
            in_kernel: run("in_kernel", "in_kernel"),
        }
    })
}

/// Where the run is to be, if this process is the program.
fn place() -> Option<PathBuf> {
    std::env::var_os(OUT).map(PathBuf::from)
}

fn on_cpu(run: &Path) -> Builder {
    candlescope::builder().parquet(run).session(|s| s.option("device", "cpu"))
}

/// What the device can do at most, as `bench peaks` would have measured it.
fn peaks(flops: f64, bandwidth: f64) -> Value {
    json!([
        { "kind": "flops", "value": flops, "label": "measured", "source": "made up", "dtype": "f32" },
        { "kind": "bandwidth", "value": bandwidth, "label": "measured", "source": "made up" },
    ])
}

fn with_peaks(builder: Builder, peaks: Value) -> Builder {
    builder.session(|s| s.environment(env_key::MEASURED_PEAKS.name(), peaks))
}

fn session(builder: Builder, work: impl FnOnce(&Scope)) {
    let (layer, scope) = builder.layer().expect("a session");
    tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || work(&scope));
    scope.finish().expect("a run");
}

/// Says that the model has so many bytes of weights in f32.
fn of_weights(scope: &Scope, bytes: u64) {
    let handle = scope.handle().expect("a handle");
    handle.set_model(model_key::WEIGHT_BYTES.name(), bytes);
    handle.set_model(model_key::PARAMETERS.name(), bytes / 4);
}

fn pause(ms: u64) {
    std::thread::sleep(Duration::from_millis(ms));
}

/// Threads of the pool.
const THREADS: usize = 4;
/// The first steps, which are cold.
const COLD: u64 = 16;
/// One in so many steps stalls.
const STALLS: u64 = 25;
/// Steps of a request.
const STEPS: usize = 50;

/// Requests of steps of 9 ms: a product on a pool of which one thread has something to do, attention, the choice of a
/// token. Between them 2 ms pass. Both operations are far from what the machine can do.
#[test]
#[ignore = "the program that the tests record"]
fn waits() {
    let Some(run) = place() else { return };
    let is_crowded = run.ends_with("crowded");
    let peaks = manifest(&run.with_file_name("batch"))["environment"][env_key::MEASURED_PEAKS.name()].clone();
    assert!(peaks.is_array(), "no peaks of this machine: {peaks}");
    let mut builder = with_peaks(on_cpu(&run), peaks);
    if !is_crowded {
        // Beside other tests a machine of two processors has none that could wait: that there are more is this
        // program's word.
        let processors = 4 * std::thread::available_parallelism().map_or(2, usize::from) as u64;
        builder = builder.session(|s| s.environment(env_key::CPU_AVAILABLE.name(), processors));
    }
    let pool = rayon::ThreadPoolBuilder::new().num_threads(THREADS).build().expect("a pool");
    let together = Barrier::new(THREADS);
    let product = || {
        pool.broadcast(|thread| {
            if thread.index() == 0 {
                pause(4);
            }
            together.wait();
        });
    };
    session(builder, |_| {
        let (linear, attention) = (trace_span!("linear"), trace_span!("attention"));
        let mut nth = 0;
        for _ in 0..if is_crowded { 2 } else { 4 } {
            let request = Request::new("text_completion", "made up").prompt_tokens(8);
            let _in_request = request.enter();
            for context in 8..8 + STEPS {
                {
                    let _step = llm::decode(Tokens::new(1).context(context));
                    match nth {
                        nth if nth < COLD => pause(60),
                        nth if nth % STALLS == STALLS - 1 => pause(150),
                        _ => {}
                    }
                    linear.in_scope(|| {
                        let work = Annotation::new().flops(50_000).bytes(100_000).io_bytes(100_000);
                        annotate(work.dtype(DType::F32));
                        product();
                    });
                    attention.in_scope(|| {
                        annotate(Annotation::new().bytes(100_000).io_bytes(100_000));
                        pause(4);
                    });
                    let _sample = llm::sample();
                    pause(1);
                }
                nth += 1;
                request.token();
                pause(2);
            }
        }
    });
}

/// A product of one row by weights of which 70 MB are read in 10 ms, where the memory has 10 GB/s.
#[test]
#[ignore = "the program that the tests record"]
fn streams() {
    const BYTES: u64 = 70_000_000;
    let Some(run) = place() else { return };
    // One thread of several, as a row is multiplied by one: a quarter of the rate counts as near, however late the
    // sleep ends.
    let builder = on_cpu(&run).session(|s| s.environment(env_key::COMPUTE_THREADS.name(), 4));
    session(with_peaks(builder, peaks(1e11, 1e10)), |scope| {
        of_weights(scope, BYTES);
        let linear = trace_span!("linear");
        for context in 8..68 {
            let _step = llm::decode(Tokens::new(1).context(context));
            linear.in_scope(|| {
                annotate(Annotation::new().flops(BYTES / 2).bytes(BYTES).io_bytes(BYTES).dtype(DType::F32));
                pause(10);
            });
        }
    });
}

/// Each token is computed with all 64 before it.
#[test]
#[ignore = "the program that the tests record"]
fn again() {
    const BYTES: u64 = 100_000;
    let Some(run) = place() else { return };
    session(on_cpu(&run), |scope| {
        of_weights(scope, BYTES);
        let linear = trace_span!("linear");
        for _ in 0..40 {
            let _step = llm::decode(Tokens::new(1).context(64));
            linear.in_scope(|| {
                annotate(Annotation::new().flops(64 * BYTES / 2).bytes(BYTES).io_bytes(BYTES).dtype(DType::F32));
                pause(5);
            });
        }
    });
}

/// Prompts of which a quarter is padding; decoding steps of 2 to 14 ms, by their context, that state more than the
/// peaks allow.
#[test]
#[ignore = "the program that the tests record"]
fn batches() {
    let Some(run) = place() else { return };
    session(with_peaks(on_cpu(&run), peaks(1e6, 1e12)), |_| {
        let linear = trace_span!("linear");
        let mut context = 100;
        for _ in 0..6 {
            {
                let _step = llm::prefill(Tokens::new(400).context(100).batch(4));
                annotate(Annotation::new().new_tokens(300).sequences(4));
                pause(20);
            }
            for _ in 0..20 {
                context += 1;
                let _step = llm::decode(Tokens::new(1).context(context));
                linear.in_scope(|| {
                    let work = Annotation::new().flops(1_000_000_000).bytes(1_000).io_bytes(1_000);
                    annotate(work.dtype(DType::F32));
                });
                std::thread::sleep(Duration::from_micros(2_000 + 100 * (context as u64 - 100)));
            }
        }
    });
}

/// A cache of one layer that takes 50 µs longer for each token in it, as one that is copied at each token does. Copying
/// itself (`Tensor::cat`) takes as long and is as straight a line, but not beside other tests.
#[test]
#[ignore = "the program that the tests record"]
fn copies() {
    let Some(run) = place() else { return };
    session(with_peaks(on_cpu(&run), peaks(1e11, 1e10)), |scope| {
        let handle = scope.handle().expect("a handle");
        for (key, value) in [(model_key::LAYERS, 1), (model_key::KV_HEADS, 8), (model_key::HEAD_DIM, 64)] {
            handle.set_model(key.name(), value);
        }
        handle.set_model(model_key::DTYPE.name(), "f32");
        let kv_cache = trace_span!("kv_cache");
        for context in 64..192 {
            let _step = llm::decode(Tokens::new(1).context(context));
            kv_cache.in_scope(|| std::thread::sleep(Duration::from_micros(50 * context as u64)));
        }
    });
}

/// Steps of a batch, and nothing that says what is in them.
#[test]
#[ignore = "the program that the tests record"]
fn bare() {
    let Some(run) = place() else { return };
    session(on_cpu(&run).host(false), |_| {
        for _ in 0..40 {
            let _step = llm::decode(Tokens::new(4).batch(4));
            pause(2);
        }
    });
}

/// Passes of a hundred layers that take no time, so that recording them is most of what they take.
#[test]
#[ignore = "the program that the tests record"]
fn unmarked() {
    let Some(run) = place() else { return };
    let every_other = Schedule { skip_first: 0, wait: 1, warmup: 0, active: 1, repeat: 0 };
    session(on_cpu(&run).schedule(every_other), |_| {
        let model = trace_span!(target: "candle_transformers::models::qwen2", "model");
        let linear = trace_span!(target: "candle_nn::linear", "linear");
        for _ in 0..300 {
            model.in_scope(|| (0..100).for_each(|_| linear.in_scope(|| ())));
            pause(1);
        }
    });
}

/// More than a second of CPU time, in calls.
#[test]
#[ignore = "the program that the tests record"]
fn in_kernel() {
    let Some(run) = place() else { return };
    session(on_cpu(&run), |_| {
        let used = || rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
        let nanoseconds = |time: rustix::time::Timespec| time.tv_sec as i128 * 1_000_000_000 + time.tv_nsec as i128;
        let (before, begun) = (nanoseconds(used()), Instant::now());
        let mut zeros = std::fs::File::open("/dev/zero").expect("zeros");
        let mut room = vec![0_u8; 1 << 20];
        while nanoseconds(used()) - before < 1_200_000_000 && begun.elapsed() < Duration::from_secs(8) {
            let _step = llm::decode(Tokens::new(1));
            for _ in 0..20 {
                zeros.read_exact(&mut room).expect("zeros");
            }
        }
    });
}

/// The first finding of this code, at this path if one is given.
fn found<'a>(object: &'a Value, code: &str, path: Option<&str>) -> &'a Value {
    let is_it = |finding: &&Value| finding["code"] == code && path.is_none_or(|path| finding["place"]["path"] == path);
    findings(object).iter().find(is_it).unwrap_or_else(|| panic!("no {code} at {path:?}: {object:#}"))
}

fn of(finding: &Value, name: &str) -> f64 {
    figure(finding, name).unwrap_or_else(|| panic!("{name}: {finding:#}"))
}

fn lacks(object: &Value, code: &str, missing: &str) -> bool {
    let all = object["abstained"].as_array().expect("a list");
    all.iter().any(|one| one["code"] == code && one["missing"] == missing)
}

#[test]
fn threads_that_wait_are_seen_in_the_samples_of_the_process() {
    let object = analysed(&made().waits);
    let threads = found(&object, "threads_wait", None);
    // The process does next to nothing on four times the processors of this machine.
    assert!(of(threads, "busy_processors") < 0.5 && of(threads, "used") < 0.3, "{threads:#}");
    assert!(threads["gain"]["high"].as_f64() > Some(0.7), "{threads:#}");
    // Where others use the processors, none could have waited, and that is said.
    let crowded = analysed(&made().crowded);
    assert!(findings(&crowded).iter().all(|finding| finding["code"] != "threads_wait"), "{crowded:#}");
    assert!(lacks(&crowded, "threads_wait", "free_processors"), "{crowded:#}");
}

#[test]
fn single_steps_that_stall_and_first_ones_that_are_cold_are_told_apart() {
    let object = analysed(&made().waits);
    let late = found(&object, "straggler_step", None);
    // Other programs may hold up some more.
    assert!(of(late, "late_steps") >= 8.0 && of(late, "late_mean_ns") > 20e6, "{late:#}");
    let cold = found(&object, "warmup_unsettled", None);
    assert!((8.0..60.0).contains(&of(cold, "unsettled_steps")), "{cold:#}");
    assert!(of(cold, "first_ns") > 60e6, "{cold:#}");
}

#[test]
fn operations_far_from_the_peaks_of_this_machine_are_named() {
    let object = analysed(&made().waits);
    let linear = found(&object, "below_roof", Some("decode/linear"));
    // 100 kB in 4 ms.
    assert!(of(linear, "of_roof") < 0.1 && of(linear, "time_ns") >= 4e6, "{linear:#}");
    assert_eq!(of(linear, "bytes"), 100_000.0, "{linear:#}");
    let cache = found(&object, "kv_bandwidth", Some("decode/attention"));
    assert!(of(cache, "of_bandwidth") < 0.1 && of(cache, "kv_bytes") == 100_000.0, "{cache:#}");
    assert!(findings(&object).iter().all(|finding| finding["code"] != "constant_cost"), "{object:#}");
}

#[test]
fn what_a_step_does_beside_the_model_is_told() {
    let object = analysed(&made().waits);
    assert!(of(found(&object, "host_sampling", Some("decode/sample")), "host_ns") >= 1e6, "{object:#}");
    assert!(of(found(&object, "between_steps", None), "each_step_ns") >= 1.9e6, "{object:#}");
}

#[test]
fn work_that_is_stated_is_held_against_the_weights_and_the_tokens() {
    let streams = analysed(&made().streams);
    let weights = found(&streams, "weight_streaming", Some("decode/linear"));
    assert!(of(weights, "bits") == 32.0 && (0.25..=0.75).contains(&of(weights, "of_bandwidth")), "{weights:#}");
    let again = analysed(&made().again);
    let rows = found(&again, "recomputed", None);
    assert!((of(rows, "rows") - 64.0).abs() < 1e-9 && of(rows, "mean_context") == 64.0, "{rows:#}");
    let batches = analysed(&made().batches);
    let padded = found(&batches, "padding", None);
    assert_eq!((of(padded, "computed_tokens"), of(padded, "new_tokens")), (2_400.0, 1_800.0), "{padded:#}");
}

#[test]
fn a_cache_that_is_copied_at_each_token_is_named() {
    let object = analysed(&made().copies);
    let copied = found(&object, "cache_copied", Some("decode/kv_cache"));
    assert!(of(copied, "slope_ns") > 5.0 * of(copied, "reads_ns"), "{copied:#}");
    assert!(copied["gain"]["mid"].as_f64() > Some(0.3), "{copied:#}");
}

#[test]
fn what_a_program_does_not_say_is_named() {
    let object = analysed(&made().bare);
    for (code, missing) in [
        ("threads_wait", "cpu_samples"),
        ("below_roof", "work"),
        ("padding", "new_tokens"),
        ("host_sampling", "sample_phase"),
        ("between_steps", "whole_requests"),
        ("straggler_layer", "layers"),
        ("hot_overhead", "stacks"),
    ] {
        assert!(lacks(&object, code, missing), "{code}: {missing}: {object:#}");
    }
}
