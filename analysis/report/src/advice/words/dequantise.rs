use crate::advice::sentence::Sentence;

pub(super) fn words(it: &Sentence<'_>) -> (String, String) {
    let Sentence { at, kernel, .. } = it;
    (
        format!(
            "{} kernels a step expand quantised weights ({kernel}), {}, most of it in `{at}`",
            it.number("kernels"),
            it.time("device_ns")
        ),
        format!(
            "Multiply quantised weights directly in `{at}`, or expand them once where memory allows (`--dequantize`)"
        ),
    )
}

pub(super) fn plain(it: &Sentence<'_>) -> (String, String) {
    (
        "Compute with the compressed weights as they are".to_string(),
        format!("expanding them takes {} each time", it.time("device_ns")),
    )
}
