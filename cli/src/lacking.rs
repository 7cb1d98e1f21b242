//! Errors about features that this build lacks, and how to add them.

use anyhow::{Error, anyhow};

/// The error that `what` needs a default feature, which was turned off, as `make demo` does to build faster.
pub(crate) fn default_feature(what: &str, feature: &str) -> Error {
    anyhow!(
        "{what} is not part of this build, which lacks the feature {feature}: cargo build -p candlescope-cli builds it with all default features"
    )
}

/// The error that `what` needs a feature that is off by default.
pub(crate) fn feature(what: &str, feature: &str, needs: &str) -> Error {
    anyhow!(
        "{what} is not part of this build: cargo build -p candlescope-cli --features {feature} builds it (it needs {needs})"
    )
}

/// The error that an option of the SDK needs one of its features.
pub(crate) fn option(key: &str, of_sdk: &str) -> Error {
    let flag = format!("--{key}");
    match of_sdk {
        "cuda" | "cupti" | "nvml" => feature(&flag, "cuda", "the CUDA toolkit"),
        "nvtx" => feature(&flag, "nvtx", "libclang"),
        default => default_feature(&flag, default),
    }
}

/// A command that this build lacks: takes any arguments, and says how to build it.
#[allow(unused_macros, reason = "unused where a build has everything")]
macro_rules! absent {
    ($name:ident, $args:ident -> $done:ty, $command:literal, $feature:literal) => {
        pub(crate) mod $name {
            #[allow(dead_code, reason = "not every command has examples")]
            pub(crate) const EXAMPLES: &str = "Not part of this build: cargo build -p candlescope-cli builds it";

            #[derive(Debug, clap::Args)]
            pub(crate) struct $args {
                #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
                any: Vec<std::ffi::OsString>,
            }

            pub(crate) fn run(args: &$args) -> anyhow::Result<$done> {
                let _ = &args.any;
                Err(super::default_feature($command, $feature))
            }
        }
    };
}
#[cfg(not(feature = "lab"))]
absent!(bench, BenchArgs -> u8, "`candlescope bench`", "lab");
#[cfg(not(feature = "lab"))]
absent!(load, LoadArgs -> (), "`candlescope load`", "lab");
#[cfg(not(feature = "lab"))]
absent!(tune, TuneArgs -> u8, "`candlescope tune`", "lab");
#[cfg(not(feature = "lab"))]
absent!(optimise, OptimiseArgs -> u8, "`candlescope optimise`", "lab");
#[cfg(not(feature = "lab"))]
absent!(journey, JourneyArgs -> (), "`candlescope journey`", "lab");
#[cfg(not(feature = "monitor"))]
absent!(monitor, MonitorArgs -> (), "`candlescope monitor`", "monitor");
#[cfg(not(feature = "mcp"))]
absent!(mcp, McpArgs -> (), "`candlescope mcp`", "mcp");
#[cfg(not(feature = "ncu"))]
absent!(ncu, NcuArgs -> (), "`candlescope ncu`", "ncu");
#[cfg(not(feature = "query"))]
absent!(query, QueryArgs -> (), "`candlescope query`", "query");
#[cfg(not(feature = "query"))]
absent!(views, ViewsArgs -> (), "`candlescope views`", "query");
#[cfg(not(feature = "query"))]
absent!(archive, ArchiveArgs -> u8, "`candlescope archive`", "query");
#[cfg(not(feature = "query"))]
absent!(prune, PruneArgs -> (), "`candlescope prune`", "query");
#[cfg(not(feature = "query"))]
absent!(summary, SummaryArgs -> (), "`candlescope summary`", "query");
#[cfg(not(feature = "query"))]
absent!(trend, TrendArgs -> (), "`candlescope trend`", "query");
#[cfg(not(feature = "trace-candle"))]
absent!(trace_candle, TraceCandleArgs -> (), "`candlescope trace-candle-nn`", "trace-candle");

/// `compare` and `gate`, which the feature `lab` has.
#[cfg(not(feature = "lab"))]
pub(crate) mod compare {
    pub(crate) const EXAMPLES: &str = "Not part of this build: cargo build -p candlescope-cli builds it";
    pub(crate) const GATE_EXAMPLES: &str = EXAMPLES;

    #[derive(Debug, clap::Args)]
    pub(crate) struct CompareArgs {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
        any: Vec<std::ffi::OsString>,
    }
    pub(crate) use CompareArgs as GateArgs;

    pub(crate) fn run(args: &CompareArgs) -> u8 {
        let _ = &args.any;
        let error = super::default_feature("`candlescope compare` and `candlescope gate`", "lab");
        crate::output::note(&format!("error: {error:#}"));
        crate::compare_failed::COMPARE_FAILED
    }
    pub(crate) use run as run_gate;
}
