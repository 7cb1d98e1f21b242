//! What a function is there for, by its crate and name: the colours of a profile.

use candlescope_core::StackRecord;
use fxprof_processed_profile::{CategoryColor, CategoryHandle, CategoryPairHandle, Profile};
use std::collections::HashMap;
use std::sync::Arc;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Category {
    Candle,
    Compute,
    Pool,
    Allocation,
    Kernel,
    Other,
}

/// Crates that get a name of their own within their category. The library numbers them with 16 bits.
const MOST_CRATES: usize = 1_000;

impl Category {
    pub(super) fn of(frame: &StackRecord) -> Self {
        const ALLOCATORS: [&str; 12] = [
            "malloc",
            "free",
            "calloc",
            "realloc",
            "cfree",
            "mmap",
            "munmap",
            "madvise",
            "mremap",
            "brk",
            "sbrk",
            "sysmalloc",
        ];
        let name = frame.name();
        let plain = name.trim_start_matches("__").trim_start_matches("libc_").trim_start_matches("_int_");
        let parts =
            ["__rust_alloc", "__rust_dealloc", "__rust_realloc", "__rdl_", "alloc::alloc::", "jemalloc", "mi_malloc"];
        if ALLOCATORS.contains(&plain) || parts.iter().any(|part| name.starts_with(part)) {
            return Self::Allocation;
        }
        match frame.crate_name.as_deref() {
            Some(of) if of.starts_with("candle") && !of.starts_with("candlescope") => Self::Candle,
            Some(of) if of.starts_with("gemm") || ["pulp", "half", "matrixmultiply"].contains(&of) => Self::Compute,
            Some(of) if ["rayon", "rayon_core", "tokio"].contains(&of) || of.starts_with("crossbeam") => Self::Pool,
            Some(_) => Self::Other,
            None if ["mkl", "blas", "libcu"].iter().any(|part| frame.binary.contains(part)) => Self::Compute,
            None if frame.binary.contains("gomp") || frame.binary.contains("iomp") => Self::Pool,
            None => Self::Other,
        }
    }
}

/// The categories of one profile; those of crates are made when they are needed.
#[derive(Debug)]
pub(super) struct Categories {
    candle: CategoryHandle,
    compute: CategoryHandle,
    pool: CategoryHandle,
    allocation: CategoryHandle,
    kernel: CategoryHandle,
    pub(super) intervals: CategoryHandle,
    pub(super) off_cpu: CategoryHandle,
    crates: HashMap<(CategoryHandle, Arc<str>), CategoryPairHandle>,
}

impl Categories {
    pub(super) fn new(profile: &mut Profile) -> Self {
        let mut add = |name, color| profile.add_category(name, color);
        Self {
            candle: add("candle", CategoryColor::Orange),
            compute: add("compute", CategoryColor::Green),
            pool: add("thread pool", CategoryColor::Yellow),
            allocation: add("allocation", CategoryColor::Purple),
            kernel: add("kernel", CategoryColor::Red),
            intervals: add("intervals", CategoryColor::Blue),
            off_cpu: add("off the CPU", CategoryColor::LightRed),
            crates: HashMap::new(),
        }
    }

    pub(super) fn get(&self, category: Category) -> CategoryHandle {
        match category {
            Category::Candle => self.candle,
            Category::Compute => self.compute,
            Category::Pool => self.pool,
            Category::Allocation => self.allocation,
            Category::Kernel => self.kernel,
            Category::Other => CategoryHandle::OTHER,
        }
    }

    /// That of a function, with its crate within it.
    pub(super) fn of(&mut self, frame: &StackRecord, profile: &mut Profile) -> CategoryPairHandle {
        let category = self.get(Category::of(frame));
        let Some(name) = &frame.crate_name else { return category.into() };
        let key = (category, name.clone());
        if let Some(known) = self.crates.get(&key) {
            return *known;
        }
        if self.crates.len() >= MOST_CRATES {
            return category.into();
        }
        let pair = profile.add_subcategory(category, name);
        self.crates.insert(key, pair);
        pair
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_have_a_category() {
        let of = |function: &str, crate_name: Option<&str>, binary: &str| {
            let mut frame = StackRecord::new(1, None, 0, binary, 0);
            frame.function = Some(function.into()).filter(|_| !function.is_empty());
            frame.crate_name = crate_name.map(Into::into);
            Category::of(&frame)
        };
        assert_eq!(of("candle_nn::ops::softmax", Some("candle_nn"), "app"), Category::Candle);
        assert_eq!(of("gemm_f32::gemm::f32::fma::gemm_basic", Some("gemm_f32"), "app"), Category::Compute);
        assert_eq!(of("", None, "libmkl_avx2.so.2"), Category::Compute);
        assert_eq!(of("rayon_core::join", Some("rayon_core"), "app"), Category::Pool);
        assert_eq!(of("__libc_malloc", None, "libc.so.6"), Category::Allocation);
        assert_eq!(of("_int_free", None, "libc.so.6"), Category::Allocation);
        assert_eq!(of("candlescope_models::blocks::forward", Some("candlescope_models"), "app"), Category::Other);
    }
}
