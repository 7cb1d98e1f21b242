//! Why an exporter drops records.

/// Why an exporter did not export a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum DropReason {
    /// Its queue was full, because the exporter is slower than the records come.
    QueueFull,
    /// Writing or sending failed.
    Io,
    /// Removed later as the oldest data, to stay within the disk budget.
    DiskBudget,
    /// Left out on purpose by a limit of the exporter, such as the number of spans in a trace.
    Limit,
    /// Of a kind that the exporter does not take, as an exporter of traces takes no samples. Nothing is lost.
    NotTaken,
    /// The exporter had failed permanently, or had panicked.
    Dead,
    /// The shutdown timeout was over.
    Shutdown,
    /// The exporter reported neither export nor drop: a bug in the exporter.
    Unaccounted,
}

impl DropReason {
    /// All reasons, as declared: ledgers count by their place here.
    pub const ALL: [DropReason; 8] = [
        DropReason::QueueFull,
        DropReason::Io,
        DropReason::DiskBudget,
        DropReason::Limit,
        DropReason::NotTaken,
        DropReason::Dead,
        DropReason::Shutdown,
        DropReason::Unaccounted,
    ];

    /// The word used in reports and metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            DropReason::QueueFull => "queue_full",
            DropReason::Io => "io",
            DropReason::DiskBudget => "disk_budget",
            DropReason::Limit => "limit",
            DropReason::NotTaken => "not_taken",
            DropReason::Dead => "dead",
            DropReason::Shutdown => "shutdown",
            DropReason::Unaccounted => "unaccounted",
        }
    }
}
