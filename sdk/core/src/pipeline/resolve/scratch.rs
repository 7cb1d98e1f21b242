//! What is found out about a step while it is resolved.

use crate::annotation::Annotation;
use crate::modules::StepWork;
use crate::record::PathInfo;
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// What is found out about the intervals of one step, or of a part of it. By position in enter order, except `order`
/// itself.
#[derive(Default)]
pub(super) struct Scratch {
    /// Indices into the buffered intervals.
    pub(super) order: Vec<u32>,
    pub(super) parents: Vec<Parent>,
    pub(super) paths: Vec<Arc<PathInfo>>,
    /// Work of modules, if it is known from the model's weights.
    pub(super) work: Vec<Annotation>,
    /// For each interval, what around it states the number of tokens.
    pub(super) phases: Vec<TokensAround>,
    /// How often a module ran in a phase, by the phase's position and the module's name.
    pub(super) passes: FxHashMap<(u32, u32), u32>,
    /// By the parent's position and the name: how many siblings have this name, and the ordinal of the next one.
    pub(super) repeats: FxHashMap<(u32, u32), (u32, u32)>,
}

/// Where an interval's parent is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Parent {
    /// It has no parent: it is the step itself.
    None,
    /// At this position in enter order.
    At(u32),
    /// The parent is an open interval of a step that is resolved in parts.
    Open,
    /// The parent's record was lost.
    Lost,
}

/// The interval around that states how many tokens the work is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TokensAround {
    /// No interval around states the number of tokens.
    NoPhase,
    /// The phase at this position, with the tokens that it states.
    Phase(u32, StepWork),
    /// The program states the work itself.
    Told,
}
