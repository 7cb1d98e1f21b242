//! How cases are measured: warm-up, order, stopping, and what disturbed a sample.
