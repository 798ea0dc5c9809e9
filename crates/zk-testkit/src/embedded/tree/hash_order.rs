//! A set in the order of Java's `HashSet`.
//!
//! Apache ZooKeeper lists children, a session's ephemerals and a client's identities in that order, and deletes
//! ephemerals in it. No client should depend on it. But a server with sorted lists would hide the errors of clients
//! that do, and one with random lists could not be compared with the original.

/// Beyond it, long chains become trees in Java; here they stay chains, in the same order but for rare cases.
const TREES_FROM: usize = 64;
/// A chain longer than this makes a small table grow.
const LONG_CHAIN: usize = 8;

pub(crate) trait JavaHash {
    fn java_hash(&self) -> i32;
}

impl JavaHash for String {
    fn java_hash(&self) -> i32 {
        self.encode_utf16().fold(0_i32, |hash, unit| hash.wrapping_mul(31).wrapping_add(i32::from(unit)))
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HashOrder<T> {
    chains: Vec<Vec<T>>,
    first_capacity: usize,
    len: usize,
}

impl<T: JavaHash + PartialEq> HashOrder<T> {
    /// The capacity of a `new HashSet()` is 16; of `new HashSet(8)`, 8. A power of two.
    pub(crate) fn with_capacity(first_capacity: usize) -> Self {
        Self { chains: Vec::new(), first_capacity, len: 0 }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.chains.iter().flatten()
    }

    /// Whether it was new.
    pub(crate) fn insert(&mut self, value: T) -> bool {
        if self.chains.is_empty() {
            self.chains.resize_with(self.first_capacity, Vec::new);
        }
        let slot = self.slot(&value);
        let chain = &mut self.chains[slot];
        if chain.contains(&value) {
            return false;
        }
        chain.push(value);
        self.len += 1;
        if chain.len() > LONG_CHAIN && self.chains.len() < TREES_FROM {
            self.grow();
        }
        if self.len > self.chains.len() * 3 / 4 {
            self.grow();
        }
        true
    }

    /// Whether it was there.
    pub(crate) fn remove(&mut self, value: &T) -> bool {
        if self.chains.is_empty() {
            return false;
        }
        let slot = self.slot(value);
        let chain = &mut self.chains[slot];
        let Some(at) = chain.iter().position(|held| held == value) else { return false };
        chain.remove(at);
        self.len -= 1;
        true
    }

    fn slot(&self, value: &T) -> usize {
        let hash = value.java_hash().cast_unsigned();
        let spread = hash ^ (hash >> 16);
        spread as usize & (self.chains.len() - 1)
    }

    fn grow(&mut self) {
        let doubled = self.chains.len() * 2;
        let old = std::mem::take(&mut self.chains);
        self.chains.resize_with(doubled, Vec::new);
        for value in old.into_iter().flatten() {
            let slot = self.slot(&value);
            self.chains[slot].push(value);
        }
    }
}

impl<T: JavaHash + PartialEq + Clone> HashOrder<T> {
    /// The elements as a clone of the set has them: its table fits their number.
    pub(crate) fn cloned_order(&self) -> Vec<T> {
        let mut clone = Self::with_capacity((self.len * 4 / 3 + 1).next_power_of_two());
        for value in self.iter() {
            clone.insert(value.clone());
        }
        clone.iter().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_javas() {
        for (text, hash) in [("", 0), ("/zookeeper", 954_481_661), ("polygenelubricants", i32::MIN)] {
            assert_eq!(text.to_owned().java_hash(), hash, "{text}");
        }
    }

    #[test]
    fn it_is_a_set() {
        let mut set = HashOrder::with_capacity(8);
        for number in 0..100 {
            assert!(set.insert(format!("n{number}")));
        }
        assert!(!set.insert("n7".to_owned()));
        assert!(set.remove(&"n7".to_owned()));
        assert!(!set.remove(&"n7".to_owned()));
        assert_eq!((set.len(), set.iter().count()), (99, 99));
        let mut names: Vec<_> = set.cloned_order();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), 99);
    }
}
