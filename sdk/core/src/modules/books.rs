//! What the threads of this process loaded: a book for each of them, which sessions read.

use super::architecture::Architecture;
use super::hf_config::ConfigUnreadable;
use super::loading::{Claim, Loading};
use super::model_facts::{Facts, of_config};
use super::module::Weight;
use super::rules::Rule;
use crate::vocabulary::DType;
use std::cell::OnceCell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// The books of all threads that loaded something: a session reads them when it ends.
pub(super) static BOOKS: Mutex<Vec<Arc<Mutex<Loading>>>> = Mutex::new(Vec::new());

/// Books that are kept of threads that have ended.
const MAX_BOOKS: usize = 1_024;

/// Weights told in this process.
pub(super) static READS: AtomicU64 = AtomicU64::new(0);

/// Configurations told in this process.
static CONFIGS: AtomicU64 = AtomicU64::new(0);

/// Sessions that live: without one, nobody wants to know of weights.
pub(super) static LIVING: AtomicU64 = AtomicU64::new(0);

/// How much was told in this process: weights and configurations.
pub(super) fn told() -> u64 {
    READS.load(Ordering::Relaxed).wrapping_add(CONFIGS.load(Ordering::Relaxed))
}

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
    if LIVING.load(Ordering::Relaxed) == 0 {
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
    let facts = of_config(config)?;
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
    with_loading(true, |loading| loading.load_told(architecture, Facts::new()));
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
    use super::super::{Operation, Watch};
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
}
