//! The file of a load test's results, as far as its writer and who reads it have to agree by name: its fields are the
//! writer's.

/// Name of the file in the directory of a load test.
pub const FILE: &str = "load_test_results.json";

/// Version of its form.
pub const VERSION: u32 = 1;
