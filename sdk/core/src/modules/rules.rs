//! What a span has to do with the weights that are read around the place where it is made.

use super::Operation;
use super::table;
use tracing_core::Metadata;

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
    /// One of candle's that the table does not have: of another version, most likely.
    Unknown,
}

/// The rule of a callsite, if it is one of candle's models.
pub(crate) fn of(metadata: &Metadata<'_>) -> Option<Rule> {
    let module = metadata.module_path()?;
    let inside = module.strip_prefix("candle_transformers::")?;
    Some(table::rule(inside, metadata.line()?, metadata.name()).unwrap_or(Rule::Unknown))
}
