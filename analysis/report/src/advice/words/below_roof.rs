use crate::advice::sentence::Sentence;

pub(super) fn words(it: &Sentence<'_>) -> (String, String) {
    let Sentence { at, kernel, .. } = it;
    (
        format!("`{at}` reaches {} of what its work allows, {} a step", it.share("of_roof"), it.time("time_ns")),
        match it.advice.place.kernel {
            Some(_) => format!(
                "Replace or tune {kernel} in `{at}`: another shape, layout or library, or one kernel for several of \
                them"
            ),
            None => {
                let library = match is_no_product(at) {
                    true => "",
                    false => "; if it is a product, a tuned library (MKL, Accelerate) in place of the built-in one",
                };
                format!("Speed up `{at}`: another layout or type, larger batches{library}")
            }
        },
    )
}

pub(super) fn plain(it: &Sentence<'_>) -> (String, String) {
    let Sentence { part, .. } = it;
    (format!("Make {part} faster"), format!("it reaches {} of what the machine allows", it.share("of_roof")))
}

/// Whether an operation is none that multiplies matrices, by its name.
fn is_no_product(at: &str) -> bool {
    let name = at.rsplit('/').next().unwrap_or_default().to_ascii_lowercase();
    ["softmax", "norm", "rotary", "rope", "silu", "gelu", "embed", "sample"].iter().any(|word| name.contains(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_library_of_products_is_advised_for_what_is_none() {
        assert!(is_no_product("block/self_attn/softmax") && is_no_product("model/norm"));
        assert!(!is_no_product("block/mlp/up_proj"));
    }
}
