//! Reads the fields of spans that candlescope knows.

use crate::annotation::Annotation;
use crate::vocabulary::{DType, Outcome, Phase, Ran, Shape};
use crate::{cut_debug, cut_text};
use candlescope_markers::names::{
    BATCH_FIELD, CALLER_SAMPLED_FIELD, CONTEXT_LEN_FIELD, FIRST_TOKEN_FIELD, LAST_TOKEN_FIELD, MODULE_FIELD,
    NAME_FIELD, OPERATION_FIELD, OUTCOME_FIELD, OUTPUT_TOKENS_FIELD, PARENT_SPAN_ID_FIELD, PHASE_FIELD,
    PROMPT_TOKENS_FIELD, REQUEST_MODEL_FIELD, TOKENS_FIELD, TRACE_ID_FIELD,
};
use candlescope_markers::recorder;
use std::cell::Cell;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use tracing_core::Metadata;
use tracing_core::field::{Field, Visit};

/// Fields whose values are recorded with the interval.
const KNOWN: [&str; 13] = [
    TOKENS_FIELD,
    "flops",
    "flops_executed",
    "bytes",
    "io_bytes",
    BATCH_FIELD,
    CONTEXT_LEN_FIELD,
    "new_tokens",
    "context_sum",
    "sequences",
    "dtype",
    "shape",
    "ran",
];
/// The longest name, model or operation in bytes; what is longer is cut. They may be what a client sent, they are kept
/// as long as the session, and a path is made of several.
const MOST_NAME_BYTES: usize = 512;

/// What the names of a callsite's fields say about its spans.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct FieldKinds {
    pub(crate) annotation: bool,
    pub(crate) phase: bool,
    pub(crate) request: bool,
    pub(crate) name: bool,
    pub(crate) module: bool,
}

impl FieldKinds {
    pub(crate) fn of(metadata: &Metadata<'_>) -> Self {
        let mut kinds = FieldKinds::default();
        for field in metadata.fields() {
            match field.name() {
                PHASE_FIELD => kinds.phase = true,
                REQUEST_MODEL_FIELD => kinds.request = true,
                NAME_FIELD => kinds.name = true,
                MODULE_FIELD => kinds.module = true,
                name if KNOWN.contains(&name) => kinds.annotation = true,
                _ => {}
            }
        }
        kinds
    }

    pub(crate) fn any(self) -> bool {
        self.annotation || self.phase || self.request || self.name || self.module
    }
}

/// Values read from a span's fields. Kept in the span's extensions for requests and spans with numeric fields.
#[derive(Debug, Clone, Default)]
pub(crate) struct FieldValues {
    pub(crate) annotation: Annotation,
    pub(crate) phase: Option<Phase>,
    pub(crate) name: Option<Arc<str>>,
    pub(crate) module: Option<Arc<str>>,
    pub(crate) operation: Option<Arc<str>>,
    pub(crate) model: Option<Arc<str>>,
    pub(crate) prompt_tokens: Option<u64>,
    pub(crate) output_tokens: Option<u64>,
    pub(crate) ttft_seconds: Option<f64>,
    pub(crate) last_token_seconds: Option<f64>,
    pub(crate) trace_id: Option<u128>,
    pub(crate) parent_span_id: Option<u64>,
    pub(crate) caller_sampled: Option<bool>,
    pub(crate) outcome: Option<Outcome>,
}

impl FieldValues {
    fn number(&mut self, name: &str, value: u64) {
        let small = u32::try_from(value).unwrap_or(u32::MAX) as usize;
        // Set, not added: a field has one value at a time.
        let annotation = match name {
            TOKENS_FIELD => Annotation::new().tokens(small),
            CONTEXT_LEN_FIELD => Annotation::new().context_len(small),
            BATCH_FIELD => Annotation::new().batch(small),
            "new_tokens" => Annotation::new().new_tokens(small),
            "context_sum" => Annotation::new().context_sum(value),
            "sequences" => Annotation::new().sequences(small),
            "flops" => {
                self.annotation.work.flops = 0;
                Annotation::new().flops(value)
            }
            "flops_executed" => {
                self.annotation.work.flops_executed = 0;
                Annotation::new().flops_executed(value)
            }
            "bytes" => {
                self.annotation.work.bytes = 0;
                Annotation::new().bytes(value)
            }
            "io_bytes" => {
                self.annotation.work.io_bytes = 0;
                Annotation::new().io_bytes(value)
            }
            PROMPT_TOKENS_FIELD => return self.prompt_tokens = Some(value),
            OUTPUT_TOKENS_FIELD => return self.output_tokens = Some(value),
            _ => return,
        };
        self.annotation.merge(&annotation);
    }

    fn text(&mut self, name: &str, value: &str) {
        match name {
            PHASE_FIELD => self.phase = Phase::from_word(value),
            NAME_FIELD => self.name = Some(cut_text(value, MOST_NAME_BYTES).into()),
            MODULE_FIELD => {
                self.module = Some(cut_text(value, MOST_NAME_BYTES).into()).filter(|name: &Arc<str>| !name.is_empty())
            }
            REQUEST_MODEL_FIELD => self.model = Some(cut_text(value, MOST_NAME_BYTES).into()),
            OUTCOME_FIELD => self.outcome = Outcome::from_word(value),
            TRACE_ID_FIELD => {
                self.trace_id = u128::from_str_radix(value, 16).ok().filter(|id| *id != 0 && value.len() == 32);
            }
            PARENT_SPAN_ID_FIELD => {
                let id = recorder::hex(value, 16).and_then(|id| u64::try_from(id).ok());
                self.parent_span_id = id.filter(|id| *id != 0);
            }
            OPERATION_FIELD => self.operation = Some(cut_text(value, MOST_NAME_BYTES).into()),
            "ran" => {
                if let Some(ran) = Ran::from_word(value) {
                    self.annotation = self.annotation.ran(ran);
                }
            }
            "dtype" => {
                let word = value.to_ascii_lowercase();
                self.annotation = self.annotation.dtype(DType::from_word(&word).unwrap_or(DType::Other));
            }
            "shape" => {
                // Accepts `1x5x576` and the Debug form of a slice, `[1, 5, 576]`.
                let plain: String = value.trim_matches(['[', ']', '(', ')']).replace(", ", "x").replace(',', "x");
                if let Ok(shape) = plain.parse::<Shape>() {
                    self.annotation = self.annotation.with_shape(shape);
                }
            }
            _ => {}
        }
    }
}

impl FieldValues {
    fn float(&mut self, name: &str, value: f64) {
        if name == FIRST_TOKEN_FIELD {
            self.ttft_seconds = Some(value).filter(|v| v.is_finite() && *v >= 0.0);
        } else if name == LAST_TOKEN_FIELD {
            self.last_token_seconds = Some(value).filter(|v| v.is_finite() && *v >= 0.0);
        } else if value.is_finite() && value >= 0.0 {
            self.number(name, value as u64);
        }
    }

    fn flag(&mut self, name: &str, value: bool) {
        if name == CALLER_SAMPLED_FIELD {
            self.caller_sampled = Some(value);
        }
    }
}

thread_local! {
    /// Set while a value's `Debug` runs on this thread.
    static FORMATTING: Cell<bool> = const { Cell::new(false) };
}

/// The text of a field's value. `Debug` is the program's own code: if it panics, the value is unknown, and if it
/// records further values, their `Debug` is not asked in turn.
fn formatted(value: &dyn fmt::Debug) -> Option<String> {
    struct Done;
    impl Drop for Done {
        fn drop(&mut self) {
            FORMATTING.set(false);
        }
    }
    if FORMATTING.replace(true) {
        return None;
    }
    let _done = Done;
    catch_unwind(AssertUnwindSafe(|| cut_debug(value, MOST_NAME_BYTES))).ok()
}

/// Whether a field's value is formatted. Others never are: they may be large or private.
fn is_text(name: &str) -> bool {
    matches!(name, PHASE_FIELD | NAME_FIELD | REQUEST_MODEL_FIELD | TRACE_ID_FIELD | PARENT_SPAN_ID_FIELD)
        || matches!(name, MODULE_FIELD | OUTCOME_FIELD | OPERATION_FIELD | "dtype" | "shape" | "ran")
}

/// A value that is recorded in a span.
#[derive(Debug)]
enum Value {
    Number(u64),
    Float(f64),
    Flag(bool),
    Text(String),
}

/// Values recorded after a span was made, apart from the span: it is locked only once they are all known.
#[derive(Debug, Default)]
pub(crate) struct RecordedFields {
    /// Nearly always the only one.
    first: Option<(&'static str, Value)>,
    others: Vec<(&'static str, Value)>,
}

impl RecordedFields {
    /// Sets the values.
    pub(crate) fn apply(self, values: &mut FieldValues) {
        for (name, value) in self.first.into_iter().chain(self.others) {
            match value {
                Value::Number(number) => values.number(name, number),
                Value::Float(float) => values.float(name, float),
                Value::Flag(flag) => values.flag(name, flag),
                Value::Text(text) => values.text(name, &text),
            }
        }
    }

    fn add(&mut self, field: &Field, value: Value) {
        match self.first {
            None => self.first = Some((field.name(), value)),
            Some(_) => self.others.push((field.name(), value)),
        }
    }
}

impl Visit for RecordedFields {
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.add(field, Value::Float(value));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        if let Ok(value) = u64::try_from(value) {
            self.add(field, Value::Number(value));
        }
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.add(field, Value::Number(value));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.add(field, Value::Flag(value));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        if is_text(field.name()) {
            self.add(field, Value::Text(cut_text(value, MOST_NAME_BYTES).into_owned()));
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if is_text(field.name())
            && let Some(text) = formatted(value)
        {
            self.add(field, Value::Text(text));
        }
    }
}

impl Visit for FieldValues {
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.float(field.name(), value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        if let Ok(value) = u64::try_from(value) {
            self.number(field.name(), value);
        }
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.number(field.name(), value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.flag(field.name(), value);
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.text(field.name(), value);
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if is_text(field.name())
            && let Some(text) = formatted(value)
        {
            self.text(field.name(), &text);
        }
    }
}
