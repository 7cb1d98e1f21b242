//! Files of a data set, by their names.

use std::path::{Component, Path, PathBuf};

/// Whether a file is an image, by its extension.
pub(crate) fn is_image(path: &Path) -> bool {
    matches!(extension(path).as_str(), "png" | "jpg" | "jpeg" | "webp" | "bmp" | "gif")
}

/// `file` in `folder`; refused if it lies elsewhere, because a data set may come from anywhere.
pub(crate) fn within(folder: &Path, file: &Path) -> Result<PathBuf, String> {
    let inside = file.components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
    let refused = || format!("{} lies outside of the data set's folder: name a file in it", file.display());
    inside.then(|| folder.join(file)).ok_or_else(refused)
}

pub(crate) fn extension(path: &Path) -> String {
    path.extension().map(|e| e.to_string_lossy().to_ascii_lowercase()).unwrap_or_default()
}
