//! How many threads compute: settled once, before any thread starts, and told to rayon and candle by their variables.
//!
//! candle asks the system for the number of cores at each product of dense matrices unless the variable is set, which takes
//! longer than a small product. So our commands set it always.

mod sys;

use anyhow::{Context, Result, bail};
use candlescope_collectors::host::HostCollector;
use candlescope_core::Collector;
use candlescope_core::process_facts::{CANDLE_NUM_THREADS, RAYON_NUM_THREADS, threads_in};
use candlescope_core::run::env_key;
use serde_json::{Value, json};
use std::sync::OnceLock;

/// Says to the processes that a command starts where their number of threads comes from.
const FROM: &str = "CANDLESCOPE_THREADS_FROM";
/// As an option, and as a default.
const OPTION: &str = "option";
const DEFAULT: &str = "default";
/// Most threads that can be asked for.
const MOST: usize = 4096;

/// What is said of the option in every command's help.
pub(crate) const HELP: &str = "Threads that compute on a CPU (RAYON_NUM_THREADS and CANDLE_NUM_THREADS are set to it) \
    [default: RAYON_NUM_THREADS, else 1 for the embedded model and the physical cores that may be used for others]";

/// The number of threads, and where it comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Threads {
    pub(crate) number: usize,
    from: String,
}

static SETTLED: OnceLock<Threads> = OnceLock::new();

/// Settles how many threads compute: as asked for, as the variable says, or by default. To be called before anything
/// starts a thread; what was settled first stays.
///
/// # Errors
/// If the number is out of range.
pub(crate) fn settle(asked: Option<usize>, model: Option<&str>) -> Result<&'static Threads> {
    if let Some(asked) = asked.filter(|asked| !(1..=MOST).contains(asked)) {
        bail!("--threads is {asked}; it must be from 1 to {MOST}");
    }
    if let Some(settled) = SETTLED.get() {
        return Ok(settled);
    }
    let variable = std::env::var(RAYON_NUM_THREADS).ok();
    let inherited = std::env::var(FROM).ok();
    let threads = chosen(asked, variable.as_deref(), inherited.as_deref(), || usual(model));
    let number = threads.number.to_string();
    // The user's own word about candle's quantised products stays, unless the option says something else.
    let stays = asked.is_none() || inherited.is_some();
    let candle = std::env::var(CANDLE_NUM_THREADS).ok().filter(|text| stays && threads_in(text).is_some());
    let candle = candle.unwrap_or_else(|| number.clone());
    let variables =
        [(RAYON_NUM_THREADS, number.as_str()), (CANDLE_NUM_THREADS, &candle), (FROM, threads.from.as_str())];
    // Where the system has threads of its own in each process, as QEMU has, whoever starts the command sets them.
    let [rayon, candle, _] = variables;
    if !sys::set_variables(&variables) && !are_set(&[rayon, candle], |name| std::env::var(name).ok()) {
        bail!(
            "the number of threads cannot be set any more, because some run already: start the command with \
             {RAYON_NUM_THREADS}={} and {CANDLE_NUM_THREADS}={} set",
            rayon.1,
            candle.1
        );
    }
    Ok(SETTLED.get_or_init(|| threads))
}

/// The number as it was settled.
pub(crate) fn settled() -> Option<&'static Threads> {
    SETTLED.get()
}

impl Threads {
    /// `Threads: 2 (default; `tune threads` compares others).`
    #[cfg(feature = "lab")]
    pub(crate) fn words(&self) -> String {
        let from = match self.from.as_str() {
            OPTION => "--threads",
            other => other,
        };
        format!("Threads: {} ({from}; `candlescope tune threads` compares others)", self.number)
    }

    /// What a run or a study says of it beside the variables.
    pub(crate) fn facts(&self) -> [(&'static str, Value); 3] {
        [
            (env_key::CALLER_COMPUTES.name(), json!(true)),
            (env_key::COMPUTE_THREADS.name(), json!(self.number)),
            (env_key::COMPUTE_THREADS_FROM.name(), json!(self.from)),
        ]
    }
}

/// Facts about threads, as settled, and about candle's build, for `environment`.
pub(crate) fn facts() -> Vec<(&'static str, Value)> {
    let settled = settled().map(Threads::facts);
    let features = json!(candlescope::modules::candle_features());
    settled.into_iter().flatten().chain([(env_key::CANDLE_FEATURES.name(), features)]).collect()
}

/// Whether each of these has its value already.
fn are_set(variables: &[(&str, &str)], value: impl Fn(&str) -> Option<String>) -> bool {
    variables.iter().all(|(name, wanted)| value(name).is_some_and(|value| value == *wanted))
}

fn chosen(
    asked: Option<usize>,
    variable: Option<&str>,
    inherited: Option<&str>,
    usual: impl FnOnce() -> usize,
) -> Threads {
    let number = variable.and_then(threads_in).and_then(|n| usize::try_from(n).ok());
    let from = |from: &str| from.to_string();
    match (asked, number, inherited) {
        // The command that started this one settled it.
        (Some(asked), Some(number), Some(inherited)) if asked == number => Threads { number, from: from(inherited) },
        (Some(number), ..) => Threads { number, from: from(OPTION) },
        (None, Some(number), inherited) => Threads { number, from: from(inherited.unwrap_or(RAYON_NUM_THREADS)) },
        (None, None, _) => Threads { number: usual(), from: from(DEFAULT) },
    }
}

/// The default: one for the embedded model, whose products are too small to be shared, else the physical cores that
/// affinity and quota leave.
fn usual(model: Option<&str>) -> usize {
    if model == Some(candlescope_models::config::EMBEDDED) {
        return 1;
    }
    physical_cores()
}

/// Physical cores that may be used: never more than affinity and quota allow.
pub(crate) fn physical_cores() -> usize {
    let available = std::thread::available_parallelism().map_or(1, usize::from);
    let facts = HostCollector::new().describe();
    let physical = env_key::CPU_CORES_PHYSICAL.of(&facts);
    physical.and_then(|n| usize::try_from(n).ok()).map_or(available, |physical| physical.min(available)).max(1)
}

/// Starts the pool of rayon, which otherwise starts on first use and panics if it gets no threads. Here that is an
/// error with the reason. The calling thread, on which the model runs, is one of the pool's: else each parallel
/// operation is handed to another thread, and the result back, which takes a small model longer than what is computed.
pub(crate) fn start_pool() -> Result<()> {
    rayon::ThreadPoolBuilder::new().use_current_thread().build_global().context(
        "the threads that compute cannot start: raise the number of threads that this user may have (ulimit -u), or ask \
         for fewer with --threads or RAYON_NUM_THREADS",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_option_wins_over_the_variable_and_the_variable_over_the_default() {
        let of = |asked, variable, inherited| {
            let threads = chosen(asked, variable, inherited, || 7);
            (threads.number, threads.from)
        };
        assert_eq!(of(Some(3), Some("2"), None), (3, "option".into()));
        assert_eq!(of(None, Some("2"), None), (2, "RAYON_NUM_THREADS".into()));
        assert_eq!(of(None, None, None), (7, "default".into()));
        assert_eq!(of(None, Some("0"), None), (7, "default".into()), "rayon takes no notice of 0");
        // A process that measures for a command has its number as an option, and says where it came from.
        assert_eq!(of(Some(1), Some("1"), Some("default")), (1, "default".into()));
        assert_eq!(of(Some(4), Some("1"), Some("default")), (4, "option".into()));
    }

    #[test]
    fn what_is_set_already_need_not_be_set() {
        let wanted = [(RAYON_NUM_THREADS, "2"), (CANDLE_NUM_THREADS, "2")];
        let of = |rayon: Option<&'static str>, candle: Option<&'static str>| {
            are_set(&wanted, |name| (if name == RAYON_NUM_THREADS { rayon } else { candle }).map(str::to_string))
        };
        assert!(of(Some("2"), Some("2")));
        assert!(!of(Some("2"), None) && !of(Some("3"), Some("2")) && !of(None, None));
    }

    #[test]
    fn the_embedded_model_has_one_thread_and_others_no_more_than_may_run() {
        assert_eq!(usual(Some("embedded")), 1);
        let cores = usual(Some("config:gpt2"));
        assert!((1..=std::thread::available_parallelism().unwrap().get()).contains(&cores));
    }
}
