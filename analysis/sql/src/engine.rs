//! The engine: DataFusion, held to the limits of a query.

use super::archived_runs::{ArchivedRuns, SharedRuns};
use super::damage::Damage;
use super::facts;
use super::files::{Files, TableFile};
use super::functions;
use super::listing;
use super::parse;
use super::place::{Archive, ArchiveState, LocatedFile, Store};
use super::query_error::{EachError, QueryError, failed, wrong};
use super::source::{DIR, Sources};
use super::value::{Answer, SqlValue, distinct};
use super::views::{self, ARCHIVED, COLUMNS, Part, RESULTS, RUN, RUNS, SERVED, VIEWS};
use candlescope_reader::ARCHIVE_INDEX;
use candlescope_reader::limits::{Limit, ReadLimits};
use candlescope_schema::RecordKind;
use candlescope_schema::study_files::RESULTS_FILE;
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::{DataType, Field};
use datafusion::common::DataFusionError;
use datafusion::datasource::MemTable;
use datafusion::execution::SessionStateBuilder;
use datafusion::execution::disk_manager::DiskManagerBuilder;
use datafusion::execution::memory_pool::{FairSpillPool, MemoryConsumer, MemoryPool, MemoryReservation};
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::physical_plan::{ExecutionPlan, execute_stream};
use datafusion::prelude::{SQLOptions, SessionConfig, SessionContext};
use futures_util::StreamExt;
use object_store::ObjectMeta;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// What a row of an answer takes besides its values: the list of them, its place in the answer, and room for that to
/// grow.
const BYTES_OF_A_ROW: usize = 64;
/// How often rows that were read are held against their limit.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// How often files are listed again that were moved between the listing and the reading.
const LISTED_AGAIN: u32 = 3;
/// How long a change of an archive is waited for, once it is decided.
const SETTLES: Duration = Duration::from_millis(500);
/// Stack of a thread that plans and runs queries. The longest query is as deep, and memory is only taken where it is used.
const STACK: usize = 128 << 20;

/// Takes rows as they come.
trait Sink: Send {
    /// The names of the columns, before any row, and where memory is counted.
    fn begin(&mut self, columns: Vec<String>, pool: &Arc<dyn MemoryPool>);
    /// Some rows; whether more are wanted.
    fn take(&mut self, rows: RecordBatch, limits: &ReadLimits) -> Result<bool, QueryError>;
}

/// How a question is asked: otherwise, once it came out that this one cannot answer it.
#[derive(Debug, Default)]
struct QueryWay {
    damage: Arc<Damage>,
    /// Whether both sides of a join are sorted, which puts aside on disk what memory does not hold; a table of hashes
    /// cannot.
    sorts_joins: bool,
    /// Whether memory did not hold one that has such a table.
    is_too_large: AtomicBool,
}

/// The time that a question may take, whatever is tried to answer it.
struct TimeLeft {
    began: Instant,
    allowed: Duration,
}

impl TimeLeft {
    fn of(limits: &ReadLimits) -> Self {
        Self { began: Instant::now(), allowed: Duration::from_secs(limits.get(Limit::QuerySeconds)) }
    }

    fn get(&self) -> Duration {
        self.allowed.saturating_sub(self.began.elapsed())
    }
}

/// Asks `sql`, on threads of its own: the caller's may belong to a runtime.
pub(super) fn ask(sql: &str, sources: &Sources, limits: &ReadLimits, limit: usize) -> Result<Answer, QueryError> {
    let time = TimeLeft::of(limits);
    let attempt = |way: &QueryWay| -> Result<Answer, QueryError> {
        let mut collected = CollectedAnswer { answer: Answer::default(), limit, held: None };
        let read = attempt(sql, sources, limits, &time, way, &mut collected)?;
        let mut answer = collected.answer;
        answer.findings = way.damage.findings();
        answer.findings.extend(sources.damage(|table| read.contains(table)).cloned());
        Ok(answer)
    };
    let mut before = sources.archive_states();
    let (mut way, mut listed_again) = (QueryWay::default(), 0);
    loop {
        let found = attempt(&way);
        let is_unreadable = matches!(&found, Err(QueryError::Unreadable(_) | QueryError::Ended(_)));
        let now = sources.archive_states();
        let has_moved = way.damage.has_moved() || is_unreadable && now != before;
        match found {
            // An archiver moved or replaced what had been listed: what is there now is listed, and asked.
            _ if has_moved && listed_again < LISTED_AGAIN => {
                if listed_again == 0 {
                    settle(sources, &time);
                }
                listed_again += 1;
                before = now;
                let is_last = listed_again == LISTED_AGAIN;
                way.damage = Arc::new(if is_last { Damage::of_last_try() } else { Damage::default() });
            }
            Err(QueryError::Limit(_)) if way.is_too_large.load(Ordering::Relaxed) && !way.sorts_joins => {
                way.sorts_joins = true;
            }
            // A page may be damaged. It is found, left out, and what is left is asked again.
            Err(_) if is_unreadable && way.damage.look(limits, &|| !time.get().is_zero()) => {}
            found => return found,
        }
    }
}

/// Waits until nobody changes an archive: what is decided is done soon, unless whoever does it was stopped.
fn settle(sources: &Sources, time: &TimeLeft) {
    let until = Instant::now() + SETTLES.min(time.get());
    while sources.changing_archives().next().is_some() && Instant::now() < until {
        std::thread::sleep(SETTLES / 50);
    }
}

/// The same with rows given away as they come. Damage ends it.
pub(super) fn each<E: Send>(
    sql: &str,
    sources: &Sources,
    limits: &ReadLimits,
    take: &mut (dyn FnMut(RecordBatch) -> Result<(), E> + Send),
) -> Result<(), EachError<E>> {
    let way = QueryWay { damage: Arc::new(Damage::of_last_try()), ..QueryWay::default() };
    let mut given = RowReceiver { take, error: None };
    let done = attempt(sql, sources, limits, &TimeLeft::of(limits), &way, &mut given);
    if let Some(error) = given.error {
        return Err(EachError::Taken(error));
    }
    done.map_err(EachError::Query)?;
    match way.damage.findings().first() {
        Some(finding) => Err(EachError::Query(QueryError::Unreadable(finding.message()))),
        None => Ok(()),
    }
}

/// An answer that grows.
struct CollectedAnswer {
    answer: Answer,
    limit: usize,
    held: Option<MemoryReservation>,
}

impl Sink for CollectedAnswer {
    fn begin(&mut self, columns: Vec<String>, pool: &Arc<dyn MemoryPool>) {
        self.answer.columns = distinct(columns);
        self.held = Some(MemoryConsumer::new("answer").register(pool));
    }

    fn take(&mut self, rows: RecordBatch, limits: &ReadLimits) -> Result<bool, QueryError> {
        let room = if self.limit == 0 { rows.num_rows() } else { self.limit - self.answer.rows.len() };
        self.answer.truncated = rows.num_rows() > room;
        for row in SqlValue::rows(&rows.slice(0, room.min(rows.num_rows()))) {
            let row = row.map_err(|error| failed(error.into(), limits))?;
            let bytes = row.iter().map(SqlValue::held).sum::<usize>() + BYTES_OF_A_ROW;
            if let Some(held) = &self.held {
                held.try_grow(bytes).map_err(|error| failed(error, limits))?;
            }
            self.answer.rows.push(row);
        }
        Ok(!self.answer.truncated)
    }
}

/// Rows that are given away.
struct RowReceiver<'a, E> {
    take: &'a mut (dyn FnMut(RecordBatch) -> Result<(), E> + Send),
    error: Option<E>,
}

impl<E: Send> Sink for RowReceiver<'_, E> {
    fn begin(&mut self, _: Vec<String>, _: &Arc<dyn MemoryPool>) {}

    fn take(&mut self, rows: RecordBatch, _: &ReadLimits) -> Result<bool, QueryError> {
        self.error = (self.take)(rows).err();
        Ok(self.error.is_none())
    }
}

/// Asks once; the tables and views that were named, and those that they stand on.
fn attempt(
    sql: &str,
    sources: &Sources,
    limits: &ReadLimits,
    time: &TimeLeft,
    way: &QueryWay,
    sink: &mut dyn Sink,
) -> Result<BTreeSet<String>, QueryError> {
    std::thread::scope(|scope| {
        let run = || {
            let threads = std::thread::available_parallelism().map_or(1, usize::from);
            let runtime = tokio::runtime::Builder::new_multi_thread()
                .worker_threads(threads)
                .thread_stack_size(STACK)
                .thread_name("cs-query")
                .enable_all()
                .build()
                .map_err(|why| QueryError::Ended(why.to_string()))?;
            let question = Question { sources, limits, way, damage: &way.damage, threads };
            let named = runtime.block_on(async {
                match tokio::time::timeout(time.get(), question.ask(sql, sink)).await {
                    Ok(named) => named,
                    Err(_) => Err(QueryError::Limit(limits.reached(Limit::QuerySeconds))),
                }
            });
            // What does not end by itself is left to end with the process.
            runtime.shutdown_background();
            named
        };
        let thread = std::thread::Builder::new().name("cs-query".into()).stack_size(STACK).spawn_scoped(scope, run);
        let thread = thread.map_err(|why| QueryError::Ended(why.to_string()))?;
        thread.join().unwrap_or_else(|_| Err(QueryError::Ended("it panicked".to_string())))
    })
}

struct Question<'a> {
    sources: &'a Sources,
    limits: &'a ReadLimits,
    way: &'a QueryWay,
    damage: &'a Arc<Damage>,
    threads: usize,
}

impl Question<'_> {
    async fn ask(&self, sql: &str, sink: &mut dyn Sink) -> Result<BTreeSet<String>, QueryError> {
        let statement = parse::statement(sql)?;
        let (context, pool) = self.context()?;
        functions::register(&context).map_err(QueryError::Engine)?;
        let named = parse::tables(&statement, &context.state())?;
        let before = self.sources.archive_states();
        let read = self.register(&context, &named).await?;
        self.check_listed(&before)?;
        let plan = context.state().statement_to_plan(statement).await.map_err(wrong)?;
        let only_asks = SQLOptions::new().with_allow_ddl(false).with_allow_dml(false).with_allow_statements(false);
        only_asks.verify_plan(&plan).map_err(wrong)?;
        sink.begin(plan.schema().fields().iter().map(|field| field.name().clone()).collect(), &pool);
        let found = context.execute_logical_plan(plan).await.map_err(wrong)?;
        let tasks = Arc::new(found.task_ctx());
        let physical = found.create_physical_plan().await.map_err(|error| failed(error, self.limits))?;
        let mut rows = execute_stream(Arc::clone(&physical), tasks).map_err(|error| failed(error, self.limits))?;
        let mut clock = tokio::time::interval(LOOK_EVERY);
        loop {
            let next = tokio::select! {
                next = rows.next() => next,
                _ = clock.tick() => {
                    self.check_rows(&physical)?;
                    continue;
                }
            };
            let Some(batch) = next else { break };
            if !sink.take(batch.map_err(|error| self.failed(error, &physical))?, self.limits)? {
                break;
            }
        }
        self.check_rows(&physical)?;
        Ok(read)
    }

    /// Whether what was listed is there, and all that archives have. If somebody changed one meanwhile it is listed
    /// again, and told of if that is of no use.
    fn check_listed(&self, before: &[ArchiveState]) -> Result<(), QueryError> {
        let now = self.sources.archive_states();
        let states = self.sources.archives.iter().zip(before.iter().zip(&now));
        for (archive, _) in states.filter(|(_, (before, now))| before != now || now.is_changing) {
            if self.damage.is_last_try() {
                self.damage.unsettled(&archive.name);
            } else {
                self.damage.note_moved();
            }
        }
        match self.damage.has_moved() {
            true => Err(QueryError::Ended("files were moved while they were listed".to_string())),
            false => Ok(()),
        }
    }

    /// Why the rows of a plan did not come.
    fn failed(&self, error: DataFusionError, plan: &Arc<dyn ExecutionPlan>) -> QueryError {
        fn has_hash_join(plan: &Arc<dyn ExecutionPlan>) -> bool {
            plan.name() == "HashJoinExec" || plan.children().into_iter().any(has_hash_join)
        }
        if matches!(error.find_root(), DataFusionError::ResourcesExhausted(_)) && has_hash_join(plan) {
            self.way.is_too_large.store(true, Ordering::Relaxed);
        }
        failed(error, self.limits)
    }

    fn context(&self) -> Result<(SessionContext, Arc<dyn MemoryPool>), QueryError> {
        let bytes = usize::try_from(self.limits.get(Limit::QueryBytes)).unwrap_or(usize::MAX);
        let pool: Arc<dyn MemoryPool> = Arc::new(FairSpillPool::new(bytes));
        let disk = DiskManagerBuilder::default().with_max_temp_directory_size(self.limits.get(Limit::QuerySpill));
        let runtime = RuntimeEnvBuilder::new().with_memory_pool(Arc::clone(&pool)).with_disk_manager_builder(disk);
        let runtime = runtime.build_arc().map_err(QueryError::Engine)?;
        // Sides of a join are only sorted where there are several partitions.
        let partitions = if self.way.sorts_joins { self.threads.max(2) } else { self.threads };
        let mut config = SessionConfig::new().with_target_partitions(partitions);
        let options = config.options_mut();
        options.optimizer.prefer_hash_join = !self.way.sorts_joins;
        // A sort sets memory aside for merging what it spilled: a part of little memory.
        options.execution.sort_spill_reservation_bytes = options.execution.sort_spill_reservation_bytes.min(bytes / 16);
        options.execution.parquet.pushdown_filters = true;
        options.execution.parquet.reorder_filters = true;
        let state = SessionStateBuilder::new().with_config(config).with_runtime_env(runtime).with_default_features();
        let mut context = SessionContext::new_with_state(state.build());
        for store in self.sources.stores() {
            let connection = store.connect().map_err(|why| QueryError::Unreadable(why.to_string()))?;
            context.runtime_env().register_object_store(store.url.as_ref(), connection);
        }
        datafusion_functions_json::register_all(&mut context).map_err(QueryError::Engine)?;
        Ok((context, pool))
    }

    /// Makes the tables and views known that are named, and those that they stand on; which these are.
    async fn register(
        &self,
        context: &SessionContext,
        named: &BTreeSet<String>,
    ) -> Result<BTreeSet<String>, QueryError> {
        let known = views::names();
        if let Some(unknown) = named.iter().find(|name| !known.contains(&name.as_str())) {
            return Err(QueryError::Query {
                why: format!("there is no table `{unknown}`"),
                hint: format!("; tables and views are {}", known.join(", ")),
            });
        }
        let is_wanted = closure(context, named)?;
        for kind in RecordKind::ALL.into_iter().filter(|kind| is_wanted.contains(kind.table())) {
            let parts = self.register_files(context, kind)?;
            self.view(context, kind.table(), &views::table_of(kind, &parts)).await?;
        }
        let memory = |name: &str, rows: datafusion::common::Result<RecordBatch>| {
            let table = rows.and_then(|rows| MemTable::try_new(rows.schema(), vec![vec![rows]]));
            table.and_then(|table| context.register_table(name, Arc::new(table))).map_err(QueryError::Engine)
        };
        let union = |parts: &[Part], fields: &[Field]| {
            let names = fields.iter().map(Field::name).filter(|name| *name != RUN).map(|name| views::quoted(name));
            let names: Vec<String> = names.collect();
            let part = |part: &Part| format!("SELECT {} AS run, {} FROM {}", part.run, names.join(", "), part.table);
            parts.iter().map(part).collect::<Vec<_>>().join(" UNION ALL ")
        };
        if is_wanted.contains(RUNS) {
            let behind = format!("_{RUNS}");
            memory(&behind, Ok(facts::rows(&self.sources.described())?))?;
            let fields: Vec<Field> = facts::schema().fields().iter().map(|field| (**field).clone()).collect();
            let mut parts = vec![Part::of(&behind)];
            parts.extend(self.register_archives(context, RUNS, &fields, None)?);
            self.view(context, RUNS, &union(&parts, &fields)).await?;
        }
        if is_wanted.contains(ARCHIVED) {
            let fields = self.sources.index_columns();
            // A table without columns is not read, so that nothing would tell of the damage.
            if fields.is_empty()
                && let Some(archive) = self.sources.archives.first()
            {
                return Err(QueryError::Unreadable(format!(
                    "the index of the archive `{}` ({ARCHIVE_INDEX}). If it is damaged, put it back from a copy, and \
                     do not delete it: without it, nothing says which runs the archive has",
                    archive.name
                )));
            }
            let parts = self.register_archives(context, ARCHIVED, fields, None)?;
            match parts.is_empty() {
                true => memory(ARCHIVED, Ok(RecordBatch::new_empty(facts::schema())))?,
                false => {
                    self.view(context, ARCHIVED, &union(&parts, fields)).await?;
                    None
                }
            };
        }
        if is_wanted.contains(COLUMNS) {
            memory(COLUMNS, listing::rows(self.sources))?;
        }
        if is_wanted.contains(RESULTS) {
            self.register_results(context)?;
        }
        if is_wanted.contains(SERVED) {
            self.view(context, SERVED, &views::served()).await?;
        }
        for view in VIEWS.iter().filter(|view| is_wanted.contains(view.name)) {
            self.view(context, view.name, &view.query()).await?;
        }
        Ok(is_wanted)
    }

    async fn view(&self, context: &SessionContext, name: &str, query: &str) -> Result<(), QueryError> {
        let plan = context.state().statement_to_plan(parse::of_us(query)?).await.map_err(QueryError::Engine)?;
        let view = datafusion::datasource::ViewTable::new(plan, Some(query.to_string()));
        context.register_table(name, Arc::new(view)).map(drop).map_err(QueryError::Engine)
    }

    /// Makes the files of a table known: the parts that it stands on.
    fn register_files(&self, context: &SessionContext, kind: RecordKind) -> Result<Vec<Part>, QueryError> {
        let segments = self.sources.runs().iter().flat_map(|run| {
            let dir = run.dir().display().to_string();
            let of_kind = run.segments().iter().filter(move |segment| segment.kind == kind);
            of_kind.filter_map(move |segment| self.file(&dir, &segment.path, Some(segment.rows)))
        });
        let fields: Vec<Field> = views::fields(kind).collect();
        let (files, name) = (segments.collect(), views::files_of(kind));
        register(context, &name, self.files(Some(RUN), fields.clone(), files, Store::local()))?;
        let mut parts = vec![Part::of(&name)];
        for (at, store) in self.sources.stores().into_iter().enumerate() {
            let runs = self.sources.remote.iter().filter(|run| run.store == store);
            let files = runs.flat_map(|run| {
                let of_kind = run.files.iter().filter(|(of, _)| *of == kind);
                of_kind.map(|(_, object)| TableFile::remote(&run.name, object))
            });
            let (files, name) = (files.collect::<Vec<_>>(), format!("{name}_{at}"));
            if !files.is_empty() {
                register(context, &name, self.files(Some(RUN), fields.clone(), files, store))?;
                parts.push(Part::of(&name));
            }
        }
        // A damaged file is read as one without columns.
        let fields: Vec<Field> = std::iter::once(Field::new(RUN, DataType::Utf8View, true)).chain(fields).collect();
        parts.extend(self.register_archives(context, kind.table(), &fields, Some(kind))?);
        Ok(parts)
    }

    /// Files of each archive as a table with these columns: of a kind of records, or its index.
    fn register_archives(
        &self,
        context: &SessionContext,
        table: &str,
        fields: &[Field],
        kind: Option<RecordKind>,
    ) -> Result<Vec<Part>, QueryError> {
        let one = |(at, archive): (usize, &Archive)| {
            let files = kind.map_or_else(
                || archive.index(),
                |kind| archive.files(kind.table(), &mut |folder, why| self.damage.unlisted(folder, &why)),
            );
            let files = files.into_iter().filter_map(|file| self.located(file)).collect();
            let files = self.files(None, fields.to_vec(), files, archive.store());
            let name = format!("_archived_{table}_{at}");
            register(
                context,
                &name,
                match kind {
                    Some(_) => files.of_archive(self.archived_runs(archive)),
                    None => files,
                },
            )?;
            let run = match self.sources.prefix(archive) {
                Some(prefix) => format!("concat('{}', run)", prefix.replace('\'', "''")),
                None => RUN.to_string(),
            };
            Ok(Part { table: views::quoted(&name), run })
        };
        self.sources.archives.iter().enumerate().map(one).collect()
    }

    /// What an archive's index says of where its runs are.
    fn archived_runs(&self, archive: &Archive) -> SharedRuns {
        let index = archive.index().into_iter().filter_map(|file| self.located(file)).collect();
        Arc::new(ArchivedRuns::of(Arc::new(self.files(None, ArchivedRuns::columns(), index, archive.store()))))
    }

    fn files(&self, dir: Option<&str>, fields: Vec<Field>, files: Vec<TableFile>, store: Store) -> Files {
        Files::new(dir, fields, files, store, self.limits, self.damage)
    }

    fn register_results(&self, context: &SessionContext) -> Result<(), QueryError> {
        let studies = self.sources.studies().iter();
        let files =
            studies.filter_map(|study| self.file(&study.display().to_string(), &study.join(RESULTS_FILE), None));
        let fields = self.sources.result_columns().to_vec();
        register(context, RESULTS, self.files(Some(DIR), fields, files.collect(), Store::local()))
    }

    /// A file of an archive.
    fn located(&self, file: LocatedFile) -> Option<TableFile> {
        match file {
            LocatedFile::Local(path) => self.file("", &path, None),
            LocatedFile::Remote(object) => Some(TableFile::remote("", &object)),
        }
    }

    /// A file; one that is gone is told of, and left out.
    fn file(&self, dir: &str, path: &Path, rows: Option<u64>) -> Option<TableFile> {
        match TableFile::local(dir, path, rows) {
            Ok(file) => Some(file),
            Err(why) => {
                if !self.damage.is_moved(path) {
                    self.damage.gone(path, &why);
                }
                None
            }
        }
    }

    /// Holds the rows that were read so far against their limit.
    fn check_rows(&self, plan: &Arc<dyn ExecutionPlan>) -> Result<(), QueryError> {
        fn read(plan: &Arc<dyn ExecutionPlan>) -> u64 {
            let children = plan.children();
            if children.is_empty() {
                let rows = plan.metrics().and_then(|metrics| metrics.output_rows());
                return rows.map_or(0, |rows| rows as u64);
            }
            children.into_iter().map(read).sum()
        }
        Ok(self.limits.check(Limit::QueryRows, read(plan))?)
    }
}

fn register(context: &SessionContext, name: &str, files: Files) -> Result<(), QueryError> {
    context.register_table(name, Arc::new(files)).map(drop).map_err(QueryError::Engine)
}

/// The names, and those of the tables and views that they stand on.
fn closure(context: &SessionContext, named: &BTreeSet<String>) -> Result<BTreeSet<String>, QueryError> {
    let mut all = named.clone();
    let mut to_come: Vec<String> = named.iter().cloned().collect();
    while let Some(name) = to_come.pop() {
        let view = VIEWS.iter().find(|view| view.name == name);
        let more = match view {
            Some(view) => parse::tables(&parse::of_us(&view.query())?, &context.state())?,
            None if name == SERVED => BTreeSet::from([RecordKind::Step.table().to_string()]),
            None => BTreeSet::new(),
        };
        to_come.extend(more.into_iter().filter(|name| all.insert(name.clone())));
    }
    Ok(all)
}

impl TableFile {
    /// A file of this machine.
    fn local(dir: &str, path: &Path, rows: Option<u64>) -> Result<Self, String> {
        let found = path.metadata().map_err(|why| why.to_string())?;
        let location = object_store::path::Path::from_filesystem_path(path).map_err(|why| why.to_string())?;
        let last_modified = found.modified().map_err(|why| why.to_string())?.into();
        let meta = object_store::ObjectMeta { location, last_modified, size: found.len(), e_tag: None, version: None };
        Ok(Self { dir: dir.to_string(), local: Some(path.to_path_buf()), meta, rows })
    }

    /// A file of a store.
    fn remote(dir: &str, object: &ObjectMeta) -> Self {
        Self { dir: dir.to_string(), local: None, meta: object.clone(), rows: None }
    }
}
