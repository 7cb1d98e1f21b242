//! The cases that are compared: each installs its subscriber for the whole process, as an application does, so every
//! case runs in a process of its own.

mod case;
#[cfg(feature = "peers")]
mod fastrace;
mod floor;
#[cfg(feature = "nvtx")]
mod nvtx;
mod ours;
#[cfg(feature = "peers")]
mod peers;
mod plain;

use crate::work::{Mode, Spans};
use anyhow::{Result, bail};

pub use case::Case;
pub use ours::NullExporter;

/// All cases of this build, in the order of the table.
pub fn names() -> Vec<&'static str> {
    let mut names = vec![
        "no_subscriber",
        "two_clock_reads",
        "floor",
        "registry",
        "empty_layer",
        "ours",
        "ours_live",
        "ours_off",
        "ours_annotate",
    ];
    if cfg!(feature = "peers") {
        names.extend(["tracing_chrome", "tracing_opentelemetry", "tracing_flame", "fastrace"]);
    }
    if cfg!(feature = "nvtx") {
        names.push("nvtx_layer");
    }
    names
}

/// Whether a case means anything in a mode.
pub fn applies(name: &str, mode: Mode) -> bool {
    match name {
        // These have no spans, only clocks and a ring.
        "two_clock_reads" | "floor" => mode == Mode::Reenter,
        // It has no spans that can be re-entered: each scope is new.
        "fastrace" => mode != Mode::Many,
        // Leaving a span removes the layer's data about it: only the first entry is recorded.
        "nvtx_layer" => mode == Mode::New,
        _ => true,
    }
}

/// Installs a case.
///
/// # Errors
/// For an unknown name, or when the subscriber cannot be installed.
pub fn start(name: &str, mode: Mode) -> Result<Box<dyn Case>> {
    Ok(match name {
        "two_clock_reads" => Box::new(floor::Clock::new()),
        "floor" => Box::new(floor::Floor::new()),
        "no_subscriber" => Box::new(plain::Plain(Spans::new(mode))),
        "registry" => plain::registry(mode)?,
        "empty_layer" => plain::empty_layer(mode)?,
        "ours" | "ours_live" | "ours_off" | "ours_annotate" => ours::start(name, mode)?,
        #[cfg(feature = "peers")]
        "tracing_chrome" => peers::chrome(mode)?,
        #[cfg(feature = "peers")]
        "tracing_opentelemetry" => peers::opentelemetry(mode)?,
        #[cfg(feature = "peers")]
        "tracing_flame" => peers::flame(mode)?,
        #[cfg(feature = "peers")]
        "fastrace" => Box::new(fastrace::Fastrace::new()),
        #[cfg(feature = "nvtx")]
        "nvtx_layer" => nvtx::start(mode)?,
        _ => bail!("no case is called `{name}`: use one of {}", names().join(", ")),
    })
}
