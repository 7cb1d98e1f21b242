//! Reads the SQLite file of `nsys export --type sqlite`.
//!
//! Tables and columns are those of export schema 3.7 (Nsight Systems 2023.4). Tables that would be empty are absent: a
//! profile without a GPU has none for kernels.

use super::{DOMAIN, Kernel, Launch, Profile, Range};
use candlescope_reader::limits::{ExceededLimit, Limit, ReadLimits};
use candlescope_schema::files::open_regular;
use rusqlite::config::DbConfig;
use rusqlite::limits::Limit as SqliteLimit;
use rusqlite::{Connection, ErrorCode, OpenFlags, Row};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// A profile could not be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "its messages say what the fields are")]
pub enum ProfileError {
    /// There is no such file.
    #[error("no profile at `{}`. Give the .sqlite file that `nsys export --type sqlite` wrote", .0.display())]
    NotFound(PathBuf),
    /// The file is something else.
    #[error("`{}` is not an SQLite export of Nsight Systems ({why}). Make one with `nsys export --type sqlite FILE.nsys-rep`", path.display())]
    NotAnExport {
        path: PathBuf,
        /// How that was recognised.
        why: String,
    },
    /// It cannot be opened, or is no regular file.
    #[error("cannot open the profile `{}`: {cause}. Give the .sqlite file that `nsys export --type sqlite` wrote", path.display())]
    Open { path: PathBuf, cause: std::io::Error },
    /// A limit was met.
    #[error("`{}` {exceeded}. {}", path.display(), exceeded.remedy())]
    Limit { path: PathBuf, exceeded: ExceededLimit },
    /// A table cannot be read as expected.
    #[error("`{}` cannot be read: {cause}. Export it again from the .nsys-rep", path.display())]
    Read { path: PathBuf, cause: rusqlite::Error },
}

impl Profile {
    /// Reads a profile.
    ///
    /// # Errors
    /// When the file is missing, is no export of Nsight Systems, is damaged, or takes more than the usual limits allow.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, ProfileError> {
        Self::open_within(path, &ReadLimits::default())
    }

    /// The same, with the caller's limits.
    ///
    /// # Errors
    /// Those of [`open`](Profile::open).
    pub fn open_within(path: impl AsRef<Path>, limits: &ReadLimits) -> Result<Self, ProfileError> {
        let path = path.as_ref();
        if !path.exists() {
            return Err(ProfileError::NotFound(path.to_path_buf()));
        }
        let opened = open_regular(path).and_then(|file| file.metadata());
        let bytes = opened.map_err(|cause| ProfileError::Open { path: path.to_path_buf(), cause })?.len();
        let over = Arc::new(OnceLock::new());
        let read = |cause: rusqlite::Error| match over.get() {
            Some(&exceeded) => ProfileError::Limit { path: path.to_path_buf(), exceeded },
            None => failed(path, cause, limits),
        };
        let file = connect(path, limits).and_then(|file| watch(file, bytes, limits, &over)).map_err(read)?;
        let not = |why: String| ProfileError::NotAnExport { path: path.to_path_buf(), why };
        // Every export has a table of strings; SQLite does not look at a file before the first query.
        match has_table(&file, "StringIds") {
            Ok(true) => {}
            Ok(false) => return Err(not("it has no table StringIds".to_string())),
            Err(error) if over.get().is_some() => return Err(read(error)),
            Err(error) => return Err(not(error.to_string())),
        }
        for table in ["StringIds", "NVTX_EVENTS", KERNELS, GRAPHS, CALLS, "META_DATA_EXPORT"] {
            if let Some(what) = made_up(&file, table).map_err(read)? {
                return Err(not(format!("its table {table} {what}, which no export has")));
            }
        }
        let mut profile = Self { file: path.to_path_buf(), version: version(&file), ..Self::default() };
        let room = |rows: usize| limits.check(Limit::ProfileRows, rows as u64).is_ok();
        profile.ranges = ranges(&file, &room).map_err(read)?;
        let mut names = Names::default();
        profile.kernels = kernels(&file, &mut names, &room).map_err(read)?;
        profile.names = names.list;
        if !room(profile.ranges.len()) || !room(profile.kernels.len()) {
            let exceeded = limits.reached(Limit::ProfileRows);
            return Err(ProfileError::Limit { path: path.to_path_buf(), exceeded });
        }
        // The interrupted statement may have been a small one after the last row.
        match over.get() {
            Some(&exceeded) => Err(ProfileError::Limit { path: path.to_path_buf(), exceeded }),
            None => Ok(profile),
        }
    }
}

/// Opens the file as untrusted: nothing in its schema is executed, no file beside it is opened.
fn connect(path: &Path, limits: &ReadLimits) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let file = Connection::open_with_flags(uri(path), flags)?;
    file.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
    file.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
    file.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_VIEW, false)?;
    file.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER, false)?;
    let most = |limit: Limit| i32::try_from(limits.get(limit)).unwrap_or(i32::MAX);
    // A row consists of texts and a few numbers.
    file.set_limit(SqliteLimit::SQLITE_LIMIT_LENGTH, most(Limit::TextBytes).saturating_mul(4).max(1 << 16))?;
    for (limit, most) in [
        (SqliteLimit::SQLITE_LIMIT_COLUMN, 256),
        (SqliteLimit::SQLITE_LIMIT_ATTACHED, 0),
        (SqliteLimit::SQLITE_LIMIT_WORKER_THREADS, 0),
        (SqliteLimit::SQLITE_LIMIT_VDBE_OP, 100_000),
    ] {
        file.set_limit(limit, most)?;
    }
    file.pragma_update(None, "cell_size_check", true)?;
    file.pragma_update(None, "mmap_size", 0)?;
    Ok(file)
}

/// Without a journal: SQLite would open a file of that name beside the database, even a pipe, and write to it.
fn uri(path: &Path) -> String {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf());
    let mut uri = "file:".to_string();
    for byte in absolute.as_os_str().as_encoded_bytes() {
        match byte {
            b'/' | b'.' | b'-' | b'_' | b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' => uri.push(char::from(*byte)),
            byte => uri.push_str(&format!("%{byte:02x}")),
        }
    }
    uri + "?immutable=1"
}

/// Instructions between two checks of the limits: about a tenth of a millisecond.
const INSTRUCTIONS: i32 = 10_000;

/// Instructions allowed for a file of any size; a million takes about ten milliseconds.
const FEW_INSTRUCTIONS: u64 = 50_000_000;

/// Interrupts statements that take too long: joining tables of a crafted file may give a practically endless number of
/// rows. `over` then has the limit.
fn watch(
    mut file: Connection,
    bytes: u64,
    limits: &ReadLimits,
    over: &Arc<OnceLock<ExceededLimit>>,
) -> rusqlite::Result<Connection> {
    let (work, time) = (limits.reached(Limit::ProfileWork), limits.reached(Limit::ProfileSeconds));
    let most = bytes.saturating_mul(work.allowed).saturating_add(FEW_INSTRUCTIONS);
    let (began, seconds) = (Instant::now(), Duration::from_secs(time.allowed));
    let mut done = 0u64;
    let over = Arc::clone(over);
    let look = move || {
        done = done.saturating_add(INSTRUCTIONS as u64);
        if done > most {
            return over.set(work).is_ok() || over.get().is_some();
        }
        began.elapsed() > seconds && (over.set(time).is_ok() || over.get().is_some())
    };
    file.progress_handler(INSTRUCTIONS, Some(look))?;
    Ok(file)
}

/// The error for a failure of SQLite that none of our limits explains.
fn failed(path: &Path, cause: rusqlite::Error, limits: &ReadLimits) -> ProfileError {
    match cause.sqlite_error_code() {
        Some(ErrorCode::TooBig) => {
            ProfileError::Limit { path: path.to_path_buf(), exceeded: limits.reached(Limit::TextBytes) }
        }
        _ => ProfileError::Read { path: path.to_path_buf(), cause },
    }
}

fn has_table(file: &Connection, table: &str) -> rusqlite::Result<bool> {
    file.query_row("SELECT COUNT(*) FROM sqlite_master WHERE type = 'table' AND name = ?1", [table], |row| {
        row.get::<_, i64>(0).map(|n| n > 0)
    })
}

fn has_column(file: &Connection, table: &str, column: &str) -> rusqlite::Result<bool> {
    file.query_row("SELECT COUNT(*) FROM pragma_table_info(?1) WHERE name = ?2", [table, column], |row| {
        row.get::<_, i64>(0).map(|n| n > 0)
    })
}

/// Why reading a table would execute code from the file, if it would.
fn made_up(file: &Connection, table: &str) -> rusqlite::Result<Option<&'static str>> {
    let query = "SELECT COUNT(*) FROM sqlite_master WHERE name = ?1 COLLATE NOCASE \
                 AND (type <> 'table' OR sql NOT LIKE 'CREATE TABLE%')";
    if file.query_row(query, [table], |row| row.get::<_, i64>(0))? > 0 {
        return Ok(Some("is a view or a virtual table"));
    }
    let query = "SELECT COUNT(*) FROM pragma_table_xinfo(?1) WHERE hidden <> 0";
    let generated = file.query_row(query, [table], |row| row.get::<_, i64>(0))? > 0;
    Ok(generated.then_some("has columns that are computed"))
}

fn version(file: &Connection) -> Option<String> {
    let query = "SELECT value FROM META_DATA_EXPORT WHERE name = 'EXPORT_PRODUCT_VERSION'";
    file.query_row(query, [], |row| row.get(0)).ok()
}

/// `NvtxPushPopRange` and `NvtxDomainCreate` in `ENUM_NSYS_EVENT_TYPE`.
const PUSH_POP: i64 = 59;
const DOMAIN_CREATE: i64 = 75;

/// Reads ranges, as long as there is `room` for that many.
fn ranges(file: &Connection, room: &dyn Fn(usize) -> bool) -> rusqlite::Result<Vec<Range>> {
    if !has_table(file, "NVTX_EVENTS")? {
        return Ok(Vec::new());
    }
    // Each process numbers its domains separately. The bits of a thread's number above the lowest 24 are those of its
    // process.
    let query = format!(
        "SELECT r.globalTid, r.start, r.end, r.uint64Value FROM NVTX_EVENTS r \
         JOIN (SELECT DISTINCT domainId, globalTid >> 24 AS process FROM NVTX_EVENTS \
               WHERE eventType = {DOMAIN_CREATE} AND text = '{DOMAIN}') d \
           ON d.domainId = r.domainId AND d.process = r.globalTid >> 24 \
         WHERE r.eventType = {PUSH_POP} AND r.uint64Value IS NOT NULL ORDER BY r.start, r.rowid"
    );
    let mut statement = file.prepare(&query)?;
    let mut rows = statement.query([])?;
    let mut ranges = Vec::new();
    while let Some(row) = rows.next()?.filter(|_| room(ranges.len())) {
        // SQLite's integers are signed; these are the bits of an unsigned id.
        let span = row.get::<_, i64>(3)? as u64;
        ranges.push(Range { thread: row.get(0)?, start: row.get(1)?, end: row.get(2)?, span });
    }
    Ok(ranges)
}

/// Where an export keeps what ran on the device: single kernels, and graphs traced as a whole.
const KERNELS: &str = "CUPTI_ACTIVITY_KIND_KERNEL";
const GRAPHS: &str = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE";
/// Calls of both the runtime API and the driver API.
const CALLS: &str = "CUPTI_ACTIVITY_KIND_RUNTIME";

fn kernels(file: &Connection, names: &mut Names, room: &dyn Fn(usize) -> bool) -> rusqlite::Result<Vec<Kernel>> {
    let mut kernels = Vec::new();
    let calls = has_table(file, CALLS)?;
    for table in [KERNELS, GRAPHS] {
        if !has_table(file, table)? {
            continue;
        }
        let (name, strings) = match table {
            KERNELS => ("s.value", "LEFT JOIN StringIds s ON s.id = k.demangledName"),
            _ => ("'(CUDA graph)'", ""),
        };
        let (launch, join) =
            if calls { ("c.globalTid, c.start", join(file, table)?) } else { ("NULL, NULL", String::new()) };
        let query = format!(
            "SELECT k.rowid, {name}, k.start, k.end, {launch} FROM {table} k {strings} {join} ORDER BY 3, 1, 6"
        );
        let mut statement = file.prepare(&query)?;
        let mut rows = statement.query([])?;
        let mut last = None;
        while let Some(row) = rows.next()?.filter(|_| room(kernels.len())) {
            // Two calls with the same number would give the kernel twice; the outer call comes first.
            let id: i64 = row.get(0)?;
            if last.replace(id) != Some(id) {
                kernels.push(kernel(row, names)?);
            }
        }
    }
    Ok(kernels)
}

/// Each process numbers its correlation ids separately.
fn join(file: &Connection, table: &str) -> rusqlite::Result<String> {
    let process = if has_column(file, table, "globalPid")? { "AND c.globalTid >> 24 = k.globalPid >> 24" } else { "" };
    Ok(format!("LEFT JOIN {CALLS} c ON c.correlationId = k.correlationId {process}"))
}

fn kernel(row: &Row<'_>, names: &mut Names) -> rusqlite::Result<Kernel> {
    let name = names.number(row.get_ref(1)?.as_str_or_null().ok().flatten().unwrap_or("(unnamed)"));
    let (start, end): (i64, i64) = (row.get(2)?, row.get(3)?);
    let launch = match (row.get(4)?, row.get(5)?) {
        (Some(thread), Some(at)) => Some(Launch { thread, at }),
        _ => None,
    };
    Ok(Kernel { name, dur_ns: u64::try_from(end.saturating_sub(start)).unwrap_or(0), launch })
}

/// Kernels' names, each kept once.
#[derive(Debug, Default)]
struct Names {
    numbers: HashMap<String, u32>,
    list: Vec<String>,
}

impl Names {
    fn number(&mut self, name: &str) -> u32 {
        if let Some(&number) = self.numbers.get(name) {
            return number;
        }
        let number = self.list.len() as u32;
        self.numbers.insert(name.to_string(), number);
        self.list.push(name.to_string());
        number
    }
}
