//! The directory with the results of a suite: its rows, files, charts and report.
