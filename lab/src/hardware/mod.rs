//! What measuring single operations needs of a device: its caches emptied, its clock read, its memory asked for.

mod cache_flush;
mod candle_failure;
mod device_memory;
mod device_timer;
mod energy;
mod last_level_cache;

pub use cache_flush::CacheFlush;
pub use candle_failure::{case_error, is_out_of_memory};
pub use candlescope_models::free_memory::{available_bytes, free_memory};
pub use device_memory::PeakAllocated;
pub use device_timer::DeviceTimer;
pub use energy::EnergyCounter;
pub(crate) use last_level_cache::UNKNOWN_CACHE;
pub use last_level_cache::last_level_cache;
