//! One meaning for each number, printed by every report.

use serde::Serialize;

/// What a number means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Definition {
    /// Stable name, the key in `metrics.json`.
    pub key: &'static str,
    /// Name that reports show to people, for example `Time to first token (TTFT)`.
    pub title: &'static str,
    /// Unit of the values in `metrics.json`: `ns`, `ratio`, `tokens/s`, …
    pub unit: &'static str,
    /// `measured` (read off a clock or sensor), `derived` (computed from measured and analytic figures) or `datasheet`.
    pub label: &'static str,
    /// How it is computed.
    pub meaning: &'static str,
    /// What other tools call the same thing.
    pub same_as: &'static str,
}

const fn def(
    key: &'static str,
    title: &'static str,
    unit: &'static str,
    label: &'static str,
    meaning: &'static str,
    same_as: &'static str,
) -> Definition {
    Definition { key, title, unit, label, meaning, same_as }
}

/// Every number of a report, in the order reports show them.
pub const DEFINITIONS: &[Definition] = &[
    def(
        "queue",
        "Queue time",
        "ns",
        "measured",
        "Request start to the start of its first phase, or of its first step if it has no phase, whether that was recorded or not. It is part of the time to first token",
        "vLLM queue time",
    ),
    def(
        "ttft",
        "Time to first token (TTFT)",
        "ns",
        "measured",
        "Request start to the first output token on the host; if the request does not say, to the end of the step that yields it, if that was recorded. A request that ended without a token has none",
        "OTel gen_ai.server.time_to_first_token, vLLM TTFT",
    ),
    def(
        "tpot",
        "Time per output token (TPOT)",
        "ns",
        "derived",
        "(e2e − ttft) / (output tokens − 1), one value per request; undefined for a single token; in a batch, tokens of the longest sequence: tokens / sequences, or the number that recorded steps show if that is higher",
        "OTel gen_ai.server.time_per_output_token, vLLM TPOT, AIPerf \"ITL\"",
    ),
    def(
        "itl",
        "Inter-token latency (ITL)",
        "ns",
        "measured",
        "Gap between the ends of neighbouring token-producing steps of a request, however many tokens each yields, never across a step without a record; gaps of all requests together, with the 95 % interval by request",
        "vLLM ITL, AIPerf \"ICL\"",
    ),
    def(
        "e2e",
        "End-to-end latency",
        "ns",
        "measured",
        "Request start to its last output token, by the request's own record or by its last step; to the request's end if steps are missing",
        "vLLM E2EL",
    ),
    def(
        "prefill_tps",
        "Prefill throughput",
        "tokens/s",
        "derived",
        "Prompt tokens processed, all sequences together / duration of the prefill steps, one value per request",
        "llama-bench pp",
    ),
    def(
        "decode_tps",
        "Decode throughput",
        "tokens/s",
        "derived",
        "(output tokens − 1) / (e2e − ttft), one value per request; in a batch, the tokens of all sequences after the first of each",
        "llama-bench tg",
    ),
    def(
        "output_tps",
        "Output throughput",
        "tokens/s",
        "derived",
        "Output tokens of all measured requests, all sequences included, by the requests' own records / wall time from the start of the first to the end of the last; not given if a request does not say",
        "vLLM output throughput, AIPerf",
    ),
    def(
        "peak_memory",
        "Peak resident memory",
        "bytes",
        "measured",
        "The operating system's high-water mark of the process's resident set, over the life of the process, if it is known; else the largest sample, which misses peaks between two samples. The report says which. What recording itself holds in memory is in it: intervals and stacks until they are written, and names",
        "",
    ),
    def(
        "kv_allocated",
        "Memory for keys and values",
        "bytes",
        "measured",
        "Largest sample of what slots of sequences have allocated, all of the process together, scales of 8 bits included",
        "",
    ),
    def(
        "kv_used",
        "Keys and values in use",
        "bytes",
        "measured",
        "Largest sample of the part of it that held tokens: of sequences, or of ended ones whose beginning another may share. What was there between two samples is missed",
        "",
    ),
    def(
        "kv_allocated_per_used",
        "KV allocated ÷ used",
        "B/B",
        "derived",
        "Memory for keys and values / keys and values in use, both at their largest: at 1 all of it was needed at once, at 4 a quarter",
        "",
    ),
    def(
        "total",
        "Total time",
        "ns",
        "measured",
        "Sum of the durations of an operator's intervals on the host, one enter/exit pair each",
        "",
    ),
    def(
        "self",
        "Self time",
        "ns",
        "derived",
        "Total time less the durations of the intervals directly inside; for a path with children, the part that none of them accounts for",
        "flame graph width less its children's",
    ),
    def(
        "share",
        "Share",
        "ratio",
        "derived",
        "Time / sum of the durations of the outermost steps. Shares of self time add up to 1",
        "",
    ),
    def(
        "gflops",
        "GFLOP/s",
        "10⁹ FLOP/s",
        "derived",
        "Analytic FLOPs of a path and everything below it / its total time on the host; for steps, over the time in which at least one of the kind was open, all threads together",
        "",
    ),
    def(
        "gbytes",
        "GB/s",
        "10⁹ B/s",
        "derived",
        "Analytic bytes with activations in and out of each operation, of a path and everything below it / its total time on the host; for steps, over the time in which at least one of the kind was open. Not given if activations are not stated",
        "",
    ),
    def(
        "intensity",
        "Arithmetic intensity",
        "FLOP/B",
        "derived",
        "Analytic FLOPs / analytic bytes with activations in and out of each operation. Not given if activations are not stated: weights alone give an upper bound",
        "",
    ),
    def(
        "gpu",
        "GPU time",
        "ns",
        "measured",
        "event: time elapsed between two marks in the stream, queue gaps included (\"stream elapsed\"); cupti: sum of the kernels launched inside",
        "",
    ),
    def(
        "gpu_total",
        "GPU total",
        "ns",
        "derived",
        "For outermost steps, mean GPU time of the measured intervals × number of all intervals; below them, the parent's total divided in the same proportions as in the intervals whose children were all measured, so that children never exceed their parents. Children included. GPU time is sampled: reports say how many intervals of how many were measured, and with enough steps they give a 95 % interval (delete-a-group jackknife over 16 groups of steps)",
        "",
    ),
    def(
        "gpu_self",
        "GPU self",
        "ns",
        "derived",
        "GPU total less the children's part, if that was measured; not given if there is no interval whose children were all measured by the same source",
        "",
    ),
    def(
        "gpu_share",
        "GPU share",
        "ratio",
        "derived",
        "GPU self time / GPU time of the outermost steps, both estimated from the measured intervals. Adds up to 1, or the report says what is missing",
        "",
    ),
    def(
        "gpu_tflops",
        "GPU TFLOP/s",
        "10¹² FLOP/s",
        "derived",
        "Analytic FLOPs of a path and everything below it / its GPU total, in which overlapping kernels count with their merged time; for steps, over those that were measured",
        "",
    ),
    def(
        "gpu_gbytes",
        "GPU GB/s",
        "10⁹ B/s",
        "derived",
        "Analytic bytes with activations, of a path and everything below it / its GPU total; for steps, over those that were measured",
        "",
    ),
    def(
        "of_wall",
        "GPU time of wall",
        "ratio",
        "derived",
        "GPU time of the measured steps / their duration on the host. From marks it is stream elapsed / wall, which includes gaps in the queue and is not a busy share",
        "",
    ),
    def(
        "gpu_busy",
        "GPU busy share",
        "ratio",
        "derived",
        "Time in which kernels, copies or memsets ran on the device, merged where they overlap / time in which at least one recorded step was open on it: steps of several threads share that time. Several devices: summed over them. Only from recorded kernels",
        "HTA busy time, Nsight Systems GPU utilisation",
    ),
    def(
        "launch_bound",
        "Launch-bound share",
        "ratio",
        "derived",
        "Gaps before a kernel whose launching call returned after the kernel before had ended, by more than the error bound of the clocks: until the kernel began, the latency of its launch included / time in which at least one recorded step was open",
        "HTA \"host wait\", which asks for the begin of the call",
    ),
    def(
        "gpu_idle",
        "GPU idle time",
        "ns",
        "derived",
        "Gaps between kernels, copies and memsets while recorded steps were open: host-bound (until the launch of what follows had returned), launch latency (from then until it began), launch overhead (under 1.5 µs), unclear (the end of the launch and the moment when the device ran out of work are closer together than the error bound of the clocks), and others. Busy + idle + unattributed = time in which a recorded step was open; unattributed is before the first kernel and after the last",
        "HTA idle time",
    ),
    def(
        "queue_delay",
        "Queue delay",
        "ns",
        "derived",
        "max(0, start of a kernel on the device − end of the call that launched it): a difference of two clocks, no more exact than their bound",
        "HTA launch delay",
    ),
    def(
        "launches",
        "Launches",
        "count",
        "measured",
        "Kernels launched inside an interval at any depth / its intervals in recorded steps; copies and memsets are not counted",
        "",
    ),
    def(
        "mfu",
        "MFU",
        "ratio",
        "derived",
        "Analytic FLOPs that the model needs / (time × peak FLOP/s of the element type that is multiplied × devices); over the time in which at least one step of the phase was open, and over GPU time, for each peak that the run names; not given if the type is not known. Above 1 it is a measurement error",
        "model FLOPs utilisation",
    ),
    def(
        "hfu",
        "HFU",
        "ratio",
        "derived",
        "The same with the FLOPs that are executed, masked attention and tokens passed again included",
        "hardware FLOPs utilisation",
    ),
    def(
        "steps_at_once",
        "Steps at once",
        "count",
        "derived",
        "Sum of the steps' durations / time in which at least one of them was open",
        "concurrency",
    ),
    def(
        "mbu",
        "MBU",
        "ratio",
        "derived",
        "Analytic bytes that the model needs (weights read, KV cache read and written, of a layer with a window no more than that) / (time × peak bandwidth × devices); over the time in which at least one step of the phase was open, and over GPU time. Above 1 it is a measurement error",
        "model bandwidth utilisation",
    ),
    def(
        "power",
        "Mean power",
        "W",
        "derived",
        "Energy while measured steps ran / that time, summed over the GPUs that the run worked on; never above the highest sample. n: samples of power in that time",
        "",
    ),
    def(
        "energy",
        "Energy",
        "J",
        "derived",
        "Difference of the energy counter of each GPU that the run worked on (of none for a run told to use processors), interpolated by power between its readings and cross-checked with the integral of power, while measured steps ran; warm-up and loading (session start to first step) are listed apart. The bound covers only the energy that a sensor period can misplace and the sensor's accuracy of ±5 % (datasheet). Windows under five sensor periods are below resolution: power × time, with the lowest and highest sampled power as bounds. Net: less idle power × time; unknown if idle power is not known or above the mean power",
        "zeus",
    ),
    def(
        "energy_per_token",
        "Energy per output token",
        "J",
        "derived",
        "Gross energy while measured requests were open / their output tokens; not given below resolution. n: requests",
        "",
    ),
    def(
        "net_energy_per_token",
        "Net energy per output token",
        "J",
        "derived",
        "The same less idle power × time. Idle power is the median of the samples after the first step that are outside all steps and requests; with fewer than three such samples, it is at most the lowest level outside steps",
        "",
    ),
    def(
        "usd_per_million_output_tokens",
        "Price of output tokens",
        "$/1M tokens",
        "derived",
        "Price of the machine per hour, as somebody gave it / (output throughput × 3,600 s) × 1,000,000: as if it were as busy all the time as while the measured requests ran. Not given without a price",
        "",
    ),
    def(
        "overhead",
        "Overhead",
        "ratio",
        "derived",
        "Time that recording takes from the application's threads / duration of the steps: measured in place, with its 95 % interval, if steps were recorded and left plain in turns; else an estimate: the cost of one enter and exit of registry and layer in a warm loop × intervals. In place, two to three times that is seen, and up to nine beside other programs",
        "",
    ),
    def(
        "background",
        "Background CPU",
        "ns",
        "measured",
        "CPU time of candlescope's own threads, which is not part of the overhead; its share is of the run's wall time × the cores that the process may use",
        "",
    ),
];

/// How the statistics of every figure are computed.
pub const STATISTICS: &str = "n measurements; median and percentiles interpolated linearly; sample standard deviation (n − 1); 95 % interval \
     of the median by order statistics from n ≥ 6 on, and for fewer the range, under that name; for correlated samples (gaps and steps of \
     one request) by resampling whole requests, from 6 requests on, and for fewer the range of the requests' medians; p90 only from n ≥ 10 \
     on, p95 from n ≥ 20, p99 from n ≥ 100.";

/// The definition of `key`.
///
/// # Panics
/// If there is none, which would be a mistake in this crate that its tests find.
pub fn definition(key: &str) -> &'static Definition {
    DEFINITIONS.iter().find(|d| d.key == key).expect("every figure has a definition")
}
