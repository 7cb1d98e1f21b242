//! What a session knows of the models that were loaded while it lived.

use super::books::{BOOKS, LIVING, READS, told};
use super::loading::{Claim, Loading};
use super::model_facts::Facts;
use super::{AttentionScope, Rows, Slot};
use crate::names::NameInfo;
use crate::run::LoadedModel;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Modules that get their name when they run, of one session: each takes a number of its own, and a program that loads
/// models again and again must not run out of them.
const MAX_LATE: u64 = 16_384;

/// What one session knows of modules: which spans had none, and the model's facts.
#[derive(Debug)]
pub(crate) struct Watch {
    session: u64,
    /// Weights that had been told when it began.
    before: u64,
    missing: Mutex<SpansWithoutModule>,
    facts: Mutex<NotedModel>,
    /// Modules that get their name when they run.
    late: AtomicU64,
    /// How many spans multiply by weights that nobody has told.
    lacking: AtomicU64,
}

impl Drop for Watch {
    fn drop(&mut self) {
        LIVING.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Spans without a module, by name.
#[derive(Debug, Default)]
struct SpansWithoutModule {
    unnamed: BTreeMap<&'static str, u64>,
    unknown: BTreeMap<&'static str, u64>,
    /// Those of the unnamed that multiply by weights.
    lacking: BTreeSet<&'static str>,
}

/// What a session's manifest has of the model.
#[derive(Debug, Default)]
struct NotedModel {
    /// What had been told when somebody looked last.
    seen: u64,
    /// That of which the facts are.
    reads: u64,
    facts: Facts,
}

impl Watch {
    pub(crate) fn new(session: u64) -> Self {
        LIVING.fetch_add(1, Ordering::Relaxed);
        let before = READS.load(Ordering::Relaxed);
        let facts = Mutex::new(NotedModel { reads: told(), ..NotedModel::default() });
        Self { session, before, missing: Mutex::default(), facts, late: AtomicU64::new(0), lacking: AtomicU64::new(0) }
    }

    /// Facts of the model that was loaded, and those of it that were handed out before, if there are new ones. While
    /// weights are being read there are none, unless it is `urgent`.
    pub(crate) fn model_news(&self, urgent: bool) -> Option<(Facts, Facts)> {
        let reads = told();
        let mut noted = self.facts.lock().unwrap_or_else(PoisonError::into_inner);
        if reads == noted.reads {
            return None;
        }
        if reads != noted.seen && !urgent {
            noted.seen = reads;
            return None;
        }
        noted.reads = reads;
        let facts = self.model_facts().filter(|facts| *facts != noted.facts)?;
        let before = std::mem::replace(&mut noted.facts, facts.clone());
        Some((facts, before))
    }

    /// Of the largest model that was loaded; the first of several copies.
    fn model_facts(&self) -> Option<Facts> {
        let books = BOOKS.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let largest = |session: u64| {
            let mut found: Option<(u64, Facts)> = None;
            for book in &books {
                let book = book.lock().unwrap_or_else(PoisonError::into_inner);
                let Some((facts, size, recognised)) = book.model(session) else { continue };
                if found.as_ref().is_none_or(|(bytes, _)| *bytes < size.bytes()) {
                    found = Some((size.bytes(), size.with(facts, recognised)));
                }
            }
            found.map(|(_, facts)| facts)
        };
        // A model without spans is of the session that goes on, if there is only one.
        largest(self.session).or_else(|| (LIVING.load(Ordering::Relaxed) == 1).then(|| largest(0)).flatten())
    }

    /// Keeps account of a span, and hands out its module.
    pub(crate) fn note(&self, name: &'static str, claim: Claim) -> Option<Arc<Slot>> {
        let lacks_work = match &claim {
            Claim::Missing(Some(operation)) => operation.multiplies(),
            // Of products of matrices whose weights were read long before only the name is left.
            Claim::Missing(None) => name.contains("matmul"),
            _ => false,
        };
        let which: fn(&mut SpansWithoutModule) -> &mut BTreeMap<&'static str, u64> = match claim {
            Claim::Module(slot) if slot.get().is_some() => return Some(slot),
            Claim::Module(slot) if self.late.fetch_add(1, Ordering::Relaxed) < MAX_LATE => return Some(slot),
            Claim::Module(_) => |missing| &mut missing.unnamed,
            Claim::Nothing => return None,
            Claim::Missing(_) => |missing| &mut missing.unnamed,
            Claim::Unknown => |missing| &mut missing.unknown,
        };
        let mut missing = self.missing.lock().unwrap_or_else(PoisonError::into_inner);
        if lacks_work {
            missing.lacking.insert(name);
            self.lacking.fetch_add(1, Ordering::Relaxed);
        }
        *which(&mut missing).entry(name).or_default() += 1;
        None
    }

    /// Names of spans that multiply by weights which nobody has told, if there are more of them than `known`, with how many.
    pub(crate) fn lacking(&self, known: u64) -> Option<(u64, Vec<&'static str>)> {
        let now = self.lacking.load(Ordering::Relaxed);
        let names = || self.missing.lock().unwrap_or_else(PoisonError::into_inner).lacking.iter().copied().collect();
        (now != known).then(|| (now, names()))
    }

    /// What there is to tell, if anything: `names` are all of the session.
    pub(crate) fn summary(&self, names: &[Arc<NameInfo>]) -> Option<LoadedModel> {
        let mut model = LoadedModel::default();
        model.weights_before = self.before;
        {
            let missing = self.missing.lock().unwrap_or_else(PoisonError::into_inner);
            let owned =
                |names: &BTreeMap<&'static str, u64>| names.iter().map(|(k, n)| ((*k).to_owned(), *n)).collect();
            (model.unnamed, model.unknown_callsites) = (owned(&missing.unnamed), owned(&missing.unknown));
        }
        modules(names, &mut model);
        let books = BOOKS.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut unowned: Vec<(u64, String)> = Vec::new();
        for book in &books {
            let book = book.lock().unwrap_or_else(PoisonError::into_inner);
            read(&book, self.session, &mut model, &mut unowned);
        }
        // Of a model without spans nobody knows which session it is of.
        if model.weights == 0 && READS.load(Ordering::Relaxed) > self.before {
            for book in &books {
                read(&book.lock().unwrap_or_else(PoisonError::into_inner), 0, &mut model, &mut unowned);
            }
        }
        unowned.sort_by(|a, b| b.0.cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
        unowned.truncate(LoadedModel::MOST_NAMED);
        model.unowned = unowned.into_iter().map(|(_, name)| name).collect();
        Some(model).filter(|model| !model.is_empty())
    }
}

/// Adds what a thread read for a session.
fn read(book: &Loading, session: u64, model: &mut LoadedModel, unowned: &mut Vec<(u64, String)>) {
    for (_, told) in book.told.iter().filter(|(of, _)| book.is_of(*of, session)) {
        model.weights += told.weights;
        model.bytes = model.bytes.saturating_add(told.bytes);
    }
    for (_, weight) in book.unowned.iter().chain(&book.left).filter(|(of, _)| book.is_of(*of, session)) {
        model.unowned_weights += 1;
        model.unowned_bytes = model.unowned_bytes.saturating_add(weight.bytes);
        unowned.push((weight.bytes, weight.name.to_string()));
    }
    if let Some((_, name)) = book.recognised.filter(|(of, _)| book.is_of(*of, session)) {
        model.recognised.get_or_insert_with(|| name.to_owned());
    }
    let told = book.contradictions.iter().filter(|(of, _)| *of == session);
    model.contradictions.extend(told.map(|(_, words)| words.clone()));
}

/// The modules among the names, and the weights that several of them compute with.
fn modules(names: &[Arc<NameInfo>], model: &mut LoadedModel) {
    let mut users: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    let mut distinct = BTreeSet::new();
    for (name, slot) in names.iter().filter_map(|name| Some((name, name.module.as_ref()?))) {
        let Some(module) = slot.get() else {
            // A group without parts has nothing to be named after; anything else waited for weights in vain.
            if !slot.is_group() {
                *model.unnamed.entry(name.name.to_string()).or_default() += 1;
            }
            continue;
        };
        if distinct.insert(&**module) {
            model.modules += 1;
            model.rows_unknown += u64::from(!module.weights.is_empty() && module.rows == Rows::Unknown);
            model.windows_unknown += u64::from(module.attention.is_some_and(|it| it.over == AttentionScope::Unknown));
        }
        for weight in &module.weights {
            users.entry(&weight.name).or_default().insert(&module.name);
        }
    }
    let several = users.iter().filter(|(_, modules)| modules.len() > 1);
    model.shared = several.take(LoadedModel::MOST_NAMED).map(|(weight, _)| (*weight).to_owned()).collect();
}
