#![doc = include_str!("../README.md")]
#![warn(missing_docs)]

pub mod config;
pub mod input;
pub mod operation;
pub mod shape;
pub mod step;
pub mod windows;
