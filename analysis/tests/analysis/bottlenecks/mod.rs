//! Findings with gains, on runs whose right answers are known by construction.

mod cpu;
mod gpu;
mod made;
mod operations;
mod reports;
mod roadmaps;
