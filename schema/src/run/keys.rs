//! Keys of the free maps of `run.json` (`environment`, `model`, `options`, `results`; those of `study.json` and
//! `env.json` are the same), for those who write and those who read them. The maps stay maps: a program may add what it
//! likes, and a reader keeps what it does not know. What one crate writes and another reads is declared here once, with
//! the type of its value.

use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::marker::PhantomData;

/// A key, and the type of its value.
pub struct Key<T: ?Sized> {
    name: &'static str,
    of: PhantomData<fn() -> *const T>,
}

impl<T: ?Sized> Clone for Key<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T: ?Sized> Copy for Key<T> {}

impl<T: ?Sized> std::fmt::Debug for Key<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

impl<T: ?Sized> Key<T> {
    const fn new(name: &'static str) -> Self {
        Self { name, of: PhantomData }
    }

    /// As it stands in the file.
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// The value as it stands there, whatever its type, null included.
    pub fn raw<'a>(&self, facts: &'a impl Facts) -> Option<&'a Value> {
        facts.fact(self.name)
    }
}

impl<T: Fact + ?Sized> Key<T> {
    /// The value; `None` if it is missing or of another type.
    pub fn of<'a>(&self, facts: &'a impl Facts) -> Option<T::Read<'a>> {
        T::read(self.raw(facts)?)
    }
}

/// A map of facts.
pub trait Facts {
    /// The value under a key.
    fn fact(&self, key: &str) -> Option<&Value>;
}

impl Facts for BTreeMap<String, Value> {
    fn fact(&self, key: &str) -> Option<&Value> {
        self.get(key)
    }
}

impl Facts for Map<String, Value> {
    fn fact(&self, key: &str) -> Option<&Value> {
        self.get(key)
    }
}

/// What values are read as.
pub trait Fact {
    /// As it is read.
    type Read<'a>;
    /// Its name in the table of keys.
    const NAME: &'static str;
    /// The value, if it is one.
    fn read(value: &Value) -> Option<Self::Read<'_>>;
}

/// A whole number, also where a program wrote it with a point.
fn whole(value: &Value) -> Option<u64> {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    let written = || value.as_f64().filter(|number| number.fract() == 0.0 && (0.0..EXACT).contains(number));
    value.as_u64().or_else(|| written().map(|number| number as u64))
}

macro_rules! facts {
    ($($of:ty => $read:ty, $name:literal, $how:path;)*) => {$(
        impl Fact for $of {
            type Read<'a> = $read;
            const NAME: &'static str = $name;
            fn read(value: &Value) -> Option<Self::Read<'_>> {
                $how(value)
            }
        }
    )*};
}

facts! {
    str => &'a str, "text", Value::as_str;
    u64 => u64, "whole number", whole;
    f64 => f64, "number", Value::as_f64;
    bool => bool, "true or false", Value::as_bool;
    [Value] => &'a Vec<Value>, "list", Value::as_array;
    Map<String, Value> => &'a Map<String, Value>, "object", Value::as_object;
}

/// A declared key, for the page of the run's format.
#[doc(hidden)]
#[derive(Debug, Clone, Copy)]
pub struct DeclaredKey {
    /// As it stands in the file.
    pub name: &'static str,
    /// Type of its value.
    pub of: &'static str,
    /// What it holds, with its unit.
    pub meaning: &'static [&'static str],
}

macro_rules! keys {
    ($(#[$outer:meta])* $module:ident { $($(#[doc = $doc:literal])+ $name:ident: $of:ty = $key:literal;)* }) => {
        $(#[$outer])*
        pub mod $module {
            use super::{DeclaredKey, Fact, Key};
            #[allow(unused_imports, reason = "not every map has all types")]
            use serde_json::{Map, Value};

            $($(#[doc = $doc])+ pub const $name: Key<$of> = Key::new($key);)*

            /// All of them, in the order of their declaration.
            #[doc(hidden)]
            pub const ALL: &[DeclaredKey] =
                &[$(DeclaredKey { name: $key, of: <$of as Fact>::NAME, meaning: &[$($doc),+] }),*];
        }
    };
}

keys! {
    /// Keys of `environment`: the machine, the system, the build.
    env_key {
        /// The processor's name.
        CPU_MODEL: str = "cpu_model";
        /// Processors of the machine.
        CPU_CORES: u64 = "cpu_cores";
        /// Physical cores of the machine, where it tells.
        CPU_CORES_PHYSICAL: u64 = "cpu_cores_physical";
        /// Processors that may be used, by affinity and by quota.
        CPU_AVAILABLE: u64 = "cpu_available";
        /// Processors' time a second that the control group may use; null for no limit.
        CPU_QUOTA: f64 = "cpu_quota_cores";
        /// Processors that the process may use, such as `0-3,8`.
        CPU_AFFINITY: str = "cpu_affinity";
        /// Memory of the machine, in bytes.
        MEMORY_TOTAL: f64 = "memory_total_bytes";
        /// The operating system.
        OS: str = "os";
        /// The kernel's version.
        KERNEL: str = "kernel";
        /// The processor's architecture, as Rust names it.
        ARCH: str = "arch";
        /// The process.
        PID: u64 = "pid";
        /// File name of a program that does not link candlescope, and was recorded from outside.
        INJECTED_PROGRAM: str = "injected_program";
        /// NVTX ranges by start and end of such a program that are not recorded: too many were open when they began.
        RANGES_UNRECORDED: u64 = "nvtx_ranges_unrecorded";
        /// NVTX ranges by start and end of such a program that had not ended when it did, or within the second before.
        RANGES_OPEN_AT_END: u64 = "nvtx_ranges_open_at_end";
        /// Panics in the library that records such a program: what the calls in which they happened did is not recorded.
        RECORDER_PANICS: u64 = "recorder_panics";
        /// Steps of such a program that were told apart by the results that it fetched.
        STEPS_BY_RESULTS: u64 = "steps_by_results";
        /// Of these, those that repeat what was launched in the ones before.
        STEPS_BY_PATTERN: u64 = "steps_by_pattern";
        /// Results that each of the latter fetches.
        RESULTS_A_STEP: u64 = "results_a_step";
        /// How like these repetitions are to the ones before them, in the mean: launches that both have ÷ launches that
        /// either has, by kernel; of several results a step, where they are least alike. 1 for the same launches; from
        /// 0.8 on it is a repetition.
        STEPS_ALIKE: f64 = "steps_alike";
        /// The same of the repetition that is least like the one before it.
        STEPS_ALIKE_LEAST: f64 = "steps_alike_least";
        /// How sure it is that these steps are what their pattern says: of those that a known pattern foretold, the
        /// share that were repetitions, as the lower end of its interval of 95 % (Wilson's).
        STEPS_CONFIDENCE: f64 = "steps_confidence";
        /// What the library that records such a program reported, a text each, such as that CUPTI stays attached.
        RECORDER_PROBLEMS: [Value] = "recorder_problems";
        /// Processes that were forked from such a program while it was recorded, and that made ranges or started the
        /// driver: nothing of them is recorded.
        FORKED_UNRECORDED: u64 = "forked_unrecorded";
        /// Version of NVIDIA's driver.
        NVIDIA_DRIVER: str = "nvidia_driver";
        /// Version of CUDA that the driver has.
        CUDA_DRIVER: str = "cuda_driver_version";
        /// The GPUs that were sampled: name, UUID, limits.
        GPUS: [Value] = "gpus";
        /// What datasheets say that the devices can do at most.
        PEAKS: [Value] = "peaks";
        /// What `candlescope bench peaks` measured of them.
        MEASURED_PEAKS: [Value] = "measured_peaks";
        /// The variable `RAYON_NUM_THREADS` as text; null if it is not set. A run without this key does not know.
        RAYON_NUM_THREADS: str = "rayon_num_threads";
        /// The variable `CANDLE_NUM_THREADS` as text; null if it is not set.
        CANDLE_NUM_THREADS: str = "candle_num_threads";
        /// Threads that compute a product on a CPU, as candle counts them.
        COMPUTE_THREADS: u64 = "compute_threads";
        /// Where that number comes from: `RAYON_NUM_THREADS`, `physical cores` or `logical cores`; of the command line's own
        /// runs `option` (`--threads`, `hardware.threads`) or `default`.
        COMPUTE_THREADS_FROM: str = "compute_threads_from";
        /// Whether the thread that runs the model is one of rayon's pool (in runs and studies of the command line): small
        /// parallel operations are not handed to another thread then.
        CALLER_COMPUTES: bool = "caller_computes";
        /// Most threads that bore the program's name, beside the first one: the pools of rayon and candle among them.
        UNNAMED_THREADS: u64 = "unnamed_threads";
        /// What samples call stacks: `perf`, `signals`.
        STACKS_SOURCE: str = "stacks_source";
        /// Samples a second of each thread's CPU time, at most.
        STACKS_HZ: u64 = "stacks_hz";
        /// What samples of call stacks cannot show, a list of texts.
        STACKS_BLIND_TO: [Value] = "stacks_blind_to";
        /// What the system takes to provide a page, nanoseconds of CPU time (measured).
        PAGE_FAULT_NS: f64 = "page_fault_ns";
        /// `debug` or `release`: whether candlescope was built with debug assertions, as the program around it mostly is.
        BUILD_PROFILE: str = "build_profile";
        /// Level of optimisation that candlescope was built with: `0` to `3`, `s` or `z`.
        BUILD_OPT_LEVEL: str = "build_opt_level";
        /// Version of candlescope.
        CANDLESCOPE: str = "candlescope";
        /// Version of candle, where the program or its spans tell.
        CANDLE: str = "candle";
        /// What candle was built with: `cuda`, `mkl`, `accelerate`, `metal`, and the vector instructions of its build.
        CANDLE_FEATURES: [Value] = "candle_features";
        /// The allocator of the program: `unknown`, as no program can tell.
        ALLOCATOR: str = "allocator";
        /// What disturbed the machine before the work began, a sentence each.
        DISTURBANCES: [Value] = "disturbances_before";
    }
}

keys! {
    /// Keys of `model`. Programs of others name the dimensions as Hugging Face's configurations do, but for these.
    model_key {
        /// What the program, or its file, calls the model.
        NAME: str = "name";
        /// Its architecture, as its configuration names it.
        ARCHITECTURE: str = "architecture";
        /// Element type of activations, and of weights that are not quantised.
        DTYPE: str = "dtype";
        /// Element type in which it computes, where that is another.
        COMPUTE_DTYPE: str = "compute_dtype";
        /// How keys and values are held, where that is not as activations: `q8`, a byte each and scales.
        KV_CACHE_DTYPE: str = "kv_cache_dtype";
        /// Format of quantised weights.
        QUANTIZATION: str = "quantization";
        /// Number of weights.
        PARAMETERS: u64 = "parameters";
        /// Bytes of weights in memory.
        WEIGHT_BYTES: u64 = "weight_bytes";
        /// Tokens that it knows.
        VOCAB_SIZE: u64 = "vocab_size";
        /// Width of a token between layers.
        HIDDEN_SIZE: u64 = "hidden_size";
        /// Number of layers.
        LAYERS: u64 = "layers";
        /// Heads of queries.
        HEADS: u64 = "heads";
        /// Heads of keys and values.
        KV_HEADS: u64 = "kv_heads";
        /// Width of a head.
        HEAD_DIM: u64 = "head_dim";
        /// Width of a token inside the MLP.
        INTERMEDIATE_SIZE: u64 = "intermediate_size";
        /// Most tokens of a sequence.
        CONTEXT_LENGTH: u64 = "context_length";
        /// What ran it: `instrumented` layers, or `candle`'s own models.
        ENGINE: str = "engine";
        /// The format of its file, of variants that were made of it.
        STORED_AS: str = "stored_as";
    }
}

keys! {
    /// Keys of `options` that readers know; the command line's are in its reference.
    option_key {
        /// The device that was asked for: `cpu`, `cuda:0`.
        DEVICE: str = "device";
        /// The model that was asked for.
        MODEL: str = "model";
        /// Threads that compute, as asked for.
        THREADS: u64 = "threads";
        /// The schedule of recorded steps.
        SCHEDULE: Map<String, Value> = "schedule";
        /// Whether recording began paused.
        PAUSED: bool = "paused";
        /// What the latest experiment makes slower.
        PERTURB: [Value] = "perturb";
        /// The share of time that it may add.
        PERTURB_BUDGET: f64 = "perturb_budget";
        /// The composed configuration of the command line, from which the run can be made again.
        INPUTS: Map<String, Value> = "inputs";
        /// What the machine costs, in US dollars an hour.
        PRICE_PER_HOUR: f64 = "price-per-hour";
    }
}

keys! {
    /// Keys of `results` that readers know.
    result_key {
        /// The data set whose prompts were run: `name`, `prompts_used`, `prompts_there`, `left_out_too_long`.
        DATASET: Map<String, Value> = "dataset";
        /// How prompts of a data set begin, in one pass over those that ran: `tokens` of all, `shared` of these that a
        /// slot could hold from a prompt before, `reused` of them that were not computed again for that reason.
        PROMPT_SHARING: Map<String, Value> = "prompt_sharing";
        /// How often texts repeat themselves or their prompts: the `steps` in which their `tokens` behind the first
        /// ones can be decoded where up to `ahead` tokens are looked up in the text and checked in one pass, and the
        /// `checks` among these steps, which check any.
        NGRAM_LOOKUP: Map<String, Value> = "ngram_lookup";
        /// Why the last request ended.
        FINISH_REASON: str = "finish_reason";
        /// SHA-256 of the tokens of each measured request, in order: the same where two runs wrote the same. Of several
        /// sequences, those of the first, and of each that wrote others.
        OUTPUT_SHA256: str = "output_sha256";
        /// What ended the program.
        ERROR: str = "error";
    }
}

/// What [`result_key::ERROR`] says of a program that somebody ended: no error of its own.
pub const INTERRUPTED: &str = "interrupted";

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_value_of_another_type_is_no_value_and_stays_as_it_is() {
        let mut facts = BTreeMap::from([("layers".to_string(), json!("many")), ("name".to_string(), json!("llama"))]);
        assert_eq!((model_key::LAYERS.of(&facts), model_key::NAME.of(&facts)), (None, Some("llama")));
        assert_eq!(model_key::LAYERS.raw(&facts), Some(&json!("many")));
        facts.insert("layers".into(), json!(4));
        assert_eq!(model_key::LAYERS.of(&facts), Some(4));
        let map: Map<String, Value> = facts.into_iter().collect();
        assert_eq!(model_key::LAYERS.of(&map), Some(4));
    }

    #[test]
    fn each_key_is_declared_once_in_its_map() {
        for all in [env_key::ALL, model_key::ALL, option_key::ALL, result_key::ALL] {
            let mut names: Vec<&str> = all.iter().map(|key| key.name).collect();
            names.sort_unstable();
            names.dedup();
            assert_eq!(names.len(), all.len());
            assert!(all.iter().all(|key| key.meaning[0].trim().len() > 8 && !key.of.is_empty()));
        }
    }
}
