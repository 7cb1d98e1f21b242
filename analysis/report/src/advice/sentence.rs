//! A finding, and the names that its sentences have in them.

use crate::format::{bytes, duration, head, percent, printable, significant};
use crate::function_name;
use crate::kernel_name::short;
use crate::plain_paths::part;
use candlescope_document::text::code;
use candlescope_figures::advice::Advice;
use candlescope_schema::numbers;

/// What is said of a finding that others may have brought about.
pub(crate) const DISTURBED: &str = "the machine was disturbed meanwhile, which can explain all of it";

/// Longest list of kernels in a sentence, in characters.
const NAMES: usize = 80;

/// A finding, its place as reports name it, and the same for somebody who does not know the model's insides.
pub(crate) struct Sentence<'a> {
    pub(super) advice: &'a Advice,
    /// The path, or the steps.
    pub(super) at: String,
    /// The kernels there, or `its kernels`.
    pub(super) kernel: String,
    /// Name of the kind of steps, such as `decode`.
    pub(super) phase: String,
    /// `rank 3`; `a rank` where the finding is about none.
    pub(super) rank: String,
    /// The steps, as what they do for the one who waits.
    pub(crate) step: String,
    /// The part of the model, or the steps, in plain words.
    pub(super) part: String,
}

impl<'a> Sentence<'a> {
    pub(crate) fn of(advice: &'a Advice) -> Self {
        let names = advice.place.kernel.as_deref().unwrap_or("its kernels");
        let each: Vec<String> = names.split(" + ").map(|name| short(name).to_string()).collect();
        let step = step(&advice.place.phase);
        Self {
            advice,
            at: place_of(advice),
            kernel: head(&printable(&each.join(" + ")), NAMES),
            phase: printable(&advice.place.phase),
            rank: advice.place.rank.map_or_else(|| "a rank".to_string(), |rank| format!("rank {rank}")),
            part: advice.place.path.as_deref().map_or_else(|| step.clone(), part),
            step,
        }
    }

    /// A figure of the evidence; not a number where there is none.
    pub(super) fn value(&self, name: &str) -> f64 {
        self.advice.figure(name).unwrap_or(f64::NAN)
    }

    pub(super) fn number(&self, name: &str) -> String {
        significant(self.value(name))
    }

    pub(super) fn share(&self, name: &str) -> String {
        percent(self.value(name))
    }

    pub(super) fn time(&self, name: &str) -> String {
        duration(self.value(name))
    }

    /// The function of the place; `None` where no sample has one.
    pub(super) fn function(&self) -> Option<String> {
        let function = self.advice.place.function.as_deref()?;
        Some(head(&printable(&function_name::short(function)), NAMES))
    }

    /// Where most of it is: in the function, if that is known, and at the place.
    pub(super) fn most_of_it(&self) -> String {
        match self.function() {
            Some(function) => format!("most of it in `{function}` at `{}`", self.at),
            None => format!("most of it at `{}`", self.at),
        }
    }

    pub(super) fn bytes(&self, name: &str) -> String {
        bytes(self.value(name))
    }
}

/// The most telling part of the place: the path, or the steps.
pub(super) fn place_of(advice: &Advice) -> String {
    printable(advice.place.path.as_deref().unwrap_or(&advice.place.phase))
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

/// A value in its unit.
pub(super) fn shown(value: f64, unit: &str) -> String {
    match unit {
        "ns/token" => format!("{} a token", duration(value)),
        "B/s" => format!("{} GB/s", significant(value / 1e9)),
        "hertz" => format!("{} MHz", significant(value / 1e6)),
        "FLOP" => format!("{} MFLOP", significant(value / 1e6)),
        "count" | "ns" | "ratio" | "bytes" => numbers::value(unit, value),
        unit => format!("{} {unit}", significant(value)),
    }
}
