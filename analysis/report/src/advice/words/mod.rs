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
