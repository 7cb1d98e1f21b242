use crate::advice::sentence::Sentence;

pub(super) fn words(it: &Sentence<'_>) -> (String, String) {
    let Sentence { at, kernel, .. } = it;
    (
        format!(
            "{} kernels a step convert types ({kernel}), {}, most of it in `{at}`",
            it.number("kernels"),
            it.time("device_ns")
        ),
        format!(
            "Keep one type through `{at}`: normalise and attend in the type of the weights, with sums in f32 inside \
            the \
            kernels"
        ),
    )
}

pub(super) fn plain(it: &Sentence<'_>) -> (String, String) {
    ("Keep numbers in one format".to_string(), format!("converting them takes {} each time", it.time("device_ns")))
}
