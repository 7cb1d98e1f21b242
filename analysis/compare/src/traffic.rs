//! What is asked of a server, without which its figures cannot be compared: longer prompts take longer.

use super::change_points::median;
use super::windowed::WindowedFigure;
use serde::Serialize;

/// Name that [`TrafficChange`] has for the requests a second: the load that the server was under.
pub const REQUESTS: &str = "requests_per_s";
/// Prompt tokens of a request.
pub const PROMPT_TOKENS: &str = "prompt_tokens";
/// Output tokens of a request.
pub const OUTPUT_TOKENS: &str = "output_tokens";

/// Requests that are longer by more than this factor, or shorter, are other requests.
const OTHER_REQUESTS: f64 = 4.0 / 3.0;
/// From this factor on, more requests wait for each other, and fewer leave the device idle.
const OTHER_LOAD: f64 = 2.0;
/// Figures that become worse where there is less to do.
const FOLLOW_LOAD: [&str; 2] = ["working_tps", "energy_per_token_j"];

/// What was asked of the server before and now.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TrafficChange {
    /// What was asked: [`REQUESTS`], [`PROMPT_TOKENS`] or [`OUTPUT_TOKENS`].
    pub name: String,
    /// Median of the windows before.
    pub a: f64,
    /// Median of this one.
    pub b: f64,
}

impl TrafficChange {
    /// `None` where it is not known on both sides.
    pub(super) fn of(figure: &WindowedFigure) -> Option<Self> {
        let before = figure.medians(1);
        let known = !before.is_empty() && !figure.now.values.is_empty();
        known.then(|| Self { name: figure.name.clone(), a: median(&before), b: median(&figure.now.values) })
    }

    /// How many times as much it is.
    fn factor(&self) -> f64 {
        if self.a > 0.0 { self.b / self.a } else { 1.0 }
    }
}

/// The traffic that differs too much for `figure` to be judged.
pub(super) fn doubtful(figure: &str, traffic: &[TrafficChange]) -> Option<&'static str> {
    let factor = |name: &str| traffic.iter().find(|change| change.name == name).map_or(1.0, TrafficChange::factor);
    let other = |name: &str| factor(name) > OTHER_REQUESTS || factor(name) < 1.0 / OTHER_REQUESTS;
    let requests = factor(REQUESTS);
    [PROMPT_TOKENS, OUTPUT_TOKENS].into_iter().find(|name| other(name)).or_else(|| {
        let idle = requests < 1.0 / OTHER_LOAD && FOLLOW_LOAD.contains(&figure);
        (requests > OTHER_LOAD || idle).then_some(REQUESTS)
    })
}
