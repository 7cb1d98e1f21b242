//! A GPU that only plays: its kernels are scripted (`sdk/core/tests/scripted`), and NVML is a library of the tests' own
//! (`scripted_nvml.c`). All else is as in any program: the builder, its collectors, what is written and what is served.

use super::common::*;
use super::scripted::{Clock, Device, Recorder};
use super::{OUT, analysed, figure, findings, panels, recorded};
use candlescope::llm::{self, Request, Tokens};
use candlescope::{Annotation, DType, Schedule, annotate};
use candlescope_core::gpu::RawKernel;
use candlescope_core::{GpuTier, GpuTiming, HostNs, KernelKind, Ran};
use candlescope_testkit::SOON;
use candlescope_testkit::services::{free_addresses, get};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};
use tracing::{Span, trace_span};
use tracing_subscriber::prelude::*;

/// Says to the program what its device does, and where it serves metrics.
const SCENE: &str = "CANDLESCOPE_TEST_SCENE";
const ADDRESS: &str = "CANDLESCOPE_TEST_ADDRESS";

/// All that can be recorded of a device.
const WHOLE: &str = "whole";
/// Calls that launch are not recorded, and the last kernel outlasts its step.
const NO_CALLS: &str = "no calls";
/// The recorder's clock is far off, and there are no samples.
const APART: &str = "apart";
/// No kernels are recorded, and graphs that were asked for are none.
const NO_KERNELS: &str = "no kernels";
/// Marks on steps, and none on what is in them; prompts have nothing in them.
const MARKS: &str = "marks";

/// Kernels of all steps are recorded.
const ALWAYS: Schedule = Schedule { skip_first: 0, wait: 0, warmup: 0, active: u64::MAX, repeat: 1 };
/// How long a step takes, in microseconds.
const STEP_US: i64 = 830;
/// Multiprocessors of the device, times the blocks of the product that one of them holds at once.
const WAVE: u32 = 132 * 16;
/// Blocks of the product: a wave, and a tenth of the next one.
const BLOCKS: u32 = WAVE + WAVE / 10;

/// Intervals of a step.
struct Layers {
    input: Span,
    linear: Span,
    weights: Span,
    output: Span,
    norm: Span,
}

impl Layers {
    fn new() -> Self {
        Self {
            input: trace_span!("input"),
            linear: trace_span!("linear"),
            weights: trace_span!("weights"),
            output: trace_span!("output"),
            norm: trace_span!("norm"),
        }
    }
}

fn into_copy(record: &mut RawKernel, bytes: u64) {
    (record.kind, record.bytes) = (KernelKind::Memcpy, Some(bytes));
    (record.grid, record.block, record.registers) = (None, None, None);
    (record.shared_static, record.shared_dynamic) = (None, None);
}

/// One step, microsecond by microsecond: a copy that no kernel hides; a product; weights that are expanded; a copy of
/// the result for which the host waits; and a launch 100 µs after that.
fn step(device: &Device, layers: &Layers, scene: &str, context: usize) {
    let _step = llm::decode(Tokens::new(1).context(context));
    if scene == NO_KERNELS {
        annotate(Annotation::new().ran(Ran::NoDevice));
    }
    let begin = HostNs::now().0;
    let at = |us: i64| HostNs(begin + us * 1_000);
    let run = |name: &'static str, call: (i64, i64), (start, us): (i64, i64), change: &dyn Fn(&mut RawKernel)| {
        device.runs_at(name, (at(call.0), at(call.1)), (at(start), us * 1_000), |record| {
            change(record);
            if scene == NO_CALLS {
                (record.launch, record.launch_start, record.launch_dur_ns) = (None, None, None);
            }
        });
    };
    layers.input.in_scope(|| run("htod", (0, 3), (4, 100), &|record| into_copy(record, 1 << 20)));
    layers.linear.in_scope(|| {
        let work = Annotation::new().flops(200_000_000_000).bytes(100_000_000).io_bytes(100_000_000);
        annotate(work.dtype(DType::BF16));
        run("gemm_bf16", (5, 8), (104, 300), &|record| record.grid = Some([BLOCKS, 1, 1]));
    });
    layers.weights.in_scope(|| run("dequantize_block_q4_K_f16", (10, 13), (405, 200), &|_| {}));
    layers.output.in_scope(|| run("dtoh", (15, 620), (606, 10), &|record| into_copy(record, 4)));
    let last = if scene == NO_CALLS { 900 } else { 100 };
    layers.norm.in_scope(|| run("rmsnorm_bf16", (720, 723), (724, last), &|_| {}));
    let left = begin + STEP_US * 1_000 - HostNs::now().0;
    std::thread::sleep(Duration::from_nanos(u64::try_from(left).unwrap_or(0)));
}

#[test]
#[ignore = "the program that the tests record"]
fn service() {
    let Some(run) = std::env::var_os(OUT).map(PathBuf::from) else { return };
    let (scene, address) = (std::env::var(SCENE).expect("a scene"), std::env::var(ADDRESS).ok());
    let mut device = Device::new();
    device.recorder_bound = Some(if scene == APART { 50_000_000 } else { 100 });
    let mut builder = candlescope::builder().parquet(&run).nvml(scene != APART);
    builder = builder.session(|s| s.option("device", "cuda:0"));
    let has_kernels = ![NO_KERNELS, MARKS].contains(&scene.as_str());
    if has_kernels {
        builder = builder.session(|s| s.kernels(Recorder(device.clone()), Some(ALWAYS)));
    }
    if scene == MARKS {
        builder = builder.session(|s| s.gpu(Clock(device.clone()), GpuTiming::tier(GpuTier::Steps)));
    }
    let most = Duration::from_millis(if address.is_some() { 60_000 } else { 1_500 });
    if let Some(address) = address {
        builder = builder.prometheus(address);
    }
    let (layer, scope) = builder.layer().expect("a session");
    let handle = scope.handle().expect("a handle");
    tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
        if has_kernels {
            handle.wait_for_kernels(SOON);
        }
        let (layers, begun, stop) = (Layers::new(), Instant::now(), stop(&run));
        while begun.elapsed() < most && !stop.exists() {
            {
                let request = Request::new("chat", "scripted").prompt_tokens(16);
                let _in_request = request.enter();
                if scene == MARKS {
                    let _step = llm::prefill(Tokens::new(16));
                    device.launch("gemm_bf16", 300_000);
                    std::thread::sleep(Duration::from_micros(400));
                }
                for context in 17..37 {
                    step(&device, &layers, &scene, context);
                    request.token();
                    // The kernel that outlasts its step ends before the next one.
                    std::thread::sleep(Duration::from_micros(if scene == NO_CALLS { 1_000 } else { 200 }));
                }
            }
            // Nobody's.
            device.launch("stray", 1_000);
        }
    });
    scope.finish().expect("a run");
}

/// The file that ends a program which serves.
fn stop(run: &Path) -> PathBuf {
    run.with_extension("stop")
}

/// What was recorded of the device.
pub(super) struct Scripted {
    /// Of which all was recorded.
    pub(super) whole: PathBuf,
    /// What it served of that last.
    pub(super) page: String,
    no_calls: PathBuf,
    apart: PathBuf,
    no_kernels: PathBuf,
    marks: PathBuf,
}

impl Scripted {
    pub(super) fn all(&self) -> Vec<PathBuf> {
        let others = [&self.no_calls, &self.apart, &self.no_kernels, &self.marks];
        std::iter::once(&self.whole).chain(others).cloned().collect()
    }
}

pub(super) fn scripted() -> &'static Scripted {
    static SCRIPTED: OnceLock<Scripted> = OnceLock::new();
    SCRIPTED.get_or_init(|| {
        let nvml = nvml();
        let record = |name: &str, scene: &str, variables: &[(&str, &str)]| {
            let run = recorded().dir.join(name);
            let output = program(&nvml, &run, scene).envs(variables.iter().copied()).output().expect("it runs");
            assert!(output.status.success(), "{scene}: {}{}", text(&output.stdout), text(&output.stderr));
            run
        };
        let (whole, page) = served(&nvml);
        Scripted {
            whole,
            page,
            no_calls: record("gpu_no_calls", NO_CALLS, &[("SCRIPTED_NVML_PLAIN", "1")]),
            apart: record("gpu_apart", APART, &[]),
            no_kernels: record("gpu_no_kernels", NO_KERNELS, &[("SCRIPTED_NVML_GPUS", "0")]),
            marks: record("gpu_marks", MARKS, &[("SCRIPTED_NVML_PLAIN", "1")]),
        }
    })
}

/// The folder of the library that stands for NVML.
fn nvml() -> PathBuf {
    let folder = recorded().dir.join("nvml");
    std::fs::create_dir_all(&folder).expect("a folder");
    let mut compiler = Command::new("cc");
    compiler.args(["-O1", "-shared", "-fPIC", "-Wl,-soname,libnvidia-ml.so.1", "-o"]);
    compiler.arg(folder.join("libnvidia-ml.so.1")).arg(format!("{ROOT}/cli/tests/recorded/scripted_nvml.c"));
    let output = compiler.output().expect("a C compiler");
    assert!(output.status.success(), "{}", text(&output.stderr));
    folder
}

/// This test as a program whose device does so.
fn program(nvml: &Path, run: &Path, scene: &str) -> Command {
    let inherited = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    let places = std::iter::once(nvml.to_path_buf()).chain(std::env::split_paths(&inherited));
    let places = std::env::join_paths(places.filter(|place| !place.as_os_str().is_empty())).expect("paths");
    let mut command = Command::new(std::env::current_exe().expect("this test"));
    command.args(["--exact", "--ignored", "scripted_gpu::service"]).env(OUT, run).env(SCENE, scene);
    // A machine's own GPUs are not those of its samples.
    command
        .env("LD_LIBRARY_PATH", places)
        .env("CUDA_VISIBLE_DEVICES", "")
        .env_remove("CANDLESCOPE")
        .env_remove(ADDRESS);
    command
}

/// The run of a program that serves metrics until all are there that panels and alerts ask of a GPU, and what it
/// served then.
fn served(nvml: &Path) -> (PathBuf, String) {
    let (run, [address]) = (recorded().dir.join("gpu"), free_addresses());
    let mut command = program(nvml, &run, WHOLE);
    command.env(ADDRESS, address.to_string()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn().expect("it starts");
    let of_a_gpu = ["hw_", "candlescope_gpu_", "candlescope_kernel", "candlescope_energy_"];
    let mut wanted = panels::all_asked();
    wanted.retain(|name| of_a_gpu.iter().any(|beginning| name.starts_with(beginning)));
    assert!(wanted.len() > 10, "{wanted:?}");
    let (mut page, begun) = (String::new(), Instant::now());
    let missing = |page: &str| wanted.iter().any(|name| !panels::exposes(page, name));
    while missing(&page) && begun.elapsed() < Duration::from_secs(30) {
        std::thread::sleep(Duration::from_millis(250));
        page = get(address, "/metrics").unwrap_or_default();
    }
    std::fs::write(stop(&run), "").expect("written");
    assert!(child.wait().expect("it ends").success(), "{}", run.display());
    (run, page)
}

fn found<'a>(object: &'a Value, code: &str) -> &'a Value {
    let found = findings(object).iter().find(|finding| finding["code"] == code);
    found.unwrap_or_else(|| panic!("no {code}: {object:#}"))
}

#[test]
fn what_holds_a_device_back_is_found_in_what_was_recorded_of_it() {
    let object = analysed(&scripted().whole);
    let waves = f64::from(BLOCKS) / f64::from(WAVE);
    for (code, path, name, expected) in [
        ("exposed_copy", "decode/input", "exposed_ns", 100e3),
        ("dequantise", "decode/weights", "device_ns", 200e3),
        ("wave_tail", "decode/linear", "waves", waves),
        ("clocks_low", "", "clock_hertz", 990e6),
        ("clocks_low", "", "highest_hertz", 1_980e6),
        ("clocks_low", "", "lowered_share", 1.0),
        ("sync_drain", "decode/output", "waits", 1.0),
    ] {
        let finding = found(&object, code);
        let value = figure(finding, name).unwrap_or_else(|| panic!("{code}: {name}: {finding:#}"));
        assert!((value / expected - 1.0).abs() < 0.02, "{code}: {name} is {value}, not {expected}: {finding:#}");
        assert!(path.is_empty() || finding["place"]["path"] == path, "{code}: {finding:#}");
    }
    // The 100 µs of an unobserved step: recording makes the steps longer, and so do other programs.
    let idle = figure(found(&object, "sync_drain"), "idle_ns").expect("a figure");
    assert!((10e3..101e3).contains(&idle), "{idle}");
}

#[test]
fn what_is_not_known_of_a_device_is_named() {
    let Scripted { no_calls, apart, no_kernels, .. } = scripted();
    for (run, code, missing) in [
        (no_calls, "launch_bound", "launch_calls"),
        (no_calls, "clocks_low", "highest_clock"),
        (apart, "sync_drain", "common_clock"),
        (apart, "wave_tail", "processors"),
        (apart, "clocks_low", "clock_samples"),
        (no_kernels, "launch_bound", "kernels"),
    ] {
        let object = analysed(run);
        let all = object["abstained"].as_array().expect("a list");
        let is_said = all.iter().any(|one| one["code"] == code && one["missing"] == missing);
        assert!(is_said, "{}: {code}: {missing}: {object:#}", run.display());
    }
}
