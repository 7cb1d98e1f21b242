//! Devices by their datasheets. None of these figures was measured here; a peaks file has such that were.

use super::device::{Device, DeviceKind, Link};
use super::formats::Multiply;
use super::peak::{Origin, Peak};
use crate::estimate::Estimate;
use crate::nearest::{nearest, suggestion};

/// No device has this name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "no device is named `{name}`{}. Give one of: {}; or measure it and give --peaks FILE",
    suggestion(&nearest(.name, DEVICES.iter().map(|row| row.name))),
    DEVICES.iter().map(|row| row.name).collect::<Vec<_>>().join(", ")
)]
pub struct UnknownDevice {
    /// The name that was given.
    pub name: String,
}

/// Nanoseconds that launching a kernel from candle takes on the host, allocation, shapes and the wait for the token
/// included: time of a token of a decode that the host bounds ÷ kernels launched for it, SmolLM2-135M in bf16 on hosts
/// of H200s. Mid: 5.4 ms for 700 kernels; low and high: 4.8 and 7.6 ms for 671, on two other hosts.
pub const LAUNCH_NS: Estimate = Estimate { low: 7_150.0, mid: 7_710.0, high: 11_330.0 };
/// The same on any host: a launch is the work of a processor, of which a GPU's datasheet says nothing. On a host of an
/// H100 tokens of five models took 1.27 to 2.04 times what [`LAUNCH_NS`] makes of them, which is up to 16.7 µs a launch.
pub const LAUNCH_ANYWHERE_NS: Estimate = Estimate { high: 16_700.0, ..LAUNCH_NS };
/// Nanoseconds of the driver's part of a launch on the hosts that [`LAUNCH_NS`] comes from, which `bench peaks`
/// measures: what a launch costs elsewhere is in proportion.
pub const DRIVER_LAUNCH_NS: f64 = 3_000.0;
/// What launching a kernel from candle costs a host, in nanoseconds, on which the driver's part takes `driver_ns`.
pub fn launch_of_driver(driver_ns: f64) -> Estimate {
    LAUNCH_NS.times(driver_ns / DRIVER_LAUNCH_NS)
}
/// Nanoseconds of a small kernel, mean: 2,091.7 µs of kernels a token ÷ 695 kernels, the same decode.
pub const KERNEL_FLOOR_NS: f64 = 3_010.0;
/// The shortest kernel of these that was seen, in nanoseconds: sums of two rows (`badd_bf16`), n 31,180.
pub const KERNEL_LEAST_NS: f64 = 1_170.0;
/// FLOPs in f32 that a GPU's lanes could do in the time of a step of index arithmetic: 67 TFLOP/s of an H200 ÷
/// 4.8 · 10¹¹ steps a second, which sums with a bias and copies to another layout were seen to reach beside their bytes.
/// A step divides 64-bit numbers twice (`candle-kernels/src/cuda_utils.cuh`), for which a lane takes some 70
/// instructions.
const INDEX_FLOPS: f64 = 140.0;
const LAUNCH_SOURCE: &str = "decoding SmolLM2-135M with candle 0.11.1 on H200s (docs/measurements/gpu.md and truth.md); \
                             the range of a launch is that of all hosts seen";

/// No figure.
const NO: f64 = 0.0;

/// FLOP/s in 10¹², in the order of [`Multiply::ALL`]; [`NO`] if the maker gives none.
type Tera = [f64; 6];

/// One row.
struct Row {
    name: &'static str,
    /// NVML's names of it, without [`MAKERS`].
    nvml: &'static [&'static str],
    /// Other names, lower case.
    also: &'static [&'static str],
    kind: DeviceKind,
    tera: Tera,
    /// 10⁹ bytes a second.
    gbytes: f64,
    /// 10⁹ bytes; [`NO`] if it depends on the machine.
    memory: f64,
    watts: f64,
    /// Name and 10⁹ bytes a second in one direction.
    link: (&'static str, f64),
    source: &'static str,
}

use DeviceKind::{Accelerator, Cpu, Gpu};

const PCIE3: (&str, f64) = ("PCIe 3.0 x16", 15.75);
const PCIE4: (&str, f64) = ("PCIe 4.0 x16", 31.5);
const PCIE5: (&str, f64) = ("PCIe 5.0 x16", 63.0);
const NONE: (&str, f64) = ("", NO);

const T4: &str = "NVIDIA T4 datasheet (2019)";
const V100: &str = "NVIDIA V100 datasheet (2020)";
const A10G: &str = "NVIDIA A10G: AWS EC2 G5 and NVIDIA A10 datasheet; no fp32 figure taken";
const A100: &str = "NVIDIA A100 datasheet (2021), dense";
const ADA: &str = "NVIDIA Ada datasheets (L4, L40S) and GPU architecture whitepaper, dense";
const H100: &str = "NVIDIA H100 datasheet (2023), half of the figures with sparsity";
const H200: &str = "NVIDIA H200 datasheet (2024), half of the figures with sparsity";
const B200: &str = "NVIDIA Blackwell architecture brief (2024), dense";
const AMPERE: &str = "NVIDIA GA102 whitepaper, dense, fp32 accumulation";
const MI300X: &str = "AMD Instinct MI300X data sheet (2023), dense";
const GAUDI3: &str = "Intel Gaudi 3 white paper (2024), HL-325L";
const MAX: &str = "Intel Data Center GPU Max 1550 product brief (2023)";
const TPU: &str = "Google Cloud TPU v5e documentation";
const INF2: &str = "AWS Neuron documentation, Inferentia2 architecture";
const ORIN: &str = "NVIDIA Jetson AGX Orin technical brief (2022); dense, fp16 derived as half of int8, DLA left out";
const APPLE: &str = "Apple press releases of the chips; FLOP/s of the GPU where Apple gives them";
const XEON: &str =
    "Intel ARK; FLOP/s derived: cores × base clock × FLOPs a cycle (2 AVX-512 FMA units 64, AMX 2048 bf16)";
const EPYC: &str = "AMD EPYC data sheets; FLOP/s derived: cores × base clock × 32 f32 FLOPs a cycle (2 × 256-bit FMA)";
const GRAVITON: &str =
    "AWS EC2 documentation; FLOP/s derived: cores × clock × 32 f32 FLOPs a cycle (Arm Neoverse V1, V2)";

#[allow(clippy::too_many_arguments, reason = "a row of a table")]
const fn row(
    name: &'static str,
    nvml: &'static [&'static str],
    also: &'static [&'static str],
    kind: DeviceKind,
    tera: Tera,
    gbytes: f64,
    memory: f64,
    watts: f64,
    link: (&'static str, f64),
    source: &'static str,
) -> Row {
    Row { name, nvml, also, kind, tera, gbytes, memory, watts, link, source }
}

#[rustfmt::skip]
const DEVICES: &[Row] = &[
    row("T4", &["T4"], &[], Gpu, [8.1, NO, NO, 65., NO, 130.], 300., 16., 70., PCIE3, T4),
    row("V100-SXM2", &["V100-SXM2-16GB"], &["v100"], Gpu,
        [15.7, NO, NO, 125., NO, NO], 900., 16., 300., ("NVLink 2", 150.), V100),
    row("V100-SXM2-32GB", &["V100-SXM2-32GB"], &[], Gpu,
        [15.7, NO, NO, 125., NO, NO], 900., 32., 300., ("NVLink 2", 150.), V100),
    row("V100-PCIe", &["V100-PCIE-16GB"], &[], Gpu, [14., NO, NO, 112., NO, NO], 900., 16., 250., PCIE3, V100),
    row("V100-PCIe-32GB", &["V100-PCIE-32GB"], &[], Gpu,
        [14., NO, NO, 112., NO, NO], 900., 32., 250., PCIE3, V100),
    row("A10G", &["A10G"], &[], Gpu, [NO, 35., 70., 70., NO, 140.], 600., 24., NO, PCIE4, A10G),
    row("L4", &["L4"], &[], Gpu, [30.3, 60., 121., 121., 242., 242.], 300., 24., 72., PCIE4, ADA),
    row("L40S", &["L40S"], &[], Gpu, [91.6, 183., 362., 362., 733., 733.], 864., 48., 350., PCIE4, ADA),
    row("A100-40GB-SXM", &["A100-SXM4-40GB"], &["a100-40gb"], Gpu,
        [19.5, 156., 312., 312., NO, 624.], 1555., 40., 400., ("NVLink 3", 300.), A100),
    row("A100-40GB-PCIe", &["A100-PCIE-40GB"], &[], Gpu,
        [19.5, 156., 312., 312., NO, 624.], 1555., 40., 250., PCIE4, A100),
    row("A100-80GB-SXM", &["A100-SXM4-80GB"], &["a100", "a100-80gb"], Gpu,
        [19.5, 156., 312., 312., NO, 624.], 2039., 80., 400., ("NVLink 3", 300.), A100),
    row("A100-80GB-PCIe", &["A100 80GB PCIe"], &[], Gpu,
        [19.5, 156., 312., 312., NO, 624.], 1935., 80., 300., PCIE4, A100),
    row("H100-SXM", &["H100 80GB HBM3"], &["h100", "h100-sxm5"], Gpu,
        [67., 494.5, 989., 989., 1979., 1979.], 3350., 80., 700., ("NVLink 4", 450.), H100),
    row("H100-PCIe", &["H100 PCIe"], &[], Gpu, [51., 378., 756., 756., 1513., 1513.], 2000., 80., 350., PCIE5, H100),
    row("H200-SXM", &["H200"], &[], Gpu,
        [67., 494.5, 989., 989., 1979., 1979.], 4800., 141., 700., ("NVLink 4", 450.), H200),
    row("B200", &["B200"], &[], Gpu,
        [NO, 1125., 2250., 2250., 4500., 4500.], 8000., 192., 1000., ("NVLink 5", 900.), B200),
    row("RTX-3090", &["RTX 3090"], &[], Gpu, [35.6, 35.6, 71., 71., NO, NO], 936., 24., 350., PCIE4, AMPERE),
    row("RTX-4090", &["RTX 4090"], &[], Gpu, [82.6, 82.6, 165., 165., 330., 660.], 1008., 24., 450., PCIE4, ADA),
    row("MI300X", &[], &["amd instinct mi300x"], Accelerator,
        [163.4, 653.7, 1307.4, 1307.4, 2614.9, 2614.9], 5300., 192., 750., ("Infinity Fabric", 448.), MI300X),
    row("Gaudi3", &[], &["gaudi-3", "hl-325l"], Accelerator,
        [NO, NO, 1835., NO, 1835., NO], 3700., 128., 900., ("24 x 200 GbE", 600.), GAUDI3),
    row("Max-1550", &[], &["intel max 1550", "ponte-vecchio"], Accelerator,
        [52.4, 419.4, 838.9, 838.9, NO, 1677.7], 3276.8, 128., 600., NONE, MAX),
    row("TPU-v5e", &[], &["v5e"], Accelerator, [NO, NO, 197., NO, NO, 394.], 819., 16., NO, ("ICI", 200.), TPU),
    row("Inferentia2", &[], &["inf2"], Accelerator, [47.5, 190., 190., 190., 190., 380.], 820., 32., NO, NONE, INF2),
    row("Jetson-AGX-Orin", &[], &["jetson-orin", "orin"], Gpu,
        [5.3, NO, NO, 42.5, NO, 85.], 204.8, 64., 60., NONE, ORIN),
    row("M1", &[], &["apple m1"], Gpu, [2.6, NO, NO, NO, NO, NO], 68.25, NO, NO, NONE, APPLE),
    row("M1-Pro", &[], &["apple m1 pro"], Gpu, [5.2, NO, NO, NO, NO, NO], 200., NO, NO, NONE, APPLE),
    row("M1-Max", &[], &["apple m1 max"], Gpu, [10.4, NO, NO, NO, NO, NO], 400., NO, NO, NONE, APPLE),
    row("M1-Ultra", &[], &["apple m1 ultra"], Gpu, [21., NO, NO, NO, NO, NO], 800., NO, NO, NONE, APPLE),
    row("M2", &[], &["apple m2"], Gpu, [3.6, NO, NO, NO, NO, NO], 100., NO, NO, NONE, APPLE),
    row("M2-Pro", &[], &["apple m2 pro"], Gpu, [6.8, NO, NO, NO, NO, NO], 200., NO, NO, NONE, APPLE),
    row("M2-Max", &[], &["apple m2 max"], Gpu, [13.6, NO, NO, NO, NO, NO], 400., NO, NO, NONE, APPLE),
    row("M2-Ultra", &[], &["apple m2 ultra"], Gpu, [27.2, NO, NO, NO, NO, NO], 800., NO, NO, NONE, APPLE),
    row("M3", &[], &["apple m3"], Gpu, [NO, NO, NO, NO, NO, NO], 100., NO, NO, NONE, APPLE),
    row("M3-Max", &[], &["apple m3 max"], Gpu, [NO, NO, NO, NO, NO, NO], 400., NO, NO, NONE, APPLE),
    row("M3-Ultra", &[], &["apple m3 ultra"], Gpu, [NO, NO, NO, NO, NO, NO], 819., NO, NO, NONE, APPLE),
    row("M4", &[], &["apple m4"], Gpu, [NO, NO, NO, NO, NO, NO], 120., NO, NO, NONE, APPLE),
    row("M4-Pro", &[], &["apple m4 pro"], Gpu, [NO, NO, NO, NO, NO, NO], 273., NO, NO, NONE, APPLE),
    row("M4-Max", &[], &["apple m4 max"], Gpu, [NO, NO, NO, NO, NO, NO], 546., NO, NO, NONE, APPLE),
    row("Xeon-8380", &[], &["xeon-platinum-8380"], Cpu, [5.89, NO, NO, NO, NO, NO], 204.8, NO, 270., NONE, XEON),
    row("Xeon-8480+", &[], &["xeon", "xeon-8480", "xeon-platinum-8480+"], Cpu,
        [7.17, NO, 229., NO, NO, 459.], 307.2, NO, 350., NONE, XEON),
    row("EPYC-7763", &[], &["epyc-milan"], Cpu, [5.02, NO, NO, NO, NO, NO], 204.8, NO, 280., NONE, EPYC),
    row("EPYC-9654", &[], &["epyc", "epyc-genoa"], Cpu, [7.37, NO, NO, NO, NO, NO], 460.8, NO, 360., NONE, EPYC),
    row("Graviton3", &[], &[], Cpu, [5.32, NO, NO, NO, NO, NO], 307.2, NO, NO, NONE, GRAVITON),
    row("Graviton4", &[], &["graviton"], Cpu, [8.6, NO, NO, NO, NO, NO], 537.6, NO, NO, NONE, GRAVITON),
];

/// The names of all devices of the table.
pub fn known_devices() -> impl Iterator<Item = &'static str> {
    DEVICES.iter().map(|row| row.name)
}

/// A device of the table, by its name or the name that its driver reports, in any case.
///
/// # Errors
/// If none has this name; the error tells the nearest ones.
pub fn known_device(name: &str) -> Result<Device, UnknownDevice> {
    let wanted = normal(name);
    let named = |row: &&Row| [&[row.name], row.nvml, row.also].concat().iter().any(|name| normal(name) == wanted);
    DEVICES.iter().find(named).map(device).ok_or_else(|| UnknownDevice { name: name.to_string() })
}

/// What NVML puts before a product's name.
const MAKERS: [&str; 3] = ["NVIDIA ", "Tesla ", "GeForce "];

fn normal(name: &str) -> String {
    let lower = name.trim().to_ascii_lowercase();
    let own =
        MAKERS.iter().fold(&*lower, |rest, maker| rest.strip_prefix(&*maker.to_ascii_lowercase()).unwrap_or(rest));
    own.chars().filter(|c| !matches!(c, ' ' | '-' | '_')).collect()
}

/// The peaks of the GPU that NVML calls `name`, by its datasheet: dense figures. Empty if the GPU is not known.
///
/// The name has to match in full: an `H200 NVL` is no `H200`, a laptop's `RTX 4090` is no `RTX 4090`.
pub fn datasheet_peaks(name: &str) -> Vec<Peak> {
    let product = MAKERS.iter().fold(name.trim(), |rest, maker| rest.strip_prefix(maker).unwrap_or(rest));
    let row = DEVICES.iter().find(|row| row.nvml.contains(&product));
    let source = format!("{name}, dense, datasheet figure");
    let peaks = row.into_iter().flat_map(|row| device(row).peaks());
    peaks.map(|peak| Peak { source: source.clone(), ..peak }).collect()
}

fn device(row: &Row) -> Device {
    let known = |value: f64| Some(value).filter(|value| *value > NO);
    let flops = Multiply::ALL.into_iter().zip(row.tera).filter_map(|(kind, tera)| Some((kind, known(tera)? * 1e12)));
    // The figures are CUDA's: what a launch costs with Metal is not known.
    let launches = row.kind == DeviceKind::Gpu && row.source != APPLE;
    Device {
        origin: Origin::Datasheet,
        source: row.source.to_string(),
        flops: flops.collect(),
        bandwidth: row.gbytes * 1e9,
        memory: known(row.memory).map(|gb| gb * 1e9),
        link: known(row.link.1).map(|gb| Link { name: row.link.0.to_string(), bytes_per_s: gb * 1e9 }),
        watts: known(row.watts),
        launch: launches.then_some(LAUNCH_ANYWHERE_NS),
        kernel_floor: launches.then_some(KERNEL_FLOOR_NS),
        kernel_least: launches.then_some(KERNEL_LEAST_NS),
        index_rate: known(row.tera[0]).filter(|_| launches).map(|tera| tera * 1e12 / INDEX_FLOPS),
        launch_source: launches.then(|| LAUNCH_SOURCE.to_string()),
        ..Device::without_peaks(row.name, row.kind)
    }
}
