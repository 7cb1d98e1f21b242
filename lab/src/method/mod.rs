//! How cases are measured: warm-up, order, stopping, and what disturbed a sample.
//!
//! A [`Case`] is one configuration of what is measured. The [`Engine`] prepares cases, warms each up until its rolling
//! median settles, and repeats them in random order, interleaved, so that a drift of the machine spreads over all of
//! them. Each case stops on its own, for a reason that is kept ([`StopReason`]). Samples go to a [`Sink`] one by one.
//! [`Surroundings`] tell what goes on beside them.
//!
//! ```
//! use candlescope_lab::method::*;
//! struct Sum(CaseId, Vec<f64>);
//! impl Case for Sum {
//!     fn id(&self) -> &CaseId {
//!         &self.0
//!     }
//!     fn run(&mut self, _: Mode) -> Result<Measurement, CaseError> {
//!         let start = std::time::Instant::now();
//!         std::hint::black_box(self.1.iter().sum::<f64>());
//!         Ok(Measurement::new(start.elapsed().as_nanos() as u64))
//!     }
//! }
//! let mut cases: Vec<Box<dyn Case>> = Vec::new();
//! for n in [1_000, 10_000] {
//!     cases.push(Box::new(Sum(CaseId::new("sum").param("n", n), vec![1.0; n as usize])));
//! }
//! let mut kept = InMemory::default();
//! Engine::new(Method::default().runs(Some(5)), &mut NoSurroundings).run(&mut cases, &mut kept)?;
//! assert_eq!(kept.samples.len(), 10);
//! assert!(kept.stopped.iter().all(|case| case.reason == StopReason::RunsReached));
//! # Ok::<(), SinkError>(())
//! ```

mod cancel;
mod case;
mod engine;
#[cfg(feature = "gpu")]
mod gpu_surroundings;
mod host_surroundings;
mod options;
mod sample;
mod settling;
mod stop_reason;
mod surroundings;
mod warm_up;

pub use cancel::Cancel;
pub use case::{Case, CaseError, CaseId, Measurement, Mode, ParamValue};
pub use engine::{Engine, Event, MeasurementEnd};
#[cfg(feature = "gpu")]
pub use gpu_surroundings::GpuSurroundings;
pub use host_surroundings::HostSurroundings;
pub use options::Method;
pub use sample::{CaseEnd, InMemory, Sample, SampleVerdict, Sink, SinkError};
pub use stop_reason::StopReason;
pub(crate) use surroundings::ENERGY_LEAST;
pub use surroundings::{NoSurroundings, Reading, Surroundings};
