//! Reads the SQLite file of `nsys export --type sqlite`.
//!
//! Tables and columns are those of export schema 3.7 (Nsight Systems 2023.4). Tables that would be empty are not there: a profile
//! without a GPU has none for kernels.

use super::{DOMAIN, Kernel, Launch, Profile, Range};
use rusqlite::{Connection, OpenFlags, Row};
use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// A profile could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ProfileError {
    /// There is no such file.
    #[error("no profile at `{}`. Give the .sqlite file that `nsys export --type sqlite` wrote", .0.display())]
    NotFound(PathBuf),
    /// The file is something else.
    #[error("`{}` is not an SQLite export of Nsight Systems ({why}). Make one with `nsys export --type sqlite FILE.nsys-rep`", path.display())]
    NotAnExport {
        /// The file.
        path: PathBuf,
        /// What gave it away.
        why: String,
    },
    /// A table does not read as it should.
    #[error("`{}` cannot be read: {cause}. Export it again from the .nsys-rep", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What SQLite said.
        cause: rusqlite::Error,
    },
}

impl Profile {
    /// Reads a profile.
    ///
    /// # Errors
    /// When the file is missing, is no export of Nsight Systems, or is damaged.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, ProfileError> {
        let path = path.as_ref();
        if !path.exists() {
            return Err(ProfileError::NotFound(path.to_path_buf()));
        }
        let read = |cause| ProfileError::Read { path: path.to_path_buf(), cause };
        let file = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY).map_err(read)?;
        let not = |why: String| ProfileError::NotAnExport { path: path.to_path_buf(), why };
        // Every export has its strings; SQLite looks at a file only when it is asked for something.
        match has_table(&file, "StringIds") {
            Ok(true) => {}
            Ok(false) => return Err(not("it has no table StringIds".to_string())),
            Err(error) => return Err(not(error.to_string())),
        }
        let mut profile = Self { file: path.to_path_buf(), version: version(&file), ..Self::default() };
        profile.ranges = ranges(&file).map_err(read)?;
        let mut names = Names::default();
        profile.kernels = kernels(&file, &mut names).map_err(read)?;
        profile.names = names.list;
        Ok(profile)
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

fn version(file: &Connection) -> Option<String> {
    let query = "SELECT value FROM META_DATA_EXPORT WHERE name = 'EXPORT_PRODUCT_VERSION'";
    file.query_row(query, [], |row| row.get(0)).ok()
}

/// `NvtxPushPopRange` and `NvtxDomainCreate` in `ENUM_NSYS_EVENT_TYPE`.
const PUSH_POP: i64 = 59;
const DOMAIN_CREATE: i64 = 75;

fn ranges(file: &Connection) -> rusqlite::Result<Vec<Range>> {
    if !has_table(file, "NVTX_EVENTS")? {
        return Ok(Vec::new());
    }
    // Domains are numbered in each process for itself; above its lowest 24 bits a thread's number is its process's.
    let query = format!(
        "SELECT r.globalTid, r.start, r.end, r.uint64Value FROM NVTX_EVENTS r \
         JOIN (SELECT DISTINCT domainId, globalTid >> 24 AS process FROM NVTX_EVENTS \
               WHERE eventType = {DOMAIN_CREATE} AND text = '{DOMAIN}') d \
           ON d.domainId = r.domainId AND d.process = r.globalTid >> 24 \
         WHERE r.eventType = {PUSH_POP} AND r.uint64Value IS NOT NULL ORDER BY r.start, r.rowid"
    );
    let mut statement = file.prepare(&query)?;
    let rows = statement.query_map([], |row| {
        // SQLite's integers are signed; the bits are the id's.
        let span = row.get::<_, i64>(3)? as u64;
        Ok(Range { thread: row.get(0)?, start: row.get(1)?, end: row.get(2)?, span })
    })?;
    rows.collect()
}

/// Where an export keeps what ran on the device: single kernels, and graphs traced as a whole.
const KERNELS: &str = "CUPTI_ACTIVITY_KIND_KERNEL";
const GRAPHS: &str = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE";
/// Calls of the runtime and of the driver API alike.
const CALLS: &str = "CUPTI_ACTIVITY_KIND_RUNTIME";

fn kernels(file: &Connection, names: &mut Names) -> rusqlite::Result<Vec<Kernel>> {
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
        while let Some(row) = rows.next()? {
            // Two calls of one number would show the kernel twice; the outer one came first.
            let id: i64 = row.get(0)?;
            if last.replace(id) != Some(id) {
                kernels.push(kernel(row, names)?);
            }
        }
    }
    Ok(kernels)
}

/// Correlation ids count in each process for itself.
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
