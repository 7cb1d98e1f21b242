//! Single operations (GEMM, attention, normalisation, …) measured over shapes and types.
