//! Which of many sorted names a filter matches, without looking at all of them: where a name cannot match, the walk
//! leaps to the least name behind it that can.
//!
//! Owns: nothing; a walk is the key at which it goes on. Invariants:
//! 1. No name that the filter matches is leapt over, whatever bytes names have.
//! 2. A walk only goes forward, so it ends, and names that come to lie before its key do not disturb it.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

/// What a look at a name says.
#[derive(Debug, PartialEq, Eq)]
enum Look {
    Matches,
    /// No name before this key matches any more, ...
    LeapTo(Vec<u8>),
    /// ... or none at all.
    End,
}

/// The key at which a walk for `filter` begins.
pub fn first_key(filter: &[u8]) -> Vec<u8> {
    let wildcard = filter.iter().position(|byte| matches!(byte, b'+' | b'#')).unwrap_or(filter.len());
    let literal = filter.get(..wildcard).unwrap_or_default();
    // `a/#` matches `a` too.
    literal.strip_suffix(b"/").unwrap_or(literal).to_vec()
}

/// Walks on from the key `from`, calling `found` for what `filter` matches until that returns false or `looks` are
/// used up. True if the walk has come to its end; else `from` is where it goes on.
pub fn leap<'a, Value>(
    sorted: &'a BTreeMap<Arc<[u8]>, Value>,
    filter: &[u8],
    from: &mut Vec<u8>,
    looks: &mut u64,
    mut found: impl FnMut(&'a Arc<[u8]>, &'a Value) -> bool,
) -> bool {
    let levels: Vec<&[u8]> = filter.split(|byte| *byte == b'/').collect();
    loop {
        let mut target = None;
        for (name, value) in sorted.range::<[u8], _>((Bound::Included(from.as_slice()), Bound::Unbounded)) {
            if *looks == 0 {
                *from = name.to_vec();
                return false;
            }
            *looks = looks.saturating_sub(1);
            match look(&levels, name) {
                Look::Matches => {
                    if !found(name, value) {
                        *from = after(name);
                        return false;
                    }
                }
                Look::LeapTo(key) => {
                    target = Some(key);
                    break;
                }
                Look::End => return true,
            }
        }
        match target {
            Some(key) => *from = key,
            None => return true,
        }
    }
}

fn look(levels: &[&[u8]], name: &[u8]) -> Look {
    if name.first() == Some(&b'$') && matches!(levels.first(), Some(&b"+" | &b"#")) {
        // [MQTT-4.7.2-1]
        return Look::LeapTo(vec![b'$'.saturating_add(1)]);
    }
    let mut start = 0;
    for (depth, wanted) in levels.iter().enumerate() {
        if *wanted == b"#" {
            return Look::Matches;
        }
        let rest = name.get(start..).unwrap_or_default();
        let level = rest.split(|byte| *byte == b'/').next().unwrap_or_default();
        let end = start.saturating_add(level.len());
        let is_last = depth.saturating_add(1) == levels.len();
        if *wanted != b"+" && *wanted != level {
            return leap_to_level(name, start, wanted, is_last);
        }
        if end == name.len() {
            let is_parent = levels.get(depth.saturating_add(1)..) == Some(&[b"#".as_slice()]);
            return if is_last || is_parent { Look::Matches } else { Look::LeapTo(after(name)) };
        }
        if is_last {
            return leap_past(name, end);
        }
        start = end.saturating_add(1);
    }
    Look::LeapTo(after(name))
}

/// The name has another level at `start` than the one that is wanted there.
fn leap_to_level(name: &[u8], start: usize, wanted: &[u8], is_last: bool) -> Look {
    let mut key = name.get(..start).unwrap_or_default().to_vec();
    key.extend_from_slice(wanted);
    if key.as_slice() > name {
        return Look::LeapTo(key);
    }
    // What lies below the wanted level may sort behind the name though the level itself does not: `a/z!` lies between
    // `a/z` and `a/z/`.
    key.push(b'/');
    if !is_last && key.as_slice() > name {
        return Look::LeapTo(key);
    }
    match start.checked_sub(1) {
        Some(end) => leap_past(name, end),
        None => Look::End,
    }
}

/// Nothing matches any more that lies below the level that ends at `end`.
fn leap_past(name: &[u8], end: usize) -> Look {
    let mut key = name.get(..end).unwrap_or_default().to_vec();
    key.push(b'/'.saturating_add(1));
    Look::LeapTo(key)
}

/// The least name behind a name.
fn after(name: &[u8]) -> Vec<u8> {
    let mut key = name.to_vec();
    key.push(0);
    key
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topic::matches;
    use proptest::prelude::*;

    fn walk(names: &BTreeMap<Arc<[u8]>, ()>, filter: &[u8], at_once: u64) -> (Vec<Vec<u8>>, u64) {
        let (mut from, mut found, mut looked) = (first_key(filter), Vec::new(), 0);
        loop {
            let mut looks = at_once;
            let is_done = leap(names, filter, &mut from, &mut looks, |name, ()| {
                found.push(name.to_vec());
                true
            });
            looked += at_once - looks;
            if is_done {
                return (found, looked);
            }
        }
    }

    fn level() -> impl Strategy<Value = String> {
        // Bytes on both sides of the separator, because names are sorted by bytes.
        "[a!0$-]{0,2}"
    }

    proptest! {
        #[test]
        fn a_walk_finds_what_the_filter_matches_whatever_the_names(
            names in prop::collection::btree_set(prop::collection::vec(level(), 1..5), 0..60),
            filter in prop::collection::vec(prop_oneof![level(), Just("+".to_owned())], 1..5),
            is_open in any::<bool>(),
            at_once in 1_u64..9,
        ) {
            let mut filter = filter.join("/");
            if is_open {
                filter.push_str("/#");
            }
            let names: BTreeMap<Arc<[u8]>, ()> =
                names.into_iter().map(|levels| (Arc::from(levels.join("/").as_bytes()), ())).collect();
            let expected: Vec<Vec<u8>> =
                names.keys().filter(|name| matches(filter.as_bytes(), name)).map(|name| name.to_vec()).collect();
            prop_assert_eq!(walk(&names, filter.as_bytes(), at_once).0, expected);
        }
    }

    #[test]
    fn filters_that_match_nothing_cost_a_few_looks_however_many_names_there_are() {
        let names: BTreeMap<Arc<[u8]>, ()> =
            (0..20_000).map(|number| (Arc::from(format!("zebra/fx/{number}/reads").as_bytes()), ())).collect();
        for filter in ["nobody/+/x", "zebra/gx/+/reads", "zebra/+/x", "+/gx/#", "zzz/#", "$x/+", "a/b"] {
            let (found, looked) = walk(&names, filter.as_bytes(), 1_000);
            assert!(found.is_empty() && looked <= 6, "{filter}: {looked}");
        }
        let (found, looked) = walk(&names, b"zebra/+/7/reads", 1_000);
        assert!(found.len() == 1 && looked <= 4, "{looked}");
    }
}
