//! Which module of a model a span stands for, found out while the model loads.
//!
//! candle's layers make their span beside the place where they load their weights. Whoever loads weights tells their
//! names here ([`loaded`]); the layer of a session asks for the module when one of candle's spans is made. What such a
//! span has to do with the weights read around it differs from callsite to callsite: `rules` has the table.
//!
//! Nothing of this is on the hot path: a span's module is part of its interned name.

mod architecture;
mod candle_version;
mod cost;
mod loading;
mod model_facts;
pub(crate) mod rules;
mod signs;
mod table;
mod watch;

use crate::vocabulary::DType;
use architecture::Architecture;
pub use architecture::{Attention, ConfigUnreadable, Over, Rows};
pub(crate) use candle_version::{note as note_candle_version, seen as seen_candle_version};
pub use candlescope_work::windows::Window;
pub(crate) use cost::{StepWork, activation_width};
use loading::Loading;
use rules::Rule;
use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
pub(crate) use watch::{Claim, Watch};

/// A weight as its loader told it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Weight {
    /// Full name, for example `model.layers.7.mlp.down_proj.weight`.
    pub name: Arc<str>,
    /// Dimensions, outermost first: `[out, in]` of a linear layer.
    pub dims: Box<[usize]>,
    /// Element type in memory.
    pub dtype: DType,
    /// Bytes in memory.
    pub bytes: u64,
}

impl Weight {
    /// Number of elements.
    pub fn elements(&self) -> u64 {
        self.dims.iter().fold(1, |n, &dim| n.saturating_mul(dim as u64))
    }

    /// The module that the weight belongs to: its name without the last part, or all of a name that has one part only.
    pub fn module(&self) -> &str {
        self.name.rsplit_once('.').map_or(&self.name, |(module, _)| module)
    }

    /// Whether a part of a name is the number of a layer or an expert.
    fn is_number(part: &str) -> bool {
        !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit())
    }
}

/// What a module does with its weights, as far as its costs go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Operation {
    /// Multiplies each row by a matrix `[out, in]`.
    Linear,
    /// Looks rows up in a table.
    Embedding,
    /// Normalises each row.
    Norm,
    /// Convolves.
    Convolution,
    /// Consists of other modules.
    Group,
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
pub struct Module {
    /// Its name, for example `model.layers.7.mlp.down_proj`.
    pub name: Arc<str>,
    /// What it does.
    pub operation: Operation,
    /// The weights that the span computes with; none of a group.
    pub weights: Vec<Weight>,
    /// Rows that it computes in a step.
    pub rows: Rows,
    /// What it has to do with attention.
    pub attention: Option<Attention>,
}

impl Module {
    fn group(name: &str) -> Self {
        let operation = Operation::Group;
        Self { name: name.into(), operation, weights: Vec::new(), rows: Rows::Unknown, attention: None }
    }
}

/// The module of a span, where it is known by now: some spans are made before their weights are read, and groups get
/// their name when they run.
#[derive(Debug, Default)]
pub(crate) struct Slot {
    module: OnceLock<Arc<Module>>,
    group: bool,
    /// The module with what became known of its architecture after its span was made.
    described: OnceLock<Arc<Module>>,
    /// What a group stands for in which nothing runs.
    alone: Option<Arc<Module>>,
    /// Whether the taps know.
    told: AtomicBool,
}

impl Slot {
    fn empty() -> Arc<Self> {
        Arc::default()
    }

    fn known(module: Arc<Module>) -> Arc<Self> {
        Arc::new(Self { module: OnceLock::from(module), ..Self::default() })
    }

    fn group(alone: Option<Arc<Module>>) -> Arc<Self> {
        Arc::new(Self { group: true, alone, ..Self::default() })
    }

    pub(crate) fn get(&self) -> Option<&Arc<Module>> {
        self.described.get().or_else(|| self.module.get())
    }

    /// Adds what follows from the architecture, which was recognised after the span was made.
    fn describe(&self, architecture: &Architecture) {
        if let Some(module) = self.module.get().filter(|module| !module.weights.is_empty()) {
            let Module { name, operation, weights, .. } = (**module).clone();
            // Once: an architecture is recognised once.
            let _ = self.described.set(Arc::new(loading::module(architecture, name, operation, weights)));
        }
    }

    /// Whether it is named after what runs inside.
    pub(crate) fn is_group(&self) -> bool {
        self.group
    }

    /// The module, the first time that it is asked for with success.
    pub(crate) fn news(&self) -> Option<&Arc<Module>> {
        self.get().filter(|_| !self.told.swap(true, Ordering::Relaxed))
    }

    fn fill(&self, module: Arc<Module>) {
        // Only one place ever fills a slot; if that should change, the first name stays.
        let _ = self.module.set(module);
    }

    /// What the span is called, or would be as a group of what is inside.
    pub(crate) fn would_be<'a>(&'a self, inside: Option<&'a str>) -> Option<&'a str> {
        match (self.get(), inside, &self.alone) {
            (Some(module), ..) => Some(&module.name),
            (None, Some(inside), _) => Some(inside).filter(|name| self.group && !name.is_empty()),
            (None, None, alone) => alone.as_ref().map(|module| &*module.name),
        }
    }

    /// Names a group that has none after the modules inside: the longest name that all of them are below.
    pub(crate) fn name_group(&self, inside: Option<&str>) {
        if !self.group || self.module.get().is_some() {
            return;
        }
        match (inside, &self.alone) {
            (Some(""), _) | (None, None) => {}
            (Some(name), _) => {
                self.fill(Arc::new(Module::group(name)));
            }
            (None, Some(alone)) => self.fill(alone.clone()),
        }
    }
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

/// The books of all threads that loaded something: a session reads them when it ends.
static BOOKS: Mutex<Vec<Arc<Mutex<Loading>>>> = Mutex::new(Vec::new());

/// Books that are kept of threads that have ended.
const MAX_BOOKS: usize = 1_024;

/// Weights told in this process.
static READS: AtomicU64 = AtomicU64::new(0);

/// Configurations told in this process.
static CONFIGS: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// This thread's, once it has loaded something.
    static LOADING: OnceCell<Arc<Mutex<Loading>>> = const { OnceCell::new() };
}

/// Tells that a weight was loaded, on the thread that goes on to build the layer it belongs to.
///
/// `name` is the weight's full name (`model.layers.7.mlp.down_proj.weight`), `dims` its dimensions, outermost first,
/// `dtype` the element type in memory (`bf16`, `q4k`, …), `bytes` its size in memory. Call it right after the weight
/// was read: candle's layers make their span next, and take the module's name from here. For a `VarBuilder` of candle
/// this is done by `candlescope::observe`.
///
/// ```
/// # use candlescope_core as candlescope;
/// candlescope::modules::loaded("model.layers.0.mlp.up_proj.weight", &[1536, 576], "bf16", 1536 * 576 * 2);
/// ```
pub fn loaded(name: &str, dims: &[usize], dtype: &str, bytes: u64) {
    if watch::nobody() {
        READS.fetch_add(1, Ordering::Relaxed);
        return;
    }
    let dtype = DType::from_word(&dtype.to_ascii_lowercase()).unwrap_or(DType::Other);
    let weight = Weight { name: name.into(), dims: dims.into(), dtype, bytes };
    READS.fetch_add(1, Ordering::Relaxed);
    with_loading(true, |loading| loading.read(weight));
}

/// Tells that this thread goes on to load weights: some of candle's spans are made before the first of them is read.
/// What [`model`] said holds for the weights that come next, and no longer than until this is called after them.
pub fn begin_loading() {
    with_loading(true, Loading::begin);
}

/// Tells which model this thread loads next, by the text of its `config.json`: how many rows its layers compute follows
/// from that, and with it their FLOPs and bytes. Of architectures that are not known nothing follows, and nothing is
/// guessed.
///
/// # Errors
/// When the text is not JSON, or has no `model_type`.
///
/// ```
/// # use candlescope_core as candlescope;
/// candlescope::modules::model(r#"{"model_type": "qwen2", "vocab_size": 151936, "num_attention_heads": 14}"#)?;
/// # Ok::<(), candlescope_core::modules::ConfigUnreadable>(())
/// ```
pub fn model(config: &str) -> Result<(), ConfigUnreadable> {
    let architecture = Architecture::of_config(config)?;
    let facts = model_facts::of_config(config)?;
    with_loading(true, |loading| loading.load_told(architecture, facts));
    CONFIGS.fetch_add(1, Ordering::Relaxed);
    Ok(())
}

/// The same by the name of the architecture, its heads of queries and of keys, and the positions of its window of
/// attention, as a GGUF file has them.
///
/// Without a name nothing is known of it.
pub fn architecture(name: Option<&str>, heads: Option<(u64, u64)>, window: Option<u64>) {
    let architecture = name.map_or_else(Architecture::default, |name| Architecture::named(name, heads, window));
    with_loading(true, |loading| loading.load_told(architecture, BTreeMap::new()));
}

/// What a span that is being made on this thread under a session stands for. `place` is the module of its callsite.
pub(crate) fn claim(rule: Rule, place: Option<&str>, session: u64) -> Claim {
    with_loading(false, |loading| {
        loading.made_in(place);
        loading.span(rule, session)
    })
    .unwrap_or(Claim::Nothing)
}

/// Calls `f` with this thread's book, which is made if there is none and `make` says so.
fn with_loading<R>(make: bool, f: impl FnOnce(&mut Loading) -> R) -> Option<R> {
    let book = LOADING.try_with(|cell| match cell.get() {
        Some(book) => Some(book.clone()),
        None if make => {
            let book = Arc::new(Mutex::new(Loading::default()));
            let mut books = BOOKS.lock().unwrap_or_else(PoisonError::into_inner);
            if books.len() >= MAX_BOOKS {
                // Of threads that have ended, the oldest.
                let ended = books.iter().position(|book| Arc::strong_count(book) == 1);
                ended.map(|at| books.remove(at));
            }
            books.push(book.clone());
            Some(cell.get_or_init(|| book).clone())
        }
        None => None,
    });
    let book = book.ok().flatten()?;
    let mut loading = book.lock().unwrap_or_else(PoisonError::into_inner);
    Some(f(&mut loading))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_before_the_first_weight_waits_for_it() {
        let rule = Rule::After { operation: Operation::Convolution, part: None, weights: 1 };
        // Somebody has to want to know.
        let _watch = Watch::new(1);
        let claimed = std::thread::spawn(move || {
            assert!(matches!(claim(rule, None, 1), Claim::Nothing), "nobody loads anything");
            begin_loading();
            let Claim::Module(slot) = claim(rule, None, 1) else { panic!("it waits for its weights") };
            loaded("conv_in.weight", &[4, 3, 3, 3], "f32", 432);
            slot.get().map(|module| module.name.to_string())
        });
        assert_eq!(claimed.join().unwrap().as_deref(), Some("conv_in"));
    }

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
