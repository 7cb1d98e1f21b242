#![doc = include_str!("../README.md")]
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

mod axis;
mod chart;
mod legend;
pub mod palette;
mod picture;
mod raster;

pub use axis::{Axis, label};
pub use chart::{Chart, Line, Point};
pub use legend::names_above;
pub use picture::{png, svg};
pub use raster::Raster;
