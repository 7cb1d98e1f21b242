//! What one thread has loaded, and which span owns which of it. No I/O, no `tracing`: reads and spans come in, in the
//! order in which they happen, and modules go out.

use super::{Architecture, Claim, Module, Operation, Rule, Slot, Weight};
use std::collections::VecDeque;
use std::sync::Arc;

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
    pub(super) told: Vec<(u64, Told)>,
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
    waiting: Vec<Waiting>,
    /// What the configuration says of the model.
    architecture: Architecture,
    /// Where it contradicts the weights, with the session.
    pub(super) contradictions: Vec<(u64, String)>,
}

/// How much was read.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Told {
    pub(super) weights: u64,
    pub(super) bytes: u64,
}

/// A span that was made before its weights are read.
#[derive(Debug)]
struct Waiting {
    slot: Arc<Slot>,
    operation: Operation,
    wants: Wants,
    missing: u8,
    weights: Vec<Weight>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wants {
    /// Whatever is read next.
    Next,
    /// Weights of a module whose last part is this.
    Part(&'static str),
    /// The same, and another span may own them.
    Shared(&'static str),
}

impl Waiting {
    fn wants(&self, weight: &Weight) -> bool {
        match (self.weights.first(), self.wants) {
            (Some(first), _) => first.module() == weight.module(),
            (None, Wants::Part(part) | Wants::Shared(part)) => last_part(weight.module()) == part,
            (None, Wants::Next) => true,
        }
    }

    /// Names the span, if anything came.
    fn seal(self, architecture: &Architecture) {
        let Some(first) = self.weights.first() else { return };
        let name = if let Wants::Shared(_) = self.wants { TIED_HEAD } else { first.module() }.into();
        self.slot.fill(Arc::new(module(architecture, name, self.operation, self.weights)));
    }
}

impl Loading {
    /// What is read from here on is of this model.
    /// Something is loaded next. Unless it was told which model, that is not known any more.
    pub(super) fn begin(&mut self) {
        if self.has_read {
            self.load_next(Architecture::default());
        }
    }

    pub(super) fn load_next(&mut self, architecture: Architecture) {
        // Weights of the model before are not this one's, and what its spans still wait for does not come.
        for mut one in std::mem::take(&mut self.waiting) {
            one.missing = 0;
            self.keep(one);
        }
        self.architecture = architecture;
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
            let shares = matches!(one.wants, Wants::Shared(_));
            if (shares || !owned) && one.wants(&weight) {
                owned |= !shares;
                one.weights.push(weight.clone());
                one.missing = one.missing.saturating_sub(1);
            } else if one.wants == Wants::Next && !one.weights.is_empty() {
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
            if one.wants == Wants::Next {
                one.missing = 0;
            }
            self.keep(one);
        }
        let claim = match rule {
            Rule::Group => Claim::Module(Slot::group(None)),
            Rule::Head => Claim::Module(Slot::group(self.head(Operation::Linear).map(Arc::new))),
            Rule::After { operation, part, weights } => {
                Claim::Module(self.wait(operation, part.map_or(Wants::Next, Wants::Part), weights))
            }
            Rule::Shares { part } => Claim::Module(self.wait(Operation::Linear, Wants::Shared(part), 1)),
            Rule::Work => Claim::Nothing,
            Rule::Unknown => Claim::Unknown,
            Rule::Unseen => Claim::Missing,
            Rule::Before(operation) => match self.just_read(operation) {
                // What it stands around has a span of its own, and owns them.
                None if self.layer_before => Claim::Module(Slot::group(None)),
                module => known(module),
            },
            Rule::Layer(operation) => known(self.just_read(operation)),
            Rule::Made { operation, matrix } => known(self.made_of(operation, matrix)),
            Rule::Batch(operation, patterns) => known(self.oldest(operation, patterns)),
            Rule::Given(operation) => known(self.own_table(operation).or_else(|| self.head(operation))),
        };
        self.layer_before = matches!(rule, Rule::Layer(_) | Rule::Made { .. });
        self.fresh = 0;
        claim
    }

    /// What was read before a span is of the session that sees it.
    fn settle(&mut self, session: u64) {
        self.session = session;
        for (of, _) in self.unowned.iter_mut().rev().take_while(|(of, _)| *of == 0) {
            *of = session;
        }
        let Told { weights, bytes } = std::mem::take(self.told_to(0));
        let told = self.told_to(session);
        told.weights += weights;
        told.bytes = told.bytes.saturating_add(bytes);
    }

    fn told_to(&mut self, session: u64) -> &mut Told {
        let at = self.told.iter().position(|(of, _)| *of == session).unwrap_or_else(|| {
            self.told.push((session, Told::default()));
            self.told.len() - 1
        });
        &mut self.told[at].1
    }

    /// Whether something was read after the last span, by a session that made one, or before any.
    pub(super) fn is_of(&self, of: u64, session: u64) -> bool {
        of == session || (of == 0 && self.session == session)
    }

    /// The weights of one module that were read last, if they were read after the last span was made.
    fn just_read(&mut self, operation: Operation) -> Option<Module> {
        let name: Arc<str> = self.fresh().next_back()?.module().into();
        let run = self.fresh().rev().take_while(|weight| weight.module() == &*name).count();
        let weights: Vec<Weight> =
            self.unowned.split_off(self.unowned.len() - run).into_iter().map(|(_, w)| w).collect();
        if operation == Operation::Embedding {
            self.tables.extend(weights.iter().filter(|weight| weight.dims.len() == 2).cloned());
        }
        if operation == Operation::Linear && last_part(&name) == TIED_HEAD {
            weights.iter().take(1).for_each(|head| self.check_head(head));
        }
        Some(module(&self.architecture, own_or_head(&name, operation), operation, weights))
    }

    /// What a layer that was handed tensors is made of: what was read just now, if it has their shape; otherwise the one
    /// table that has, which makes a linear layer the tied head.
    fn made_of(&mut self, operation: Operation, matrix: Option<[usize; 2]>) -> Option<Module> {
        let is_given = |weight: &&Weight| matrix.is_some_and(|matrix| *weight.dims == matrix);
        let last = self.fresh().next_back().map(|weight| weight.module().to_owned());
        let first = self.fresh().rev().take_while(|weight| Some(weight.module()) == last.as_deref()).last();
        let fits = first.is_some_and(|weight| match operation {
            Operation::Linear | Operation::Embedding => is_given(&weight),
            Operation::Norm => weight.dims.len() == 1,
            Operation::Convolution => (3..=5).contains(&weight.dims.len()),
            Operation::Group => false,
        });
        if fits {
            return self.just_read(operation);
        }
        let unowned = self.unowned.iter().map(|(_, weight)| weight);
        let tables = || self.tables.iter().chain(unowned.clone()).filter(is_given).rev();
        match operation {
            Operation::Linear => {
                let table = only(tables())?.clone();
                self.check_head(&table);
                Some(module(&self.architecture, TIED_HEAD.into(), operation, vec![table]))
            }
            Operation::Embedding => {
                // It stays where it is: a head may be made of it yet.
                let of_gguf = |weight: &&Weight| weight.module() == GGUF_EMBEDDING;
                let table = only(tables()).or_else(|| only(tables().filter(of_gguf)))?.clone();
                Some(module(&self.architecture, table.module().into(), operation, vec![table]))
            }
            _ => None,
        }
    }

    fn fresh(&self) -> impl DoubleEndedIterator<Item = &Weight> {
        self.unowned.range(self.unowned.len() - self.fresh..).map(|(_, weight)| weight)
    }

    /// The oldest weight that is left, of the first pattern that fits any.
    fn oldest(&mut self, operation: Operation, patterns: &[&str]) -> Option<Module> {
        let at = patterns.iter().find_map(|pattern| {
            self.unowned.iter().position(|(_, weight)| fits(pattern, below_block(weight.module())) && is_weight(weight))
        })?;
        let (_, weight) = self.unowned.remove(at)?;
        if weight.dims.len() == 2 && last_part(weight.module()) == GGUF_EMBEDDING {
            self.tables.push(weight.clone());
        }
        Some(module(&self.architecture, own_or_head(weight.module(), operation), operation, vec![weight]))
    }

    /// Whether it is a matrix for rows of the model's width, as far as that is known.
    fn is_as_wide(&self, weight: &Weight) -> bool {
        matches!(*weight.dims, [_, width] if self.width.is_none_or(|model| model == width))
    }

    /// A head with a table of its own, handed over as a tensor: the one matrix that was read just now, where the
    /// embedding is another of its size.
    fn own_table(&self, operation: Operation) -> Option<Module> {
        let mut just_read = self.fresh().filter(|weight| self.is_as_wide(weight));
        let (table, None) = (just_read.next()?, just_read.next()) else { return None };
        let is_second = self.tables.iter().any(|other| other.dims == table.dims && other.name != table.name);
        let own = || module(&self.architecture, table.module().into(), operation, vec![table.clone()]);
        (operation == Operation::Linear && is_second).then(own)
    }

    fn head(&mut self, operation: Operation) -> Option<Module> {
        let head = self.tied(operation)?;
        head.weights.iter().for_each(|weight| self.check_head(weight));
        Some(head)
    }

    /// The head that shares the one table that is as wide as the model; `None` where none is, or several are.
    fn tied(&self, operation: Operation) -> Option<Module> {
        if operation != Operation::Linear {
            return None;
        }
        let unowned = self.unowned.iter().map(|(_, weight)| weight);
        let wide = || self.tables.iter().chain(unowned.clone()).filter(|weight| self.is_as_wide(weight)).rev();
        let of_all_words = |weight: &&Weight| weight.dims.first() == self.architecture.vocabulary.as_ref();
        // Where the configuration's number of words fits none, it is told that it is wrong.
        let table = only(wide()).or_else(|| only(wide().filter(of_all_words)))?;
        // What was read just now and fits as well may be what the layer was made of: several matrices as one.
        if self.fresh().any(|weight| self.is_as_wide(weight) && weight.name != table.name) {
            return None;
        }
        Some(module(&self.architecture, TIED_HEAD.into(), operation, vec![table.clone()]))
    }

    fn wait(&mut self, operation: Operation, wants: Wants, missing: u8) -> Arc<Slot> {
        let slot = Slot::empty();
        if self.waiting.len() >= MAX_WAITING {
            self.waiting.remove(0);
        }
        self.waiting.push(Waiting { slot: slot.clone(), operation, wants, missing, weights: Vec::new() });
        slot
    }

    /// Puts a waiting span back, or ends its waiting.
    fn keep(&mut self, one: Waiting) {
        if one.missing > 0 {
            self.waiting.push(one);
        } else {
            one.seal(&self.architecture);
        }
    }

    /// Notes where the configuration contradicts what a head is made of.
    fn check_head(&mut self, head: &Weight) {
        let session = self.session;
        let found = self
            .architecture
            .contradiction(head)
            .filter(|_| self.contradictions.iter().filter(|(of, _)| *of == session).count() < MAX_CONTRADICTIONS);
        self.contradictions.extend(found.map(|words| (session, words)));
    }
}

/// The weight, if all are one: the same table under its name again is no second one, because a loader may ask twice. If
/// it is another model's after all, that one was read before, and stands behind it here.
fn only<'a>(mut weights: impl Iterator<Item = &'a Weight>) -> Option<&'a Weight> {
    let first = weights.next()?;
    weights.all(|other| other.name == first.name).then_some(first)
}

fn known(module: Option<Module>) -> Claim {
    module.map_or(Claim::Missing, |module| Claim::Module(Slot::known(Arc::new(module))))
}

fn module(architecture: &Architecture, name: Arc<str>, operation: Operation, weights: Vec<Weight>) -> Module {
    let rows = architecture.rows(&name);
    let attention = match weights.first().map(|weight| &*weight.dims) {
        Some(&[out, _]) if operation == Operation::Linear => architecture.attention(&name, out as u64),
        _ => None,
    };
    Module { name, operation, weights, rows, attention }
}

/// The name of a module in a GGUF file: one that multiplies by the embedding is the head.
fn own_or_head(module: &str, operation: Operation) -> Arc<str> {
    if operation == Operation::Linear && module == GGUF_EMBEDDING { TIED_HEAD } else { module }.into()
}

fn last_part(module: &str) -> &str {
    module.rsplit('.').next().unwrap_or(module)
}

/// A bias is read with its weight, but is no reason to name a span.
fn is_weight(weight: &Weight) -> bool {
    last_part(&weight.name) == "weight"
}

/// `ffn_gate.3` of `blk.7.ffn_gate.3`.
fn below_block(module: &str) -> &str {
    let below = module.strip_prefix("blk.").and_then(|rest| rest.split_once('.'));
    below.map_or(module, |(_, rest)| rest)
}

fn fits(pattern: &str, module: &str) -> bool {
    if let Some(ending) = pattern.strip_prefix('*') {
        return module.ends_with(ending);
    }
    match pattern.strip_suffix(".*") {
        Some(start) => module
            .strip_prefix(start)
            .and_then(|rest| rest.strip_prefix('.'))
            .is_some_and(|number| !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit())),
        None => module == pattern,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vocabulary::DType;

    const LINEAR: Rule = Rule::Before(Operation::Linear);
    const NORM: Rule = Rule::After { operation: Operation::Norm, part: None, weights: 1 };
    const CONV: Rule = Rule::After { operation: Operation::Convolution, part: None, weights: 2 };

    fn weight(name: &str, dims: &[usize]) -> Weight {
        let bytes = dims.iter().product::<usize>() as u64 * 4;
        Weight { name: name.into(), dims: dims.into(), dtype: DType::F32, bytes }
    }

    fn read(loading: &mut Loading, names: &[&str]) {
        names.iter().for_each(|name| loading.read(weight(name, if name.ends_with("weight") { &[6, 4] } else { &[6] })));
    }

    /// The module's name and how many weights it has.
    fn told(claim: Claim) -> Option<(String, usize)> {
        let Claim::Module(slot) = claim else { return None };
        slot.get().map(|module| (module.name.to_string(), module.weights.len()))
    }

    fn some(name: &str, weights: usize) -> Option<(String, usize)> {
        Some((name.into(), weights))
    }

    #[test]
    fn a_layer_that_reads_first_owns_what_was_read_just_before() {
        let mut loading = Loading::default();
        read(&mut loading, &["embed.weight", "0.q.weight", "0.q.bias"]);
        assert_eq!(told(loading.span(LINEAR, 1)), some("0.q", 2), "and not the embedding");
        assert_eq!(told(loading.span(LINEAR, 1)), None, "nothing was read since");
        read(&mut loading, &["0.norm.weight"]);
        loading.span(Rule::Work, 1);
        assert_eq!(told(loading.span(LINEAR, 1)), None, "what another span followed is not its");
        assert_eq!(
            (loading.unowned.len(), loading.told.iter().map(|(_, told)| told.weights as usize).sum::<usize>()),
            (2, 4)
        );
    }

    #[test]
    fn a_layer_that_reads_last_owns_what_comes_next() {
        let mut loading = Loading::default();
        let norm = loading.span(NORM, 1);
        read(&mut loading, &["0.norm.weight", "0.q.weight"]);
        assert_eq!(told(norm), some("0.norm", 1));
        assert_eq!(told(loading.span(LINEAR, 1)), some("0.q", 1));

        let conv = loading.span(CONV, 1);
        read(&mut loading, &["patch.weight", "position.weight"]);
        assert_eq!(told(conv), some("patch", 1), "a bias would have come next");
        let failed = loading.span(NORM, 1);
        loading.span(Rule::Group, 1);
        read(&mut loading, &["1.norm.weight"]);
        assert_eq!(told(failed), None, "its read failed: what comes after the next span is not its");
    }

    #[test]
    fn spans_that_are_made_together_find_their_weights_by_name() {
        let mut loading = Loading::default();
        let part = |part| Rule::After { operation: Operation::Convolution, part: Some(part), weights: 2 };
        let (one, two) = (loading.span(part("conv1"), 1), loading.span(part("conv2"), 1));
        let head = loading.span(Rule::Shares { part: "embed_tokens" }, 1);
        read(
            &mut loading,
            &["e.conv1.weight", "e.conv1.bias", "e.conv2.weight", "e.conv2.bias", "d.embed_tokens.weight"],
        );
        assert_eq!((told(one), told(two)), (some("e.conv1", 2), some("e.conv2", 2)));
        assert_eq!(told(head), some("lm_head", 1));
        assert_eq!(loading.unowned.len(), 1, "the embedding is still there for a span of its own");
    }

    #[test]
    fn a_loader_of_whole_layers_is_told_by_patterns() {
        let mut loading = Loading::default();
        let linear = Rule::Batch(Operation::Linear, &["ffn_gate.*", "ffn_up", "attn_q", "output", "token_embd"]);
        let norm = Rule::Batch(Operation::Norm, &["attn_q_norm", "*norm"]);
        read(&mut loading, &["token_embd.weight", "output_norm.weight"]);
        assert_eq!(told(loading.span(norm, 1)), some("output_norm", 1));
        for layer in 0..2 {
            for name in ["attn_q", "ffn_gate.0", "ffn_gate.1", "ffn_up", "attn_norm", "ffn_norm", "attn_q_norm"] {
                read(&mut loading, &[&format!("blk.{layer}.{name}.weight")]);
            }
            let mut take = |rule| told(loading.span(rule, 1)).unwrap().0;
            let got: Vec<String> =
                [linear, linear, linear, linear, norm, norm, norm].into_iter().map(&mut take).collect();
            let expected = ["ffn_gate.0", "ffn_gate.1", "ffn_up", "attn_q", "attn_q_norm", "attn_norm", "ffn_norm"];
            assert_eq!(got, expected.map(|name| format!("blk.{layer}.{name}")));
        }
        assert_eq!(told(loading.span(linear, 1)), some("lm_head", 1), "tied: only the embedding is left");
        assert_eq!(loading.unowned.len(), 0);
        // Another loader reads the table a second time, for the head.
        read(&mut loading, &["token_embd.weight"]);
        assert_eq!(told(loading.span(LINEAR, 1)), some("lm_head", 1));
    }

    #[test]
    fn a_tied_head_is_the_one_table_as_wide_as_the_model() {
        let tied = Rule::Given(Operation::Linear);
        let table = |loading: &mut Loading, name: &str, dims: &[usize]| loading.read(weight(name, dims));
        let mut loading = Loading::default();
        table(&mut loading, "embed.weight", &[100, 8]);
        assert_eq!(told(loading.span(tied, 1)), some("lm_head", 1), "nothing else was read");
        table(&mut loading, "a_log", &[16, 3]);
        table(&mut loading, "norm.weight", &[8]);
        assert_eq!(told(loading.span(tied, 1)), some("lm_head", 1), "other tables are not as wide");
        loading.span(Rule::Work, 1);
        loading.architecture = Architecture::of_config(r#"{"model_type": "m", "vocab_size": 100}"#).unwrap();
        table(&mut loading, "q.weight", &[8, 8]);
        table(&mut loading, "q.bias", &[12]);
        assert_eq!(told(loading.span(tied, 1)), None, "a layer made of what was just read, most likely");
        assert_eq!(told(loading.span(tied, 1)), some("lm_head", 1), "no other table has so many words");
        loading.architecture = Architecture::default();
        table(&mut loading, "positions.weight", &[50, 8]);
        assert_eq!(told(loading.span(tied, 1)), None, "two tables: no guess");
        loading.architecture = Architecture::of_config(r#"{"model_type": "m", "vocab_size": 100}"#).unwrap();
        assert_eq!(told(loading.span(tied, 1)), some("lm_head", 1), "the configuration says which");
        assert_eq!(told(loading.span(Rule::Given(Operation::Embedding), 1)), None);
    }

    #[test]
    fn a_head_that_is_handed_its_table_may_have_one_of_its_own() {
        let tied = Rule::Given(Operation::Linear);
        let mut loading = Loading::default();
        for name in ["words.weight", "positions.weight"] {
            loading.read(weight(name, if name == "words.weight" { &[100, 8] } else { &[50, 8] }));
            loading.span(Rule::Before(Operation::Embedding), 1);
        }
        loading.read(weight("norm.weight", &[8]));
        assert_eq!(told(loading.span(tied, 1)), None, "one of the two tables, if any");
        loading.read(weight("head.decoder.weight", &[100, 8]));
        loading.read(weight("head.bias", &[100]));
        assert_eq!(told(loading.span(tied, 1)), some("head.decoder", 1));
        loading.read(weight("a.weight", &[100, 8]));
        loading.read(weight("b.weight", &[100, 8]));
        assert_eq!(told(loading.span(tied, 1)), None, "one of the two, or both");
    }

    #[test]
    fn the_model_before_leaves_nothing() {
        let tied = Rule::Given(Operation::Linear);
        let mut loading = Loading::default();
        loading.read(weight("embed.weight", &[100, 8]));
        loading.read(weight("embed.weight", &[50, 8]));
        assert_eq!(&*loading.tied(Operation::Linear).unwrap().weights[0].dims, [50, 8], "the one that was read last");

        let shares = loading.span(Rule::Shares { part: "embed_tokens" }, 1);
        let rest = Rule::Batch(Operation::Linear, &["embed"]);
        loading.load_next(Architecture::default());
        assert_eq!(told(loading.span(rest, 1)), None, "what was left is gone");
        loading.read(weight("shared.weight", &[100, 8]));
        loading.read(weight("norm.weight", &[8]));
        assert_eq!(told(loading.span(tied, 1)), some("lm_head", 1), "the only table of this model");
        loading.read(weight("decoder.embed_tokens.weight", &[100, 8]));
        assert_eq!(told(shares), None, "it waited for the model before");
    }

    #[test]
    fn a_layer_of_candle_nn_owns_what_it_read_or_what_has_the_shape_it_was_given() {
        let made = |operation, rows, columns| Rule::Made { operation, matrix: Some([rows, columns]) };
        let mut loading = Loading::default();
        loading.read(weight("words.weight", &[100, 8]));
        assert_eq!(told(loading.span(Rule::Layer(Operation::Embedding), 1)), some("words", 1));
        read(&mut loading, &["0.q.weight", "0.q.bias"]);
        assert_eq!(told(loading.span(Rule::Layer(Operation::Linear), 1)), some("0.q", 2));
        let around = loading.span(Rule::Before(Operation::Linear), 1);
        assert!(matches!(&around, Claim::Module(slot) if slot.is_group()), "what it stands around owns them");
        loading.read(weight("0.in_proj_weight", &[24, 8]));
        loading.read(weight("0.in_proj_bias", &[24]));
        assert_eq!(told(loading.span(made(Operation::Linear, 8, 8), 1)), None, "a third of it is no module");
        loading.read(weight("0.own.weight", &[8, 8]));
        assert_eq!(told(loading.span(made(Operation::Linear, 8, 8), 1)), some("0.own", 1));
        loading.read(weight("norm.weight", &[8]));
        assert_eq!(told(loading.span(made(Operation::Linear, 100, 8), 1)), some("lm_head", 1), "tied");
        assert_eq!(told(loading.span(Rule::Made { operation: Operation::Linear, matrix: None }, 1)), None);
        loading.read(weight("conv.weight", &[4, 3, 2, 2]));
        let given = |operation| Rule::Made { operation, matrix: None };
        assert_eq!(told(loading.span(given(Operation::Norm), 1)), None, "a norm is no convolution");
        loading.read(weight("conv1.weight", &[4, 3, 2, 2]));
        loading.read(weight("conv1.bias", &[4]));
        assert_eq!(told(loading.span(given(Operation::Convolution), 1)), some("conv1", 2));
    }

    #[test]
    fn a_group_in_which_nothing_runs_is_the_tied_head() {
        let mut loading = Loading::default();
        read(&mut loading, &["shared.weight"]);
        loading.span(Rule::Before(Operation::Embedding), 1);
        let (alone, around) = (loading.span(Rule::Head, 1), loading.span(Rule::Head, 1));
        let (Claim::Module(alone), Claim::Module(around)) = (alone, around) else { panic!("groups") };
        alone.name_group(None);
        around.name_group(Some("decoder"));
        assert_eq!(&*alone.get().unwrap().name, "lm_head");
        assert_eq!(&*around.get().unwrap().name, "decoder");
    }

    #[test]
    fn a_model_without_spans_does_not_fill_the_memory() {
        let mut loading = Loading::default();
        for i in 0..MAX_UNOWNED + 10 {
            loading.read(weight(&format!("{i}.weight"), &[1]));
        }
        assert_eq!(
            (loading.unowned.len(), loading.told.iter().map(|(_, told)| told.weights as usize).sum::<usize>()),
            (MAX_UNOWNED, MAX_UNOWNED + 10)
        );
        assert_eq!(told(loading.span(LINEAR, 1)), some(&(MAX_UNOWNED + 9).to_string(), 1));
        for _ in 0..MAX_WAITING + 1 {
            let part = Some("never");
            loading.span(Rule::After { operation: Operation::Linear, part, weights: 1 }, 1);
        }
        assert_eq!(loading.waiting.len(), MAX_WAITING);
    }
}
