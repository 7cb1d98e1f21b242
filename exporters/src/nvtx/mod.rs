//! Intervals as NVTX ranges, for Nsight Systems and any other tool that listens to NVTX.
//!
//! NVTX ranges must be made on the application's own thread, so this is a [`Tap`], not an exporter of records. Every
//! interval is one range of the domain `candlescope`, pushed at enter and popped at exit:
//!
//! | of the range | is | in Nsight's SQLite |
//! |---|---|---|
//! | text | the interval's name, a registered string | `NVTX_EVENTS.textId` |
//! | payload | the span id as `u64`, the same as `spans.span_id` of a run | `NVTX_EVENTS.uint64Value` |
//! | category | the phase: `prefill`, `decode`, `sample`, `encode`, `vision`; 0 outside any | `NVTX_EVENTS.category` |
//! | colour | one for each phase | `NVTX_EVENTS.color` |
//!
//! The path is not in the range, because it is known only when the step has ended. It can be found by the payload.
//!
//! A tool attaches when the process starts. Without one, NVTX hands out no domain, [`NvtxTap::is_attached`] is false,
//! and enter and exit return after one branch; [`NvtxTap::attached`] spares even that.
//!
//! Building this needs libclang (Debian: `libclang-dev`), because the official bindings are generated from NVTX's
//! headers.

mod strings;
mod sys;

use candlescope_core::{Phase, Tap, TapInterval};
use std::ffi::CString;
use std::sync::OnceLock;
use strings::Strings;
use sys::{Domain, RangeLook};

/// Name of the NVTX domain.
pub const DOMAIN: &str = candlescope_core::run::NVTX_DOMAIN;

/// One domain for the process, whatever the number of sessions, because NVTX does not need two with the same name.
static THE_DOMAIN: OnceLock<Option<Domain>> = OnceLock::new();

/// Makes an NVTX range of the domain [`DOMAIN`] for every interval.
///
/// ```
/// use candlescope_core::Session;
/// use candlescope_exporters::nvtx::NvtxTap;
///
/// let mut builder = Session::builder();
/// if let Some(tap) = NvtxTap::attached() {
///     builder = builder.tap(tap);
/// }
/// let (_layer, session) = builder.start()?;
/// # session.finish();
/// # Ok::<(), candlescope_core::StartError>(())
/// ```
#[derive(Debug)]
pub struct NvtxTap {
    tool: Option<Tool>,
}

#[derive(Debug)]
struct Tool {
    domain: Domain,
    strings: Strings,
}

impl NvtxTap {
    /// A tap that makes ranges for the attached tool, or does nothing if there is none.
    ///
    /// The first call in a process makes NVTX look for a tool, which loads the tool's library.
    pub fn new() -> Self {
        let domain = *THE_DOMAIN.get_or_init(|| {
            let domain = Domain::attach(&c_string(DOMAIN))?;
            for &phase in Phase::ALL {
                domain.name_category(look(Some(phase)).category, &c_string(phase.as_str()));
            }
            Some(domain)
        });
        let tool = domain.map(|domain| {
            let strings = Strings::new();
            domain.register(c"(other)", strings.other());
            Tool { domain, strings }
        });
        Self { tool }
    }

    /// A tap if a tool is attached: without one a session is better off without the tap.
    pub fn attached() -> Option<Self> {
        Some(Self::new()).filter(Self::is_attached)
    }

    /// Whether a tool listens.
    pub fn is_attached(&self) -> bool {
        self.tool.is_some()
    }
}

impl Default for NvtxTap {
    fn default() -> Self {
        Self::new()
    }
}

impl Tap for NvtxTap {
    fn name(&self, id: u32, name: &str, _target: &str) {
        if let Some(tool) = &self.tool
            && let Some(slot) = tool.strings.slot(id)
        {
            tool.domain.register(&c_string(name), slot);
        }
    }

    /// A range is called by its module: that tells more than `linear`.
    fn module(&self, id: u32, module: &str) {
        self.name(id, module, "");
    }

    #[inline]
    fn enter(&self, interval: TapInterval) {
        if let Some(Tool { domain, strings }) = &self.tool {
            domain.push(strings.get(interval.name), look(interval.phase), interval.span_id.0);
        }
    }

    /// Ranges always nest. If the application leaves spans out of order, the innermost range ends instead of the one
    /// that was left: every thread's ranges stay balanced, and only the two that crossed have their ends swapped.
    #[inline]
    fn exit(&self, _interval: TapInterval) {
        if let Some(tool) = &self.tool {
            tool.domain.pop();
        }
    }
}

/// Category and colour of a phase. The colours are those of the HTML report.
#[inline]
fn look(phase: Option<Phase>) -> RangeLook {
    let (category, argb) = match phase {
        None => (0, 0xff9a_a1ab),
        Some(Phase::Prefill) => (1, 0xff3b_6ea8),
        Some(Phase::Decode) => (2, 0xffd9_782b),
        Some(Phase::Sample) => (3, 0xff7a_5ea8),
        Some(Phase::Encode) => (4, 0xff5a_8f6b),
        Some(Phase::Vision) => (5, 0xff3f_8f8a),
    };
    RangeLook { category, argb }
}

/// The text as a C string, without NULs that would end it early.
fn c_string(text: &str) -> CString {
    CString::new(text.replace('\0', "")).unwrap_or_default()
}
