//! Kinds of operations, which reach different shares of a device's peaks.

use serde::{Deserialize, Serialize};

/// A kind of operations. Kernels of one kind reach similar shares of the bandwidth; shares of two kinds may differ
/// tenfold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum OperationClass {
    /// Products with weights, and the biases added to them.
    Projections,
    /// The two products of attention.
    Attention,
    /// Attention's softmax, with its mask and its changes of type.
    Softmax,
    /// The activation function of the feed-forward network.
    Activations,
    /// Norms, rotations, sums, copies, looking up and choosing tokens.
    Pointwise,
}

impl OperationClass {
    /// All of them, in the order in which files have them.
    pub const ALL: [Self; 5] = [Self::Projections, Self::Attention, Self::Softmax, Self::Activations, Self::Pointwise];

    /// As reports and files call it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Projections => "projections",
            Self::Attention => "attention",
            Self::Softmax => "softmax",
            Self::Activations => "activations",
            Self::Pointwise => "pointwise",
        }
    }

    /// Of an operation of a step, or of an interval of the instrumented layers, by the last name of its path.
    pub fn of(name: &str) -> Self {
        let own = name.rsplit(['.', '/']).next().unwrap_or(name);
        match own.split(' ').next().unwrap_or(own) {
            "q_proj" | "k_proj" | "v_proj" | "o_proj" | "c_attn" | "c_proj" | "c_fc" | "gate_proj" | "up_proj"
            | "down_proj" | "router" | "lm_head" => Self::Projections,
            "scores" | "context" => Self::Attention,
            "softmax" => Self::Softmax,
            "act_fn" => Self::Activations,
            _ => Self::Pointwise,
        }
    }

    /// Whether its kernels are products of matrices.
    pub fn multiplies(self) -> bool {
        matches!(self, Self::Projections | Self::Attention)
    }
}

/// A value for each kind of operations.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct ByClass {
    /// Of [`OperationClass::Projections`], such as `q_proj`, `down_proj` and `lm_head`.
    pub projections: f64,
    /// Of [`OperationClass::Attention`], which are `scores` and `context`.
    pub attention: f64,
    /// Of [`OperationClass::Softmax`], that of attention alone.
    pub softmax: f64,
    /// Of [`OperationClass::Activations`], which are called `act_fn`.
    pub activations: f64,
    /// Of [`OperationClass::Pointwise`], and of all that has the name of no other kind.
    pub pointwise: f64,
}

impl ByClass {
    /// The same for all.
    pub const fn all(value: f64) -> Self {
        Self { projections: value, attention: value, softmax: value, activations: value, pointwise: value }
    }

    /// The value of one.
    pub fn of(&self, class: OperationClass) -> f64 {
        match class {
            OperationClass::Projections => self.projections,
            OperationClass::Attention => self.attention,
            OperationClass::Softmax => self.softmax,
            OperationClass::Activations => self.activations,
            OperationClass::Pointwise => self.pointwise,
        }
    }

    /// The place of one.
    pub fn of_mut(&mut self, class: OperationClass) -> &mut f64 {
        match class {
            OperationClass::Projections => &mut self.projections,
            OperationClass::Attention => &mut self.attention,
            OperationClass::Softmax => &mut self.softmax,
            OperationClass::Activations => &mut self.activations,
            OperationClass::Pointwise => &mut self.pointwise,
        }
    }

    /// Whether all are numbers above 0.
    pub(super) fn is_positive(&self) -> bool {
        OperationClass::ALL.iter().all(|class| self.of(*class).is_finite() && self.of(*class) > 0.0)
    }
}
