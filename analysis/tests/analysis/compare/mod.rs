//! Comparisons of runs: made ones with a known difference, and simulated ones by the hundred.

mod runs;
mod simulated;
