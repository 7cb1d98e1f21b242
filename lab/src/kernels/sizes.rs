//! Sizes of a kernel's operands, and sweeps over them: `m=1,16,256;n=4096;k=4096`.

use super::kernel_error::KernelError;
use crate::range::expand;
use std::collections::BTreeMap;
use std::fmt;

/// The largest value that a size may have.
pub const LARGEST: usize = 1 << 24;

/// Most cases of one kernel in one go.
pub const MOST_CASES: usize = 4096;

/// One value for each size of a kernel, in the kernel's order.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Shape(Vec<(&'static str, usize)>);

impl Shape {
    /// A shape of these sizes.
    pub fn new(sizes: impl IntoIterator<Item = (&'static str, usize)>) -> Self {
        Self(sizes.into_iter().collect())
    }

    /// The size called `name`; 1 if there is none, which leaves products as they are.
    pub fn get(&self, name: &str) -> usize {
        self.0.iter().find(|(known, _)| *known == name).map_or(1, |(_, value)| *value)
    }

    /// Name and value of each size, in the kernel's order.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, usize)> + '_ {
        self.0.iter().copied()
    }
}

impl fmt::Display for Shape {
    /// `m=1 n=4096 k=4096`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (name, value)) in self.iter().enumerate() {
            write!(f, "{}{name}={value}", if at > 0 { " " } else { "" })?;
        }
        Ok(())
    }
}

/// Values for sizes by name, as a user gives them for any number of kernels.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Sizes(BTreeMap<String, Vec<usize>>);

impl Sizes {
    /// Reads `m=1,16,256;n=4096`. A value may be a range: `64-256+64` adds from step to step, `128-1024*2` multiplies.
    ///
    /// # Errors
    /// If a part is not of that form, or a value is not from 1 to [`LARGEST`].
    pub fn parse(text: &str) -> Result<Self, KernelError> {
        let mut sizes = BTreeMap::new();
        for part in text.split(';').map(str::trim).filter(|part| !part.is_empty()) {
            let wrong = || KernelError::Sizes { part: part.to_string() };
            let (name, values) = part.split_once('=').ok_or_else(wrong)?;
            let name = name.trim().to_ascii_lowercase();
            if name.is_empty() || sizes.contains_key(&name) {
                return Err(wrong());
            }
            // More than there may be cases are told of where the kernel is known.
            let mut values = expand(values, MOST_CASES).map_err(|_| wrong())?;
            if values.iter().any(|value| *value > LARGEST) {
                return Err(wrong());
            }
            values.dedup();
            sizes.insert(name, values);
        }
        Ok(Self(sizes))
    }

    /// Names of the sizes that values are given for, in lower case and alphabetical order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// All combinations of values for the sizes of `kernel`; sizes not named here have `usual` ones.
    ///
    /// # Errors
    /// There are too many.
    pub fn shapes(&self, kernel: &'static str, usual: &[(&'static str, &Sizes)]) -> Result<Vec<Shape>, KernelError> {
        let values = |name: &str, usual: &Sizes| self.0.get(name).or(usual.0.get(name)).cloned().unwrap_or(vec![1]);
        let lists: Vec<(&'static str, Vec<usize>)> =
            usual.iter().map(|(name, usual)| (*name, values(name, usual))).collect();
        let cases = lists.iter().fold(1usize, |cases, (_, values)| cases.saturating_mul(values.len()));
        if cases > MOST_CASES {
            return Err(KernelError::TooMany { kernel, cases, most: MOST_CASES });
        }
        let start = vec![Shape::default()];
        Ok(lists.into_iter().fold(start, |shapes, (name, values)| {
            let longer = |shape: &Shape, value: usize| Shape([shape.0.clone(), vec![(name, value)]].concat());
            shapes
                .iter()
                .flat_map(|shape| values.iter().map(|value| longer(shape, *value)).collect::<Vec<_>>())
                .collect()
        }))
    }
}
