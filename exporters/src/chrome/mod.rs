//! The Chrome JSON trace event format.
