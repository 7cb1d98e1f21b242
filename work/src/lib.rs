#![doc = include_str!("../README.md")]
#![warn(missing_docs)]

pub mod config;
pub mod devices;
pub mod estimate;
pub mod family;
pub mod input;
pub mod known_models;
pub mod nearest;
pub mod operation;
pub mod shape;
pub mod signs;
pub mod slo;
pub mod step;
pub mod windows;
