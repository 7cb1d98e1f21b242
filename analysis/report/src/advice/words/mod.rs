//! What each finding says: a file for each code of the list in `analysis/figures/src/advice/code.rs`.

use super::sentence::Sentence;
use candlescope_figures::advice::AdviceCode;

macro_rules! words {
    ($($_of:ident { $($(#[$_meaning:meta])+ $code:ident = $words:ident, $_test:literal, $_gain:literal;)+ })+) => {
        $($(mod $words;)+)+

        /// What was seen, and what to do, naming the place.
        pub(super) fn words(it: &Sentence<'_>) -> (String, String) {
            match it.advice.code { $($(AdviceCode::$code => $words::words(it),)+)+ }
        }

        /// What to do, and what was seen, for somebody who decides and does not know the model's insides.
        pub(crate) fn plain(it: &Sentence<'_>) -> (String, String) {
            match it.advice.code { $($(AdviceCode::$code => $words::plain(it),)+)+ }
        }
    };
}

candlescope_figures::each_advice!(words);

#[cfg(test)]
mod made_up {
    use super::{Sentence, words};
    use candlescope_figures::advice::{
        Advice, AdviceCode, AdviceFigure, AdvicePlace, AdviceSeverity, Confidence, ConfidenceLevel, Coverage,
    };
    use candlescope_work::estimate::Estimate;

    /// What is said of a finding at this place with these figures, each of `n` samples.
    pub(super) fn said(
        code: AdviceCode,
        place: AdvicePlace,
        n: u64,
        figures: impl IntoIterator<Item = (&'static str, f64)>,
    ) -> String {
        let figure = |(name, value)| AdviceFigure::derived(name, "ratio", value, n);
        let advice = Advice {
            code,
            severity: AdviceSeverity::of(0.1),
            place,
            evidence: figures.into_iter().map(figure).collect(),
            query: String::new(),
            coverage: Coverage { steps: 6, share_of_time: 1.0 },
            gain: Estimate::default(),
            confidence: Confidence { level: ConfidenceLevel::Low, reason: "made up" },
            disturbed: false,
            record: None,
        };
        let (message, remedy) = words(&Sentence::of(&advice));
        format!("{message}. {remedy}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use candlescope_figures::advice::AdvicePlace;

    /// What is said of a finding at a path of a step.
    fn said(code: AdviceCode, function: Option<&str>) -> String {
        let place = AdvicePlace::of("decode").path("decode/mlp");
        let place = function.map_or(place.clone(), |function| place.function(function));
        let figures = ["share", "waits_ns", "threads", "paths", "one_row", "host_share", "waiting"];
        made_up::said(code, place, 6, figures.map(|name| (name, if name == "one_row" { 0.0 } else { 0.1 })))
    }

    #[test]
    fn a_function_is_named_where_it_is_known_and_the_place_where_it_is_not() {
        use AdviceCode::{Blocked, HotOverhead, PageFaults, SerialPart};
        for code in [Blocked, HotOverhead, PageFaults, SerialPart] {
            let known = said(code, Some("kept::wait"));
            assert!(known.contains("most of it in `kept::wait` at `decode/mlp`"), "{known}");
            let unknown = said(code, None);
            assert!(unknown.contains("most of it at `decode/mlp`"), "{unknown}");
        }
        assert!(said(Blocked, None).contains("Find out what `decode/mlp` waits for"));
        assert!(said(SerialPart, None).contains("Divide the work of `decode/mlp`"));
        assert!(!said(AdviceCode::HostOfLaunches, None).contains("most of it"));
    }
}
