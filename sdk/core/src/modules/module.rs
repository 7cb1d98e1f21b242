//! What a module of a model is: its weights, what it does with them, and for how many rows.

use crate::vocabulary::DType;
use candlescope_work::family::{AttentionScope, Rows};
use candlescope_work::windows::Window;
use std::fmt;
use std::sync::Arc;

/// A weight as its loader told it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Weight {
    /// Full name, for example `model.layers.7.mlp.down_proj.weight`.
    pub(crate) name: Arc<str>,
    /// Dimensions, outermost first: `[out, in]` of a linear layer.
    pub(crate) dims: Box<[usize]>,
    /// Element type in memory.
    pub(crate) dtype: DType,
    /// Bytes in memory, as its element type stores them.
    pub(crate) bytes: u64,
}

impl Weight {
    /// Number of elements: the product of its dimensions.
    pub(crate) fn elements(&self) -> u64 {
        self.dims.iter().fold(1, |n, &dim| n.saturating_mul(dim as u64))
    }

    /// The module that the weight belongs to: its name without the last part, or all of a name that has one part only.
    pub(crate) fn module(&self) -> &str {
        self.name.rsplit_once('.').map_or(&self.name, |(module, _)| module)
    }
}

/// What a module does with its weights, as far as its costs go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Operation {
    /// Multiplies each row by a matrix `[out, in]`.
    Linear,
    /// Looks rows up in a table.
    Embedding,
    /// Normalises each row (RMSNorm, LayerNorm).
    Norm,
    /// Convolves over one to three dimensions.
    Convolution,
    /// Consists of other modules.
    Group,
}

impl Operation {
    /// Whether it multiplies by its weights, so that a step without its work is told too small.
    pub(crate) fn multiplies(self) -> bool {
        matches!(self, Self::Linear | Self::Convolution)
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Operation::Linear => "linear",
            Operation::Embedding => "embedding",
            Operation::Norm => "norm",
            Operation::Convolution => "convolution",
            Operation::Group => "group",
        })
    }
}

/// A module of a model: what PyTorch calls by a fully qualified name.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Module {
    /// Its name, for example `model.layers.7.mlp.down_proj`.
    pub(crate) name: Arc<str>,
    /// What it does with its weights; a group does nothing itself.
    pub(crate) operation: Operation,
    /// The weights that the span computes with; none of a group.
    pub(crate) weights: Vec<Weight>,
    /// Rows that it computes in a step.
    pub(crate) rows: Rows,
    /// What it has to do with attention.
    pub(crate) attention: Option<Attention>,
}

impl Module {
    pub(super) fn group(name: &str) -> Self {
        let operation = Operation::Group;
        Self { name: name.into(), operation, weights: Vec::new(), rows: Rows::Unknown, attention: None }
    }
}

/// What a module has to do with attention, which itself has no weights and often no span.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Attention {
    /// Features of the queries that it makes, all heads together.
    pub(crate) queries: u64,
    /// Features of the keys that it makes, and as many of values, all heads together.
    pub(crate) keys: u64,
    /// What a token attends to.
    pub(crate) over: AttentionScope,
    /// How far back a token attends; `None`: to the beginning.
    pub(crate) window: Option<Window>,
}

/// The module that a module is part of: empty at the top.
pub(crate) fn parent(module: &str) -> &str {
    module.rsplit_once('.').map_or("", |(parent, _)| parent)
}

/// The longest name that both are, or are below.
pub(crate) fn common<'a>(a: &'a str, b: &str) -> &'a str {
    let mut end = 0;
    for (ours, theirs) in a.split('.').zip(b.split('.')) {
        if ours != theirs {
            break;
        }
        end += ours.len() + usize::from(end > 0);
    }
    &a[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_parents_and_something_in_common() {
        assert_eq!(parent("model.layers.7.mlp"), "model.layers.7");
        assert_eq!(parent("lm_head"), "");
        assert_eq!(common("model.layers.1.mlp", "model.layers.12"), "model.layers");
        assert_eq!(common("model.layers.1", "model.layers.1"), "model.layers.1");
        assert_eq!(common("model.layers.1", "model.layers.1.mlp"), "model.layers.1");
        assert_eq!(common("encoder", "decoder"), "");
        assert_eq!(common("", "decoder"), "");
    }
}
