//! What functions are called without the arguments of their generics.

use std::borrow::Cow;

/// The path of a function without the arguments of generics: what a function is, not what it is used with. Type and
/// trait of `<Type as Trait>::f` are part of it.
///
/// ```
/// use candlescope_figures::host_time::function_path;
/// assert_eq!(function_path("catch_unwind<core::result::Result<(), alloc::alloc::Global>>"), "catch_unwind");
/// assert_eq!(function_path("<alloc::raw_vec::RawVec<u8>>::grow_one"), "alloc::raw_vec::RawVec::grow_one");
/// ```
pub fn function_path(name: &str) -> Cow<'_, str> {
    if !name.contains('<') {
        return Cow::Borrowed(name);
    }
    let mut path = String::with_capacity(name.len());
    // Where brackets that are part of the path were opened in it, and how deep in arguments a character is.
    let (mut opened, mut depth, mut before) = (Vec::new(), 0_usize, ' ');
    for (at, c) in name.char_indices() {
        match c {
            '<' if depth == 0 && begins_a_type(&path, &name[at + 1..]) => {
                opened.push(path.len());
                path.push(c);
            }
            '<' => {
                if depth == 0 && path.ends_with("::") {
                    path.truncate(path.len() - 2);
                }
                depth += 1;
            }
            // That of `->` closes nothing.
            '>' if before != '-' && depth > 0 => depth -= 1,
            '>' if before != '-' => close(&mut path, opened.pop()),
            _ if depth == 0 => path.push(c),
            _ => {}
        }
        before = c;
    }
    Cow::Owned(path)
}

/// Whether a bracket behind `path` encloses a type rather than arguments.
fn begins_a_type(path: &str, rest: &str) -> bool {
    path.is_empty() || path.ends_with([' ', '(', '[', '<', '&', '*', ',']) || rest.starts_with("impl ")
}

fn close(path: &mut String, opened: Option<usize>) {
    let is_alone = |inside: &str| !inside.contains(" as ") && !inside.starts_with("impl ");
    match opened {
        // `<Type>::f` is what older compilers call `Type::f`.
        Some(at) if is_alone(&path[at + 1..]) => _ = path.remove(at),
        _ => path.push('>'),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_function_is_used_with_is_not_what_it_is() {
        // As functions of candle 0.11, of the standard library and of libraries in C++ are called in runs.
        let of = |name: &'static str, path: &str| assert_eq!(function_path(name), path);
        of("syscall", "syscall");
        of("candle_core::tensor::Tensor::matmul", "candle_core::tensor::Tensor::matmul");
        of("core::slice::iter::Iter<T>::new", "core::slice::iter::Iter::new");
        of("do_call<core::panic::AssertUnwindSafe<{closure_env#3}>, Vec<Output, alloc::alloc::Global>>", "do_call");
        of(
            "<rayon_core::job::StackJob<L,F,R> as rayon_core::job::Job>::execute",
            "<rayon_core::job::StackJob as rayon_core::job::Job>::execute",
        );
        of(
            "<alloc::boxed::Box<dyn core::ops::FnOnce<(), Output = ()> + Send> as core::ops::FnOnce<()>>::call_once",
            "<alloc::boxed::Box as core::ops::FnOnce>::call_once",
        );
        of(
            "candle_core::tensor_cat::<impl candle_core::tensor::Tensor>::cat",
            "candle_core::tensor_cat::<impl candle_core::tensor::Tensor>::cat",
        );
        of(
            "<u8 as <[_]>::to_vec_in::ConvertVec>::to_vec::<alloc::alloc::Global>",
            "<u8 as [_]::to_vec_in::ConvertVec>::to_vec",
        );
        of("app::map::<fn(f32) -> f32>::{closure#0}", "app::map::{closure#0}");
        of("std::vector<int, std::allocator<int> >::push_back(int const&)", "std::vector::push_back(int const&)");
        of("operator-><T>", "operator->");
        of("operator<<", "operator");
    }
}
