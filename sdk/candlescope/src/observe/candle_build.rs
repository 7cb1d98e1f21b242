//! What candle was built with.

/// Backends, libraries of linear algebra, and vector instructions that candle was built with, as it tells. A session
/// puts them into `environment` of `run.json`, under `candle_features`.
pub fn candle_features() -> Vec<&'static str> {
    use candle_core::utils::{cuda_is_available, has_accelerate, has_mkl, metal_is_available};
    use candle_core::utils::{with_avx, with_f16c, with_neon};
    let all = [
        ("cuda", cuda_is_available()),
        ("mkl", has_mkl()),
        ("accelerate", has_accelerate()),
        ("metal", metal_is_available()),
        ("avx", with_avx()),
        ("f16c", with_f16c()),
        ("neon", with_neon()),
    ];
    all.into_iter().filter(|(_, has)| *has).map(|(name, _)| name).collect()
}
