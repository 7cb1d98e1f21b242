//! How many connections there is room for, as each is an open file.

/// Connections beyond `--connections` that may be open for a moment: a thousand clients may come at once.
const MOMENTARY: usize = 1024;

/// Files that the process has open besides its connections.
const OTHER_FILES: usize = 128;

/// The connections that stay open, as far as there is room for `wanted`, and those that may be open for a moment
/// besides. Raises the process's limit on open files if that is needed and allowed.
pub(crate) fn connections(wanted: usize) -> (usize, usize) {
    let files = wanted.saturating_add(MOMENTARY + OTHER_FILES);
    let may = raise_limit(files);
    let (stay, momentary) = divided(wanted, may.saturating_sub(OTHER_FILES));
    if stay < wanted {
        eprintln!(
            "{wanted} connections need {files} open files, and this process may have {may}: {stay} are open at once; \
             raise `ulimit -n` for more"
        );
    }
    (stay, momentary)
}

/// `room` for both: without some that are open for a moment, nobody would be let in to take the place of those that
/// idle.
fn divided(wanted: usize, room: usize) -> (usize, usize) {
    let room = room.max(2);
    let stay = wanted.min(room - (room / 4).clamp(1, MOMENTARY));
    (stay, (room - stay).min(MOMENTARY))
}

/// Raises the limit on open files to `wanted`, as far as that is allowed, and returns how many of them there may be.
#[cfg(unix)]
fn raise_limit(wanted: usize) -> usize {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let Some(current) = current.filter(|current| *current < wanted as u64) else { return wanted };
    let raised = maximum.map_or(wanted as u64, |maximum| maximum.min(wanted as u64));
    let is_raised = setrlimit(Resource::Nofile, Rlimit { current: Some(raised), maximum }).is_ok();
    usize::try_from(if is_raised { raised } else { current }).unwrap_or(wanted)
}

#[cfg(not(unix))]
fn raise_limit(wanted: usize) -> usize {
    wanted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_may_always_be_open_for_a_moment() {
        assert_eq!(divided(256, 256 + MOMENTARY), (256, MOMENTARY));
        assert_eq!(divided(65_535, 65_535 + MOMENTARY), (65_535, MOMENTARY));
        // As many files as many systems allow at first.
        assert_eq!(divided(256, 896), (256, 640));
        assert_eq!(divided(2_000, 896), (672, 224));
        assert_eq!(divided(256, 0), (1, 1));
    }
}
