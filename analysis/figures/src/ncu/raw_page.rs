//! Reads what `ncu --import FILE.ncu-rep --csv --page raw --print-units base` prints.
//!
//! The first row names the columns, the second one has their units, and each further row is a kernel. Ranges are in one
//! cell, outermost first: `638  "candlescope:decode:Uint64:564:RGB:0xffd9782b:REGISTERED:decode"  "candlescope:…" `.

use super::{CountedKernel, Counters, OpenRange};
use crate::nsys::DOMAIN;
use std::collections::HashMap;
use std::io::Read;

const KERNEL: &str = "Kernel Name";
/// The column of ranges is called `thread Domain:Push/Pop_Range:PL_Type:…`.
const RANGES: &str = ":Push/Pop_Range:";
const STALL_BEFORE: &str = "smsp__average_warps_issue_stalled_";
const STALL_AFTER: &str = "_per_issue_active.ratio";
const SELECTED: &str = "selected";

/// The text is no page of counters.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CountersError {
    /// It is not CSV.
    #[error(
        "the counters are not CSV ({0}). Print them with `ncu --import FILE.ncu-rep --csv --page raw --print-units base`"
    )]
    NotCsv(#[from] csv::Error),
    /// A column is missing.
    #[error(
        "the counters have no column `{0}`. Print them with `ncu --import FILE.ncu-rep --csv --page raw --print-units base`"
    )]
    NoColumn(&'static str),
    /// A time is in another unit.
    #[error("the counters have {column} in `{unit}`, not `{wanted}`. Print them with --print-units base")]
    Unit {
        /// Name of the column.
        column: &'static str,
        /// The unit it has.
        unit: String,
        /// The unit it should have.
        wanted: &'static str,
    },
}

/// A counter's column, the unit that it must have if it is there, and where its value goes.
type Column = (&'static str, &'static str, fn(&mut CountedKernel) -> &mut Option<f64>);

const COLUMNS: [Column; 8] = [
    ("gpu__time_duration.sum", "ns", |k| &mut k.duration_ns),
    ("sm__throughput.avg.pct_of_peak_sustained_elapsed", "%", |k| &mut k.compute_percent),
    ("gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed", "%", |k| &mut k.memory_percent),
    ("gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed", "%", |k| &mut k.dram_percent),
    ("dram__bytes.sum", "byte", |k| &mut k.dram_bytes),
    ("sm__warps_active.avg.pct_of_peak_sustained_active", "%", |k| &mut k.occupancy_percent),
    ("launch__waves_per_multiprocessor", "", |k| &mut k.waves),
    ("launch__registers_per_thread", "register/thread", |k| &mut k.registers),
];

impl Counters {
    /// The metrics that [`read`](Self::read) looks for, as `ncu --metrics` takes them.
    pub fn metrics() -> String {
        let names = COLUMNS.iter().map(|(name, ..)| (*name).to_string());
        names.chain([format!("regex:{STALL_BEFORE}.*{STALL_AFTER}")]).collect::<Vec<_>>().join(",")
    }

    /// Reads a page of raw counters.
    ///
    /// # Errors
    /// When it is not CSV, lacks the kernels' names, or has scaled units.
    pub fn read(page: impl Read) -> Result<Self, CountersError> {
        let mut reader = csv::ReaderBuilder::new().has_headers(false).flexible(true).from_reader(page);
        let mut rows = reader.records();
        // Messages of ncu can come first.
        let names = loop {
            let row = rows.next().ok_or(CountersError::NoColumn(KERNEL))??;
            if row.iter().any(|cell| cell == KERNEL) {
                break row;
            }
        };
        let at: HashMap<&str, usize> = names.iter().enumerate().map(|(at, name)| (name, at)).collect();
        let kernel = at[KERNEL];
        let ranges = names.iter().position(|name| name.contains(RANGES));
        let stalls: Vec<(usize, &str)> = names
            .iter()
            .enumerate()
            .filter_map(|(at, name)| Some((at, name.strip_prefix(STALL_BEFORE)?.strip_suffix(STALL_AFTER)?)))
            .collect();
        let units = rows.next().transpose()?.unwrap_or_default();
        for (column, wanted, _) in COLUMNS {
            let unit = at.get(column).and_then(|at| units.get(*at)).unwrap_or(wanted);
            if unit != wanted && !(wanted == "ns" && unit == "nsecond") {
                return Err(CountersError::Unit { column, unit: unit.to_string(), wanted });
            }
        }
        let mut kernels = Vec::new();
        for row in rows {
            let row = row?;
            let Some(name) = row.get(kernel).filter(|name| !name.is_empty()) else { continue };
            let mut counted = CountedKernel { name: name.to_string(), ..CountedKernel::default() };
            counted.ranges = ranges.and_then(|at| row.get(at)).map(open_ranges).unwrap_or_default();
            for (column, _, place) in COLUMNS {
                *place(&mut counted) = at.get(column).and_then(|at| number(row.get(*at)?));
            }
            for (at, reason) in &stalls {
                match row.get(*at).and_then(number) {
                    Some(warps) if *reason == SELECTED => counted.selected = Some(warps),
                    Some(warps) => counted.stalls.push((reason.replace('_', " "), warps)),
                    None => {}
                }
            }
            kernels.push(counted);
        }
        Ok(Self { kernels })
    }
}

/// A value such as `1,170` or `4.64`; `None` for `n/a` and for what is infinite.
fn number(text: &str) -> Option<f64> {
    text.replace(',', "").parse().ok().filter(|value: &f64| value.is_finite())
}

/// Our ranges in a cell, outermost first.
fn open_ranges(cell: &str) -> Vec<OpenRange> {
    cell.split('"').filter_map(|text| open_range(text.strip_prefix(DOMAIN)?.strip_prefix(':')?)).collect()
}

/// `decode:Uint64:564:RGB:…`. Names may contain colons.
fn open_range(text: &str) -> Option<OpenRange> {
    let (name, rest) = text.split_once(":Uint64:")?;
    let span = rest.split(':').next()?.parse().ok()?;
    Some(OpenRange { name: name.to_string(), span })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_of_other_domains_are_not_ours() {
        let cell = r#"638  "candlescope:llm::decode:Uint64:564071684677596566:RGB:0xffd9782b:REGISTERED:llm::decode"  "other:x:Uint64:1:RGB:0x0:ASCII:x"  "candlescope:linear:Uint64:7:RGB:0xff:REGISTERED:linear" "#;
        let found = open_ranges(cell);
        let want = [("llm::decode", 564_071_684_677_596_566), ("linear", 7)];
        assert_eq!(found, want.map(|(name, span)| OpenRange { name: name.to_string(), span }));
        assert!(open_ranges("638  <default domain>").is_empty());
    }

    #[test]
    fn numbers_as_ncu_prints_them() {
        assert_eq!(number("1,170"), Some(1170.0));
        assert_eq!(number("4.576000"), Some(4.576));
        assert_eq!((number("n/a"), number(""), number("inf")), (None, None, None));
    }

    #[test]
    fn scaled_units_and_other_texts_are_refused() {
        let page = "\"Kernel Name\",\"gpu__time_duration.sum\"\n\"\",\"us\"\n\"k\",\"4.5\"\n";
        let why = Counters::read(page.as_bytes()).unwrap_err().to_string();
        assert!(why.contains("in `us`, not `ns`") && why.contains("--print-units base"), "{why}");
        let why = Counters::read("==ERROR== nothing".as_bytes()).unwrap_err().to_string();
        assert!(why.contains("no column `Kernel Name`"), "{why}");
    }
}
