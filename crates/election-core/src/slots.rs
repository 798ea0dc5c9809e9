//! Values by slot.

use std::{ops, slice};

use smallvec::SmallVec;

/// A value for each slot, from slot 0 on. Used like a slice. Most elections have one slot, whose value is not allocated.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Slots<T>(SmallVec<[T; 1]>);

impl<T> Slots<T> {
    /// Adds empty values up to this number.
    pub(crate) fn grow(&mut self, number: usize)
    where
        T: Default,
    {
        if self.len() < number {
            self.0.resize_with(number, T::default);
        }
    }

    /// Drops the values from this slot on.
    pub(crate) fn truncate(&mut self, from: usize) {
        self.0.truncate(from);
    }
}

impl<T> Default for Slots<T> {
    fn default() -> Self {
        Self(SmallVec::new())
    }
}

impl<T> FromIterator<T> for Slots<T> {
    fn from_iter<I: IntoIterator<Item = T>>(values: I) -> Self {
        Self(values.into_iter().collect())
    }
}

impl<T> ops::Deref for Slots<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.0
    }
}

impl<T> ops::DerefMut for Slots<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        &mut self.0
    }
}

impl<'a, T> IntoIterator for &'a Slots<T> {
    type Item = &'a T;
    type IntoIter = slice::Iter<'a, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}
