use crate::advice::sentence::Sentence;
use crate::format::percent;

/// Parts of the host's time, as people call them.
const PARTS: [(&str, &str); 8] = [
    ("driver", "the driver"),
    ("cublas", "cuBLAS"),
    ("cudarc", "cudarc"),
    ("candle", "candle"),
    ("model", "the model's own code"),
    ("allocation", "allocation on the host"),
    ("recording", "recording"),
    ("other", "other code"),
];

pub(super) fn words(it: &Sentence<'_>) -> (String, String) {
    let Sentence { phase, .. } = it;
    let mut parts: Vec<(f64, &str)> =
        PARTS.iter().filter_map(|(part, said)| Some((it.advice.figure(part)?, *said))).collect();
    parts.sort_by(|a, b| b.0.total_cmp(&a.0));
    let said: Vec<String> = parts
        .iter()
        .filter(|(share, _)| *share >= 0.005)
        .map(|(share, said)| format!("{said} {}", percent(*share)))
        .collect();
    let remedy = match parts.first() {
        Some((_, "the driver")) => {
            "Launch less: one CUDA graph for the step, fused kernels, or several sequences at once"
        }
        Some((_, "recording")) => "Record fewer intervals and marks (`--gpu-timing steps`, a schedule)",
        Some((_, "allocation on the host")) => {
            "Reuse shapes and tensors between steps, or link another allocator (mimalloc, jemalloc)"
        }
        _ => {
            "Prepare less for each launch: keep layouts contiguous, reuse masks and positions, fuse operations; a CUDA graph of \
             the step does all of it once"
        }
    };
    (
        format!(
            "the host works in {} of a step `{phase}`{} and waits for the device in {}: {}{}",
            it.share("host_share"),
            match it.advice.figure("off_cpu") {
                Some(_) => format!(", is off the CPU in {}", it.share("off_cpu")),
                None => String::new(),
            },
            it.share("waiting"),
            said.join(", "),
            it.function().map_or(String::new(), |function| format!("; most of it in `{function}`"))
        ),
        remedy.to_string(),
    )
}

pub(super) fn plain(it: &Sentence<'_>) -> (String, String) {
    let Sentence { step, .. } = it;
    (
        "Let the processor prepare less for each piece of work that it gives to the GPU".to_string(),
        format!("it works for {} of {step}", it.share("host_share")),
    )
}
