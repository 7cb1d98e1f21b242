//! Parquet files as a table of the engine: scanned in pieces, only the columns and row groups that a query needs.

use super::archived_runs::{SharedRuns, is_in};
use super::damage::{Damage, DecodedColumns};
use super::place::Store;
use candlescope_reader::file_findings::damaged;
use candlescope_reader::{ReadLimits, checked};
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::stats::Precision;
use datafusion::common::{DataFusionError, Result, ScalarValue, Statistics, project_schema};
use datafusion::datasource::TableType;
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::parquet::metadata::DFParquetMetadata;
use datafusion::datasource::physical_plan::parquet::{DefaultParquetFileReaderFactory, ParquetAccessPlan};
use datafusion::datasource::physical_plan::{
    FileGroup, FileScanConfigBuilder, ParquetFileReaderFactory, ParquetSource,
};
use datafusion::datasource::source::DataSourceExec;
use datafusion::datasource::table_schema::TableSchema;
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown};
use datafusion::parquet::arrow::arrow_reader::ArrowReaderOptions;
use datafusion::parquet::arrow::async_reader::AsyncFileReader;
use datafusion::parquet::errors::{ParquetError, Result as ParquetResult};
use datafusion::parquet::file::metadata::{ParquetMetaData, ParquetMetaDataBuilder};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::empty::EmptyExec;
use datafusion::physical_plan::metrics::ExecutionPlanMetricsSet;
use futures_util::future::BoxFuture;
use futures_util::{FutureExt, TryFutureExt};
use object_store::{ObjectMeta, ObjectStore};
use std::collections::HashSet;
use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A file of a table.
#[derive(Debug, Clone)]
pub(super) struct TableFile {
    /// What stands in the column of its directory.
    pub(super) dir: String,
    /// Where it is on this machine, if it is.
    pub(super) local: Option<PathBuf>,
    pub(super) meta: ObjectMeta,
    /// By its footer, where that was read.
    pub(super) rows: Option<u64>,
}

/// Files that have the same table, with the directory of each as a column.
#[derive(Debug)]
pub(super) struct Files {
    /// The directory's column last.
    columns: TableSchema,
    files: Vec<TableFile>,
    store: Store,
    limits: ReadLimits,
    damage: Arc<Damage>,
    /// Of files in an archive: where it has which run.
    runs: Option<SharedRuns>,
}

impl Files {
    /// Files with these columns, and their directories as `dir` if that is none of them.
    pub(super) fn new(
        dir: Option<&str>,
        columns: Vec<Field>,
        files: Vec<TableFile>,
        store: Store,
        limits: &ReadLimits,
        damage: &Arc<Damage>,
    ) -> Self {
        let place = dir.map(|dir| Arc::new(Field::new(dir, DataType::Utf8View, false)));
        let columns = TableSchema::builder(Arc::new(Schema::new(columns)))
            .with_table_partition_cols(place.into_iter().collect::<Vec<_>>())
            .build();
        Self { columns, files, store, limits: limits.clone(), damage: Arc::clone(damage), runs: None }
    }

    /// The same in an archive, whose index says where a run's rows are.
    pub(super) fn of_archive(self, runs: SharedRuns) -> Self {
        Self { runs: Some(runs), ..self }
    }

    /// Those that can have rows which fulfil these conditions, by their places.
    async fn having(&self, state: &dyn Session, conditions: &[Expr]) -> Vec<&TableFile> {
        let folders = match &self.runs {
            Some(runs) => runs.folders(state, conditions).await,
            None => None,
        };
        // Of an object the path is as its store writes it.
        let place = |file: &TableFile| file.local.clone().unwrap_or_else(|| PathBuf::from(file.meta.location.as_ref()));
        let is_asked = |file: &&TableFile| folders.as_ref().is_none_or(|folders| is_in(&place(file), folders));
        self.files.iter().filter(is_asked).collect()
    }

    fn statistics_of(&self, files: &[&TableFile]) -> Statistics {
        let rows = files.iter().map(|file| file.rows).sum::<Option<u64>>();
        let mut statistics = Statistics::new_unknown(self.columns.table_schema());
        let inexact = |n: u64| usize::try_from(n).map_or(Precision::Absent, Precision::Inexact);
        statistics.num_rows = rows.map_or(Precision::Absent, inexact);
        statistics.total_byte_size = inexact(files.iter().map(|file| file.meta.size).sum());
        statistics
    }
}

#[async_trait::async_trait]
impl TableProvider for Files {
    fn schema(&self) -> SchemaRef {
        Arc::clone(self.columns.table_schema())
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    fn supports_filters_pushdown(&self, filters: &[&Expr]) -> Result<Vec<TableProviderFilterPushDown>> {
        Ok(vec![TableProviderFilterPushDown::Inexact; filters.len()])
    }

    fn statistics(&self) -> Option<Statistics> {
        Some(self.statistics_of(&self.files.iter().collect::<Vec<_>>()))
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let files = self.having(state, filters).await;
        if files.is_empty() {
            return Ok(Arc::new(EmptyExec::new(project_schema(&self.schema(), projection)?)));
        }
        // What the headers of pages claim is checked for the columns that are decoded, those of conditions included.
        let schema = self.columns.table_schema();
        let mut wanted: HashSet<String> = match projection {
            Some(of) => of.iter().map(|at| schema.field(*at).name().clone()).collect(),
            None => schema.fields().iter().map(|field| field.name().clone()).collect(),
        };
        wanted.extend(filters.iter().flat_map(Expr::column_refs).map(|column| column.name.clone()));
        let store = state.runtime_env().object_store(&self.store.url)?;
        let readers = CheckedFiles {
            of_store: DefaultParquetFileReaderFactory::new(Arc::clone(&store)),
            store,
            wanted: Arc::new(wanted),
            limits: self.limits.clone(),
            damage: Arc::clone(&self.damage),
        };
        let mut options = state.default_table_options().parquet;
        options.global = state.config_options().execution.parquet.clone();
        let source = ParquetSource::new(self.columns.clone())
            .with_table_parquet_options(options)
            .with_parquet_file_reader_factory(Arc::new(readers));
        let statistics = self.statistics_of(&files);
        let files = files.into_iter().map(|file| {
            let mut found = PartitionedFile::new_from_meta(file.meta.clone());
            if !self.columns.table_partition_cols().is_empty() {
                found = found.with_partition_values(vec![ScalarValue::Utf8View(Some(file.dir.clone()))]);
            }
            if file.local.is_none() {
                found = found.with_extension(Url(self.store.url_of(&file.meta)));
            }
            if let Some(local) = &file.local {
                found = found.with_extension(Local(local.clone()));
                if let Some(readable) = self.damage.readable(local) {
                    let mut plan = ParquetAccessPlan::new_all(readable.len());
                    (0..readable.len()).filter(|group| !readable[*group]).for_each(|group| plan.skip(group));
                    found = found.with_extension(plan);
                }
            }
            found
        });
        let groups = FileGroup::new(files.collect()).split_files(state.config().target_partitions());
        let config = FileScanConfigBuilder::new(self.store.url.clone(), Arc::new(source))
            .with_file_groups(groups)
            .with_statistics(statistics)
            .with_projection_indices(projection.cloned())?
            // A condition may leave rows out after they are read.
            .with_limit(limit.filter(|_| filters.is_empty()))
            .build();
        Ok(DataSourceExec::from_data_source(config))
    }
}

/// Where a file is on this machine.
struct Local(PathBuf);

/// Where an object is, as it is told.
struct Url(String);

/// Readers of files of unknown origin: those on this machine are held against the limits on reading before the engine
/// decodes them, and of those in stores a damaged footer is told.
struct CheckedFiles {
    of_store: DefaultParquetFileReaderFactory,
    store: Arc<dyn ObjectStore>,
    wanted: DecodedColumns,
    limits: ReadLimits,
    damage: Arc<Damage>,
}

impl fmt::Debug for CheckedFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CheckedFiles").field("wanted", &self.wanted).finish_non_exhaustive()
    }
}

impl ParquetFileReaderFactory for CheckedFiles {
    fn create_reader(
        &self,
        partition: usize,
        file: PartitionedFile,
        hint: Option<usize>,
        metrics: &ExecutionPlanMetricsSet,
    ) -> Result<Box<dyn AsyncFileReader + Send>> {
        let local = file.extension::<Local>().map(|local| local.0.clone());
        let url = file.extension::<Url>().map(|url| url.0.clone());
        let (meta, damage) = (file.object_meta.clone(), Arc::clone(&self.damage));
        let inner = self.of_store.create_reader(partition, file, hint, metrics)?;
        let footer = match (local, url) {
            (Some(path), _) => {
                damage.open(&path, &self.wanted);
                let (wanted, limits) = (Arc::clone(&self.wanted), self.limits.clone());
                Footer::Local(LocalFooter { path, wanted, limits })
            }
            (None, Some(url)) => Footer::Stored(StoredFooter { store: Arc::clone(&self.store), meta, url }),
            (None, None) => return Ok(inner),
        };
        Ok(Box::new(CheckedFile { inner, footer, damage }))
    }
}

/// A file whose footer is read here, and all else by the engine's reader.
struct CheckedFile {
    inner: Box<dyn AsyncFileReader + Send>,
    footer: Footer,
    damage: Arc<Damage>,
}

enum Footer {
    Local(LocalFooter),
    Stored(StoredFooter),
}

impl Footer {
    /// Notes if the file is gone: the engine opens it by its path for every range.
    fn note_if_moved(&self, damage: &Damage) {
        if let Self::Local(file) = self {
            damage.is_moved(&file.path);
        }
    }
}

impl AsyncFileReader for CheckedFile {
    fn get_bytes(&mut self, range: Range<u64>) -> BoxFuture<'_, ParquetResult<bytes::Bytes>> {
        let (footer, damage) = (&self.footer, &self.damage);
        self.inner.get_bytes(range).inspect_err(move |_| footer.note_if_moved(damage)).boxed()
    }

    fn get_byte_ranges(&mut self, ranges: Vec<Range<u64>>) -> BoxFuture<'_, ParquetResult<Vec<bytes::Bytes>>> {
        let (footer, damage) = (&self.footer, &self.damage);
        self.inner.get_byte_ranges(ranges).inspect_err(move |_| footer.note_if_moved(damage)).boxed()
    }

    fn get_metadata<'a>(
        &'a mut self,
        options: Option<&'a ArrowReaderOptions>,
    ) -> BoxFuture<'a, ParquetResult<Arc<ParquetMetaData>>> {
        match &self.footer {
            Footer::Local(file) => file.read(&self.damage).boxed(),
            Footer::Stored(file) => file.read(options, &self.damage).boxed(),
        }
    }
}

/// The footer of a file on this machine.
struct LocalFooter {
    path: PathBuf,
    wanted: DecodedColumns,
    limits: ReadLimits,
}

impl LocalFooter {
    /// Once it was held against the limits on reading.
    async fn read(&self, damage: &Damage) -> ParquetResult<Arc<ParquetMetaData>> {
        let (path, wanted, limits) = (self.path.clone(), Arc::clone(&self.wanted), self.limits.clone());
        let check = move || checked::metadata(&path, &|name| wanted.contains(name), &limits);
        match tokio::task::spawn_blocking(check).await.map_err(|why| ParquetError::External(Box::new(why)))? {
            Ok(metadata) => Ok(metadata),
            Err(_) if damage.is_moved(&self.path) => {
                Err(ParquetError::General(format!("`{}` is not there any more", self.path.display())))
            }
            // The file is told of, and has no rows: all others are still read.
            Err(finding) => {
                damage.tell(&self.path, finding);
                nothing()
            }
        }
    }
}

/// The footer of a file in a store.
struct StoredFooter {
    store: Arc<dyn ObjectStore>,
    meta: ObjectMeta,
    url: String,
}

impl StoredFooter {
    /// As the engine's own reader does it, which does not say what kind of error there was: a file that cannot be
    /// understood is told of, and has no rows; a store that does not answer ends the query.
    async fn read(&self, options: Option<&ArrowReaderOptions>, damage: &Damage) -> ParquetResult<Arc<ParquetMetaData>> {
        let footer = DFParquetMetadata::new(&*self.store, &self.meta)
            .with_page_index_policy(options.map(ArrowReaderOptions::column_index_policy));
        let error = match footer.fetch_metadata().await {
            Ok(metadata) => return Ok(metadata),
            Err(error) => error,
        };
        match error.find_root() {
            DataFusionError::ParquetError(why) => {
                damage.tell(Path::new(&self.url), damaged(&self.url, &why.to_string()));
                nothing()
            }
            DataFusionError::ObjectStore(why) if matches!(**why, object_store::Error::NotFound { .. }) => {
                damage.gone(Path::new(&self.url), "it is not there any more");
                nothing()
            }
            _ => Err(ParquetError::General(format!("`{}`: {error}", self.url))),
        }
    }
}

/// A file without rows and columns.
fn nothing() -> ParquetResult<Arc<ParquetMetaData>> {
    use datafusion::parquet::file::metadata::FileMetaData;
    use datafusion::parquet::schema::types::{SchemaDescriptor, Type};
    let schema = SchemaDescriptor::new(Arc::new(Type::group_type_builder("none").build()?));
    Ok(Arc::new(ParquetMetaDataBuilder::new(FileMetaData::new(2, 0, None, None, Arc::new(schema), None)).build()))
}
