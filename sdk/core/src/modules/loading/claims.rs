//! Which of the weights that were read are a span's, and which table is a head's.

use super::{GGUF_EMBEDDING, Loading, MAX_CONTRADICTIONS, TIED_HEAD, last_part};
use crate::modules::{Module, Operation, Weight};
use std::sync::Arc;

impl Loading {
    /// The weights of one module that were read last, if they were read after the last span was made.
    pub(super) fn just_read(&mut self, operation: Operation) -> Option<Module> {
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
        Some(self.architecture.module(own_or_head(&name, operation), operation, weights))
    }

    /// What a layer that was handed tensors is made of: what was read just now, if it has their shape; otherwise, of a
    /// linear layer, the table of all words, which makes it the tied head, and of an embedding the one table of its shape.
    pub(super) fn made_of(&mut self, operation: Operation, matrix: Option<[usize; 2]>) -> Option<Module> {
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
        match operation {
            Operation::Linear => {
                let table = self.table_of_words().filter(|table| is_given(table))?.clone();
                self.check_head(&table);
                Some(self.architecture.module(TIED_HEAD.into(), operation, vec![table]))
            }
            Operation::Embedding => {
                let unowned = self.unowned.iter().map(|(_, weight)| weight);
                let tables = || self.tables.iter().chain(unowned.clone()).filter(is_given).rev();
                let of_gguf = |weight: &&Weight| weight.module() == GGUF_EMBEDDING;
                let table = only(tables()).or_else(|| only(tables().filter(of_gguf)))?.clone();
                // It stays where it is: another layer may be made of it yet.
                self.tables.push(table.clone());
                Some(self.architecture.module(table.module().into(), operation, vec![table]))
            }
            _ => None,
        }
    }

    /// The embedding of all words, of those embeddings that were made: the one with as many rows as the configuration
    /// has words, or, where it fits none or there is none, the one with the most rows.
    fn table_of_words(&self) -> Option<&Weight> {
        let rows = |weight: &&Weight| weight.dims.first().copied();
        let tables = || self.tables.iter().rev();
        let of_all_words = |weight: &&Weight| rows(weight) == self.architecture.vocabulary;
        let most = tables().filter_map(|weight| rows(&weight)).max();
        let known = self.architecture.vocabulary.and_then(|_| tables().find(of_all_words));
        let words = known.map_or(most, |table| rows(&table));
        only(tables().filter(|weight| rows(weight) == words))
    }

    fn fresh(&self) -> impl DoubleEndedIterator<Item = &Weight> {
        self.unowned.range(self.unowned.len() - self.fresh..).map(|(_, weight)| weight)
    }

    /// The oldest weight that is left, of the first pattern that fits any.
    pub(super) fn oldest(&mut self, operation: Operation, patterns: &[&str]) -> Option<Module> {
        let at = patterns.iter().find_map(|pattern| {
            self.unowned.iter().position(|(_, weight)| fits(pattern, below_block(weight.module())) && is_weight(weight))
        })?;
        let (_, weight) = self.unowned.remove(at)?;
        if weight.dims.len() == 2 && last_part(weight.module()) == GGUF_EMBEDDING {
            self.tables.push(weight.clone());
        }
        Some(self.architecture.module(own_or_head(weight.module(), operation), operation, vec![weight]))
    }

    /// Whether it is a matrix for rows of the model's width, as far as that is known.
    fn is_as_wide(&self, weight: &Weight) -> bool {
        matches!(*weight.dims, [_, width] if self.width.is_none_or(|model| model == width))
    }

    /// A head with a table of its own, handed over as a tensor: the one matrix that was read just now, where the
    /// embedding is another of its size.
    pub(super) fn own_table(&self, operation: Operation) -> Option<Module> {
        let mut just_read = self.fresh().filter(|weight| self.is_as_wide(weight));
        let (table, None) = (just_read.next()?, just_read.next()) else { return None };
        let is_second = self.tables.iter().any(|other| other.dims == table.dims && other.name != table.name);
        let own = || self.architecture.module(table.module().into(), operation, vec![table.clone()]);
        (operation == Operation::Linear && is_second).then(own)
    }

    pub(super) fn head(&mut self, operation: Operation) -> Option<Module> {
        let head = self.tied(operation)?;
        head.weights.iter().for_each(|weight| self.check_head(weight));
        Some(head)
    }

    /// The head that shares the one table that is as wide as the model; `None` where none is, or several are.
    pub(super) fn tied(&self, operation: Operation) -> Option<Module> {
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
        Some(self.architecture.module(TIED_HEAD.into(), operation, vec![table.clone()]))
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

/// The name of a module in a GGUF file: one that multiplies by the embedding is the head.
fn own_or_head(module: &str, operation: Operation) -> Arc<str> {
    if operation == Operation::Linear && module == GGUF_EMBEDDING { TIED_HEAD } else { module }.into()
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
