//! Findings with gains in words for somebody who decides and does not know the model's insides: what to change, what
//! was seen, what it gains, how sure that is.

use super::advice::{DISTURBED, Sentence, gain, plain};
use super::format::after_colon;
use candlescope_document::text::code;
use candlescope_figures::Analysis;
use candlescope_figures::advice::Advice;

/// The first `most` of *What to change*, with paths.
pub(super) fn changes(analysis: &Analysis, most: usize) -> Vec<String> {
    let found = analysis.diagnosis.iter().flat_map(|diagnosis| &diagnosis.findings);
    found.take(most).map(change).collect()
}

/// How many findings there are.
pub(super) fn count_of(analysis: &Analysis) -> usize {
    analysis.diagnosis.as_ref().map_or(0, |diagnosis| diagnosis.findings.len())
}

fn change(advice: &Advice) -> String {
    let it = Sentence::of(advice);
    let step = &it.step;
    let gain = if advice.code.is_of_figures() {
        format!("figures of {step} come out {} lower, the program stays as fast", gain(advice.gain))
    } else {
        format!("takes {} off the time of {step}", gain(advice.gain))
    };
    let place = advice.place.path.as_deref().map_or(String::new(), |path| format!(" ({})", code(path)));
    let (mut what, mut seen) = plain(&it);
    if advice.disturbed {
        what =
            format!("Measure again while the machine does nothing else, and only if it stays: {}", after_colon(&what));
        seen = format!("{seen}; {DISTURBED}");
    }
    format!("{what}{place}: {seen}; {gain}; confidence {}", advice.confidence.level.name())
}
