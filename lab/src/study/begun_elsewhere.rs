//! Whether a study is gone on with where it was begun: samples of two machines, GPUs or builds are not one study's.

use candlescope_core::run::env_key;
use serde_json::{Map, Value};

/// Facts of the environment that all samples of a study have in common. What another start of the same program finds
/// otherwise, such as free memory, is not among them, nor where threads may run: how many processors that leaves is.
/// Versions come first: another release may say other facts in other words.
const IN_COMMON: [&str; 15] = [
    env_key::CANDLESCOPE.name(),
    env_key::CANDLE.name(),
    env_key::ARCH.name(),
    env_key::CPU_MODEL.name(),
    env_key::CPU_CORES.name(),
    env_key::CPU_AVAILABLE.name(),
    env_key::OS.name(),
    env_key::GPUS.name(),
    env_key::NVIDIA_DRIVER.name(),
    env_key::CUDA_DRIVER.name(),
    env_key::BUILD_PROFILE.name(),
    env_key::BUILD_OPT_LEVEL.name(),
    env_key::CANDLE_FEATURES.name(),
    env_key::ALLOCATOR.name(),
    env_key::COMPUTE_THREADS.name(),
];

/// The first fact in which the environment `here` is another one than that of the study, in words. A fact that only one
/// of them knows, as in a study of an earlier release, is no difference.
pub(super) fn begun_elsewhere(study: &Map<String, Value>, here: &Map<String, Value>) -> Option<String> {
    IN_COMMON.iter().find_map(|key| {
        let (then, now) = (study.get(*key)?, here.get(*key)?);
        (then != now).then(|| format!("{key} was {then}, and now is {now}"))
    })
}
