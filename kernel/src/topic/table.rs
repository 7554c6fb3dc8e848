//! Rules about topics, in order: the first filter that matches a topic decides, and none that matches denies.
//!
//! Owns: tables, each kept once however many hold it. Never: knows for whom a table stands, or what for.
//!
//! Invariant: two tables of one [`Tables`] have the same number if and only if they have the same rules; a number is
//! never used again.

use super::{is_valid_filter, matches};
use crate::error::{Error, Result};
use crate::limits::TABLE_RULES_MAXIMUM;
use std::collections::HashMap;
use std::sync::Arc;

/// How many tables there may be before those that nobody holds are looked for.
const SWEEP_TABLES: usize = 64;

#[derive(Debug, PartialEq, Eq, Hash)]
struct Rule {
    filter: Box<[u8]>,
    allows: bool,
}

/// A table that one or many hold.
#[derive(Debug, Clone)]
pub struct Table {
    rules: Arc<[Rule]>,
    number: u64,
}

impl Table {
    /// What the rules say of the topic. Goes through all of them.
    pub fn allows(&self, topic: &[u8]) -> bool {
        self.rules.iter().find(|rule| matches(&rule.filter, topic)).is_some_and(|rule| rule.allows)
    }

    /// What tells this table from others.
    pub fn number(&self) -> u64 {
        self.number
    }
}

impl PartialEq for Table {
    fn eq(&self, other: &Table) -> bool {
        self.number == other.number
    }
}

/// Every table that somebody holds.
#[derive(Debug, Default)]
pub struct Tables {
    numbers: HashMap<Arc<[Rule]>, u64>,
    next_number: u64,
    /// The size at which tables that nobody holds are removed.
    sweep_at: usize,
}

impl Tables {
    /// The table of these rules (topic filter, allowed).
    pub fn table<Filter: AsRef<[u8]>>(&mut self, rules: &[(Filter, bool)]) -> Result<Table> {
        let rules = checked(rules)?;
        if let Some((rules, number)) = self.numbers.get_key_value(&*rules) {
            return Ok(Table { rules: Arc::clone(rules), number: *number });
        }
        if self.numbers.len() >= self.sweep_at.max(SWEEP_TABLES) {
            self.numbers.retain(|rules, _| Arc::strong_count(rules) > 1);
            self.sweep_at = self.numbers.len().saturating_mul(2);
        }
        let table = Table { rules: rules.into(), number: self.next_number };
        self.next_number += 1;
        self.numbers.insert(Arc::clone(&table.rules), table.number);
        Ok(table)
    }

    /// Tables that are kept, held or not.
    pub fn len(&self) -> usize {
        self.numbers.len()
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.numbers.is_empty()
    }
}

fn checked<Filter: AsRef<[u8]>>(rules: &[(Filter, bool)]) -> Result<Vec<Rule>> {
    if rules.len() > TABLE_RULES_MAXIMUM {
        return Err(Error::Invalid(format!("{} rules; {TABLE_RULES_MAXIMUM} may be", rules.len())));
    }
    let rule = |(index, (filter, allows)): (usize, &(Filter, bool))| match filter.as_ref() {
        filter if is_valid_filter(filter) => Ok(Rule { filter: filter.into(), allows: *allows }),
        _ => Err(Error::Invalid(format!("rule {index} has no topic filter"))),
    };
    rules.iter().enumerate().map(rule).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn text() -> impl Strategy<Value = String> {
        proptest::collection::vec(proptest::sample::select(vec!["a", "b", "+", "$s"]), 1..4).prop_map(|l| l.join("/"))
    }

    proptest! {
        #[test]
        fn the_first_that_matches_decides(
            rules in proptest::collection::vec((text(), any::<bool>()), 0..6),
            topic in text(),
        ) {
            let topic = topic.replace('+', "c");
            let table = Tables::default().table(&rules).unwrap();
            let first = rules.iter().find(|(filter, _)| matches(filter.as_bytes(), topic.as_bytes()));
            prop_assert_eq!(table.allows(topic.as_bytes()), first.is_some_and(|(_, allows)| *allows));
        }
    }

    #[test]
    fn a_table_is_kept_once_and_as_long_as_somebody_holds_it() {
        let mut tables = Tables::default();
        let held: Vec<Table> = (0..1_000).map(|_| tables.table(&[("a/#", true)]).unwrap()).collect();
        assert_eq!(tables.len(), 1);
        assert!(held.iter().all(|table| Arc::ptr_eq(&table.rules, &held[0].rules)));
        for number in 0..1_000 {
            let other = tables.table(&[(format!("b/{number}"), true)]).unwrap();
            assert!(other != held[0]);
        }
        assert!(tables.len() <= SWEEP_TABLES + 1, "{} tables are kept for nobody", tables.len());
        assert!(tables.table(&[("a/#", true)]).unwrap() == held[0]);
        assert!(tables.table(&[("a/#", false)]).unwrap() != held[0]);
    }

    #[test]
    fn bad_rules_are_refused() {
        let mut tables = Tables::default();
        assert_eq!(
            tables.table(&[("a", true), ("a#", true)]),
            Err(Error::Invalid("rule 1 has no topic filter".into()))
        );
        let many = vec![("a", true); TABLE_RULES_MAXIMUM + 1];
        assert!(tables.table(&many).is_err() && tables.is_empty());
        assert!(!tables.table::<&str>(&[]).unwrap().allows(b"a"), "no rule matches, so nothing is allowed");
    }
}
