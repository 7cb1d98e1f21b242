//! The conclusion about a run: its title, how fast it was, what limits it, and whether that can be trusted.

use super::format::{count, day, duration, percent, plural, printable, significant, tail};
use super::head_facts::{gpu_names, model_name, processor};
use super::plain_paths::part;
use candlescope_document::text::{capital, code};
use candlescope_figures::advice::AdviceCode;
use candlescope_figures::busy::LAUNCH_BOUND;
use candlescope_figures::{Analysis, ChosenDevice, ThreadTimes};
use candlescope_schema::run::{Code, Severity};

/// Share of GPU time that must be in known self times before the report says where most of it goes.
const KNOWN: f64 = 0.8;
/// From this share of the steps' time on what single steps took beyond the others is told apart.
const HELD_UP: f64 = 0.1;

/// The run's title: model, device, date; what is not known is left out.
pub(super) fn title(analysis: &Analysis) -> String {
    let manifest = &analysis.manifest;
    let of_request = || analysis.latency.requests.first().map(|request| printable(&request.model));
    let model = model_name(manifest).or_else(of_request).filter(|name| !name.is_empty());
    // Nothing may be known of what ran where but that a GPU was sampled.
    let on_gpu = analysis.ran_on_gpu() || (manifest.gpu.is_some() && ChosenDevice::of(manifest) != ChosenDevice::Cpu);
    let device = gpu_names(manifest).filter(|_| on_gpu).or_else(|| processor(manifest));
    let named = match (model, device) {
        (Some(model), Some(device)) => format!("{model} on {device}"),
        (Some(name), None) => name,
        (None, device) => {
            let dir = analysis.dir.file_name().map(|name| name.to_string_lossy().into_owned());
            let run = if manifest.run_id.is_empty() { dir.unwrap_or_default() } else { manifest.run_id.clone() };
            device.map_or_else(|| format!("Run {run}"), |device| format!("Run {run} on {device}"))
        }
    };
    match manifest.started_ns {
        0 => named,
        ns => format!("{named}, {}", day(ns)),
    }
}

/// The conclusion in one sentence. If the data cannot be trusted, the sentence begins
/// with that.
pub(super) fn sentence(analysis: &Analysis) -> String {
    of_parts(analysis, speed(analysis).into_iter().chain(limit(analysis)).collect())
}

/// The same for somebody who does not know the model's paths.
pub(super) fn plain_sentence(analysis: &Analysis) -> String {
    of_parts(analysis, speed(analysis).into_iter().chain(plain_limit(analysis)).collect())
}

fn of_parts(analysis: &Analysis, mut parts: Vec<String>) -> String {
    if parts.is_empty() {
        parts.push("nothing was measured".to_string());
    }
    let trust = verdict_line(analysis);
    if analysis.verdict.ok {
        parts.push(trust)
    } else {
        parts.insert(0, trust)
    }
    format!("{}.", capital(&parts.join("; ")))
}

/// The verdict in a few words: the one sentence that every reader of a run says of it.
pub fn verdict_line(analysis: &Analysis) -> String {
    let findings = &analysis.verdict.findings;
    let of = |severity| findings.iter().filter(|f| f.severity == severity).count() as u64;
    let (errors, warnings) = (of(Severity::Error), of(Severity::Warning));
    let busy = analysis.disturbance().map(|found| {
        // Of a short run only the load is known.
        let load = found.figure("load").zip(found.figure("processors"));
        load.map_or_else(
            || "the machine was busy: times are not the program's alone".to_string(),
            |(load, all)| {
                format!(
                    "the machine was busy (load {load:.1} on {all} processors): times may not be the program's alone"
                )
            },
        )
    });
    match (errors, warnings, busy) {
        (0, n, Some(busy)) => {
            let rest = if n > 1 { format!(", with {}", plural(n, "warning")) } else { String::new() };
            format!("the data are whole, but {busy}{rest}")
        }
        (0, n, None) => {
            let waited = waited_for_a_processor(analysis)
                .map(|share| format!(", but steps waited for a processor for {} of their time", percent(share)));
            let rest = if n > 0 { format!(", with {}", plural(n, "warning")) } else { String::new() };
            let cut = findings.iter().any(|found| [Code::Interrupted, Code::RunIncomplete].contains(&found.code));
            let until = if cut { " up to where the program was ended" } else { "" };
            format!("the data can be trusted{until}{}{rest}", waited.unwrap_or_default())
        }
        (n, 0, _) => format!("the data cannot be trusted: {}", plural(n, "error")),
        (n, m, _) => format!("the data cannot be trusted: {}, {}", plural(n, "error"), plural(m, "warning")),
    }
}

/// From this share of the steps' time on, having waited for a processor belongs to the verdict.
const WAITED: f64 = 0.05;

/// The share of their time for which steps were ready to run and another thread had their processor, if it is large: a run
/// may be over before samples of the machine tell of other programs.
fn waited_for_a_processor(analysis: &Analysis) -> Option<f64> {
    let steps = analysis.phases.rows.iter().filter(|row| row.inside.is_none());
    let times: Vec<_> = steps.filter_map(|row| analysis.threads_of(row)).collect();
    let sum = |part: fn(&ThreadTimes) -> u64| times.iter().map(|times| part(times) as f64).sum::<f64>();
    let known = sum(|times| times.known_ns);
    Some(sum(|times| times.preempted_ns) / known).filter(|share| *share >= WAITED)
}

/// How fast: tokens per second if there are requests, else the duration of the steps that take most of the time.
pub(super) fn speed(analysis: &Analysis) -> Option<String> {
    let latency = &analysis.latency;
    let first = latency.ttft.as_ref().map(|ttft| format!("the first token comes after {}", duration(ttft.median)));
    let decode = latency.decode_tokens_per_s.as_ref();
    let decode = decode.map(|tokens_per_s| format!("a request decodes {} tokens/s", significant(tokens_per_s.median)));
    match (decode, first) {
        (Some(decode), Some(first)) => Some(format!("{decode}, and {first}")),
        (Some(text), None) | (None, Some(text)) => Some(text),
        (None, None) => {
            let rows = analysis.phases.rows.iter().filter(|row| row.duration.is_some());
            let most = rows.max_by_key(|row| row.total_ns)?;
            let (median, name) = (most.duration.as_ref()?.median, code(&tail(&most.name, 60)));
            Some(format!("a step {name} takes {} (median of {})", duration(median), count(most.steps)))
        }
    }
}

/// What limits it: the host, if the GPU waits for it, or else the path that takes most of the time.
pub(super) fn limit(analysis: &Analysis) -> Option<String> {
    limit_in(analysis, |path| code(&tail(path, 80)))
}

/// The same with the place in words, and its path after it.
pub(super) fn plain_limit(analysis: &Analysis) -> Option<String> {
    limit_in(analysis, |path| format!("{} ({})", part(path), code(&tail(path, 80))))
}

fn limit_in(analysis: &Analysis, place: impl Fn(&str) -> String) -> Option<String> {
    let busy = analysis.gpu.busy.as_ref();
    // Shares of step time mean nothing where the device works on after its steps.
    let outlasts = analysis.verdict.findings.iter().any(|finding| finding.code == Code::GpuOutlastsSteps);
    let mut found = analysis.diagnosis.iter().flat_map(|diagnosis| &diagnosis.findings);
    let waits = !outlasts && found.any(|finding| finding.code == AdviceCode::LaunchBound);
    // One kind of step may wait in a run that does not.
    let share = busy.and_then(|busy| busy.launch_bound_share()).filter(|share| waits && *share > LAUNCH_BOUND);
    if let Some(share) = share {
        return Some(format!("the GPU waits for the host in {} of the recorded steps' time", percent(share)));
    }
    let on_gpu = || analysis.operators.iter().filter_map(|o| Some((o, o.gpu?.self_share?)));
    // One of the paths whose own GPU time is not known may have more than all others.
    let is_known = on_gpu().map(|(_, share)| share).sum::<f64>() >= KNOWN;
    let most = on_gpu().filter(|_| is_known).max_by(|a, b| a.1.total_cmp(&b.1)).filter(|(_, share)| *share > 0.0);
    if let Some((operator, share)) = most {
        // Of some kinds of steps there may be none, such as of prompts outside of windows.
        let some_lack_it = analysis.operators.iter().any(|other| !other.path.contains('/') && other.gpu.is_none());
        let of = if some_lack_it { "the known GPU time" } else { "GPU time" };
        return Some(format!("{} of {of} is in {}", percent(share), place(&operator.path)));
    }
    // On the host a single stall is as long as hundreds of steps: it is not what they spend their time on.
    let most = analysis.intervals.most_of_usual_steps()?;
    let step = code(&tail(&most.steps.name, 60));
    let which = match most.steps.steps + most.steps.set_apart {
        1 => format!("the step {step}"),
        _ => format!("a usual step {step}"),
    };
    let apart = match analysis.intervals.held_up_share() {
        share if share >= HELD_UP => {
            format!(", and {} of all step time is what single steps took beyond twice the median", percent(share))
        }
        _ => String::new(),
    };
    Some(format!("{} of {which} is in {}{apart}", percent(most.share), place(most.path)))
}
