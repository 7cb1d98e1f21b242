//! A binary or library that the process runs code from: its sections, read from the file and never from the memory it is
//! mapped to, which may go at any time.

use super::memory_map::Mapping;
use super::sys;
use framehop::ModuleSectionInfo;
use memmap2::Mmap;
use object::{Object, ObjectSection, ObjectSegment, ObjectSymbol, SegmentFlags};
use std::fs::File;
use std::ops::{Deref, Range};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The bytes of a file, or a copy of memory.
#[derive(Debug)]
enum Bytes {
    File(Mmap),
    Copy(Vec<u8>),
}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Bytes::File(map) => map,
            Bytes::Copy(bytes) => bytes,
        }
    }
}

/// Some of a binary's bytes.
#[derive(Debug, Clone)]
pub(super) struct Part {
    bytes: Arc<Bytes>,
    range: Range<usize>,
}

impl Part {
    /// Bytes that are in no file.
    pub(super) fn of(bytes: Vec<u8>) -> Self {
        Self { range: 0..bytes.len(), bytes: Arc::new(Bytes::Copy(bytes)) }
    }
}

impl Deref for Part {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.bytes.get(self.range.clone()).unwrap_or_default()
    }
}

/// A section that unwinding needs, and the addresses it is meant for.
#[derive(Debug)]
struct Section {
    name: &'static str,
    addresses: Range<u64>,
    part: Part,
}

/// Sections that unwinding needs, where there are.
const SECTIONS: [&str; 4] = [".text", ".eh_frame", ".eh_frame_hdr", ".got"];

/// A segment with code: which bytes of the file are meant for which addresses.
#[derive(Debug, Clone, Copy)]
struct Segment {
    address: u64,
    offset: u64,
    bytes: u64,
}

/// See the module's text.
#[derive(Debug)]
pub(super) struct BinaryFile {
    /// Name without folders.
    pub(super) name: Arc<str>,
    pub(super) build_id: Option<Arc<str>>,
    /// Where it was opened, and its inode; none for code that is in no file.
    opened: Option<(PathBuf, u64)>,
    /// Names of functions without debug information, by address.
    symbols: Vec<Symbol>,
    bytes: Arc<Bytes>,
    segments: Vec<Segment>,
    sections: Vec<Section>,
}

/// A function that the loader knows by name.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Symbol {
    addresses: Range<u64>,
    name: String,
}

impl BinaryFile {
    /// Opens the file of a mapping, or copies the code that the kernel provides. `None` if neither can be read.
    pub(super) fn of(mapping: &Mapping) -> Option<Self> {
        if mapping.path == "[vdso]" {
            let bytes = (mapping.range.end - mapping.range.start).min(1 << 20);
            let mut copy = vec![0; bytes as usize];
            // Not by a pointer: were the mapping gone, this is an error and no crash.
            File::open("/proc/self/mem").ok()?.read_exact_at(&mut copy, mapping.range.start).ok()?;
            return Self::parse(Bytes::Copy(copy), "[vdso]".into(), None);
        }
        let (file, path) = Self::open(mapping)?;
        let name = Path::new(&mapping.path).file_name()?.to_string_lossy().into();
        Self::parse(Bytes::File(sys::map_file(&file).ok()?), name, Some((path, mapping.inode)))
    }

    /// The very file that is mapped: one with the same name may have taken its place.
    fn open(mapping: &Mapping) -> Option<(File, PathBuf)> {
        if !mapping.path.starts_with('/') {
            return None;
        }
        let of_range = format!("/proc/self/map_files/{:x}-{:x}", mapping.range.start, mapping.range.end);
        [mapping.path.as_str(), "/proc/self/exe", &of_range].into_iter().map(PathBuf::from).find_map(|path| {
            std::fs::metadata(&path).ok().filter(|m| is_file(m, mapping.inode))?;
            let file = File::open(&path).ok()?;
            file.metadata().ok().filter(|m| is_file(m, mapping.inode))?;
            Some((file, path))
        })
    }

    fn parse(bytes: Bytes, name: Arc<str>, opened: Option<(PathBuf, u64)>) -> Option<Self> {
        let bytes = Arc::new(bytes);
        let elf = object::File::parse(&bytes[..]).ok()?;
        let section = |name: &'static str| {
            let section = elf.section_by_name(name)?;
            let (offset, length) = section.file_range()?;
            let range = usize::try_from(offset).ok()?..usize::try_from(offset.checked_add(length)?).ok()?;
            bytes.get(range.clone())?;
            let addresses = section.address()..section.address().checked_add(section.size())?;
            Some(Section { name, addresses, part: Part { bytes: Arc::clone(&bytes), range } })
        };
        let executable = |flags| matches!(flags, SegmentFlags::Elf { p_flags } if p_flags & object::elf::PF_X != 0);
        let segments = elf.segments().filter(|segment| executable(segment.flags())).map(|segment| {
            let (offset, length) = segment.file_range();
            Segment { address: segment.address(), offset, bytes: length }
        });
        let symbols = elf.dynamic_symbols().filter(|s| s.is_definition() && s.size() > 0).filter_map(|symbol| {
            let addresses = symbol.address()..symbol.address().checked_add(symbol.size())?;
            Some(Symbol { addresses, name: symbol.name().ok()?.to_string() })
        });
        let mut symbols: Vec<_> = symbols.collect();
        symbols.sort_by(|a, b| (a.addresses.start, &a.name).cmp(&(b.addresses.start, &b.name)));
        let build_id = elf.build_id().ok().flatten();
        let hexadecimal = |id: &[u8]| id.iter().map(|byte| format!("{byte:02x}")).collect::<String>().into();
        Some(Self {
            name,
            build_id: build_id.map(hexadecimal),
            opened,
            symbols,
            segments: segments.collect(),
            sections: SECTIONS.into_iter().filter_map(section).collect(),
            bytes: Arc::clone(&bytes),
        })
    }

    /// Where to read it again, if it is still the same there.
    pub(super) fn path(&self) -> Option<&Path> {
        let (path, inode) = self.opened.as_ref()?;
        std::fs::metadata(path).ok().filter(|m| is_file(m, *inode))?;
        Some(path)
    }

    /// What has to be subtracted from an address in this mapping to have the address as the file counts.
    pub(super) fn bias(&self, mapping: &Mapping) -> Option<u64> {
        // A mapping begins at a page, its segment perhaps later in that page: both ends may stick out.
        let length = mapping.range.end - mapping.range.start;
        let within = |s: &&Segment| {
            s.offset < mapping.offset.saturating_add(length) && mapping.offset < s.offset.saturating_add(s.bytes)
        };
        let segment = self.segments.iter().find(within)?;
        let start = segment.address.wrapping_add(mapping.offset).wrapping_sub(segment.offset);
        Some(mapping.range.start.wrapping_sub(start))
    }

    /// The function at an address as the file counts, as the loader knows it: a library without debug information often has
    /// no other names.
    pub(super) fn symbol(&self, address: u64) -> Option<&str> {
        let after = self.symbols.partition_point(|s| s.addresses.start <= address);
        self.symbols[..after].last().filter(|s| s.addresses.contains(&address)).map(|s| s.name.as_str())
    }

    fn section(&self, name: &[u8]) -> Option<&Section> {
        self.sections.iter().find(|section| section.name.as_bytes() == name)
    }

    /// Code at an address as the file counts.
    pub(super) fn code(&self, address: u64, bytes: usize) -> Option<&[u8]> {
        let holds = |s: &&Segment| address >= s.address && address - s.address < s.bytes;
        let segment = self.segments.iter().find(holds)?;
        let start = usize::try_from(segment.offset.checked_add(address - segment.address)?).ok()?;
        self.bytes.get(start..start.checked_add(bytes)?)
    }
}

/// A regular file of this inode. A pipe or a device would not answer.
fn is_file(metadata: &std::fs::Metadata, inode: u64) -> bool {
    metadata.is_file() && metadata.ino() == inode
}

impl ModuleSectionInfo<Part> for &BinaryFile {
    fn base_svma(&self) -> u64 {
        0
    }

    fn section_svma_range(&mut self, name: &[u8]) -> Option<Range<u64>> {
        self.section(name).map(|section| section.addresses.clone())
    }

    fn section_data(&mut self, name: &[u8]) -> Option<Part> {
        self.section(name).map(|section| section.part.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::super::memory_map::executable_mappings;
    use super::*;

    fn mappings() -> Vec<Mapping> {
        executable_mappings(&std::fs::read_to_string("/proc/self/maps").unwrap())
    }

    #[test]
    fn the_running_program_is_read_with_its_unwind_sections_and_its_code() {
        let here = mappings as *const () as usize as u64;
        let mapping = mappings().into_iter().find(|m| m.range.contains(&here)).unwrap();
        let binary = BinaryFile::of(&mapping).unwrap();
        for name in [".text", ".eh_frame", ".eh_frame_hdr"] {
            assert!(binary.section(name.as_bytes()).is_some_and(|s| !s.part.is_empty()), "{name}");
        }
        assert!(binary.build_id.is_some());
        let bias = binary.bias(&mapping).unwrap();
        let mut code = [0; 8];
        File::open("/proc/self/mem").unwrap().read_exact_at(&mut code, here).unwrap();
        assert_eq!(binary.code(here - bias, 8), Some(&code[..]));
    }

    #[test]
    fn the_kernels_own_library_is_copied() {
        let Some(mapping) = mappings().into_iter().find(|m| m.path == "[vdso]") else { return };
        let binary = BinaryFile::of(&mapping).unwrap();
        assert!(binary.symbols.iter().any(|s| s.name.contains("clock_gettime")), "{:?}", binary.symbols);
    }

    #[test]
    fn a_file_that_is_no_binary_is_none() {
        let file = tempfile_with(b"\x7fELF, but nothing else");
        let inode = std::fs::metadata(&file).unwrap().ino();
        let mapping = Mapping { range: 0x1000..0x2000, offset: 0, inode, path: file.to_string_lossy().into() };
        assert!(BinaryFile::of(&mapping).is_none());
        assert!(BinaryFile::of(&Mapping { inode: inode + 1, ..mapping }).is_none());
        std::fs::remove_file(file).unwrap();
    }

    fn tempfile_with(bytes: &[u8]) -> PathBuf {
        let path = std::env::temp_dir().join(format!("candlescope-stacks-{}", std::process::id()));
        std::fs::write(&path, bytes).unwrap();
        path
    }
}
