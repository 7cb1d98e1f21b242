//! A loaded model that continues texts, whatever holds their keys and values.

use crate::causal_lm::CausalLm;
use crate::slots::{OneRequest, SlotDecoder};
use std::ops::{Deref, DerefMut};

/// A model that continues texts: one at a time or a batch of equal length, or several in [slots](crate::slots), which can
/// be [taken](Self::take_slots).
pub struct TextModel(Kind);

enum Kind {
    Growing(Box<dyn CausalLm + Send>),
    Slots(Box<OneRequest>),
}

impl TextModel {
    /// A model whose cache grows with its text.
    pub(super) fn growing(model: impl CausalLm + Send + 'static) -> Self {
        Self(Kind::Growing(Box::new(model)))
    }

    /// A decoder of slots, of which a request takes the first.
    pub(super) fn in_slots(slots: SlotDecoder) -> Self {
        Self(Kind::Slots(Box::new(OneRequest::new(slots))))
    }

    /// Its slots, for requests that come and go; the model can do nothing afterwards. `None` if it has none, or they were
    /// taken.
    pub fn take_slots(&mut self) -> Option<SlotDecoder> {
        match &mut self.0 {
            Kind::Growing(_) => None,
            Kind::Slots(one) => one.take(),
        }
    }
}

impl Deref for TextModel {
    type Target = dyn CausalLm + Send;

    fn deref(&self) -> &Self::Target {
        match &self.0 {
            Kind::Growing(model) => model.as_ref(),
            Kind::Slots(one) => one.as_ref(),
        }
    }
}

impl DerefMut for TextModel {
    fn deref_mut(&mut self) -> &mut Self::Target {
        match &mut self.0 {
            Kind::Growing(model) => model.as_mut(),
            Kind::Slots(one) => one.as_mut(),
        }
    }
}

impl AsMut<dyn CausalLm + Send> for TextModel {
    fn as_mut(&mut self) -> &mut (dyn CausalLm + Send + 'static) {
        &mut **self
    }
}
