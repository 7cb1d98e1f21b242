//! Findings with gains in words for somebody who decides and does not know the model's insides: what to change, what
//! was seen, what it gains, how sure that is.

use super::advice::{DISTURBED, gain};
use super::format::{after_colon, count, duration, percent, significant};
use super::plain_paths::part;
use candlescope_document::text::code;
use candlescope_figures::Analysis;
use candlescope_figures::advice::{Advice, AdviceCode};

/// The first `most` of *What to change*, with paths.
pub(super) fn changes(analysis: &Analysis, most: usize) -> Vec<String> {
    let found = analysis.diagnosis.iter().flat_map(|diagnosis| &diagnosis.findings);
    found.take(most).map(change).collect()
}

/// How many findings there are.
pub(super) fn count_of(analysis: &Analysis) -> usize {
    analysis.diagnosis.as_ref().map_or(0, |diagnosis| diagnosis.findings.len())
}

/// The steps of a phase, as what they do for the one who waits.
fn step(phase: &str) -> String {
    match phase {
        "prefill" => "reading the prompt".to_string(),
        "decode" => "each further token".to_string(),
        "sample" => "choosing a token".to_string(),
        "encode" => "encoding a text".to_string(),
        "vision" => "looking at an image".to_string(),
        other => format!("a step {}", code(other)),
    }
}

fn change(advice: &Advice) -> String {
    let step = step(&advice.place.phase);
    let gain = if advice.code.is_of_figures() {
        format!("figures of {step} come out {} lower, the program stays as fast", gain(advice.gain))
    } else {
        format!("takes {} off the time of {step}", gain(advice.gain))
    };
    let place = advice.place.path.as_deref().map_or(String::new(), |path| format!(" ({})", code(path)));
    let (mut what, mut seen) = words(advice, &step);
    if advice.disturbed {
        what =
            format!("Measure again while the machine does nothing else, and only if it stays: {}", after_colon(&what));
        seen = format!("{seen}; {DISTURBED}");
    }
    format!("{what}{place}: {seen}; {gain}; confidence {}", advice.confidence.level.name())
}

/// What to do, and what was seen.
fn words(advice: &Advice, step: &str) -> (String, String) {
    let of = |name: &str| advice.figure(name).unwrap_or(f64::NAN);
    let time = |name: &str| duration(of(name));
    let it = advice.place.path.as_deref().map_or_else(|| step.to_string(), part);
    match advice.code {
        AdviceCode::ConstantCost => (
            match advice.figure("rayon_num_threads") {
                None | Some(0.0) => {
                    format!("Set the environment variable {} before the program starts", code("RAYON_NUM_THREADS"))
                }
                Some(_) => {
                    "Make fewer and larger products of matrices, or find what each does beside computing".to_string()
                }
            },
            format!(
                "each of {} products of matrices costs {} whatever its size, {} of {step}",
                significant(of("calls")),
                time("each_ns"),
                percent(of("of_step"))
            ),
        ),
        AdviceCode::LaunchBound => (
            "Give the GPU its work in one piece (a CUDA graph)".to_string(),
            format!("it waits for the processor in {} of the time", percent(of("late"))),
        ),
        AdviceCode::KernelCount => (
            "Join small programs on the GPU (kernels), or serve more requests at once".to_string(),
            format!("{step} starts {} of them, of {} each", significant(of("kernels")), time("kernel_mean_ns")),
        ),
        AdviceCode::Unfused => (
            format!("Compute {it} in one piece on the GPU"),
            format!(
                "it takes {} small programs (kernels) where {} would \
                 do",
                significant(of("kernels")),
                significant(of("become"))
            ),
        ),
        AdviceCode::SyncDrain => (
            format!("Give the GPU its next work before waiting for the last, in {it}"),
            format!("it is idle for {} each time", time("idle_ns")),
        ),
        AdviceCode::ExposedCopy => (
            format!("Copy less between memory and GPU, or while it computes, in {it}"),
            format!("copies hold it up for {} each time", time("exposed_ns")),
        ),
        AdviceCode::CacheCopied => (
            "Let the cache of the conversation grow without being copied".to_string(),
            format!("{step} takes {} longer for each token before it", time("slope_ns")),
        ),
        AdviceCode::KvBandwidth => (
            "Read the cache of the conversation in one pass (flash decoding)".to_string(),
            format!("it is read at {} of the memory's rate", percent(of("of_bandwidth"))),
        ),
        AdviceCode::WeightStreaming => (
            format!(
                "Store the model's weights in fewer bits ({} instead of {}), or serve more \
                 requests at once",
                significant(of("to_bits")),
                significant(of("bits"))
            ),
            format!(
                "{step} reads them at {} of the memory's rate, so only fewer bytes make it \
                 faster",
                percent(of("of_bandwidth"))
            ),
        ),
        AdviceCode::BelowRoof => {
            (format!("Make {it} faster"), format!("it reaches {} of what the machine allows", percent(of("of_roof"))))
        }
        AdviceCode::WaveTail => (
            format!("Divide {it} differently among the GPU's processors"),
            format!("{} of them have work at its end", percent(of("filled"))),
        ),
        AdviceCode::ClocksLow => {
            ("Cool the GPU, or allow it more power".to_string(), "it runs at a lower clock than it could".to_string())
        }
        AdviceCode::Allocator => ("Reuse memory".to_string(), "it is asked for anew while requests wait".to_string()),
        AdviceCode::Padding => (
            "Batch requests of similar lengths, and let new ones take the place of those that have ended".to_string(),
            format!("{} of what is computed is of no use", percent(of("padded"))),
        ),
        AdviceCode::HostSampling => (
            "Choose the next token where the model runs".to_string(),
            format!("choosing it takes {} on the processor", time("work_ns")),
        ),
        AdviceCode::BetweenSteps => (
            "Do the work between tokens, such as turning them into text, on another thread".to_string(),
            format!("requests spend {} with it for each token", time("each_step_ns")),
        ),
        AdviceCode::StragglerLayer => (
            format!("Look at what {it} does that its like do not"),
            format!("it takes {}, the others {}", time("mean_ns"), time("siblings_ns")),
        ),
        AdviceCode::StragglerStep => (
            "Measure again while nothing else runs on the machine, and look for stalls".to_string(),
            format!(
                "{step} took {} on average in {} cases, where {} is usual",
                time("late_mean_ns"),
                count(of("late_steps") as u64),
                time("median_ns")
            ),
        ),
        AdviceCode::Upcast => {
            ("Keep numbers in one format".to_string(), format!("converting them takes {} each time", time("device_ns")))
        }
        AdviceCode::DataMovement => {
            ("Leave out copies inside the GPU".to_string(), format!("they take {} each time", time("device_ns")))
        }
        AdviceCode::Dequantise => (
            "Compute with the compressed weights as they are".to_string(),
            format!("expanding them takes {} each time", time("device_ns")),
        ),
        AdviceCode::WarmupUnsettled => (
            "Let more requests warm up before measuring".to_string(),
            format!(
                "the first measured ones are slower than the later ones: {} and \
                 {}",
                time("first_ns"),
                time("settled_ns")
            ),
        ),
        AdviceCode::ThreadsWait => (
            "Give the processors more to do at once: serve several requests together, or store the \
             weights in fewer bits"
                .to_string(),
            format!("{} of {} are busy", significant(of("busy_processors")), significant(of("processors"))),
        ),
    }
}
