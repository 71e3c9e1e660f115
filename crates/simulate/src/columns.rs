//! Timelines as they leave: columns, with each name said once. A timeline has hundreds of thousands of rows.

use std::collections::HashMap;
use std::hash::Hash;

use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};

/// A row of a timeline.
pub(crate) trait Row: Sized {
    /// Writes the columns of `rows`, in the order of the keys of a row.
    fn columns<M: SerializeMap>(rows: &[Self], map: &mut M) -> Result<(), M::Error>;
}

/// Writes a timeline as columns, for `serialize_with`.
pub(crate) fn columns<T: Row, S: Serializer>(
    rows: &Option<Vec<T>>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let mut map = serializer.serialize_map(None)?;
    T::columns(rows.as_deref().unwrap_or_default(), &mut map)?;
    map.end()
}

/// A value of each row.
pub(crate) fn values<T, V: Serialize>(rows: &[T], of: impl Fn(&T) -> V) -> impl Serialize {
    rows.iter().map(of).collect::<Vec<_>>()
}

/// The different names of all rows, and which of them each row has.
pub(crate) fn names<'a, T, N: Serialize + Copy + Eq + Hash>(
    rows: &'a [T],
    of: impl Fn(&'a T) -> Option<N>,
) -> impl Serialize {
    let mut all = Names { names: Vec::new(), rows: Vec::with_capacity(rows.len()) };
    let mut known = HashMap::new();
    for name in rows.iter().map(of) {
        let place = name.map(|name| {
            *known.entry(name).or_insert_with(|| {
                all.names.push(name);
                all.names.len() - 1
            })
        });
        all.rows.push(place);
    }
    all
}

#[derive(Serialize)]
struct Names<N> {
    names: Vec<N>,
    rows: Vec<Option<usize>>,
}
