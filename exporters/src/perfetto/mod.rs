//! Native Perfetto traces.
