//! Where the tokens of a forward pass are in their sequences.

use super::kv_store::{KvCacheDType, WriteAt};
use candle_core::{Result, Tensor};
use candlescope_work::input::Input;
use candlescope_work::operation::Cost;

/// Where the tokens of a forward pass are in their sequences.
#[derive(Debug, Clone, Copy)]
pub enum Place<'a> {
    /// The first token of every sequence is at this position of the growing cache.
    At(usize),
    /// The sequences are those of the slots from `first` on; their first token is at `position`.
    Slots {
        /// The first slot.
        first: usize,
        /// Tokens that these slots hold already.
        position: usize,
    },
    /// One token of each of the first slots, at positions that the device knows.
    Each(&'a SlotStep),
}

impl Place<'_> {
    /// What a pass of `tokens` (batch, new tokens) works on.
    pub(crate) fn work(&self, batch: usize, tokens: usize) -> Input {
        match self {
            Self::At(position) | Self::Slots { position, .. } => Input::new(batch, tokens, *position),
            Self::Each(step) => Input::token(batch as u64, step.attending().context as u64),
        }
    }

    /// The cost of attending, which of a step of slots is needed for the positions that its sequences have.
    pub(crate) fn attending(&self, work: Input, cost: impl Fn(Input) -> Cost) -> Cost {
        match self {
            Self::Each(step) => cost(work).needing(cost(Input::token(1, step.attending().attended))),
            _ => cost(work),
        }
    }

    /// The cost of keeping keys and values, which of a step of slots is needed for those that are not idle.
    pub(crate) fn keeping(&self, work: Input, cost: impl Fn(Input) -> Cost) -> Cost {
        match self {
            Self::Each(step) => cost(work).needing(cost(Input::token(step.attending().active, work.context))),
            _ => cost(work),
        }
    }
}

/// What the slots of a step attend to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AttendedPositions {
    /// Positions, those that are masked included.
    pub context: usize,
    /// Slots that are not idle.
    pub active: u64,
    /// Positions that these attend to, all together.
    pub attended: u64,
}

/// The slots of a step, as the model needs to know them.
#[derive(Debug, Clone)]
pub struct SlotPlaces {
    /// Where each slot's token is, (n) u32; `u32::MAX` for a slot that is idle.
    pub positions: Tensor,
    /// 0 to attend and −∞ not to, (n, 1, 1, context) in f32; none where every slot attends to all of them.
    pub mask: Option<Tensor>,
    /// What they attend to.
    pub attending: AttendedPositions,
}

/// What the layers of a step of fixed shape share: one token for each of the first `n` slots, wherever it is in its
/// sequence. All of it lies on the device, so that the same calls serve any positions: a step can be captured once and
/// replayed.
#[derive(Debug, Clone)]
pub struct SlotStep {
    pub(crate) places: SlotPlaces,
    /// Cosines and sines of these positions, (n, 1, head / 2) each; none where positions are learned.
    pub(crate) rotation: Option<(Tensor, Tensor)>,
    /// Where keys and values are written.
    pub(crate) write_at: WriteAt,
}

impl SlotStep {
    /// Of slots whose keys have so many heads of so many features, and are held in this way.
    pub(crate) fn new(
        places: SlotPlaces,
        rotation: Option<(Tensor, Tensor)>,
        heads: (usize, usize),
        kept_as: KvCacheDType,
    ) -> Result<Self> {
        let write_at = WriteAt::new(&places.positions, heads, kept_as)?;
        Ok(Self { places, rotation, write_at })
    }

    /// What its slots attend to.
    pub(crate) fn attending(&self) -> AttendedPositions {
        self.places.attending
    }
}
