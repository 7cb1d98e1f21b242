//! Who is charged for what a step took: one rule for live accounts and for reports. Pure.
//!
//! Time of a step is divided among the requests that it works for by the work that each causes ([`WorkShares`]). What the
//! sensors counted is first divided among the steps that were open then (`divided`), and so among requests.

mod divided;
pub mod energy_curve;
mod kv_bytes;
mod work_shares;

pub use divided::{Division, Outermost, divided};
pub use kv_bytes::kv_bytes_of_a_token;
pub use work_shares::WorkShares;
