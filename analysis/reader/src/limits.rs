//! How much is read from a file before it is no longer trusted.
//!
//! Runs are passed around, and a file of a few kilobytes can claim, or decode to, more than a machine's memory holds.
//! Everything that can grow like this has a limit here, far above what real runs reach. A reader that meets a limit
//! reports it by name and reads what it can.

use candlescope_schema::run::{Code, Finding};
use std::fmt;

/// Name of the environment variable that sets limits for the command line: `NAME=VALUE`, joined by commas.
pub const VARIABLE: &str = "CANDLESCOPE_LIMITS";

macro_rules! limits {
    ($($(#[doc = $doc:literal])+ $variant:ident = $name:literal, $default:expr, $what:literal;)+) => {
        /// One limit of [`ReadLimits`].
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        #[non_exhaustive]
        pub enum Limit {
            $($(#[doc = $doc])+ $variant,)+
        }

        impl Limit {
            /// All limits, in the order in which help lists them.
            pub const ALL: &[Limit] = &[$(Limit::$variant,)+];

            /// Its name in `--limit NAME=VALUE`.
            pub fn name(self) -> &'static str {
                match self { $(Limit::$variant => $name,)+ }
            }

            /// Its value in [`ReadLimits::default`], of what [`meaning`](Self::meaning) says.
            pub fn default_value(self) -> u64 {
                match self { $(Limit::$variant => $default,)+ }
            }

            /// What it counts, in words.
            pub fn meaning(self) -> &'static str {
                match self { $(Limit::$variant => $what,)+ }
            }
        }
    };
}

limits! {
    /// Bytes of `run.json`.
    ManifestBytes = "manifest-bytes", 4 << 20, "bytes of run.json";
    /// Files in the folder of one table.
    Files = "files", 100_000, "files in the folder of a table";
    /// Bytes of a Parquet file's footer.
    FooterBytes = "footer-bytes", 16 << 20, "bytes of a Parquet file's footer";
    /// Columns of a Parquet file, nested ones included.
    Columns = "columns", 4096, "columns of a Parquet file";
    /// Decompressed bytes of pages held at once while a Parquet file is read: the largest dictionary and the largest
    /// page of each column.
    PageBytes = "page-bytes", 128 << 20, "decompressed bytes of the pages of all columns that are held at once";
    /// Bytes that a Parquet file's pages decompress to, for each byte on disk, above the first 256 MiB.
    Expansion = "expansion", 200, "decompressed bytes for each byte on disk";
    /// Rows of a table for each byte of its files, above the first million rows; sixteen times as many for `samples`,
    /// whose values repeat.
    RowsPerByte = "rows-per-byte", 4, "rows of a table for each byte on disk";
    /// Bytes of one text, such as a path or a kernel's name.
    TextBytes = "text-bytes", candlescope_schema::MOST_TEXT_BYTES as u64, "bytes of one text";
    /// Distinct names: of paths, kernels, threads, devices, models, metrics. Further names all read as one name.
    Names = "names", 500_000, "distinct names";
    /// Bytes of these names together.
    NamesBytes = "names-bytes", 64 << 20, "bytes of all distinct names";
    /// Distinct paths without ordinals, each of which is a row of the report. Further paths all read as one path.
    Paths = "paths", 20_000, "distinct paths without ordinals";
    /// Steps that an analysis holds, of some 560 bytes each: 5.5 GB, for four days at thirty steps a second.
    Steps = "steps", 10_000_000, "steps held in memory";
    /// Requests that an analysis holds.
    Requests = "requests", 1_000_000, "requests held in memory";
    /// Kernels that an analysis holds, of some 80 bytes each beside those of an account: 4 GB for both.
    Kernels = "kernels", 20_000_000, "kernels held in memory";
    /// Kernels that an account of a device's time holds, of some 80 bytes each.
    AccountKernels = "account-kernels", 20_000_000, "kernels held by an account of a device's time";
    /// Devices that an account holds; each has tables of its own.
    AccountDevices = "account-devices", 64, "devices of an account";
    /// Samples that an analysis reads.
    Samples = "samples", 20_000_000, "samples of an analysis";
    /// Call stacks that an analysis holds.
    Stacks = "stacks", 4_000_000, "call stacks held in memory";
    /// Samples of threads that an analysis reads.
    StackSamples = "stack-samples", 20_000_000, "samples of threads of an analysis";
    /// Stretches of experiments that an analysis holds.
    Perturbations = "perturbations", 1_000_000, "stretches of experiments";
    /// Intervals that wait for their parent or their children at once.
    OpenIntervals = "open-intervals", 1_000_000, "intervals that wait for a parent or for children at once";
    /// Ranges, and kernels, of a profile of Nsight Systems.
    ProfileRows = "profile-rows", 8_000_000, "ranges, or kernels, of a profile";
    /// Instructions of SQLite for each byte of a profile, above the first fifty million.
    ProfileWork = "profile-work", 100, "instructions of SQLite for each byte of a profile";
    /// Seconds that SQLite may take for a profile.
    ProfileSeconds = "profile-seconds", 600, "seconds of reading a profile";
    /// Rows that a query reads.
    QueryRows = "query-rows", 10_000_000_000, "rows that a query reads";
    /// Bytes of a query's answer, and of what its sorts, groups and joins hold; what they can put aside is on disk
    /// beyond that.
    QueryBytes = "query-bytes", 512 << 20, "bytes that a query holds";
    /// Bytes that a query puts aside on disk.
    QuerySpill = "query-spill", 32 << 30, "bytes that a query puts aside on disk";
    /// Seconds that a query may take.
    QuerySeconds = "query-seconds", 300, "seconds of a query";
}

/// The limits of a reader.
///
/// ```
/// use candlescope_reader::{Limit, ReadLimits};
/// let limits = ReadLimits::default().with(Limit::Steps, 10_000_000);
/// assert_eq!(limits.get(Limit::Steps), 10_000_000);
/// assert_eq!(ReadLimits::default().parse("steps=10000000")?, limits);
/// # Ok::<(), candlescope_reader::LimitError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadLimits {
    values: Vec<u64>,
}

impl Default for ReadLimits {
    fn default() -> Self {
        Self { values: Limit::ALL.iter().map(|limit| limit.default_value()).collect() }
    }
}

/// A limit cannot be set to this.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "its messages say what the fields are")]
pub enum LimitError {
    /// There is no such limit.
    #[error("there is no limit `{found}`; limits are {known}")]
    Unknown {
        /// The name that was given.
        found: String,
        /// The names that exist.
        known: String,
    },
    /// Its value is not a number.
    #[error("the limit `{name}` wants a whole number, as {name}={default}, not `{found}`")]
    Value {
        name: &'static str,
        default: u64,
        /// The value that was given.
        found: String,
    },
}

impl ReadLimits {
    /// No limits, for files that are trusted.
    pub fn none() -> Self {
        Self { values: vec![u64::MAX; Limit::ALL.len()] }
    }

    /// The value of one limit.
    pub fn get(&self, limit: Limit) -> u64 {
        self.values[limit as usize]
    }

    /// The same limits with another value for one of them.
    #[must_use]
    pub fn with(mut self, limit: Limit, value: u64) -> Self {
        self.values[limit as usize] = value;
        self
    }

    /// The same limits with the values in `text`: `NAME=VALUE`, joined by commas.
    ///
    /// # Errors
    /// If a name is not that of a limit, or a value is not a number.
    pub fn parse(mut self, text: &str) -> Result<Self, LimitError> {
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            let (name, value) = part.split_once('=').map_or((part, ""), |(n, v)| (n.trim(), v.trim()));
            let Some(limit) = Limit::ALL.iter().find(|limit| limit.name() == name) else {
                let known: Vec<_> = Limit::ALL.iter().map(|limit| limit.name()).collect();
                return Err(LimitError::Unknown { found: name.to_string(), known: known.join(", ") });
            };
            let number = value.replace('_', "").parse().map_err(|_| LimitError::Value {
                name: limit.name(),
                default: limit.default_value(),
                found: value.to_string(),
            })?;
            self = self.with(*limit, number);
        }
        Ok(self)
    }

    /// Checks that `found` is within the limit.
    pub fn check(&self, limit: Limit, found: u64) -> Result<(), ExceededLimit> {
        let allowed = self.get(limit);
        if found <= allowed { Ok(()) } else { Err(ExceededLimit { limit, found: Some(found), allowed }) }
    }

    /// The error for a limit that was reached when it is not known how much more there is.
    pub fn reached(&self, limit: Limit) -> ExceededLimit {
        ExceededLimit { limit, found: None, allowed: self.get(limit) }
    }
}

/// A limit that was exceeded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExceededLimit {
    /// Which limit it is: by its name it is raised.
    pub limit: Limit,
    /// How much there is, if that is known.
    pub found: Option<u64>,
    /// How much is allowed.
    pub allowed: u64,
}

impl ExceededLimit {
    /// How to raise the limit.
    pub fn remedy(&self) -> String {
        // The remedy depends on neither the place nor the effect.
        self.finding("", "").remedy()
    }

    /// The finding for a verdict: the limit was exceeded at `place`, with this `effect`.
    pub fn finding(&self, place: &str, effect: &str) -> Finding {
        let finding = Finding::new(
            Code::LimitReached,
            "{at} {exceeded}: {effect}",
            "If you trust who made it, read it with --limit {limit}={enough:raw} (`candlescope report` and `export` have \
             it; where there is no such option set {variable}={limit}={enough:raw}, in a program ReadLimits)",
        );
        let finding = match self.found {
            Some(found) => finding.count("found", found),
            None => finding,
        };
        finding
            .text("at", place)
            .text("exceeded", self.to_string())
            .text("effect", effect)
            .text("limit", self.limit.name())
            .text("variable", VARIABLE)
            .count("allowed", self.allowed)
            .count("enough", self.found.unwrap_or(self.allowed.saturating_mul(4)))
    }
}

impl fmt::Display for ExceededLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (what, allowed) = (self.limit.meaning(), self.allowed);
        match self.found {
            Some(found) => write!(f, "has {found} {what}, more than the limit `{}` of {allowed}", self.limit.name()),
            None => write!(f, "has more than {allowed} {what}, the limit `{}`", self.limit.name()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_of_three_days_are_held() {
        assert!(Limit::Steps.default_value() >= 30 * 3600 * 24 * 3);
    }

    #[test]
    fn text_sets_what_it_names() {
        let limits = ReadLimits::default().parse(" steps = 5_000 , text-bytes=7,").unwrap();
        assert_eq!((limits.get(Limit::Steps), limits.get(Limit::TextBytes)), (5000, 7));
        assert_eq!(limits.get(Limit::Names), Limit::Names.default_value());
        let error = ReadLimits::default().parse("stepps=1").unwrap_err().to_string();
        assert!(error.contains("`stepps`") && error.contains("steps, requests"), "{error}");
        let error = ReadLimits::default().parse("steps=many").unwrap_err().to_string();
        assert!(error.contains("`steps`") && error.contains("`many`"), "{error}");
    }

    #[test]
    fn what_is_above_a_limit_names_it_and_what_raises_it() {
        let exceeded = ReadLimits::default().check(Limit::Files, 100_001).unwrap_err();
        assert_eq!(
            exceeded.to_string(),
            "has 100001 files in the folder of a table, more than the limit `files` of 100000"
        );
        assert!(exceeded.remedy().contains("--limit files=100001"));
        assert!(exceeded.remedy().contains("CANDLESCOPE_LIMITS=files=100001"), "not every command has the option");
        let reached = ReadLimits::default().reached(Limit::Paths);
        assert!(reached.remedy().contains("--limit paths=80000"), "{}", reached.remedy());
        assert!(ReadLimits::none().check(Limit::Files, u64::MAX).is_ok());
    }
}
