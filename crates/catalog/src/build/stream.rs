//! One array of a large JSON object, an element at a time.

use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use std::io::{BufReader, Read};
use std::marker::PhantomData;

/// Hands each element of the array under `field` to `visit`, with its number; all else is skipped as it is read.
pub fn array_field<T: for<'d> serde::Deserialize<'d>>(
    reader: impl Read,
    field: &'static str,
    visit: impl FnMut(usize, T) -> Result<(), String>,
) -> Result<(), serde_json::Error> {
    let mut json = serde_json::Deserializer::from_reader(BufReader::new(reader));
    Object { field, visit, element: PhantomData }.deserialize(&mut json)?;
    json.end()
}

struct Object<T, F> {
    field: &'static str,
    visit: F,
    element: PhantomData<T>,
}

impl<'de, T: serde::de::DeserializeOwned, F: FnMut(usize, T) -> Result<(), String>> DeserializeSeed<'de>
    for Object<T, F>
{
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de, T: serde::de::DeserializeOwned, F: FnMut(usize, T) -> Result<(), String>> Visitor<'de> for Object<T, F> {
    type Value = ();

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "an object with the array `{}`", self.field)
    }

    fn visit_map<M: MapAccess<'de>>(mut self, mut map: M) -> Result<(), M::Error> {
        let mut seen = false;
        while let Some(key) = map.next_key::<String>()? {
            if key == self.field {
                seen = true;
                map.next_value_seed(Array { visit: &mut self.visit, element: PhantomData })?;
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        if seen { Ok(()) } else { Err(M::Error::custom(format!("there is no `{}`", self.field))) }
    }
}

struct Array<'v, T, F> {
    visit: &'v mut F,
    element: PhantomData<T>,
}

impl<'de, T: serde::de::DeserializeOwned, F: FnMut(usize, T) -> Result<(), String>> DeserializeSeed<'de>
    for Array<'_, T, F>
{
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de, T: serde::de::DeserializeOwned, F: FnMut(usize, T) -> Result<(), String>> Visitor<'de> for Array<'_, T, F> {
    type Value = ();

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("an array")
    }

    fn visit_seq<S: SeqAccess<'de>>(self, mut array: S) -> Result<(), S::Error> {
        let mut at = 0;
        while let Some(element) = array.next_element::<T>()? {
            (self.visit)(at, element).map_err(S::Error::custom)?;
            at += 1;
        }
        Ok(())
    }
}
