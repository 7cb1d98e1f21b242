//! What one thread has loaded, and which span owns which of it. No I/O, no `tracing`: reads and spans come in, in the
//! order in which they happen, and modules go out.

mod claims;

use super::architecture::Architecture;
use super::model_facts::{Facts, Size};
use super::rules::Rule;
use super::{Module, Operation, Slot, Weight};
use candlescope_work::signs::ArchitectureSigns;
use std::collections::VecDeque;
use std::sync::Arc;

/// What a span that is being made has to do with the weights that were told.
pub(crate) enum Claim {
    /// It stands for a module.
    Module(Arc<Slot>),
    /// It computes without weights, or nobody tells weights on this thread.
    Nothing,
    /// It ought to have weights. By this operation, where that is known.
    Missing(Option<Operation>),
    /// It is one of candle's that no rule is known of.
    Unknown,
}

/// Weights that are kept while no span owns them. A model of 100,000 weights without any span stays below 20 MB; beyond,
/// the oldest are only counted.
const MAX_UNOWNED: usize = 100_000;

/// Weights of models before that are kept.
const MAX_LEFT: usize = 1_000;

/// Contradictions that are told.
const MAX_CONTRADICTIONS: usize = 8;

/// Spans that wait for their weights at once.
const MAX_WAITING: usize = 64;

/// Name of a head that has no weights of its own.
const TIED_HEAD: &str = "lm_head";

/// The embedding of every GGUF file.
const GGUF_EMBEDDING: &str = "token_embd";

/// One thread's book.
#[derive(Debug, Default)]
pub(crate) struct Loading {
    /// What models before left, with the session.
    pub(super) left: Vec<(u64, Weight)>,
    /// Whether something was read of this model.
    has_read: bool,
    /// The weight read last, if no span was made since.
    last: Option<Weight>,
    /// The session under which the last span was made; 0 before the first.
    session: u64,
    /// Weights read and their bytes, by the session under which the next span was made; 0 until there is one.
    pub(super) told: Vec<(u64, ReadWeights)>,
    /// Read and not owned, in order, with that session.
    pub(super) unowned: VecDeque<(u64, Weight)>,
    /// How many of them, from the end, were read after the last span was made.
    fresh: usize,
    /// Whether the last span was that of a layer of candle-nn itself.
    layer_before: bool,
    /// Tables that a span owns: a head may be tied to one.
    tables: Vec<Weight>,
    /// Width of the last vector that was read: that of the model, once its last norm was read.
    width: Option<usize>,
    waiting: Vec<WaitingSpan>,
    /// What the configuration says of the model.
    architecture: Architecture,
    /// Where it contradicts the weights, with the session.
    pub(super) contradictions: Vec<(u64, String)>,
    /// Whether somebody said what the model is, or that it is not known.
    described: bool,
    /// If not: what its weights say, and the spans that wait for an answer.
    signs: ArchitectureSigns,
    undescribed: Vec<Arc<Slot>>,
    /// The architecture recognised last, with the session.
    pub(super) recognised: Option<(u64, &'static str)>,
    /// Facts and size of the model being loaded, and of the largest one before it, with the session.
    facts: Facts,
    size: Size,
    largest: Option<(u64, Facts, Size)>,
}

/// How much was read.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct ReadWeights {
    pub(super) weights: u64,
    pub(super) bytes: u64,
}

/// A span that was made before its weights are read.
#[derive(Debug)]
struct WaitingSpan {
    slot: Arc<Slot>,
    operation: Operation,
    wants: WantedWeights,
    missing: u8,
    weights: Vec<Weight>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WantedWeights {
    /// Whatever is read next.
    Next,
    /// Weights of a module whose last part is this.
    Part(&'static str),
    /// The same, and another span may own them.
    Shared(&'static str),
}

impl WaitingSpan {
    fn wants(&self, weight: &Weight) -> bool {
        match (self.weights.first(), self.wants) {
            (Some(first), _) => first.module() == weight.module(),
            (None, WantedWeights::Part(part) | WantedWeights::Shared(part)) => last_part(weight.module()) == part,
            (None, WantedWeights::Next) => true,
        }
    }

    /// Names the span, if anything came.
    fn seal(self, architecture: &Architecture) {
        let Some(first) = self.weights.first() else { return };
        let name = if let WantedWeights::Shared(_) = self.wants { TIED_HEAD } else { first.module() }.into();
        self.slot.fill(Arc::new(architecture.module(name, self.operation, self.weights)));
    }
}

impl Loading {
    /// Something is loaded next. Unless it was told which model, that is not known any more.
    pub(super) fn begin(&mut self) {
        if self.has_read {
            self.load_next(Architecture::default());
        }
    }

    /// The model that somebody described is loaded next.
    pub(super) fn load_told(&mut self, architecture: Architecture, facts: Facts) {
        self.load_next(architecture);
        (self.described, self.facts) = (true, facts);
    }

    fn load_next(&mut self, architecture: Architecture) {
        // Weights of the model before are not this one's, and what its spans still wait for does not come.
        for mut one in std::mem::take(&mut self.waiting) {
            one.missing = 0;
            self.keep(one);
        }
        self.architecture = architecture;
        (self.described, self.signs) = (false, ArchitectureSigns::default());
        self.undescribed.clear();
        let (facts, size) = (std::mem::take(&mut self.facts), std::mem::take(&mut self.size));
        if self.largest.as_ref().is_none_or(|(.., before)| before.bytes() < size.bytes()) {
            self.largest = (size.bytes() > 0).then_some((self.session, facts, size)).or(self.largest.take());
        }
        (self.fresh, self.width) = (0, None);
        self.has_read = false;
        let left = self.unowned.drain(..).chain(std::mem::take(&mut self.left)).take(MAX_LEFT);
        self.left = left.collect();
        self.tables.clear();
    }

    /// A weight was read.
    pub(super) fn read(&mut self, weight: Weight) {
        // Told twice, by two that watch the same, or read twice to try another shape.
        if self.last.as_ref() == Some(&weight) {
            return;
        }
        self.last = Some(weight.clone());
        self.has_read = true;
        self.size.add(&weight);
        self.signs.weight(&weight.name);
        self.recognise();
        let told = self.told_to(0);
        told.weights += 1;
        told.bytes = told.bytes.saturating_add(weight.bytes);
        // A bias may be as long as a layer is high.
        if let ([width], false) = (&*weight.dims, matches!(last_part(&weight.name), "bias" | "beta")) {
            self.width = Some(*width);
        }
        let mut owned = false;
        let waiting = std::mem::take(&mut self.waiting);
        for mut one in waiting {
            let shares = matches!(one.wants, WantedWeights::Shared(_));
            if (shares || !owned) && one.wants(&weight) {
                owned |= !shares;
                one.weights.push(weight.clone());
                one.missing = one.missing.saturating_sub(1);
            } else if one.wants == WantedWeights::Next && !one.weights.is_empty() {
                // Something else was read in between: it has what it gets.
                one.missing = 0;
            }
            self.keep(one);
        }
        if owned {
            return;
        }
        self.unowned.push_back((0, weight));
        self.fresh += 1;
        if self.unowned.len() > MAX_UNOWNED {
            self.unowned.pop_front();
            self.fresh = self.fresh.min(self.unowned.len());
        }
    }

    /// A span is made under a session.
    pub(super) fn span(&mut self, rule: Rule, session: u64) -> Claim {
        self.settle(session);
        self.last = None;
        for mut one in std::mem::take(&mut self.waiting) {
            // What wants the very next weights and is followed by another span has got all there is.
            if one.wants == WantedWeights::Next {
                one.missing = 0;
            }
            self.keep(one);
        }
        let claim = match rule {
            Rule::Group => Claim::Module(Slot::group(None)),
            Rule::Head => Claim::Module(Slot::group(self.head(Operation::Linear).map(Arc::new))),
            Rule::After { operation, part, weights } => {
                Claim::Module(self.wait(operation, part.map_or(WantedWeights::Next, WantedWeights::Part), weights))
            }
            Rule::Shares { part } => Claim::Module(self.wait(Operation::Linear, WantedWeights::Shared(part), 1)),
            Rule::Work => Claim::Nothing,
            Rule::Unknown => Claim::Unknown,
            Rule::Unseen => Claim::Missing(None),
            Rule::Before(operation) => match self.just_read(operation) {
                // What it stands around has a span of its own, and owns them.
                None if self.layer_before => Claim::Module(Slot::group(None)),
                module => known(module, operation),
            },
            Rule::Layer(operation) => known(self.just_read(operation), operation),
            Rule::Made { operation, matrix } => known(self.made_of(operation, matrix), operation),
            Rule::Batch(operation, patterns) => known(self.oldest(operation, patterns), operation),
            Rule::Given(operation) => known(self.own_table(operation).or_else(|| self.head(operation)), operation),
        };
        self.layer_before = matches!(rule, Rule::Layer(_) | Rule::Made { .. });
        self.fresh = 0;
        if let (Claim::Module(slot), false) = (&claim, self.described) {
            if slot.get().is_some_and(|module| &*module.name == TIED_HEAD) {
                self.signs.has_head();
            }
            if !slot.is_group() && self.undescribed.len() < MAX_UNOWNED {
                self.undescribed.push(slot.clone());
            }
            self.recognise();
        }
        claim
    }

    /// A span is made in a module of the program or of a library.
    pub(super) fn made_in(&mut self, place: Option<&str>) {
        if let Some(file) = place.and_then(|place| place.strip_prefix("candle_transformers::")) {
            self.signs.span(file);
        }
    }

    /// Takes what the signs say, where nobody said anything, and tells the spans made so far.
    fn recognise(&mut self) {
        if self.described || !self.architecture.is_blank() {
            return;
        }
        let Some(what) = self.signs.told() else { return };
        self.described = true;
        self.architecture = Architecture::recognised(what);
        self.recognised = Some((self.session, what.name));
        for slot in std::mem::take(&mut self.undescribed) {
            slot.describe(&self.architecture);
        }
    }

    /// Facts and size of the largest model that was loaded on this thread under a session.
    pub(super) fn model(&self, session: u64) -> Option<(&Facts, &Size, Option<&'static str>)> {
        let now = (self.size.bytes() > 0 || !self.facts.is_empty()) && self.session == session;
        let now = now.then_some((&self.facts, &self.size));
        let before = self.largest.as_ref().filter(|(of, ..)| *of == session).map(|(_, facts, size)| (facts, size));
        let (facts, size) = match (now, before) {
            (Some(now), Some(before)) => {
                if now.1.bytes() < before.1.bytes() {
                    before
                } else {
                    now
                }
            }
            (now, before) => now.or(before)?,
        };
        Some((facts, size, self.recognised.filter(|(of, _)| *of == session).map(|(_, name)| name)))
    }

    /// What was read before a span is of the session that sees it.
    fn settle(&mut self, session: u64) {
        self.session = session;
        for (of, _) in self.unowned.iter_mut().rev().take_while(|(of, _)| *of == 0) {
            *of = session;
        }
        let ReadWeights { weights, bytes } = std::mem::take(self.told_to(0));
        let told = self.told_to(session);
        told.weights += weights;
        told.bytes = told.bytes.saturating_add(bytes);
    }

    fn told_to(&mut self, session: u64) -> &mut ReadWeights {
        let at = self.told.iter().position(|(of, _)| *of == session).unwrap_or_else(|| {
            self.told.push((session, ReadWeights::default()));
            self.told.len() - 1
        });
        &mut self.told[at].1
    }

    /// Whether something was read after the last span, by a session that made one, or before any.
    pub(super) fn is_of(&self, of: u64, session: u64) -> bool {
        of == session || (of == 0 && self.session == session)
    }

    fn wait(&mut self, operation: Operation, wants: WantedWeights, missing: u8) -> Arc<Slot> {
        let slot = Slot::empty(operation);
        if self.waiting.len() >= MAX_WAITING {
            self.waiting.remove(0);
        }
        self.waiting.push(WaitingSpan { slot: slot.clone(), operation, wants, missing, weights: Vec::new() });
        slot
    }

    /// Puts a waiting span back, or ends its waiting.
    fn keep(&mut self, one: WaitingSpan) {
        if one.missing > 0 {
            self.waiting.push(one);
        } else {
            one.seal(&self.architecture);
        }
    }
}

fn known(module: Option<Module>, operation: Operation) -> Claim {
    module.map_or(Claim::Missing(Some(operation)), |module| Claim::Module(Slot::known(Arc::new(module))))
}

fn last_part(module: &str) -> &str {
    module.rsplit('.').next().unwrap_or(module)
}

#[cfg(test)]
mod tests;
