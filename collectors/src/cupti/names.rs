//! Demangled kernel names, each worked out once.

use rustc_hash::FxHashMap;
use std::sync::Arc;

/// Names kept. Programs that compile kernels at run time can have any number; beyond this, all are forgotten and worked
/// out again.
const MOST: usize = 16_384;

/// Demangled names by the mangled ones.
///
/// The key is the text, not the pointer CUPTI gives: when a module is unloaded its names are freed, and the next
/// module's may be at the same address.
#[derive(Debug, Default)]
pub(super) struct Names {
    known: FxHashMap<Box<[u8]>, Arc<str>>,
}

impl Names {
    /// The readable form of a symbol. One that is not mangled, as those of `extern "C"` kernels, stays as it is.
    pub(super) fn readable(&mut self, symbol: &[u8]) -> Arc<str> {
        if let Some(name) = self.known.get(symbol) {
            return Arc::clone(name);
        }
        if self.known.len() >= MOST {
            self.known.clear();
        }
        let name: Arc<str> = demangled(symbol).unwrap_or_else(|| String::from_utf8_lossy(symbol).into_owned()).into();
        self.known.insert(symbol.into(), Arc::clone(&name));
        name
    }
}

fn demangled(symbol: &[u8]) -> Option<String> {
    // The parser also takes bare type encodings, and `f` would become `float`.
    if !symbol.starts_with(b"_Z") {
        return None;
    }
    cpp_demangle::Symbol::new(symbol).ok()?.demangle().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mangled_names_become_readable() {
        let mut names = Names::default();
        assert_eq!(&*names.readable(b"_Z9long_nameIfLi4EEvPT_i"), "void long_name<float, 4>(float*, int)");
        for plain in ["badd_f32", "f", "ampere_sgemm_32x32_sliced1x4_tn", "_Znonsense", ""] {
            assert_eq!(&*names.readable(plain.as_bytes()), plain);
        }
        assert_eq!(&*names.readable(b"bad\xFFname"), "bad\u{FFFD}name");
    }

    #[test]
    fn a_name_is_worked_out_once_and_the_table_is_bounded() {
        let mut names = Names::default();
        let first = names.readable(b"_Z3addPf");
        assert!(Arc::ptr_eq(&first, &names.readable(b"_Z3addPf")));
        for n in 0..MOST + 10 {
            names.readable(format!("kernel_{n}").as_bytes());
        }
        assert!(names.known.len() <= MOST);
        assert_eq!(names.readable(b"_Z3addPf"), first);
    }
}
