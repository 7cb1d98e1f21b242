//! One reading of a run's rows for all who want them: they are decoded once, and each [`Pass`] takes them on a thread of its
//! own.

use candlescope_reader::Batches;
use candlescope_schema::run::Finding;
use candlescope_schema::{Batch, RecordKind};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{Builder, Scope};

/// Takes a run's rows: samples before kernels before stacks before intervals. Steps and requests are known
/// ([`RunContents`](super::known::RunContents))
/// before.
pub trait Pass: Send {
    /// The tables that it takes rows of.
    fn tables(&self) -> &'static [RecordKind];

    /// Columns of a table that it makes nothing of: if no pass does, they come as if they were null.
    fn unread(&self, _table: RecordKind) -> &'static [&'static str] {
        &[]
    }

    /// Rows of one of its tables.
    fn rows(&mut self, batch: &Batch);

    /// All rows of its tables have come. What takes long is best done here, beside passes that still read.
    fn end(&mut self) {}
}

/// What was noticed while a run was opened and its rows were read.
#[derive(Debug)]
#[must_use = "figures of a damaged run are wrong without a word of it"]
pub struct ReadingNotes {
    /// Damage and limits, first those that opening it showed.
    pub findings: Vec<Finding>,
    /// Rows read, by table.
    pub rows: BTreeMap<RecordKind, u64>,
}

/// The rows of a run that were not read yet.
#[derive(Debug)]
pub struct Rows<'r>(Batches<'r>);

/// Tables in the order in which they are read.
const ORDER: [RecordKind; 5] =
    [RecordKind::Sample, RecordKind::Kernel, RecordKind::Stack, RecordKind::StackSample, RecordKind::Span];

/// Batches that a pass may be behind: enough that none waits for each, few enough that the long texts of a crafted run do
/// not add up.
const BEHIND: usize = 2;

impl<'r> Rows<'r> {
    pub(super) fn new(batches: Batches<'r>) -> Self {
        Self(batches)
    }

    /// Gives the rows to all passes: this thread decodes, so that what it needs for that comes from the memory that opening
    /// the run has given back.
    pub fn to(self, passes: &mut [&mut dyn Pass]) -> ReadingNotes {
        let tables: Vec<RecordKind> =
            ORDER.into_iter().filter(|table| passes.iter().any(|pass| pass.tables().contains(table))).collect();
        let mut batches = self.0.of_tables(&tables);
        for table in tables {
            let mut readers = passes.iter().filter(|pass| pass.tables().contains(&table));
            let mut unread = readers.next().map_or(Vec::new(), |pass| pass.unread(table).to_vec());
            readers.for_each(|pass| unread.retain(|column| pass.unread(table).contains(column)));
            batches = batches.without(table, unread);
        }
        std::thread::scope(|threads| {
            let (mut here, mut outlets) = (Vec::new(), Vec::new());
            for pass in passes.iter_mut() {
                let (to, rows) = sync_channel(BEHIND);
                let outlet = Outlet { tables: pass.tables(), to };
                match beside(threads, pass, rows) {
                    None => outlets.push(outlet),
                    // Where the system gives no more threads: one after the other.
                    Some(pass) => here.push(pass),
                }
            }
            decode(&mut batches, outlets, |table, batch| {
                here.iter_mut().filter(|pass| pass.tables().contains(&table)).for_each(|pass| pass.rows(batch));
            });
            here.iter_mut().for_each(|pass| pass.end());
        });
        ReadingNotes {
            rows: RecordKind::ALL.into_iter().map(|table| (table, batches.records(table))).collect(),
            findings: batches.findings(),
        }
    }
}

/// Where the rows of a pass go that works on another thread.
struct Outlet {
    tables: &'static [RecordKind],
    to: SyncSender<Arc<Batch>>,
}

/// Decodes all rows and sends them to those who take them; the others get them `here`.
fn decode(batches: &mut Batches<'_>, mut outlets: Vec<Outlet>, mut here: impl FnMut(RecordKind, &Batch)) {
    let place = |table| ORDER.iter().position(|one| *one == table);
    let mut sent = VecDeque::new();
    for batch in batches {
        let (table, batch) = (table_of(&batch), Arc::new(batch));
        // Who has all rows goes on to its end.
        outlets.retain(|outlet| outlet.tables.iter().any(|own| place(*own) >= place(table)));
        for outlet in outlets.iter().filter(|outlet| outlet.tables.contains(&table)) {
            // A pass whose thread has ended takes none.
            let _ = outlet.to.send(batch.clone());
        }
        here(table, &batch);
        // Let go where it was made: the counters of its names stay in this core's cache, and memory in one arena.
        sent.push_back(batch);
        if sent.len() > BEHIND + 1 {
            sent.pop_front();
        }
    }
}

/// The table of a batch; each has rows of one.
fn table_of(batch: &Batch) -> RecordKind {
    ORDER.into_iter().find(|table| batch.count(*table) > 0).unwrap_or(RecordKind::Span)
}

/// Gives these rows to the pass on another thread; gives the pass back if the system gives no thread.
fn beside<'s, 'p: 's>(
    threads: &'s Scope<'s, '_>,
    pass: &'s mut &'p mut dyn Pass,
    rows: Receiver<Arc<Batch>>,
) -> Option<&'s mut &'p mut dyn Pass> {
    let (give, given) = sync_channel::<&'s mut &'p mut dyn Pass>(1);
    let thread = Builder::new().name("cs-pass".into()).spawn_scoped(threads, move || {
        if let Ok(pass) = given.recv() {
            rows.iter().for_each(|batch| pass.rows(&batch));
            pass.end();
        }
    });
    match thread {
        Ok(_) => give.send(pass).err().map(|refused| refused.0),
        Err(_) => Some(pass),
    }
}
