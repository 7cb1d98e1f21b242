use crate::advice::sentence::Sentence;

pub(super) fn words(it: &Sentence<'_>) -> (String, String) {
    let Sentence { phase, .. } = it;
    let faults = it.advice.figure("faults").map_or(String::new(), |n| format!(", with {n:.0} page faults"));
    (
        format!(
            "a step `{phase}` spends {} in the system getting memory{faults}, {}",
            it.share("share"),
            it.most_of_it()
        ),
        format!(
            "Reuse the tensors of `{phase}`, or let the allocator keep what is freed: mimalloc or jemalloc, or for glibc \
             MALLOC_MMAP_THRESHOLD_=1073741824 and MALLOC_TRIM_THRESHOLD_=1073741824"
        ),
    )
}

pub(super) fn plain(it: &Sentence<'_>) -> (String, String) {
    let Sentence { step, .. } = it;
    (
        "Keep memory instead of giving it back at every step".to_string(),
        format!("{} of {step} goes into getting memory from the system", it.share("share")),
    )
}
