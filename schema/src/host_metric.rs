//! Names of further samples of the `host` collector, beside those of [`metric`](crate::metric): what tells the program's
//! own use of the machine from that of others.
//!
//! Counters (`…_total`) count since the process, its control group or the system began: take differences.

/// CPU time of the process in its own code and its libraries, in seconds.
pub const CPU_USER_SECONDS: &str = "process_cpu_user_seconds_total";
/// CPU time of the kernel on behalf of the process, in seconds.
pub const CPU_SYSTEM_SECONDS: &str = "process_cpu_system_seconds_total";
/// Time in which a quota of the control group kept its processes from running, summed over processors, in seconds.
pub const CPU_THROTTLED_SECONDS: &str = "process_cpu_throttled_seconds_total";
/// Threads that bear the program's name, without the first one: the pools of rayon and candle, whose threads have no names
/// of their own, and others that nobody named.
pub const UNNAMED_THREADS: &str = "process_unnamed_threads";
/// Processors that the process may use, by its affinity.
pub const PROCESSORS: &str = "system_processors_usable";
/// CPU time of everybody on these processors, in seconds.
pub const BUSY_SECONDS: &str = "system_cpu_busy_seconds_total";
/// CPU time of others than the process on these processors since the sample before ÷ wall time: 1.5 is one processor and
/// a half.
pub const OTHERS_RATIO: &str = "system_cpu_others_ratio";

/// Every name of this list.
pub const ALL: &[&str] = &[
    CPU_USER_SECONDS,
    CPU_SYSTEM_SECONDS,
    CPU_THROTTLED_SECONDS,
    UNNAMED_THREADS,
    PROCESSORS,
    BUSY_SECONDS,
    OTHERS_RATIO,
];
