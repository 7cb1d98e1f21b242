//! Columns of the row group being filled. They hold plain numbers, so that taking a record is a few pushes.

/// The key of an absent value.
pub(in crate::parquet) const NULL: u32 = u32::MAX;

/// Indices into a dictionary. A column that has one value only, or none at all, costs no memory: most nullable
/// columns are like that in any one run.
#[derive(Debug, Default)]
pub(in crate::parquet) struct KeyColumn {
    len: usize,
    first: u32,
    /// Empty while every key equals `first`.
    keys: Vec<u32>,
}

/// What a [`KeyColumn`] holds.
pub(in crate::parquet) enum Keys<'a> {
    /// The same key, repeated.
    Uniform(u32, usize),
    /// Keys, some of which may be [`NULL`].
    Mixed(&'a [u32]),
}

impl KeyColumn {
    pub(in crate::parquet) fn constant(key: u32, len: usize) -> Self {
        Self { len, first: key, keys: Vec::new() }
    }

    #[inline]
    pub(in crate::parquet) fn push(&mut self, key: u32) {
        if self.keys.is_empty() {
            if self.len == 0 {
                self.first = key;
            }
            if key == self.first {
                self.len += 1;
                return;
            }
            self.keys.resize(self.len, self.first);
        }
        self.keys.push(key);
        self.len += 1;
    }

    pub(in crate::parquet) fn keys(&self) -> Keys<'_> {
        if self.keys.is_empty() { Keys::Uniform(self.first, self.len) } else { Keys::Mixed(&self.keys) }
    }

    /// The same column with every key but [`NULL`] replaced.
    pub(in crate::parquet) fn mapped(&self, new_key: &[u32]) -> KeyColumn {
        let map = |key: u32| if key == NULL { NULL } else { new_key[key as usize] };
        match self.keys() {
            Keys::Uniform(_, 0) => KeyColumn::default(),
            Keys::Uniform(key, len) => KeyColumn::constant(map(key), len),
            Keys::Mixed(keys) => {
                let mut out = KeyColumn::default();
                keys.iter().for_each(|key| out.push(map(*key)));
                out
            }
        }
    }

    pub(in crate::parquet) fn clear(&mut self) {
        self.len = 0;
        self.keys.clear();
    }

    pub(in crate::parquet) fn memory(&self) -> usize {
        self.keys.len() * size_of::<u32>()
    }
}

/// Values too varied for a dictionary.
#[derive(Debug, Default)]
pub(in crate::parquet) struct ValueColumn<T> {
    len: usize,
    /// The values that are present.
    values: Vec<T>,
    /// Definition levels, one a row; empty while all rows agree.
    levels: Vec<i16>,
}

/// Which rows of a [`ValueColumn`] are present.
pub(in crate::parquet) enum Presence<'a> {
    All,
    None,
    Some(&'a [i16]),
}

impl<T: Copy> ValueColumn<T> {
    #[inline]
    pub(in crate::parquet) fn push(&mut self, value: T) {
        if self.values.len() < self.len {
            self.mark(1);
        }
        self.values.push(value);
        self.len += 1;
    }

    #[inline]
    pub(in crate::parquet) fn push_opt(&mut self, value: Option<T>) {
        match value {
            Some(value) => self.push(value),
            None => {
                if !self.values.is_empty() {
                    self.mark(0);
                }
                self.len += 1;
            }
        }
    }

    fn mark(&mut self, level: i16) {
        if self.levels.is_empty() {
            self.levels.resize(self.len, 1 - level);
        }
        self.levels.push(level);
    }

    pub(in crate::parquet) fn len(&self) -> usize {
        self.len
    }

    pub(in crate::parquet) fn values(&self) -> &[T] {
        &self.values
    }

    pub(in crate::parquet) fn presence(&self) -> Presence<'_> {
        if self.values.len() == self.len {
            Presence::All
        } else if self.values.is_empty() {
            Presence::None
        } else {
            Presence::Some(&self.levels)
        }
    }

    pub(in crate::parquet) fn clear(&mut self) {
        self.len = 0;
        self.values.clear();
        self.levels.clear();
    }

    pub(in crate::parquet) fn memory(&self) -> usize {
        self.values.len() * size_of::<T>() + self.levels.len() * size_of::<i16>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn expand(column: &KeyColumn) -> Vec<u32> {
        match column.keys() {
            Keys::Uniform(key, len) => vec![key; len],
            Keys::Mixed(keys) => keys.to_vec(),
        }
    }

    #[test]
    fn a_constant_takes_no_memory_and_mapping_keeps_nulls() {
        let mut column = KeyColumn::default();
        (0..1000).for_each(|_| column.push(1));
        assert_eq!(column.memory(), 0);
        assert_eq!(expand(&column.mapped(&[9, 7])), vec![7; 1000]);
        column.push(NULL);
        column.push(0);
        assert_eq!(expand(&column.mapped(&[9, 7]))[999..], [7, NULL, 9]);
        column.clear();
        assert_eq!(expand(&column.mapped(&[])), Vec::<u32>::new());
    }

    proptest! {
        #[test]
        fn keys_are_kept(keys in prop::collection::vec(0u32..3, 0..50)) {
            let mut column = KeyColumn::default();
            keys.iter().for_each(|k| column.push(*k));
            prop_assert_eq!(expand(&column), keys);
        }

        #[test]
        fn values_are_kept(values in prop::collection::vec(prop::option::weighted(0.7, 0i64..9), 0..50)) {
            let mut column = ValueColumn::default();
            values.iter().for_each(|v| column.push_opt(*v));
            let levels = match column.presence() {
                Presence::All => vec![1; column.len()],
                Presence::None => vec![0; column.len()],
                Presence::Some(levels) => levels.to_vec(),
            };
            let mut present = column.values().iter().copied();
            let back: Vec<_> = levels.iter().map(|l| if *l == 1 { present.next() } else { None }).collect();
            prop_assert_eq!(back, values);
        }
    }
}
