//! What prevents recording, and what to do about it: one message each.

use super::search;
use candlescope_core::gpu::ActivityError;
use std::path::Path;

/// A `CUptiResult` other than success.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Code(pub(super) u32);

/// The codes that get a message of their own.
pub(super) mod code {
    use super::Code;
    pub(in super::super) const INVALID_PARAMETER: Code = Code(1);
    pub(in super::super) const NOT_COMPATIBLE: Code = Code(14);
    pub(in super::super) const NOT_INITIALIZED: Code = Code(15);
    pub(in super::super) const NOT_SUPPORTED: Code = Code(27);
    pub(in super::super) const VIRTUALIZED: Code = Code(33);
    pub(in super::super) const INSUFFICIENT_PRIVILEGES: Code = Code(35);
    pub(in super::super) const MULTIPLE_SUBSCRIBERS: Code = Code(39);
    pub(in super::super) const VIRTUALIZED_PRIVILEGES: Code = Code(40);
    pub(in super::super) const CONFIDENTIAL: Code = Code(41);
    pub(in super::super) const UNKNOWN: Code = Code(999);
}

/// Why CUPTI refused to do `what`.
pub(super) fn refused(what: &str, code: Code) -> ActivityError {
    let because = match code {
        code::MULTIPLE_SUBSCRIBERS => "another tool records this process (Nsight Systems, Nsight Compute, cuda-gdb, the profiler of \
            PyTorch, …), and CUPTI serves one at a time: run without it, or without kernel recording"
            .to_string(),
        code::INSUFFICIENT_PRIVILEGES | code::VIRTUALIZED_PRIVILEGES => "this user may not profile: run as root or with the \
            capability SYS_ADMIN, or load the driver with NVreg_RestrictProfilingToAdminUsers=0 (on a virtual GPU the host decides); \
            see https://developer.nvidia.com/ERR_NVGPUCTRPERM"
            .to_string(),
        code::NOT_INITIALIZED | code::UNKNOWN => "it could not attach to the driver, which may be older than CUPTI: set \
            CANDLESCOPE_CUPTI to the libcupti of a CUDA toolkit no newer than the driver, or update the driver"
            .to_string(),
        code::NOT_COMPATIBLE => "another kind of profiling is active in this process: end it first".to_string(),
        code::NOT_SUPPORTED | code::VIRTUALIZED | code::CONFIDENTIAL => "this GPU or the way it is shared (virtual GPU, MIG, \
            confidential computing) does not allow it: use GPU timing by events instead"
            .to_string(),
        Code(number) => format!("error {number}: see CUptiResult in NVIDIA's documentation"),
    };
    ActivityError(format!("CUPTI refused to {what}: {because}"))
}

/// No library was found. `tried`: each name or path, with what the loader said.
pub(super) fn no_library(tried: &[(impl AsRef<Path>, String)]) -> ActivityError {
    let names = tried.iter().map(|(path, _)| path.as_ref().display().to_string()).collect::<Vec<_>>().join(", ");
    // If a library exists but does not load, its error is the useful one.
    let reason = tried
        .iter()
        .map(|(_, said)| said)
        .find(|said| !said.contains("No such file"))
        .or(tried.first().map(|(_, said)| said));
    let reason = reason.map(|said| format!(" ({said})")).unwrap_or_default();
    ActivityError(format!(
        "the CUPTI library was not found{reason}: install CUDA's cupti package, or set {} to the path of libcupti.so; tried {names}",
        search::VARIABLE
    ))
}

/// The library is of a version whose records cannot be read.
pub(super) fn version(path: &Path, api: u32) -> ActivityError {
    ActivityError(format!(
        "{} is CUPTI {}, and records are understood of CUDA 12.0 to 13.x: set {} to such a library",
        path.display(),
        search::toolkit(api),
        search::VARIABLE
    ))
}

/// Another recorder of this process is alive.
pub(super) fn taken() -> ActivityError {
    ActivityError(
        "kernels are already being recorded in this process, and CUPTI serves one client: use one `Cupti` at a time, and drop it \
         before the next"
            .to_string(),
    )
}

/// The process ends, and the driver before us.
pub(super) fn driver_gone() -> ActivityError {
    ActivityError(
        "the driver had ended with the process before the last kernels were fetched: end the session, or flush it, before `main` returns"
            .to_string(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_name_the_thing_and_the_remedy() {
        let says = |code: Code, words: &[&str]| {
            let text = refused("record kernels", code).to_string();
            assert!(text.starts_with("CUPTI refused to record kernels: "), "{text}");
            words.iter().for_each(|word| assert!(text.contains(word), "`{word}` is not in: {text}"));
            assert!(!text.contains("  "), "{text}");
        };
        says(code::MULTIPLE_SUBSCRIBERS, &["Nsight Systems", "run without"]);
        says(code::INSUFFICIENT_PRIVILEGES, &["NVreg_RestrictProfilingToAdminUsers=0", "root"]);
        says(code::UNKNOWN, &["older than CUPTI", "CANDLESCOPE_CUPTI"]);
        says(code::CONFIDENTIAL, &["events"]);
        says(Code(8), &["error 8"]);
    }

    #[test]
    fn a_library_that_does_not_load_is_named_before_those_that_are_not_there() {
        let tried = [
            ("libcupti.so.13", "libcupti.so.13: cannot open shared object file: No such file or directory".to_string()),
            ("/opt/libcupti.so", "/opt/libcupti.so: invalid ELF header".to_string()),
        ];
        let text = no_library(&tried).to_string();
        assert!(text.contains("invalid ELF header") && text.contains("CANDLESCOPE_CUPTI"), "{text}");
        assert!(text.contains("libcupti.so.13, /opt/libcupti.so"), "{text}");
        assert!(no_library(&tried[..1]).to_string().contains("No such file"));
        let text = version(Path::new("/opt/libcupti.so"), 140_000).to_string();
        assert!(text.contains("/opt/libcupti.so is CUPTI 14.0") && text.contains("13.x"), "{text}");
    }
}
