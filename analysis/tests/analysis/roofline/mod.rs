//! Rooflines: models and devices against published figures, predictions by hand, runs against their roofs.

mod bounds;
mod calibration;
mod kernels;
mod models;
mod peaks;
mod predictions;
mod runs;
mod takes;
