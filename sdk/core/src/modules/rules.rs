//! What a span has to do with the weights that are read around the place where it is made.

use super::Operation;
use std::fmt;
use tracing_core::field::{Field, Visit};
use tracing_core::span::Attributes;

/// One callsite's rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Rule {
    /// Holds other spans, and is named after them when they run.
    Group,
    /// Computes without weights.
    Work,
    /// Owns the weights of one module that were read just before.
    Before(Operation),
    /// Owns the next weights of one module.
    After {
        operation: Operation,
        /// The last part of the module's name, where reads of other modules may come first.
        part: Option<&'static str>,
        /// How many weights.
        weights: u8,
    },
    /// Owns the weight that was read first of those that no span has taken, among those whose module's last part is in
    /// the list, in the list's order: for loaders that read a whole layer before they make its spans.
    Batch(Operation, &'static [&'static str]),
    /// Was given a tensor that is also, or was made of, another module's: a head that is tied to the embedding.
    Given(Operation),
    /// A head that shares the next weight of a module whose last part is this.
    Shares { part: &'static str },
    /// A group; where nothing runs inside, a head that is tied to the embedding.
    Head,
    /// Its weights were all read before, in no order.
    Unseen,
    /// A layer of candle-nn itself: owns the weights of one module that were read just before.
    Layer(Operation),
    /// A layer of candle-nn itself that was given tensors: those just read, if they fit; a linear layer may be a head
    /// that is tied to the embedding.
    Made {
        operation: Operation,
        /// Size of the matrix that it was given, once the span is there to tell.
        matrix: Option<[usize; 2]>,
    },
    /// One of candle's that the table does not have: of another version, most likely.
    Unknown,
}

impl Rule {
    /// The rule with what a span says about itself when it is made.
    pub(crate) fn of_span(self, attrs: &Attributes<'_>) -> Self {
        let Rule::Made { operation, .. } = self else { return self };
        let mut matrix = Matrix::default();
        attrs.record(&mut matrix);
        Rule::Made { operation, matrix: matrix.rows.zip(matrix.columns).map(|(rows, columns)| [rows, columns]) }
    }
}

/// The fields of a layer's span that tell the matrix it was given.
#[derive(Default)]
struct Matrix {
    rows: Option<usize>,
    columns: Option<usize>,
}

impl Visit for Matrix {
    fn record_u64(&mut self, field: &Field, value: u64) {
        let value = usize::try_from(value).ok();
        match field.name() {
            "rows" => self.rows = value,
            "columns" => self.columns = value,
            _ => {}
        }
    }

    fn record_debug(&mut self, _: &Field, _: &dyn fmt::Debug) {}
}
