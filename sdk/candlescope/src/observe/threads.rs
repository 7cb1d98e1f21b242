//! How candle finds out on how many threads it computes: at each product of matrices, and without `RAYON_NUM_THREADS` by
//! reading `/proc/cpuinfo`, which can take longer than the product.

use candle_core::Device;
use candlescope_core::process_facts::RAYON_NUM_THREADS;
use candlescope_core::run::{Code, Finding};
use std::time::{Duration, Instant};

/// Asking the environment alone takes well below a microsecond.
const SLOW: Duration = Duration::from_micros(5);

/// Tells the sessions that go on, as the finding `rayon_threads_unset`, if candle computes on a processor and takes long
/// to find out on how many threads. [`observe`](crate::observe) calls it; call it where a model is loaded in another way.
pub fn check_threads(device: &Device) {
    // Libraries that do products themselves do not ask.
    if !device.is_cpu() || candle_core::utils::has_mkl() || candle_core::utils::has_accelerate() || is_set() {
        return;
    }
    let Some(each) = (0..3).map(|_| asked()).min().filter(|each| *each > SLOW) else { return };
    let finding = Finding::new(
        Code::RayonThreadsUnset,
        "RAYON_NUM_THREADS is {value:raw}, so that candle counts the processors again at each product of matrices on a CPU, \
         which takes {each} here (measured)",
        "set RAYON_NUM_THREADS to the number of threads that are to compute, such as that of the cores which the program \
         may use: RAYON_NUM_THREADS={cores:raw}",
    );
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let value = match std::env::var_os(RAYON_NUM_THREADS) {
        None => "not set".to_string(),
        Some(value) => format!("`{}`, which candle does not take for a number of threads", value.to_string_lossy()),
    };
    let finding = finding.ns("each", each.as_nanos() as u64).count("cores", cores as u64);
    candlescope_core::note(finding.text("value", value));
}

/// Whether it has a value that candle takes.
fn is_set() -> bool {
    std::env::var(RAYON_NUM_THREADS).is_ok_and(|text| text.parse::<usize>().is_ok_and(|threads| threads > 0))
}

fn asked() -> Duration {
    let begun = Instant::now();
    std::hint::black_box(candle_core::utils::get_num_threads());
    begun.elapsed()
}
