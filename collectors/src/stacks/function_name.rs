//! A function's name as its source has it, and the crate that it is of.

use addr2line::demangle_auto;
use std::borrow::Cow;

/// Name and crate of a symbol. Functions of languages other than Rust have no crate.
pub(super) fn name_and_crate(symbol: &str) -> (String, Option<String>) {
    let name = demangle_auto(Cow::Borrowed(symbol), None).into_owned();
    let of_crate = is_rust(symbol).then(|| crate_of(&name)).flatten();
    (name, of_crate)
}

/// Rust's symbols begin with `_R`, or end with a hash of 16 digits.
fn is_rust(symbol: &str) -> bool {
    // What the compiler's own parts add: `….llvm.123`.
    let symbol = symbol.split(".llvm.").next().unwrap_or(symbol);
    let hash = |hash: &str| hash.len() == 17 && hash.ends_with('E') && hash[..16].bytes().all(|b| b.is_ascii_hexdigit());
    symbol.starts_with("_R") || symbol.starts_with("_ZN") && symbol.rsplit_once("17h").is_some_and(|(_, end)| hash(end))
}

/// The first word of the path; of `<Type as Trait>::f` the crate of the type, and of the trait where the type has none
/// (`<[T] as Trait>::f`).
fn crate_of(name: &str) -> Option<String> {
    let Some(inside) = name.strip_prefix('<') else { return first_crate(name) };
    let mut depth = 0_u32;
    let mut split = None;
    for (at, sign) in inside.char_indices() {
        match sign {
            '<' => depth += 1,
            // Not that of `->`.
            '>' if inside[..at].ends_with('-') => {}
            '>' if depth == 0 => {
                let (of_type, of_trait) = split.map_or((&inside[..at], ""), |split: usize| (&inside[..split], &inside[split + 4..at]));
                return first_crate(of_type).or_else(|| first_crate(of_trait));
            }
            '>' => depth -= 1,
            ' ' if depth == 0 && split.is_none() && inside[at..].starts_with(" as ") => split = Some(at),
            _ => {}
        }
    }
    None
}

fn first_crate(path: &str) -> Option<String> {
    let mut path = path;
    loop {
        let before = path;
        for prefix in ["&", "*const ", "*mut ", "mut ", "dyn ", "impl ", "[", "(", "<"] {
            path = path.strip_prefix(prefix).unwrap_or(path);
        }
        if path == before {
            break;
        }
    }
    let end = path.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(path.len());
    let word = &path[..end];
    (path[end..].starts_with("::") && !word.is_empty()).then(|| word.to_string())
}

/// The crate that a source file is of, where its place says so: debug information of line tables has no paths of functions.
pub(super) fn crate_of_file(file: &str) -> Option<String> {
    if !file.ends_with(".rs") {
        return None;
    }
    let (before, _) = file.rsplit_once("/src/")?;
    let (folders, folder) = before.rsplit_once('/')?;
    // `/rustc/…/library/core/src/…`, `~/.cargo/registry/src/index.crates.io-…/candle-core-0.11.1/src/…`
    if folders.ends_with("/library") {
        return Some(folder.replace('-', "_"));
    }
    if !folders.rsplit_once('/').is_some_and(|(above, _)| above.ends_with("/registry/src")) {
        return None;
    }
    let is_version = |(at, _): &(usize, &str)| folder[at + 1..].starts_with(|c: char| c.is_ascii_digit());
    let (version, _) = folder.match_indices('-').find(is_version)?;
    Some(folder[..version].replace('-', "_"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_the_library_or_of_a_registry_names_its_crate() {
        for (file, expected) in [
            ("/rustc/59807616e1fa/library/core/src/ops/function.rs", Some("core")),
            ("/home/a/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/candle-core-0.11.1/src/tensor.rs", Some("candle_core")),
            ("/home/a/.cargo/registry/src/index.crates.io-1949/gemm-f16-0.19.0-rc.1/src/a/src/lib.rs", None),
            ("/home/a/.cargo/registry/src/index.crates.io-1949/gemm-f16-0.19.0-rc.1/src/lib.rs", Some("gemm_f16")),
            ("src/main.rs", None),
            ("/home/a/program/src/main.rs", None),
            ("/usr/src/libc/math.c", None),
        ] {
            assert_eq!(crate_of_file(file).as_deref(), expected, "{file}");
        }
    }

    #[test]
    fn the_crate_of_a_path_is_that_of_its_type() {
        for (name, expected) in [
            ("candle_core::tensor::Tensor::matmul", Some("candle_core")),
            ("<candle_core::cpu::Cpu as candle_core::backend::Device>::f", Some("candle_core")),
            ("<&mut core::fmt::Formatter<'_> as alloc::fmt::Write>::write", Some("core")),
            ("<[T] as alloc::slice::Concat>::concat", Some("alloc")),
            ("<fn() -> u32 as program::Call>::call", Some("program")),
            ("<alloc::vec::Vec<T> as core::ops::Deref>::deref", Some("alloc")),
            ("core::ptr::drop_in_place<program::Thing>", Some("core")),
            ("<dyn program::Shape>::area", Some("program")),
            ("main", None),
            ("<<<", None),
            ("", None),
        ] {
            assert_eq!(crate_of(name).as_deref(), expected, "{name}");
        }
    }

    #[test]
    fn symbols_of_rust_have_a_crate_and_no_hash() {
        assert_eq!(
            name_and_crate("_ZN3std2io5stdio6_print17h0123456789abcdefE"),
            ("std::io::stdio::_print".into(), Some("std".into()))
        );
        assert_eq!(name_and_crate("_RNvC7mycrate3foo"), ("mycrate::foo".into(), Some("mycrate".into())));
        assert_eq!(name_and_crate("_ZN9wikipedia7article6formatEv"), ("wikipedia::article::format()".into(), None));
        assert_eq!(name_and_crate("memcpy"), ("memcpy".into(), None));
    }
}
