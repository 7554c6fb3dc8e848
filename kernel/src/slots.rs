//! Values by their handles.
//!
//! Owns: the one place where a handle becomes an index. Never: gives out a handle.

use crate::ids::Handle;
use std::marker::PhantomData;

/// A table with at most one value for each handle.
#[derive(Debug)]
pub struct Slots<Of, Value> {
    values: Vec<Option<Value>>,
    of: PhantomData<Of>,
}

impl<Of, Value> Default for Slots<Of, Value> {
    fn default() -> Slots<Of, Value> {
        Slots { values: Vec::new(), of: PhantomData }
    }
}

impl<Of: Handle, Value> Slots<Of, Value> {
    /// The value of a handle, if it has one.
    #[inline]
    pub fn get(&self, handle: Of) -> Option<&Value> {
        self.values.get(index(handle)).and_then(Option::as_ref)
    }

    /// The same, to be changed.
    #[inline]
    pub fn get_mut(&mut self, handle: Of) -> Option<&mut Value> {
        self.values.get_mut(index(handle)).and_then(Option::as_mut)
    }

    /// Gives a handle a value; returns the one that it had.
    pub fn put(&mut self, handle: Of, value: Value) -> Option<Value> {
        let index = index(handle);
        if self.values.len() <= index {
            self.values.resize_with(index.saturating_add(1), || None);
        }
        self.values.get_mut(index).and_then(|place| place.replace(value))
    }

    /// Takes a handle's value away.
    pub fn take(&mut self, handle: Of) -> Option<Value> {
        self.values.get_mut(index(handle)).and_then(Option::take)
    }

    /// A handle that never had a value.
    pub fn fresh(&self) -> Of {
        Of::new(u32::try_from(self.values.len()).unwrap_or(u32::MAX))
    }

    /// All that have a value, in the order of their numbers.
    pub fn iter(&self) -> impl Iterator<Item = (Of, &Value)> {
        (0..).map(Of::new).zip(&self.values).filter_map(|(handle, value)| Some((handle, value.as_ref()?)))
    }

    /// The same, to be changed.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (Of, &mut Value)> {
        (0..).map(Of::new).zip(&mut self.values).filter_map(|(handle, value)| Some((handle, value.as_mut()?)))
    }
}

#[inline]
fn index<Of: Handle>(handle: Of) -> usize {
    usize::try_from(handle.number()).unwrap_or(usize::MAX)
}
