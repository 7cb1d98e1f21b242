//! Texts that are longer than the limit: each is cut where it is read, and the rest of its row, and all other rows,
//! stay.

use super::columns::longest_text;
use crate::limits::{ExceededLimit, Limit, ReadLimits};
use arrow_array::builder::make_view;
use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, RecordBatch, StringViewArray};
use arrow_schema::ArrowError;
use candlescope_schema::run::Finding;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What was cut.
#[derive(Debug, Default)]
pub(super) struct LongTexts {
    values: u64,
    longest: u64,
    /// The first file that had one.
    file: PathBuf,
}

impl LongTexts {
    /// The rows, with texts beyond the limit cut. No text is copied.
    pub(super) fn cut(
        &mut self,
        rows: RecordBatch,
        limits: &ReadLimits,
        file: &Path,
    ) -> Result<RecordBatch, ArrowError> {
        let most = limits.get(Limit::TextBytes);
        let longest = longest_text(&rows, most);
        if longest <= most {
            return Ok(rows);
        }
        self.note(longest, file);
        let columns = rows.columns().iter().map(|column| match column.as_string_view_opt() {
            Some(texts) => {
                let (cut, values) = shortened(texts, most)?;
                self.values += values;
                Ok(Arc::new(cut) as ArrayRef)
            }
            None => Ok(column.clone()),
        });
        RecordBatch::try_new(rows.schema(), columns.collect::<Result<Vec<ArrayRef>, ArrowError>>()?)
    }

    /// Cuts a text of a file that has no tables.
    pub(super) fn cut_text(&mut self, text: &mut String, limits: &ReadLimits, file: &Path) {
        let most = limits.get(Limit::TextBytes);
        if text.len() as u64 > most {
            self.note(text.len() as u64, file);
            self.values += 1;
            text.truncate(end(text, most));
        }
    }

    fn note(&mut self, longest: u64, file: &Path) {
        if self.values == 0 {
            self.file = file.to_path_buf();
        }
        self.longest = self.longest.max(longest);
    }

    /// Says so, if anything was cut.
    pub(super) fn finding(&self, limits: &ReadLimits) -> Option<Finding> {
        let allowed = limits.get(Limit::TextBytes);
        let exceeded = ExceededLimit { limit: Limit::TextBytes, found: Some(self.longest), allowed };
        let effect = format!("{} values are cut to that", self.values);
        (self.values > 0).then(|| exceeded.finding(&format!("`{}`", self.file.display()), &effect))
    }
}

/// The same texts, those beyond `most` bytes cut between two characters, and how many were.
fn shortened(texts: &StringViewArray, most: u64) -> Result<(StringViewArray, u64), ArrowError> {
    let mut cut = 0;
    let views = texts.views().iter().enumerate().map(|(row, view)| {
        // A view is the text's length, its first bytes, its buffer, and its place there, of 32 bits each. What lies
        // behind null is not looked at.
        if u64::from(*view as u32) <= most || texts.is_null(row) {
            return if texts.is_null(row) { 0 } else { *view };
        }
        cut += 1;
        let text = texts.value(row);
        make_view(&text.as_bytes()[..end(text, most)], (*view >> 64) as u32, (*view >> 96) as u32)
    });
    let views = views.collect();
    Ok((StringViewArray::try_new(views, texts.data_buffers().to_vec(), texts.nulls().cloned())?, cut))
}

/// Where a text of more than `most` bytes is cut: between two characters.
fn end(text: &str, most: u64) -> usize {
    let mut end = usize::try_from(most).unwrap_or(usize::MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    end
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_array::Int64Array;

    #[test]
    fn only_the_long_text_is_cut_at_any_limit() {
        let long = "äß".repeat(50);
        let told = [Some("short"), Some(long.as_str()), None, Some("of thirteen b"), Some("")];
        let texts: ArrayRef = Arc::new(StringViewArray::from(told.to_vec()));
        let numbers: ArrayRef = Arc::new(Int64Array::from(vec![1, 2, 3, 4, 5]));
        let rows = RecordBatch::try_from_iter_with_nullable([("t", texts, true), ("n", numbers, false)]).unwrap();
        for most in 0..210_usize {
            let limits = ReadLimits::default().with(Limit::TextBytes, most as u64);
            let mut long = LongTexts::default();
            let read = long.cut(rows.clone(), &limits, Path::new("f")).unwrap();
            let cut = told.iter().flatten().filter(|text| text.len() > most).count();
            assert_eq!(long.values as usize, cut, "{most}");
            assert_eq!(long.finding(&limits).is_some(), cut > 0);
            for (found, told) in read.column(0).as_string_view().iter().zip(told) {
                let Some((found, told)) = found.zip(told) else { continue };
                assert!(told.starts_with(found) && found.len() <= most && found.len() + 2 > most.min(told.len()));
            }
            assert_eq!(read.column(1).len(), 5);
        }
    }
}
