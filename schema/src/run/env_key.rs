//! Keys of `environment` in `run.json` (and `study.json`, `env.json`) about threads, processors and the build, for those
//! who write and those who read them.

/// The variable `RAYON_NUM_THREADS` as text; null if it is not set. A run without this key does not know.
pub const RAYON_NUM_THREADS: &str = "rayon_num_threads";
/// The variable `CANDLE_NUM_THREADS` as text; null if it is not set.
pub const CANDLE_NUM_THREADS: &str = "candle_num_threads";
/// Threads that compute a product on a CPU, as candle counts them.
pub const COMPUTE_THREADS: &str = "compute_threads";
/// Where that number comes from: `RAYON_NUM_THREADS`, `physical cores` or `logical cores`; of the command line's own runs
/// `option` (`--threads`, `hardware.threads`) or `default`.
pub const COMPUTE_THREADS_FROM: &str = "compute_threads_from";
/// Processors of the machine.
pub const CPU_CORES: &str = "cpu_cores";
/// Physical cores of the machine, where it tells.
pub const CPU_CORES_PHYSICAL: &str = "cpu_cores_physical";
/// Processors that may be used, by affinity and by quota.
pub const CPU_AVAILABLE: &str = "cpu_available";
/// Processors' time a second that the control group may use; null for no limit.
pub const CPU_QUOTA: &str = "cpu_quota_cores";
/// Processors that the process may use, such as `0-3,8`.
pub const CPU_AFFINITY: &str = "cpu_affinity";
/// Most threads that bore the program's name, beside the first one: the pools of rayon and candle among them.
pub const UNNAMED_THREADS: &str = "unnamed_threads";
/// `debug` or `release`: whether candlescope was built with debug assertions, as the program around it mostly is.
pub const BUILD_PROFILE: &str = "build_profile";
/// Level of optimisation that candlescope was built with: `0` to `3`, `s` or `z`.
pub const BUILD_OPT_LEVEL: &str = "build_opt_level";
/// Version of candle, where the program or its spans tell.
pub const CANDLE: &str = "candle";
/// What candle was built with: `cuda`, `mkl`, `accelerate`, `metal`, and the vector instructions of its build.
pub const CANDLE_FEATURES: &str = "candle_features";
/// The allocator of the program: `unknown`, as no program can tell.
pub const ALLOCATOR: &str = "allocator";
/// What disturbed the machine before the work began, a sentence each.
pub const DISTURBANCES: &str = "disturbances_before";
