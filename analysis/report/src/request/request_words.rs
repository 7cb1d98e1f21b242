//! What is said of a request in sentences.

use crate::format::{count, duration, plural};
use candlescope_document::text::code;
use candlescope_figures::RequestAccount;
use candlescope_figures::request_account::{Part, PartKind};

pub(super) const WARMUP: &str = "the request warmed up, and is in none of the run's other figures";

/// A difference below this share of the median is none.
const TELLING: f64 = 0.05;

/// How long it took against the median, and the part that makes up most of the difference.
pub(super) fn conclusion(account: &RequestAccount) -> String {
    let figures = &account.figures;
    let took = format!("request {} took {}", figures.request, duration(figures.dur_ns as f64));
    let (Some(more), Some(usual), Some(part)) = (account.more_ns(), account.usual_ns, account.main_part()) else {
        return format!(
            "{took}; no other request of its kind was measured, so its steps alone are held against others"
        );
    };
    let median = format!("the median of {}", count(account.like as u64));
    if more.abs() < TELLING * usual {
        return format!("{took}, about as long as {median} ({})", duration(usual));
    }
    let than = if more < 0.0 { "less" } else { "more" };
    let main = part.ns.unwrap_or(0.0);
    // What is more than the whole is made up for by other parts.
    let of_it = if main.abs() <= more.abs() { " of it".to_string() } else { format!(" {than}") };
    format!(
        "{took}, {} {than} than {median}: {}{of_it} {}",
        duration(more.abs()),
        duration(main.abs()),
        where_(account, part)
    )
}

fn where_(account: &RequestAccount, part: &Part) -> String {
    let steps =
        part.steps.map_or(String::new(), |n| format!(" in {} of its {}", count(n), plural(account.steps, "step")));
    match part.kind {
        PartKind::Queue => "before its first step".to_string(),
        PartKind::Between => "between its steps".to_string(),
        PartKind::Work => format!("for other work{}", tokens(account)),
        PartKind::OnCpu => format!("on a CPU{steps}{}", place(account, 0, part)),
        PartKind::Preempted => format!("preempted{steps}"),
        PartKind::Blocked => format!("waiting{steps}{}", place(account, 2, part)),
        PartKind::Gpu => format!("on the GPU{steps}"),
        PartKind::Unknown => format!("{}, of whose threads it is not known what they did", steps.trim_start()),
        PartKind::Unrecorded => "in time of which there is no record".to_string(),
        PartKind::Rest => "in none of the parts that are known".to_string(),
    }
}

/// Its tokens beside the median's.
fn tokens(account: &RequestAccount) -> String {
    let of = |name: &str, word: &str| {
        let figure = account.beside.iter().find(|figure| figure.name == name)?;
        let (own, median) = figure.own.zip(figure.median)?;
        (own != median).then(|| format!("{} {word} (median {})", count(own as u64), count(median as u64)))
    };
    let told = [of("prompt_tokens", "prompt tokens"), of("output_tokens", "output tokens")];
    let told: Vec<String> = told.into_iter().flatten().collect();
    if told.is_empty() { String::new() } else { format!(": {}", told.join(", ")) }
}

/// The path where most of that part is, if one has most of it.
fn place(account: &RequestAccount, state: usize, part: &Part) -> String {
    let paths = account.paths.iter().flatten();
    let of_state = paths.filter_map(|path| Some((path, path.states?[state])));
    let most = of_state.max_by(|a, b| a.1.total_cmp(&b.1));
    let (Some((path, ns)), Some(all)) = (most, part.ns) else { return String::new() };
    if ns * 2.0 >= all && all > 0.0 { format!(", most of it at {}", code(&path.path)) } else { String::new() }
}

/// The name of a part in the table, and what it is.
pub(super) fn part(kind: PartKind) -> (&'static str, &'static str) {
    match kind {
        PartKind::Queue => ("before its first step", "it waited to be taken up"),
        PartKind::Between => {
            ("between its steps", "none of its steps was open: it waited, or the program worked for it")
        }
        PartKind::Work => ("other work", "what its steps usually take: they are more, or of more tokens or context"),
        PartKind::OnCpu => ("on a CPU", "its steps computed for longer, page faults included"),
        PartKind::Preempted => ("preempted", "its steps were ready, and another thread had the CPU"),
        PartKind::Blocked => ("waiting", "its steps waited: for a lock, another thread, a file"),
        PartKind::Gpu => ("on the GPU", "its kernels took longer, and the host waited for them"),
        PartKind::Unknown => ("steps, cause not known", "what their threads did was not recorded"),
        PartKind::Unrecorded => ("not recorded", "steps of it without a record, and time between its steps"),
        PartKind::Rest => ("rest", "medians of parts do not add up to the median of the whole; steps may overlap"),
    }
}

/// What is not known, and why.
pub(super) fn unknown(account: &RequestAccount, has_gpu: bool) -> Vec<String> {
    let mut told = Vec::new();
    let steps = |n: u64| format!("{} of its {}", count(n), plural(account.steps, "step"));
    if account.steps == 0 {
        return vec!["No step of it was recorded, so nothing is known but its own figures.".to_string()];
    }
    if account.without_states > 0 {
        told.push(format!(
            "Of {} it is not known when their thread was on a CPU, preempted or waiting: record with `stacks`, where \
             `candlescope doctor` says that switches can be recorded.",
            steps(account.without_states)
        ));
    }
    if account.page_faults.is_none() {
        told.push("Page faults were not counted.".to_string());
    }
    if account.without_like > 0 {
        told.push(format!(
            "{} have fewer than two others like them (phase, batch, tokens, context): all that they took, but time preempted, \
             counts as work.",
            steps(account.without_like)
        ));
    }
    if !account.whole {
        told.push(
            "Some steps of the run have no record: its work and the time between its steps are not known.".to_string(),
        );
    }
    if account.paths.is_none() {
        told.push(
            "Its steps have more intervals than may be held, so paths are not told apart: raise `open-intervals`."
                .to_string(),
        );
    }
    let kernels = account.parts.iter().any(|part| part.kind == PartKind::Gpu && part.ns.is_some());
    if has_gpu && !kernels {
        told.push("Kernels of its steps were not recorded: what it waited longer for the GPU counts as waiting, or as on a CPU.".to_string());
    }
    told
}
