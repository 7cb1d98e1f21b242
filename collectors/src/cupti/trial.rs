//! What of recording is left out, or done otherwise, so that a script finds out what each part of it costs. Pure.

use candlescope_core::gpu::ActivityError;

/// Says so, from outside.
pub(super) const VARIABLE: &str = "CANDLESCOPE_CUPTI_TRIAL";

/// The words that are understood.
const WORDS: &str = "no-records, no-calls, pinned, buffer=KIB, device-buffer=KIB, joined by commas";

/// What is tried; by default nothing, and kernels are recorded as they are in use. A run under a trial may be
/// incomplete, and says so in its environment (`cupti_trial`).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Trial {
    /// As it was written.
    pub(super) text: String,
    /// Calls are followed, and nothing that they launch is recorded.
    pub(super) no_records: bool,
    /// What runs is recorded, and no call is followed: kernels have no interval.
    pub(super) no_calls: bool,
    /// CUPTI keeps the times of what runs in pinned memory of the host, not on the device.
    pub(super) is_pinned: bool,
    /// Bytes of a buffer for records, in place of the options'.
    pub(super) buffer_bytes: Option<usize>,
    /// Bytes of CUPTI's own buffers on the device, in place of the options'.
    pub(super) device_buffer_bytes: Option<usize>,
}

impl Trial {
    /// What the environment says.
    ///
    /// # Errors
    /// As [`parse`](Self::parse).
    pub(super) fn asked() -> Result<Self, ActivityError> {
        Self::parse(&std::env::var(VARIABLE).unwrap_or_default())
    }

    /// The same; nothing is tried where it is not understood, which the recorder says.
    pub(super) fn told() -> Self {
        Self::asked().unwrap_or_default()
    }

    /// # Errors
    /// If a word is not understood: none of them counts then, because a trial of something else would be taken for the
    /// one that was meant.
    pub(super) fn parse(text: &str) -> Result<Self, ActivityError> {
        let mut trial = Self { text: text.trim().to_string(), ..Self::default() };
        for word in text.split(',').map(str::trim).filter(|word| !word.is_empty()) {
            let unknown =
                || ActivityError(format!("{VARIABLE}: {word} is not understood, and nothing is tried: {WORDS}"));
            // Up to a GiB.
            let bytes = |kib: &str| match kib.parse::<usize>() {
                Ok(kib @ 1..=1_048_576) => Ok(Some(kib << 10)),
                _ => Err(unknown()),
            };
            match word.split_once('=') {
                None if word == "no-records" => trial.no_records = true,
                None if word == "no-calls" => trial.no_calls = true,
                None if word == "pinned" => trial.is_pinned = true,
                Some(("buffer", kib)) => trial.buffer_bytes = bytes(kib)?,
                Some(("device-buffer", kib)) => trial.device_buffer_bytes = bytes(kib)?,
                _ => return Err(unknown()),
            }
        }
        Ok(trial)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trial_is_what_was_written_or_an_error() {
        assert_eq!(Trial::parse(" "), Ok(Trial::default()));
        let all = Trial::parse("no-records, no-calls,pinned,buffer=256,device-buffer=8192").expect("understood");
        assert!(all.no_records && all.no_calls && all.is_pinned);
        assert_eq!((all.buffer_bytes, all.device_buffer_bytes), (Some(262_144), Some(8_388_608)));
        assert_eq!(all.text, "no-records, no-calls,pinned,buffer=256,device-buffer=8192");
        for wrong in
            ["norecords", "pinned=1", "buffer", "buffer=0", "buffer=4M", "device-buffer=2000000", "no-calls;pinned"]
        {
            let error = Trial::parse(wrong).expect_err(wrong);
            assert!(error.0.contains(wrong) && error.0.contains("no-records"), "{error}");
        }
    }
}
