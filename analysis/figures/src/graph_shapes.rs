//! Shapes whose steps run as CUDA graphs: each is a graph of its own, and one step fits it.

use super::StepRow;
use super::int_map::IntSet;
use candlescope_schema::vocabulary::CUDA_GRAPH;
use candlescope_schema::{Ran, Shape, SpanRecord};
use std::collections::HashMap;

/// Shapes that are told apart, and steps whose own shape is kept: of a run with more, the rest has none.
const MOST_SHAPES: usize = 1024;
const MOST_STEPS: usize = 1 << 20;

/// Why steps run call by call although a graph was asked for: each but [`Ran::Replay`] and [`Ran::NotAsked`].
pub const LEFT_FOR: [Ran; 6] =
    [Ran::CaptureFailed, Ran::WarmUp, Ran::Quantized, Ran::Stream, Ran::NoDevice, Ran::Model];

/// Of fewer such steps nothing follows: the first ones of a shape run call by call anyhow.
pub const FEWEST_LEFT: usize = 10;

/// Which shapes steps were replayed in, and which those have that ran call by call although a graph was asked for.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct GraphShapes {
    /// Shapes of replays, slots × context, each once.
    pub replayed: Vec<Shape>,
    /// Measured steps that ran call by call for a cause, as long as intervals are read.
    left: IntSet<u64>,
    own: HashMap<u64, Shape>,
}

/// Whether a step ran call by call although a graph was asked for.
pub fn left_graph(ran: Option<Ran>) -> bool {
    ran.is_some_and(|ran| !matches!(ran, Ran::Replay | Ran::NotAsked))
}

impl GraphShapes {
    /// For the intervals of these steps.
    pub(super) fn of<'s>(steps: impl IntoIterator<Item = &'s StepRow>) -> Self {
        let left = steps.into_iter().filter(|step| left_graph(step.ran)).map(|step| step.step);
        Self { left: left.take(MOST_STEPS).collect(), ..Self::default() }
    }

    /// Looks at an interval.
    pub(super) fn add(&mut self, span: &SpanRecord) {
        let Some(shape) = span.shape else { return };
        // What a replay ran is as it was captured, in whatever shape.
        if span.graph.is_none() && *span.path.name == *CUDA_GRAPH && !self.replayed.contains(&shape) {
            if self.replayed.len() < MOST_SHAPES {
                self.replayed.push(shape);
            }
            return;
        }
        // Of a step's intervals the step itself has the shape of its graph.
        if let Some(step) = span.step.filter(|step| self.left.contains(step) && !span.path.path.contains('/')) {
            self.own.insert(step, shape);
        }
    }

    /// Whether intervals have anything to say to it.
    pub(super) fn wants_intervals(&self) -> bool {
        !self.left.is_empty()
    }

    /// All intervals were read.
    pub(super) fn finish(self) -> Self {
        Self { left: IntSet::default(), ..self }
    }

    /// The shape that a step states itself.
    pub fn stated(&self, step: u64) -> Option<Shape> {
        self.own.get(&step).copied()
    }

    /// The shape of a step that ran call by call before its shape had a graph: what it states itself, or else the least
    /// shape that was replayed and holds so many sequences and tokens of context. `None` if neither is known.
    pub fn of_step(&self, step: u64, batch: Option<u32>, context_len: Option<u32>) -> Option<Shape> {
        if let Some(shape) = self.stated(step) {
            return Some(shape);
        }
        let (batch, context) = (batch.unwrap_or(1), context_len?);
        let holds = |shape: &&Shape| matches!(shape.dims(), [slots, most] if *slots >= batch && *most >= context);
        self.replayed.iter().filter(holds).min_by(|a, b| a.dims().cmp(b.dims())).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_fits_the_least_shape_that_holds_it() {
        let shape = |slots, context| Shape::new(&[slots, context]);
        let replayed = vec![shape(4, 512), shape(1, 512), shape(4, 256), Shape::new(&[1, 256, 64])];
        let shapes = GraphShapes { replayed, own: HashMap::from([(9, shape(8, 1024))]), ..GraphShapes::default() };
        let of = |batch, context| shapes.of_step(1, batch, context);
        assert_eq!(of(Some(1), Some(257)), Some(shape(1, 512)), "no shape of two dimensions holds it with fewer slots");
        assert_eq!(of(Some(2), Some(256)), Some(shape(4, 256)));
        assert_eq!(of(Some(3), Some(300)), Some(shape(4, 512)));
        assert_eq!((of(Some(5), Some(1)), of(None, Some(513)), of(Some(1), None)), (None, None, None));
        assert_eq!(shapes.of_step(9, None, None), Some(shape(8, 1024)), "it says so itself");
    }

    #[test]
    fn only_causes_are_why_a_graph_was_left() {
        let left = |ran| left_graph(Some(ran));
        assert!(left(Ran::WarmUp) && left(Ran::CaptureFailed) && left(Ran::NoDevice) && left(Ran::Quantized));
        assert!(!left(Ran::Replay) && !left(Ran::NotAsked) && !left_graph(None), "these did what was asked for");
    }
}
