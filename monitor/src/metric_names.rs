//! Names of the metrics that are read from programs, or asked of a Prometheus that reads them: of those that
//! `exporters/src/metrics/catalogue.rs` declares.

/// Histogram: time to first token.
pub(crate) const TTFT: &str = "gen_ai_server_time_to_first_token_seconds";
/// Histogram: time for each further output token.
pub(crate) const TPOT: &str = "gen_ai_server_time_per_output_token_seconds";
/// Histogram: time between the tokens of a sequence.
pub(crate) const ITL: &str = "candlescope_inter_token_latency_seconds";
/// Histogram: durations of requests.
pub(crate) const REQUEST: &str = "gen_ai_server_request_duration_seconds";
/// Histogram: durations of intervals, by path and clock.
pub(crate) const SPAN: &str = "candlescope_span_duration_seconds";
/// Tokens of requests that ended, by `type`.
pub(crate) const TOKENS: &str = "candlescope_tokens_total";
/// Tokens of steps, by phase.
pub(crate) const STEP_TOKENS: &str = "candlescope_step_tokens_total";
/// Tokens a second while the phase works, by phase.
pub(crate) const TOKEN_RATE: &str = "candlescope_tokens_per_second";
/// Time of steps, by phase and clock.
pub(crate) const PHASE_SECONDS: &str = "candlescope_phase_seconds_total";
pub(crate) const REQUESTS_ACTIVE: &str = "candlescope_requests_active";
pub(crate) const TOKENS_IN_FLIGHT: &str = "candlescope_tokens_in_flight";
/// The run, with its model.
pub(crate) const RUN: &str = "candlescope_run_info";

/// What is read from a program by its whole name. With it come all that begin with [`PROCESS`].
pub(crate) const WANTED: [&str; 6] = [RUN, PHASE_SECONDS, STEP_TOKENS, TOKEN_RATE, REQUESTS_ACTIVE, TOKENS_IN_FLIGHT];
/// Histograms whose [`SUM`] and [`COUNT`] are read, for means.
pub(crate) const MEANS: [&str; 2] = [TTFT, TPOT];

/// How a histogram's sum ends.
pub(crate) const SUM: &str = "_sum";
/// How a histogram's number of values ends.
pub(crate) const COUNT: &str = "_count";
/// How the metrics of a process begin.
pub(crate) const PROCESS: &str = "process_";

/// Whether a program's metric of this name is read.
pub(crate) fn is_read(name: &str) -> bool {
    let of_mean = |mean: &&str| name.strip_prefix(mean).is_some_and(|end| [SUM, COUNT].contains(&end));
    WANTED.contains(&name) || MEANS.iter().any(of_mean) || name.starts_with(PROCESS)
}
