//! The process's executable mappings, from `/proc/self/maps`.

use std::ops::Range;

/// A part of memory from which code runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Mapping {
    pub(super) range: Range<u64>,
    /// Where in the file it begins.
    pub(super) offset: u64,
    pub(super) inode: u64,
    /// The file, without the mark of one that was deleted; or `[vdso]` and the like; empty for code made at run time.
    pub(super) path: String,
}

/// Mappings of executable memory, by address.
pub(super) fn executable_mappings(maps: &str) -> Vec<Mapping> {
    maps.lines().filter_map(mapping).collect()
}

/// `55d0c0a00000-55d0c0a20000 r-xp 00002000 fe:01 1234    /usr/bin/program`
fn mapping(line: &str) -> Option<Mapping> {
    let mut rest = line;
    let mut word = || {
        let (word, after) = rest.split_once(' ').unwrap_or((rest, ""));
        rest = after.trim_start();
        word
    };
    let (range, rights, offset, _device, inode) = (word(), word(), word(), word(), word());
    if rights.as_bytes().get(2) != Some(&b'x') {
        return None;
    }
    let (start, end) = range.split_once('-')?;
    Some(Mapping {
        range: u64::from_str_radix(start, 16).ok()?..u64::from_str_radix(end, 16).ok()?,
        offset: u64::from_str_radix(offset, 16).ok()?,
        inode: inode.parse().ok()?,
        path: rest.strip_suffix(" (deleted)").unwrap_or(rest).to_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn executable_mappings_are_read_and_others_are_left_out() {
        let maps = "\
55d0c0a00000-55d0c0a20000 r--p 00000000 fe:01 1234                       /usr/bin/a program
55d0c0a20000-55d0c0a40000 r-xp 00020000 fe:01 1234                       /usr/bin/a program (deleted)
7f0000000000-7f0000001000 rwxp 00000000 00:00 0 
7fff1000a000-7fff1000c000 r-xp 00000000 00:00 0                          [vdso]
nonsense
zz-yy r-xp 0 0 0
";
        let mappings = executable_mappings(maps);
        assert_eq!(mappings.len(), 3);
        assert_eq!(mappings[0].path, "/usr/bin/a program");
        assert_eq!((mappings[0].offset, mappings[0].inode), (0x20000, 1234));
        assert_eq!(mappings[1].path, "");
        assert_eq!(mappings[2].range, 0x7fff_1000_a000..0x7fff_1000_c000);
    }
}
