//! Which of a machine's GPUs are meant. NVML and CUDA number them differently, so UUIDs identify them. Pure.

use super::gpu_source::Unavailable;

/// Names one GPU of the machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GpuId {
    /// The UUID as NVML writes it, or a unique prefix of it. Case does not matter.
    Uuid(String),
    /// NVML's index, the one `nvidia-smi` shows. CUDA's ordinals may differ.
    Index(u32),
}

/// A number is an index, anything else a UUID.
impl From<&str> for GpuId {
    fn from(text: &str) -> Self {
        let text = text.trim();
        text.parse().map_or_else(|_| GpuId::Uuid(text.to_string()), GpuId::Index)
    }
}

/// A number is an index, anything else a UUID.
impl From<String> for GpuId {
    fn from(text: String) -> Self {
        text.as_str().into()
    }
}

impl From<u32> for GpuId {
    fn from(index: u32) -> Self {
        GpuId::Index(index)
    }
}

impl std::fmt::Display for GpuId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            GpuId::Uuid(uuid) => write!(f, "`{uuid}`"),
            GpuId::Index(index) => write!(f, "GPU index {index}"),
        }
    }
}

/// The places in `there` (index and UUID of each GPU) that `wanted` names, ascending; all if nothing is named.
pub(super) fn select(wanted: &[GpuId], there: &[(u32, &str)]) -> Result<Vec<usize>, Unavailable> {
    let fits = |id: &GpuId, (index, uuid): &(u32, &str)| match id {
        GpuId::Index(wanted) => wanted == index,
        // An empty prefix would match every GPU.
        GpuId::Uuid(wanted) => {
            !wanted.is_empty() && uuid.get(..wanted.len()).is_some_and(|head| head.eq_ignore_ascii_case(wanted))
        }
    };
    let mut places = Vec::new();
    for id in wanted {
        let found: Vec<usize> = (0..there.len()).filter(|place| fits(id, &there[*place])).collect();
        if let [place] = found[..] {
            places.push(place);
            continue;
        }
        let there = there.iter().map(|(index, uuid)| format!("{index}: {uuid}")).collect::<Vec<_>>().join(", ");
        return Err(Unavailable::NotThatGpu { wanted: id.to_string(), several: !found.is_empty(), there });
    }
    if wanted.is_empty() {
        places.extend(0..there.len());
    }
    places.sort_unstable();
    places.dedup();
    Ok(places)
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: &str = "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6";
    const B: &str = "GPU-8932aaaa-0000-4106-c12f-20bd9faed9f6";

    fn chosen(wanted: &[&str]) -> Result<Vec<usize>, Unavailable> {
        select(&wanted.iter().map(|w| GpuId::from(*w)).collect::<Vec<_>>(), &[(0, A), (3, B)])
    }

    #[test]
    fn gpus_are_chosen_by_uuid_its_beginning_or_index() {
        assert_eq!(chosen(&[]), Ok(vec![0, 1]), "nothing in particular is all");
        assert_eq!(chosen(&[B]), Ok(vec![1]));
        assert_eq!(chosen(&["gpu-8932F"]), Ok(vec![0]));
        assert_eq!(chosen(&["3", A, " 0 "]), Ok(vec![0, 1]), "each once, in NVML's order; 3 is an index, not a place");
    }

    #[test]
    fn what_names_no_single_gpu_is_an_error_that_lists_them() {
        let none = chosen(&["1"]).expect_err("no such index").to_string();
        assert!(none.contains("GPU index 1 names none") && none.contains(A) && none.contains("3: GPU-8932a"), "{none}");
        let several = chosen(&["GPU-8932"]).expect_err("ambiguous").to_string();
        assert!(several.contains("`GPU-8932` names several"), "{several}");
        assert!(chosen(&[""]).is_err(), "an empty name is not any GPU");
        assert!(chosen(&["GPU-ééé"]).is_err() && chosen(&["MIG-8932f937"]).is_err());
    }
}
