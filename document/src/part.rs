//! A share of a whole.

/// A share of a whole.
#[derive(Debug, Clone)]
pub struct Part {
    /// Its name, for legends and tooltips; a bar of shares shows it inside of parts above 9 % as well.
    pub name: String,
    /// Its colour: a phase (`prefill`, `decode`, `sample`, `encode`, `vision`), `other0` to `other3`, `rest`, `outside`.
    pub color: String,
    /// Its share, from 0 to 1.
    pub share: f64,
    /// The share as a text; may be empty.
    pub percent: String,
    /// Its amount as a text.
    pub amount: String,
}
