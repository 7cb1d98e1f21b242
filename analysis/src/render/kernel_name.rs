//! Names of kernels as tables show them. Pure.

/// A demangled name without its return type, parameters and template arguments: what is left tells kernels apart at a glance.
///
/// Of a wrapper that takes the real kernel as its template argument (`cutlass::Kernel2<…>`, `DeviceReduceKernel<…>`) the argument
/// stays, because every kernel of a library carries the wrapper's name.
pub(super) fn short(name: &str) -> String {
    let name = name.trim();
    let whole = without_parameters(name.strip_prefix("void ").unwrap_or(name));
    let (base, arguments) = match whole.find('<') {
        // Operators such as `operator<` and names that begin with a bracket are left as they are.
        Some(at) if at > 0 && whole.ends_with('>') && !whole[..at].ends_with("operator") => {
            (&whole[..at], &whole[at + 1..whole.len() - 1])
        }
        _ => (whole, ""),
    };
    let own = base.rsplit("::").next().unwrap_or(base);
    let is_wrapper = own.starts_with("Kernel") || own.ends_with("Kernel");
    match first_argument(arguments) {
        Some(inner) if is_wrapper => format!("{own}<{inner}>"),
        _ if own.is_empty() => name.to_string(),
        _ => own.to_string(),
    }
}

/// Cuts the parameter list: the last bracketed part, where nothing but qualifiers follows it.
fn without_parameters(name: &str) -> &str {
    let Some(close) = name.rfind(')') else { return name };
    let mut depth = 0usize;
    for (at, c) in name[..=close].char_indices().rev() {
        match c {
            ')' => depth += 1,
            '(' => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    let before = name[..at].trim_end();
                    // `(anonymous namespace)::f` and `operator()` have brackets that are no parameters.
                    let is_list =
                        !before.is_empty() && !name[close + 1..].starts_with("::") && !before.ends_with("operator");
                    return if is_list { before } else { name };
                }
            }
            _ => {}
        }
    }
    name
}

/// First template argument without its own arguments and namespaces, where it is a name.
fn first_argument(arguments: &str) -> Option<&str> {
    let end = arguments.find([',', '<', '(']).unwrap_or(arguments.len());
    let first = arguments[..end].trim();
    let own = first.rsplit("::").next().unwrap_or(first);
    own.starts_with(|c: char| c.is_alphabetic() || c == '_').then_some(own)
}

#[cfg(test)]
mod tests {
    use super::short;

    #[test]
    fn names_lose_what_does_not_tell_them_apart() {
        let cases = [
            ("ucopy_bf16", "ucopy_bf16"),
            (
                "ampere_bf16_s16816gemm_bf16_64x64_ldg8_f2f_stages_64x5_tn",
                "ampere_bf16_s16816gemm_bf16_64x64_ldg8_f2f_stages_64x5_tn",
            ),
            (
                "void gemv2T_kernel_val<int, int, __nv_bfloat16, __nv_bfloat16, float, 128>(cublasGemvParamsEx<int, float>, float)",
                "gemv2T_kernel_val",
            ),
            (
                "void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_64x64_64x5_tn_align8>(cutlass_80::Params)",
                "Kernel2<cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_64x64_64x5_tn_align8>",
            ),
            ("void cub::DeviceReduceKernel<cub::Policy<float>::P, float*>(float*, int)", "DeviceReduceKernel<Policy>"),
            ("(anonymous namespace)::softmax(float*)", "softmax"),
            ("foo::bar::operator()(int) const", "operator()"),
            ("", ""),
            (")(", ")("),
            ("a<b", "a<b"),
            ("void ", "void"),
            ("<x>", "<x>"),
            ("f(é)", "f"),
        ];
        for (name, expected) in cases {
            assert_eq!(short(name), expected, "of `{name}`");
        }
    }

    #[test]
    fn no_text_makes_it_panic() {
        let pieces = ["void ", "a", "::", "<", ">", "(", ")", ",", "é", "operator", " "];
        let mut state = 7u64;
        for _ in 0..20_000 {
            let mut text = String::new();
            for _ in 0..8 {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                text.push_str(pieces[(state >> 33) as usize % pieces.len()]);
            }
            assert!(short(&text).len() <= text.len().max(1), "{text}");
        }
    }
}
