//! The same tables and views in other engines: a script for DuckDB, and one for whatever speaks Spark SQL.

use super::own_aggregates::OWN_AGGREGATES;
use super::place::{Archive, ArchiveLocation, LocatedFile};
use super::source::{DIR, Sources};
use super::views::{ARCHIVED, RESULTS, RUN, RUNS, SERVED, VIEWS, quoted};
use candlescope_reader::{ReadLimits, Run, checked};
use candlescope_schema::RecordKind;
use candlescope_schema::run::{Column, ColumnType, columns};
use candlescope_schema::study_files::RESULTS_FILE;
use datafusion::arrow::array::{Array, AsArray};
use datafusion::arrow::datatypes::{DataType, Field, Int64Type};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Component, Path};

/// An engine that is not ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Engine {
    /// DuckDB: views that replace those of the same name, behind macros for functions that it lacks.
    DuckDb,
    /// Spark SQL: Spark itself, Sail, Databricks. Paths must be readable by its workers. Aggregates of our own are not
    /// there: [`OwnAggregate::in_spark`](super::OwnAggregate::in_spark).
    Spark,
}

/// Statements that make the tables and views of these runs in `engine`.
pub fn script(engine: Engine, sources: &Sources, limits: &ReadLimits) -> String {
    let mut script = String::new();
    if engine == Engine::DuckDb {
        script += OPERATOR_MACRO;
        script += JSON_MACRO;
        script.extend(OWN_AGGREGATES.iter().map(|of| of.duckdb_macro()));
    }
    let mut view = |name: &str, query: &str, meaning: &str| {
        let create = match engine {
            Engine::DuckDb => "CREATE OR REPLACE VIEW",
            Engine::Spark => "CREATE OR REPLACE TEMPORARY VIEW",
        };
        let meaning = if meaning.is_empty() { String::new() } else { format!("-- {meaning}\n") };
        let _ = writeln!(script, "{meaning}{create} {} AS\n{query};\n", engine.quoted(name));
    };
    view(RUNS, &engine.runs(sources), "One row a run, from run.json");
    if !sources.archives.is_empty() {
        view(ARCHIVED, &engine.archived(sources), "One row a run of an archive, with its headline figures");
    }
    for kind in RecordKind::ALL {
        view(kind.table(), &engine.table(kind, sources, limits), "");
    }
    if !sources.studies().is_empty() {
        view(RESULTS, &engine.results(sources), "Samples of studies");
    }
    view(SERVED, engine.served(), "What steps for several requests do for each of them");
    VIEWS.iter().for_each(|of| view(of.name, &of.query(), &of.meaning()));
    script
}

const OPERATOR_MACRO: &str = r"-- A path without ordinals, or the step and the module without numbers.
CREATE OR REPLACE MACRO operator_of(path, module) AS
    CASE WHEN module IS NULL THEN regexp_replace(path, '\[\d+\]', '', 'g')
    ELSE CASE WHEN contains(path, '/') THEN regexp_replace(split_part(path, '/', 1), '\[\d+\]$', '') || '/' ELSE '' END || array_to_string(
        list_transform(string_split(module, '.'), lambda part: CASE WHEN regexp_full_match(part, '\d+') THEN '*' ELSE part END), '.')
    END;

";
const JSON_MACRO: &str = "CREATE OR REPLACE MACRO get_json_object(object, path) AS object ->> path;\n\n";

/// Of a file: which of the columns it has.
type PresentColumns = Vec<bool>;

impl Engine {
    fn quoted(self, name: &str) -> String {
        match self {
            Self::DuckDb => quoted(name),
            Self::Spark => format!("`{}`", name.replace('`', "``")),
        }
    }

    fn text(self, text: &str) -> String {
        match self {
            Self::DuckDb => format!("'{}'", text.replace('\'', "''")),
            // Backslashes begin escapes there. Whoever takes the script apart at the ends of its statements must not
            // find one in a text.
            Self::Spark => {
                let text = text.replace('\\', "\\\\").replace('\'', "\\'").replace('\n', "\\n").replace('\r', "\\r");
                format!("'{text}'")
            }
        }
    }

    /// Files of an archive, which have the columns of all tables and name their runs.
    fn parquet(self, files: &[String]) -> String {
        match self {
            Self::DuckDb => {
                let files: Vec<String> = files.iter().map(|file| self.text(file)).collect();
                format!("read_parquet([{}], hive_partitioning = false, union_by_name = true)", files.join(", "))
            }
            Self::Spark => format!("parquet.{}", self.quoted(&files.concat())),
        }
    }

    /// The name of a file or folder of which only itself is meant.
    fn literal(self, path: &str) -> String {
        match self {
            Self::DuckDb => path.replace('[', "[[]").replace('*', "[*]").replace('?', "[?]"),
            // Hadoop takes the backslash as an escape in there; Sail, whose patterns have none, as one more character
            // of the set.
            Self::Spark => {
                let means_more = |c: char| matches!(c, '[' | '*' | '?' | '{' | '\\');
                path.chars().map(|c| if means_more(c) { format!("[\\{c}]") } else { c.to_string() }).collect()
            }
        }
    }

    /// No value of a type.
    fn null(self, kind: &DataType) -> String {
        let of = match kind {
            DataType::Int64 => self.kind(ColumnType::Int64),
            DataType::Float64 => self.kind(ColumnType::Float64),
            DataType::Boolean => "BOOLEAN",
            _ => self.kind(ColumnType::Utf8),
        };
        format!("CAST(NULL AS {of})")
    }

    /// These columns of the indexes of archives; what the index of another version lacks is null.
    fn indexes<'a>(
        self,
        sources: &'a Sources,
        fields: impl Iterator<Item = &'a Field> + Clone + 'a,
    ) -> impl Iterator<Item = String> + 'a {
        sources.archives.iter().filter_map(move |archive| {
            let index = self.place(archive.index().first()?, archive);
            let column = |field: &Field| match archive.has_column(field.name()) {
                true => self.quoted(field.name()),
                false => format!("{} AS {}", self.null(field.data_type()), self.quoted(field.name())),
            };
            let rest = fields.clone().filter(|field| field.name() != RUN).map(column);
            let columns: Vec<String> = std::iter::once(self.run_of(sources, archive)).chain(rest).collect();
            Some(format!("SELECT {} FROM {}", columns.join(", "), self.parquet(&[index])))
        })
    }

    /// The name of a row's run in an archive.
    fn run_of(self, sources: &Sources, archive: &Archive) -> String {
        match sources.prefix(archive) {
            Some(prefix) => format!("concat({}, run) AS run", self.text(&prefix)),
            None => RUN.to_string(),
        }
    }

    /// A file as the engine is told of it.
    fn place(self, file: &LocatedFile, archive: &Archive) -> String {
        match file {
            LocatedFile::Local(path) => self.literal(&absolute(path)),
            LocatedFile::Remote(object) => {
                self.literal(&format!("{}{}", archive.store().url.as_str(), object.location))
            }
        }
    }

    /// Every column of the indexes.
    fn archived(self, sources: &Sources) -> String {
        self.indexes(sources, sources.index_columns().iter()).collect::<Vec<_>>().join("\nUNION ALL ")
    }

    fn kind(self, kind: ColumnType) -> &'static str {
        match (kind, self) {
            (ColumnType::Int64, _) => "BIGINT",
            (ColumnType::Int32, _) => "INT",
            (ColumnType::Float64, _) => "DOUBLE",
            (ColumnType::Utf8, Self::DuckDb) => "VARCHAR",
            (ColumnType::Utf8, Self::Spark) => "STRING",
        }
    }

    /// The facts of each run as they are now: what they are made of is JSON, which every engine reads in a way of its own.
    fn runs(self, sources: &Sources) -> String {
        let Ok(rows) = super::facts::rows(&sources.described()) else {
            return "SELECT NULL AS run WHERE 1 = 0".into();
        };
        let value = |at: usize, row: usize| {
            let column = rows.column(at);
            if column.is_null(row) {
                return self.null(column.data_type());
            }
            match column.data_type() {
                DataType::Int64 => format!("CAST({} AS BIGINT)", column.as_primitive::<Int64Type>().value(row)),
                DataType::Boolean => column.as_boolean().value(row).to_string(),
                _ => self.text(column.as_string_view().value(row)),
            }
        };
        let fields = rows.schema_ref().fields().iter().map(|field| &**field);
        let row = |row: usize| {
            let named = fields.clone().enumerate();
            let values = named.map(|(at, field)| format!("{} AS {}", value(at, row), self.quoted(field.name())));
            format!("SELECT {}", values.collect::<Vec<_>>().join(", "))
        };
        let mut all: Vec<String> = (0..rows.num_rows()).map(row).collect();
        all.extend(self.indexes(sources, fields.clone()));
        if all.is_empty() {
            let none = fields.map(|field| format!("{} AS {}", self.null(field.data_type()), self.quoted(field.name())));
            let none: Vec<String> = none.collect();
            return format!("SELECT {} WHERE 1 = 0", none.join(", "));
        }
        all.join("\nUNION ALL ")
    }

    fn table(self, kind: RecordKind, sources: &Sources, limits: &ReadLimits) -> String {
        let of = columns(kind);
        let has = |name: &str| of.iter().any(|column| column.name == name);
        let files = match self {
            Self::DuckDb => Self::duckdb_files(kind, sources),
            Self::Spark => self.spark_files(kind, sources, limits),
        };
        let names: Vec<String> = of.iter().map(|column| self.quoted(column.name)).collect();
        let archived = sources.archives.iter().filter_map(|archive| {
            let mut is_listed = true;
            let files = archive.files(kind.table(), &mut |_, _| is_listed = false);
            // A folder without files is an error in some engines. Of one that cannot be listed the engine says so.
            if files.is_empty() && is_listed {
                return None;
            }
            let folder = match &archive.place {
                ArchiveLocation::Local(root) => self.literal(&absolute(&root.join(kind.table()))),
                ArchiveLocation::Remote { root, store, .. } => {
                    self.literal(&format!("{}{}", store.url.as_str(), root.clone().join(kind.table())))
                }
            };
            let files = match (self, &archive.place) {
                (Self::DuckDb, ArchiveLocation::Local(_)) => vec![format!("{folder}/*/*/*.parquet")],
                (Self::DuckDb, ArchiveLocation::Remote { .. }) => {
                    files.iter().map(|file| self.place(file, archive)).collect()
                }
                // Folders are looked through there, and days and machines that a query leaves out are skipped.
                (Self::Spark, _) => vec![folder],
            };
            let run = self.run_of(sources, archive);
            Some(format!("SELECT {run}, {} FROM {}", names.join(", "), self.parquet(&files)))
        });
        let files = std::iter::once(files).chain(archived).collect::<Vec<_>>().join("\nUNION ALL ");
        let operator = match (has("path"), self) {
            (false, _) => String::new(),
            (true, Self::DuckDb) => {
                format!("operator_of(path, {}) AS operator, ", if has("module") { "module" } else { "NULL" })
            }
            (true, Self::Spark) => format!("{} AS operator, ", spark_operator(has("module"))),
        };
        format!("SELECT run, {operator}{}\nFROM ({files}) AS files", names.join(", "))
    }

    /// Columns that no file has are there, and null.
    fn nothing(self, of: &[Column]) -> String {
        let columns =
            of.iter().map(|column| format!("CAST(NULL AS {}) AS {}", self.kind(column.kind), self.quoted(column.name)));
        let columns: Vec<String> = columns.collect();
        format!("SELECT CAST(NULL AS {}) AS run, {} WHERE 1 = 0", self.kind(ColumnType::Utf8), columns.join(", "))
    }

    fn duckdb_files(kind: RecordKind, sources: &Sources) -> String {
        let engine = Self::DuckDb;
        let with_rows = sources.runs().iter().filter(|run| run.segments().iter().any(|segment| segment.kind == kind));
        // A path comes back without its `.` and `..`, so that it does not tell the run.
        let comes_back = |dir: &Path| {
            let odd = |part: Component<'_>| matches!(part, Component::ParentDir | Component::CurDir);
            !dir.components().any(odd)
        };
        let (plain, odd): (Vec<&Run>, Vec<&Run>) = with_rows.partition(|run| comes_back(run.dir()));
        let glob = |run: &Run| {
            let dir = engine.literal(&run.dir().display().to_string());
            engine.text(&format!("{dir}/{}/part-*.parquet", kind.table()))
        };
        let mut parts = vec![engine.nothing(columns(kind))];
        if !plain.is_empty() {
            let globs: Vec<String> = plain.into_iter().map(glob).collect();
            parts.push(format!(
                "SELECT regexp_replace(filename, '/{}/[^/]*$', '') AS run, * EXCLUDE (filename) FROM read_parquet([{}], filename = \
                 true, union_by_name = true)",
                kind.table(),
                globs.join(", ")
            ));
        }
        parts.extend(odd.into_iter().map(|run| {
            let dir = engine.text(&run.dir().display().to_string());
            format!("SELECT {dir} AS run, * FROM read_parquet({}, union_by_name = true)", glob(run))
        }));
        parts.extend(sources.remote.iter().filter_map(|run| {
            let files = run.files.iter().filter(|(of, _)| *of == kind);
            let files = files.map(|(_, object)| engine.text(&engine.literal(&run.url(object))));
            let files: Vec<String> = files.collect();
            let dir = engine.text(&run.name);
            let from = format!("read_parquet([{}], union_by_name = true)", files.join(", "));
            (!files.is_empty()).then(|| format!("SELECT {dir} AS run, * FROM {from}"))
        }));
        parts.join("\nUNION ALL BY NAME ")
    }

    /// One part for each run and set of columns: nothing tells a row's file there.
    fn spark_files(self, kind: RecordKind, sources: &Sources, limits: &ReadLimits) -> String {
        let of = columns(kind);
        let mut parts = vec![self.nothing(of)];
        for run in sources.runs() {
            let mut files: BTreeMap<PresentColumns, Vec<String>> = BTreeMap::new();
            for segment in run.segments().iter().filter(|segment| segment.kind == kind) {
                let Ok(schema) = checked::schema(&segment.path, limits) else { continue };
                let known = of.iter().map(|column| schema.field_with_name(column.name).is_ok()).collect();
                files.entry(known).or_default().push(self.literal(&absolute(&segment.path)));
            }
            parts.extend(self.spark_parts(of, &run.dir().display().to_string(), files));
        }
        for run in &sources.remote {
            // What columns these have is not looked up: those of this version.
            let of_kind = run.files.iter().filter(|(of, _)| *of == kind);
            let files: Vec<String> = of_kind.map(|(_, object)| self.literal(&run.url(object))).collect();
            parts.extend(self.spark_parts(of, &run.name, BTreeMap::from([(vec![true; of.len()], files)])));
        }
        parts.join("\nUNION ALL ")
    }

    fn spark_parts(self, of: &[Column], run: &str, files: BTreeMap<PresentColumns, Vec<String>>) -> Vec<String> {
        let (mut parts, dir) = (Vec::new(), self.text(run));
        for (known, files) in files {
            let values = of.iter().zip(&known).map(|(column, is_there)| match is_there {
                // Some readers give a column that was written as a dictionary as one.
                true if column.kind == ColumnType::Utf8 => {
                    let name = self.quoted(column.name);
                    format!("CAST({name} AS STRING) AS {name}")
                }
                true => self.quoted(column.name),
                false => format!("CAST(NULL AS {}) AS {}", self.kind(column.kind), self.quoted(column.name)),
            });
            let values = values.collect::<Vec<_>>().join(", ");
            for file in files {
                parts.push(format!("SELECT {dir} AS run, {values} FROM parquet.{}", self.quoted(&file)));
            }
        }
        parts
    }

    fn results(self, sources: &Sources) -> String {
        let part = |study: &std::path::PathBuf| {
            let dir = self.text(&study.display().to_string());
            let file = self.literal(&study.join(RESULTS_FILE).display().to_string());
            match self {
                Self::DuckDb => format!("SELECT {dir} AS {DIR}, * FROM read_parquet({})", self.text(&file)),
                Self::Spark => format!("SELECT {dir} AS {DIR}, * FROM parquet.{}", self.quoted(&file)),
            }
        };
        let parts: Vec<String> = sources.studies().iter().map(part).collect();
        parts.join(if self == Self::DuckDb { "\nUNION ALL BY NAME " } else { "\nUNION ALL " })
    }

    fn served(self) -> &'static str {
        match self {
            Self::DuckDb => {
                "SELECT run, step, part[1] AS request, part[2] AS tokens, part[3] AS output_tokens FROM (SELECT run, step, \
                 unnest(serves::BIGINT[][]) AS part FROM steps WHERE serves IS NOT NULL) AS parts"
            }
            Self::Spark => {
                "SELECT run, step, part[0] AS request, part[1] AS tokens, part[2] AS output_tokens FROM (SELECT run, step, \
                 explode(from_json(serves, 'array<array<bigint>>')) AS part FROM steps WHERE serves IS NOT NULL) AS parts"
            }
        }
    }
}

fn absolute(path: &Path) -> String {
    std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf()).display().to_string()
}

fn spark_operator(has_module: bool) -> String {
    let plain = r"regexp_replace(path, '\\[\\d+\\]', '')";
    if !has_module {
        return plain.to_string();
    }
    // Parts that are numbers become `*`: each dot twice, so that neighbours do not share one.
    let doubled = r"regexp_replace(concat('.', replace(module, '.', '..'), '.'), '[.][0-9]+[.]', '.*.')";
    let starred = format!("replace({doubled}, '..', '.')");
    let starred = format!("substring({starred}, 2, length({starred}) - 2)");
    let before = r"CASE WHEN path LIKE '%/%' THEN concat(regexp_replace(split(path, '/')[0], '\\[\\d+\\]$', ''), '/') ELSE '' END";
    format!("CASE WHEN module IS NULL THEN {plain} ELSE concat({before}, {starred}) END")
}
