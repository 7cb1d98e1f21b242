//! Where a run was told to compute.

use candlescope_schema::run::{RunManifest, option_key};

/// What the option `device` of a run says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChosenDevice {
    /// The processors: the option is the word `cpu`.
    Cpu,
    /// A GPU, whichever: the option begins with `cuda` or `gpu`.
    Gpu,
    /// Nothing, or a word that is not known here: programs of others need not have such an option.
    Unsaid,
}

impl ChosenDevice {
    /// The one that the run says it was asked to run on.
    pub fn of(manifest: &RunManifest) -> Self {
        match option_key::DEVICE.of(&manifest.options) {
            Some("cpu") => Self::Cpu,
            Some(word) if word.starts_with("cuda") || word.starts_with("gpu") => Self::Gpu,
            _ => Self::Unsaid,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words() {
        let of = |word: &str| {
            let mut manifest = RunManifest::default();
            manifest.options.insert("device".into(), word.into());
            ChosenDevice::of(&manifest)
        };
        assert_eq!((of("cpu"), of("cuda:1"), of("gpu")), (ChosenDevice::Cpu, ChosenDevice::Gpu, ChosenDevice::Gpu));
        assert_eq!(
            (of("metal"), ChosenDevice::of(&RunManifest::default())),
            (ChosenDevice::Unsaid, ChosenDevice::Unsaid)
        );
    }
}
