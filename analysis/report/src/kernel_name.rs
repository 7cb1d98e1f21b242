//! Short kernel names for tables. Pure.

/// A demangled name without its return type, parameters and template arguments: short, but still enough to distinguish
/// kernels.
///
/// A template's symbol carries its return type, which may be a long one (`std::enable_if<…>::type f<…>(…)`): the name
/// is the part right before the parameters. If a wrapper takes the real kernel as its template argument, the argument
/// is kept, because every kernel of a library has the wrapper's name: alone if it is one of CUTLASS's own names
/// (`cutlass::Kernel2<cutlass_80_…>`), otherwise after the wrapper's name (`DeviceReduceKernel<Policy>`). The generic
/// name `kernel` keeps the namespace before it.
pub(super) fn short(name: &str) -> String {
    let name = name.trim();
    let whole = without_return_type(without_parameters(name));
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
        Some(inner) if is_wrapper && inner.starts_with("cutlass") => inner.to_string(),
        Some(inner) if is_wrapper => format!("{own}<{inner}>"),
        _ if own.is_empty() => name.to_string(),
        _ if own.eq_ignore_ascii_case("kernel") => with_namespace(base).to_string(),
        _ => own.to_string(),
    }
}

/// The last two parts of a qualified name, or all of it if there are no more.
fn with_namespace(base: &str) -> &str {
    let mut separators = base.rmatch_indices("::");
    separators.next();
    separators.next().map_or(base, |(at, found)| &base[at + found.len()..])
}

/// Cuts everything up to the last space outside brackets: `void f`, `std::enable_if<a, b>::type n::f<…>`.
fn without_return_type(name: &str) -> &str {
    let mut depth = 0usize;
    let mut end = None;
    for (at, c) in name.char_indices() {
        match c {
            '<' | '(' | '[' | '{' => depth += 1,
            '>' | ')' | ']' | '}' => depth = depth.saturating_sub(1),
            ' ' if depth == 0 => end = Some(at),
            _ => {}
        }
    }
    match end {
        // `operator new` and conversions such as `operator float` contain a space that does not end a type.
        Some(at) if !name[..at].ends_with("operator") => &name[at + 1..],
        _ => name,
    }
}

/// Cuts the parameter list: the last bracketed part, if only qualifiers follow it.
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
                    // `(anonymous namespace)::f` and `operator()` have brackets that are not parameters; those of a
                    // cast in the template arguments, `f<(bool)1>`, are followed by an angle bracket.
                    let rest = &name[close + 1..];
                    let is_list = !before.is_empty()
                        && !rest.starts_with("::")
                        && !rest.contains('>')
                        && !before.ends_with("operator");
                    return if is_list { before } else { name };
                }
            }
            _ => {}
        }
    }
    name
}

/// First template argument without its own arguments and namespaces, if it is a name.
fn first_argument(arguments: &str) -> Option<&str> {
    let end = arguments.find([',', '<', '(']).unwrap_or(arguments.len());
    let first = arguments[..end].trim();
    let own = first.rsplit("::").next().unwrap_or(first);
    own.starts_with(|c: char| c.is_alphabetic() || c == '_').then_some(own)
}

#[cfg(test)]
mod tests {
    use super::short;
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};

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
                "cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_64x64_64x5_tn_align8",
            ),
            (
                "void cutlass::Kernel2<cutlass_80_wmma_tensorop_bf16_s161616gemm_bf16_16x16_128x2_tn_align8>(T1::Params)",
                "cutlass_80_wmma_tensorop_bf16_s161616gemm_bf16_16x16_128x2_tn_align8",
            ),
            (
                "Kernel2<cutlass_75_wmma_tensorop_bf16_s161616gemm_bf16_16x16_128x1_nn_align8>(Params)",
                "cutlass_75_wmma_tensorop_bf16_s161616gemm_bf16_16x16_128x1_nn_align8",
            ),
            (
                "std::enable_if<!T7, void>::type internal::gemvx::kernel<int, int, __nv_bfloat16, __nv_bfloat16, float, \
                    false, true, true, false, 7, false, cublasGemvParamsEx<int, cublasGemvTensorStridedBatched<__nv_bfloat16 const>>>(T13)",
                "gemvx::kernel",
            ),
            (
                "std::enable_if<(T1)>=(1) && (T1)<=(8), void>::type \
                    gemvNSP_kernel<__nv_bfloat16, float, (int)1, (bool)0>(T3)",
                "gemvNSP_kernel",
            ),
            (
                "std::enable_if<!(false), void>::type gemvNSP_kernel<__half, __half, __half, float, 1, 16, 4, 1024, \
                    cublasGemvParamsEx<int, cublasGemvTensorStridedBatched<__half const>, float>>(T9)",
                "gemvNSP_kernel",
            ),
            ("nvjet_tst_64x8_64x16_1x2_h_bz_TNT", "nvjet_tst_64x8_64x16_1x2_h_bz_TNT"),
            (
                "void cublasLt::splitKreduce_kernel<32, 16, int, float, __nv_bfloat16, float, __nv_bfloat16, true, false, false>\
                    (cublasLt::cublasSplitKParams<float>, float const*, __nv_bfloat16 const*, float const*, void*, long)",
                "splitKreduce_kernel",
            ),
            ("rmsnorm_bf16", "rmsnorm_bf16"),
            (
                "void generate_seed_pseudo<rng_config<curandStateXORWOW, (curandOrdering)101>>(unsigned long long, \
                unsigned long long, curandOrdering, curandStateXORWOW*, unsigned int*)",
                "generate_seed_pseudo",
            ),
            (
                "void dot_kernel<float, 128, 0, cublasDotParams<cublasGemvTensor<float const>, float>>(cublasDotParams<float>)",
                "dot_kernel",
            ),
            ("unsigned int* ns::f<unsigned int>(unsigned int)", "f"),
            ("void f<(bool)1>", "f"),
            (
                "void flash_fwd_kernel<Flash_fwd_kernel_traits<128, 64, 64, 4, false, false, cutlass::bfloat16_t>, true>\
                (Flash_fwd_params)",
                "flash_fwd_kernel",
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
        let mut random = StdRng::seed_from_u64(7);
        for _ in 0..20_000 {
            let text: String = (0..8).map(|_| pieces[random.random_range(0..pieces.len())]).collect();
            assert!(short(&text).len() <= text.len().max(1), "{text}");
        }
    }
}
