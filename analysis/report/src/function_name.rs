//! How functions of the program are called where there is little room.

/// The last two parts of a path, without the arguments of generics: what tells a function in a narrow column.
pub(crate) fn short(function: &str) -> String {
    // `<Type as Trait>::f` is the type's.
    let qualified = function.strip_prefix('<').and_then(|inner| {
        let close = closing(inner)?;
        let of = inner[..close].split(" as ").next().unwrap_or_default();
        Some(format!("{}{}", without_arguments(of), without_arguments(&inner[close + 1..])))
    });
    let plain = qualified.unwrap_or_else(|| without_arguments(function));
    let parts: Vec<&str> = plain.split("::").filter(|part| !part.is_empty()).collect();
    let tail = parts[parts.len().saturating_sub(2)..].join("::");
    if tail.is_empty() { function.to_string() } else { tail }
}

/// Where the bracket ends that was opened before the text.
fn closing(text: &str) -> Option<usize> {
    let mut depth = 1usize;
    text.char_indices().find_map(|(at, c)| {
        match c {
            '<' => depth += 1,
            '>' => depth -= 1,
            _ => {}
        }
        (depth == 0).then_some(at)
    })
}

fn without_arguments(text: &str) -> String {
    let mut depth = 0usize;
    text.chars()
        .filter(|c| {
            match c {
                '<' => depth += 1,
                '>' if depth > 0 => {
                    depth -= 1;
                    return false;
                }
                _ => {}
            }
            depth == 0
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_told_by_the_end_of_their_path() {
        let of = short;
        assert_eq!(of("candle_core::tensor::Tensor::matmul"), "Tensor::matmul");
        assert_eq!(of("gemm_f32::gemm::f32::fma::gemm_basic"), "fma::gemm_basic");
        assert_eq!(of("core::slice::iter::Iter<T>::new"), "Iter::new");
        assert_eq!(of("syscall"), "syscall");
        assert_eq!(of("[libfoo.so]"), "[libfoo.so]");
        assert_eq!(of("<alloc::sync::Arc<T> as core::ops::Drop>::drop"), "Arc::drop");
    }
}
