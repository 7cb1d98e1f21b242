//! Texts as dense numbers. The reader gives equal texts one allocation, so that its address mostly tells which one it is.

use rustc_hash::FxHashMap;
use std::collections::HashMap;
use std::sync::Arc;

/// Numbers texts in the order in which they come.
#[derive(Debug, Default)]
pub struct NumberedTexts {
    /// The last one, which the next row mostly has, too.
    last: Option<(usize, u32)>,
    by_address: FxHashMap<usize, u32>,
    by_text: HashMap<Arc<str>, u32>,
    texts: Vec<Arc<str>>,
    /// Further allocations of known texts. They are kept, so that no other text gets their address.
    kept: Vec<Arc<str>>,
}

impl NumberedTexts {
    /// The number of a text.
    #[inline]
    pub fn number(&mut self, text: &Arc<str>) -> u32 {
        let address = Arc::as_ptr(text).cast::<u8>() as usize;
        if let Some((_, number)) = self.last.filter(|(last, _)| *last == address) {
            return number;
        }
        let number = match self.by_address.get(&address) {
            Some(number) => *number,
            None => self.learn(text, address),
        };
        self.last = Some((address, number));
        number
    }

    fn learn(&mut self, text: &Arc<str>, address: usize) -> u32 {
        let number = match self.by_text.get(text) {
            Some(number) => {
                self.kept.push(text.clone());
                *number
            }
            None => {
                let number = self.texts.len() as u32;
                self.texts.push(text.clone());
                self.by_text.insert(text.clone(), number);
                number
            }
        };
        self.by_address.insert(address, number);
        number
    }

    /// The text of a number.
    pub fn text(&self, number: u32) -> &Arc<str> {
        &self.texts[number as usize]
    }

    /// All texts, by number.
    pub fn texts(&self) -> &[Arc<str>] {
        &self.texts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_texts_have_one_number_wherever_they_lie() {
        let mut numbered = NumberedTexts::default();
        let [a, b, again]: [Arc<str>; 3] = ["a".into(), "b".into(), "a".into()];
        assert_eq!([&a, &b, &again, &a, &again].map(|text| numbered.number(text)), [0, 1, 0, 0, 0]);
        // An address that is free again would otherwise be taken for the text that was there.
        for n in 0..100 {
            let text: Arc<str> = format!("text {n}").into();
            let number = numbered.number(&text);
            assert_eq!(&**numbered.text(number), &*text);
        }
        assert_eq!((numbered.texts().len(), &**numbered.text(1)), (102, "b"));
    }
}
