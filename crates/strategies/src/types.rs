//! Types of settings that several stages have.

use std::{fmt, marker::PhantomData, time::Duration};

use serde::de::{
    Deserialize, DeserializeSeed, Deserializer, Error, IntoDeserializer as _, SeqAccess, Unexpected, Visitor,
};

/// The problem of a text without any character but white space.
pub(crate) const EMPTY: &str = "it is empty; leave it out instead";

/// An integer from `MIN` to `MAX`.
pub(crate) fn bounded<'de, D: Deserializer<'de>, T: From<u32>, const MIN: u32, const MAX: u32>(
    from: D,
) -> Result<T, D::Error> {
    within(i64::deserialize(from)?, MIN, MAX).map(T::from)
}

pub(crate) fn within<E: Error>(number: i64, least: u32, most: u32) -> Result<u32, E> {
    let known = u32::try_from(number).ok().filter(|number| (least..=most).contains(number));
    known
        .ok_or_else(|| E::custom(format!("the integer {number} is out of range; {least} to {most} is valid")))
}

/// A span of time as text, in microseconds: `"500us"`, `"2ms"`, `"1s"`, `"30m"`, `"2h"`.
pub(crate) fn micros<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    const UNITS: [(&str, u64); 5] =
        [("us", 1), ("ms", 1000), ("s", 1_000_000), ("m", 60_000_000), ("h", 3_600_000_000)];
    let parse = |text: &str| {
        UNITS.iter().find_map(|(unit, micros)| {
            let number = text.strip_suffix(unit)?.trim_end();
            let is_whole = !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit());
            number.parse::<u64>().ok().filter(|_| is_whole)?.checked_mul(*micros)
        })
    };
    parsed(from, "a duration such as \"500us\" or \"2ms\"", parse)
}

/// A span of time in the settings of a stage, for serde's `deserialize_with`: a whole number of us, ms, s, m or h, such as
/// `"500us"` or `"30m"`.
///
/// # Errors
/// The value is no such text.
pub fn duration<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
    micros(from).map(Duration::from_micros)
}

/// A text that `parse` knows, for serde's `deserialize_with`; messages call it `what`.
///
/// # Errors
/// The value is no such text.
pub fn parsed<'de, D: Deserializer<'de>, T>(
    from: D,
    what: &'static str,
    parse: impl FnOnce(&str) -> Option<T>,
) -> Result<T, D::Error> {
    struct Text<F>(&'static str, F);

    impl<T, F: FnOnce(&str) -> Option<T>> Visitor<'_> for Text<F> {
        type Value = T;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(self.0)
        }

        fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
            (self.1)(text).ok_or_else(|| E::invalid_value(Unexpected::Str(text), &self.0))
        }
    }

    from.deserialize_str(Text(what, parse))
}

/// A text that is not empty.
pub(crate) fn name<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    let name = String::deserialize(from)?;
    if name.trim().is_empty() { Err(D::Error::custom(EMPTY)) } else { Ok(name) }
}

/// An array in which nothing is listed twice.
pub(crate) fn distinct<'de, D: Deserializer<'de>, T>(from: D) -> Result<Vec<T>, D::Error>
where
    T: Deserialize<'de> + PartialEq + fmt::Debug,
{
    from.deserialize_seq(List { is_some: false, is_distinct: true, of: PhantomData })
}

/// One text or an array of them, which is not empty.
pub(crate) fn one_or_more<'de, D: Deserializer<'de>, T>(from: D) -> Result<Vec<T>, D::Error>
where
    T: Deserialize<'de> + PartialEq + fmt::Debug,
{
    from.deserialize_any(List { is_some: true, is_distinct: false, of: PhantomData })
}

struct List<T> {
    /// Whether a single one is valid as well, and none is not.
    is_some: bool,
    is_distinct: bool,
    of: PhantomData<T>,
}

impl<'de, T: Deserialize<'de> + PartialEq + fmt::Debug> Visitor<'de> for List<T> {
    type Value = Vec<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let one = if self.is_some { "a string in quotes, or " } else { "" };
        write!(f, "{one}an array, such as [\"east\", \"west\"]")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Vec<T>, E> {
        if self.is_some && text.trim().is_empty() {
            Err(E::custom(EMPTY))
        } else if self.is_some {
            T::deserialize(text.into_deserializer()).map(|one| vec![one])
        } else {
            Err(E::invalid_type(Unexpected::Str(text), &self))
        }
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Vec<T>, A::Error> {
        let mut all = Vec::new();
        while let Some(one) = list.next_element_seed(Another(if self.is_distinct { &all } else { &[] }))? {
            all.push(one);
        }
        if self.is_some && all.is_empty() {
            return Err(A::Error::custom("it is empty; name at least one"));
        }
        Ok(all)
    }
}

/// An element that is not one of these.
struct Another<'a, T>(&'a [T]);

impl<'de, T: Deserialize<'de> + PartialEq + fmt::Debug> DeserializeSeed<'de> for Another<'_, T> {
    type Value = T;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<T, D::Error> {
        let one = T::deserialize(from)?;
        if self.0.contains(&one) {
            return Err(D::Error::custom(format!("{one:?} is listed twice; list it once")));
        }
        Ok(one)
    }
}
