//! Names of addresses, on a thread of its own: the first name of a large binary takes half a second, and buffers are to be
//! emptied meanwhile.

use super::binary_file::BinaryFile;
use super::function_name::{crate_of_file, name_and_crate};
use super::stack_walk::{BinaryIndex, CodeAddress};
use super::sys;
use addr2line::Loader;
use rustc_hash::FxHashMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::time::Instant;

/// One function at an address: the one that holds it, or one that was inlined there.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct FunctionFrame {
    pub(super) function: Option<Arc<str>>,
    pub(super) crate_name: Option<Arc<str>>,
    pub(super) file: Option<Arc<str>>,
    pub(super) line: Option<u32>,
}

/// The functions at an address, outermost first: the others were inlined. Never empty.
pub(super) type Functions = Arc<[FunctionFrame]>;

struct Question {
    at: CodeAddress,
    binary: BinaryIndex,
    file: Arc<BinaryFile>,
}

/// The thread `cs-symbols`. Answers come in the order of the questions.
pub(super) struct SymbolThread {
    questions: Sender<Question>,
    answers: Receiver<(CodeAddress, Functions)>,
}

impl SymbolThread {
    pub(super) fn start() -> std::io::Result<Self> {
        let (questions, to_answer) = channel::<Question>();
        let (answered, answers) = channel();
        std::thread::Builder::new().name("cs-symbols".into()).spawn(move || {
            sys::be_nice();
            let mut books = SymbolBooks::default();
            while let Ok(question) = to_answer.recv() {
                // Ends when nobody waits for the answer any more.
                if answered.send((question.at, books.functions(&question))).is_err() {
                    break;
                }
            }
        })?;
        Ok(Self { questions, answers })
    }

    /// One whose answers a test gives.
    #[cfg(test)]
    pub(super) fn by_hand() -> (Self, Sender<(CodeAddress, Functions)>) {
        let (questions, to_answer) = channel();
        let (answer, answers) = channel();
        // Questions are taken, and never answered.
        std::mem::forget(to_answer);
        (Self { questions, answers }, answer)
    }

    /// Asks for the functions at an address. False if the thread has ended.
    pub(super) fn ask(&self, at: CodeAddress, binary: BinaryIndex, file: Arc<BinaryFile>) -> bool {
        self.questions.send(Question { at, binary, file }).is_ok()
    }

    /// An answer, if there is one. An error if there will not be any more.
    pub(super) fn answer(&self) -> Result<Option<(CodeAddress, Functions)>, ()> {
        match self.answers.try_recv() {
            Ok(answer) => Ok(Some(answer)),
            Err(TryRecvError::Empty) => Ok(None),
            Err(TryRecvError::Disconnected) => Err(()),
        }
    }

    /// An answer, once there is one before `until`.
    pub(super) fn wait_for_answer(&self, until: Instant) -> Option<(CodeAddress, Functions)> {
        self.answers.recv_timeout(until.saturating_duration_since(Instant::now())).ok()
    }
}

/// Names that were read.
#[derive(Default)]
struct SymbolBooks {
    /// `None` for a file that cannot be read.
    loaders: FxHashMap<BinaryIndex, Option<Loader>>,
    /// A word that many functions share is kept once.
    words: FxHashMap<String, Arc<str>>,
    /// By symbol: demangling costs more than the rest.
    names: FxHashMap<String, (Arc<str>, Option<Arc<str>>)>,
}

impl SymbolBooks {
    fn functions(&mut self, question: &Question) -> Functions {
        let open = || Loader::new(question.file.path()?).ok();
        let loader = self.loaders.entry(question.binary).or_insert_with(open).take();
        let mut functions = self.by_debug_information(loader.as_ref(), question.at.address);
        // The table of symbols has the whole path of the function that is not inlined, where the debug information often has
        // its last word.
        let symbol = loader.as_ref().and_then(|l| l.find_symbol(question.at.address));
        if let Some(symbol) = symbol.or_else(|| question.file.symbol(question.at.address)) {
            (functions[0].function, functions[0].crate_name) = self.named(symbol);
        }
        self.loaders.insert(question.binary, loader);
        functions.into()
    }

    /// Functions as the debug information has them; one without a name where there is none.
    fn by_debug_information(&mut self, loader: Option<&Loader>, address: u64) -> Vec<FunctionFrame> {
        let mut functions = Vec::new();
        if let Some(Ok(mut frames)) = loader.map(|loader| loader.find_frames(address)) {
            while let Ok(Some(frame)) = frames.next() {
                let (file, line) = frame.location.map_or((None, None), |l| (l.file, l.line));
                let symbol = frame.function.as_ref().and_then(|f| Some(f.raw_name().ok()?.into_owned()));
                let (function, mut crate_name) = symbol.map_or((None, None), |symbol| self.named(&symbol));
                if crate_name.is_none() {
                    crate_name = file.and_then(crate_of_file).map(|name| self.word(&name));
                }
                functions.push(FunctionFrame { function, crate_name, file: file.map(|f| self.word(f)), line });
            }
        }
        functions.reverse();
        if functions.is_empty() {
            functions.push(FunctionFrame::default());
        }
        functions
    }

    fn named(&mut self, symbol: &str) -> (Option<Arc<str>>, Option<Arc<str>>) {
        if let Some((name, of_crate)) = self.names.get(symbol) {
            return (Some(Arc::clone(name)), of_crate.clone());
        }
        let (name, of_crate) = name_and_crate(symbol);
        let of_crate = of_crate.map(|c| self.word(&c));
        let name: Arc<str> = name.into();
        self.names.insert(symbol.to_string(), (Arc::clone(&name), of_crate.clone()));
        (Some(name), of_crate)
    }

    fn word(&mut self, word: &str) -> Arc<str> {
        if let Some(known) = self.words.get(word) {
            return Arc::clone(known);
        }
        let kept: Arc<str> = word.into();
        self.words.insert(word.to_string(), Arc::clone(&kept));
        kept
    }
}
