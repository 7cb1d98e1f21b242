//! What `candlescope record` tells the library that it has loaded into a program, by variables; and what that library
//! calls things.

/// NVIDIA's variable that names the library which the driver loads, in `cuInit`.
pub const CUDA_LIBRARY: &str = "CUDA_INJECTION64_PATH";
/// Set in what Nsight Compute (`ncu`) runs. It ends a program into whose driver another library is to be loaded.
pub const NSIGHT_COMPUTE: &str = "NV_COMPUTE_PROFILER_PERFWORKS_DIR";

/// NVIDIA's variable that names the library which NVTX loads: in each library that makes ranges, when that makes its
/// first.
pub const NVTX_LIBRARY: &str = "NVTX_INJECTION64_PATH";

/// What is recorded, and where to, as `CANDLESCOPE` says it to programs that link candlescope. That variable stays the
/// user's: a program that links candlescope has a session of its own.
pub const SESSION: &str = "CANDLESCOPE_INJECT_SESSION";

/// A regular expression: only ranges whose names it matches are steps.
pub const STEPS: &str = "CANDLESCOPE_INJECT_STEPS";

/// The file that the process makes which records: others find it there, and step aside.
pub const CLAIM: &str = "CANDLESCOPE_INJECT_CLAIM";

/// Where it is set, every process that uses CUDA or NVTX records a run of its own.
pub const CHILDREN: &str = "CANDLESCOPE_INJECT_CHILDREN";

/// The step that stands for a program outside of its ranges, or for one that makes none.
pub const PROGRAM_STEP: &str = "program";

/// Target of ranges without a domain.
pub const NO_DOMAIN: &str = "nvtx";

/// Last part of the target of ranges that began by a start and are no steps, such as `nvtx::start_end`. They stand
/// above steps, as requests do: such a range may end on another thread and cross others, so that it is part of nothing.
pub const START_END: &str = "start_end";

/// Whether this is the target of such a range.
pub fn is_start_end(target: &str) -> bool {
    target.strip_suffix(START_END).is_some_and(|domain| domain.ends_with("::"))
}

/// Steps that repeat, of a program that marks none and whose model is not known.
pub const REPEATED_STEP: &str = "repeated";

/// A `config.json`: the language model that the program runs.
pub const MODEL: &str = "CANDLESCOPE_INJECT_MODEL";

/// What it does with it: [`Work`].
pub const WORK: &str = "CANDLESCOPE_INJECT_WORK";

/// When kernels are recorded, by time: [`Windows`]. Without it windows are a matter of `CANDLESCOPE`.
pub const WINDOWS: &str = "CANDLESCOPE_INJECT_WINDOWS";

/// Windows of kernels by time: `20/60s`, the kernels of 20 steps each minute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Windows {
    /// Steps of a window.
    pub steps: u64,
    /// Seconds from the beginning of one to that of the next.
    pub every_s: u64,
}

impl Windows {
    /// Reads them; `None` of anything else.
    pub fn parse(text: &str) -> Option<Self> {
        let (steps, every) = text.split_once('/')?;
        let seconds = |text: &str, of: u64| text.parse::<u64>().ok()?.checked_mul(of);
        let every_s = match (every.strip_suffix('s'), every.strip_suffix('m')) {
            (Some(n), _) => seconds(n, 1),
            (_, Some(n)) => seconds(n, 60),
            _ => None,
        }?;
        let steps = steps.parse().ok().filter(|steps| *steps > 0)?;
        (every_s > 0).then_some(Self { steps, every_s })
    }
}

/// What a program does with its language model, as far as somebody says it: `batch=1,prompt=64,dtype=bf16`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Work {
    /// Sequences of a step.
    pub batch: Option<u64>,
    /// Tokens of each prompt.
    pub prompt: Option<u64>,
    /// The format of its weights.
    pub dtype: Option<String>,
}

impl Work {
    /// Reads it.
    ///
    /// # Errors
    /// What is wrong, with what is expected.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut work = Self::default();
        for entry in text.split(',').map(str::trim).filter(|entry| !entry.is_empty()) {
            let expected = || format!("`{entry}`: batch=N, prompt=TOKENS or dtype=FORMAT, with numbers above 0");
            let (key, value) = entry.split_once('=').ok_or_else(expected)?;
            let number = || value.parse().ok().filter(|n| *n > 0).ok_or_else(expected);
            match key {
                "batch" => work.batch = Some(number()?),
                "prompt" => work.prompt = Some(number()?),
                "dtype" if !value.is_empty() => work.dtype = Some(value.to_string()),
                _ => return Err(expected()),
            }
        }
        Ok(work)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_by_time_have_a_unit() {
        assert_eq!(Windows::parse("20/60s"), Some(Windows { steps: 20, every_s: 60 }));
        assert_eq!(Windows::parse("5/2m"), Some(Windows { steps: 5, every_s: 120 }));
        for text in ["20/500", "0/10s", "5/0s", "all", "", "5/s", "5/99999999999999999999s", "5/9999999999999999999m"] {
            assert_eq!(Windows::parse(text), None, "{text}");
        }
    }

    #[test]
    fn ranges_by_start_and_end_are_known_by_their_target() {
        assert!(is_start_end("nvtx::start_end") && is_start_end("a domain::start_end"));
        assert!(!is_start_end("nvtx") && !is_start_end("start_end") && !is_start_end("nvtx::start_end::more"));
    }

    #[test]
    fn work_is_what_is_said() {
        let work = Work::parse(" batch=2, dtype=bf16").unwrap();
        assert_eq!((work.batch, work.prompt, work.dtype.as_deref()), (Some(2), None, Some("bf16")));
        assert_eq!(Work::parse("").unwrap(), Work::default());
        for text in ["batch=0", "batch", "prompt=x", "dtype=", "context=4"] {
            let error = Work::parse(text).unwrap_err();
            assert!(error.contains(text) && error.contains("prompt=TOKENS"), "{error}");
        }
    }
}
