//! Finds out why nsys could not turn its recording into a report. It does so with a second program, which needs
//! libraries of its own and does not name the missing ones.

use std::path::{Path, PathBuf};
use std::process::Command;

const PROGRAM: &str = "QdstrmImporter";

/// Libraries that are often missing, and Debian's packages of them.
const PACKAGES: &[(&str, &str)] = &[
    ("libdw.so.1", "libdw1"),
    ("libelf.so.1", "libelf1"),
    ("libssh.so", "libssh-4"),
    ("libgssapi_krb5.so.2", "libgssapi-krb5-2"),
    ("libpfm.so.4", "libpfm4"),
];

/// In a few words, what is wrong with the importer of this nsys.
pub(super) fn diagnosis(nsys: &Path) -> String {
    let Some(importer) = importer(nsys) else {
        return format!("its {PROGRAM} is not installed, install the whole of Nsight Systems");
    };
    let output = Command::new("ldd").arg(&importer).output();
    let lacking = output.map(|o| lacking(&String::from_utf8_lossy(&o.stdout))).unwrap_or_default();
    if lacking.is_empty() {
        return "see what it says above".to_string();
    }
    let names: Vec<String> = lacking
        .iter()
        .map(|library| match PACKAGES.iter().find(|(name, _)| library.starts_with(name)) {
            Some((_, package)) => format!("{library} (Debian's package {package})"),
            None => library.clone(),
        })
        .collect();
    format!("{} lacks {}, install what is missing and run `{}`", PROGRAM, names.join(", "), importer.display())
}

/// The importer, which is in a directory `host-*` beside or above that of nsys.
fn importer(nsys: &Path) -> Option<PathBuf> {
    let nsys = nsys.canonicalize().ok()?;
    nsys.ancestors().skip(2).take(2).find_map(|above| {
        let entries = std::fs::read_dir(above).ok()?;
        entries.flatten().map(|entry| entry.path().join(PROGRAM)).find(|file| file.is_file())
    })
}

/// Names of the libraries that `ldd` did not find.
fn lacking(ldd: &str) -> Vec<String> {
    let missing = ldd.lines().filter(|line| line.contains("not found"));
    let mut names: Vec<String> = missing
        .filter_map(|line| line.split_whitespace().next())
        .map(|name| name.trim_end_matches(':').into())
        .collect();
    names.sort();
    names.dedup();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ldd_misses_is_named_once() {
        let ldd = "\tlibm.so.6 => /lib/libm.so.6 (0x1)\n\tlibssh.so => not found\n\tlibdw.so.1 => not found\n\tlibssh.so => not found\n";
        assert_eq!(lacking(ldd), ["libdw.so.1", "libssh.so"]);
    }
}
