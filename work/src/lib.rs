#![doc = include_str!("../README.md")]
#![warn(missing_docs)]

pub mod devices;
pub mod estimate;
pub mod nearest;
