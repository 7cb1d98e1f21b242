//! Numbers for texts.

use std::collections::HashMap;
use std::sync::Arc;

/// Gives each text a number.
#[derive(Debug, Default)]
pub(super) struct Interner(HashMap<Arc<str>, u64>);

impl Interner {
    /// Number of `text`, from 1, and whether it is new.
    pub(super) fn get(&mut self, text: &str) -> (u64, bool) {
        if let Some(iid) = self.0.get(text) {
            return (*iid, false);
        }
        let iid = self.0.len() as u64 + 1;
        self.0.insert(text.into(), iid);
        (iid, true)
    }
}
