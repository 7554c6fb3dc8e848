//! Rules about topics, in order: the first filter that matches a topic decides, and none that matches denies.
//!
//! Owns: grants, each kept once however many hold it. Never: knows for whom a grant stands, or what for.
//!
//! Invariant: two grants of one [`HeldGrants`] have the same number if and only if they have the same rules; a number
//! is never used again.

use super::{is_valid_filter, matches};
use crate::error::{Error, Result};
use crate::limits::GRANT_RULES_MAXIMUM;
use std::collections::HashMap;
use std::sync::Arc;

/// How many grants there may be before those that nobody holds are looked for.
const SWEEP_GRANTS: usize = 64;

#[derive(Debug, PartialEq, Eq, Hash)]
struct Rule {
    filter: Box<[u8]>,
    allows: bool,
}

/// A grant that one or many hold.
#[derive(Debug, Clone)]
pub struct Grant {
    rules: Arc<[Rule]>,
    number: u64,
}

impl Grant {
    /// What the rules say of the topic. Goes through all of them.
    pub fn allows(&self, topic: &[u8]) -> bool {
        self.rules.iter().find(|rule| matches(&rule.filter, topic)).is_some_and(|rule| rule.allows)
    }

    /// What tells this grant from others.
    pub fn number(&self) -> u64 {
        self.number
    }
}

impl PartialEq for Grant {
    fn eq(&self, other: &Grant) -> bool {
        self.number == other.number
    }
}

/// Every grant that somebody holds.
#[derive(Debug, Default)]
pub struct HeldGrants {
    numbers: HashMap<Arc<[Rule]>, u64>,
    next_number: u64,
    /// The size at which grants that nobody holds are removed.
    sweep_at: usize,
}

impl HeldGrants {
    /// The grant of these rules (topic filter, allowed).
    pub fn grant<Filter: AsRef<[u8]>>(&mut self, rules: &[(Filter, bool)]) -> Result<Grant> {
        let rules = checked(rules)?;
        if let Some((rules, number)) = self.numbers.get_key_value(&*rules) {
            return Ok(Grant { rules: Arc::clone(rules), number: *number });
        }
        if self.numbers.len() >= self.sweep_at.max(SWEEP_GRANTS) {
            self.numbers.retain(|rules, _| Arc::strong_count(rules) > 1);
            self.sweep_at = self.numbers.len().saturating_mul(2);
        }
        let grant = Grant { rules: rules.into(), number: self.next_number };
        self.next_number += 1;
        self.numbers.insert(Arc::clone(&grant.rules), grant.number);
        Ok(grant)
    }

    /// HeldGrants that are kept, held or not.
    pub fn len(&self) -> usize {
        self.numbers.len()
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.numbers.is_empty()
    }
}

fn checked<Filter: AsRef<[u8]>>(rules: &[(Filter, bool)]) -> Result<Vec<Rule>> {
    if rules.len() > GRANT_RULES_MAXIMUM {
        return Err(Error::Invalid(format!("{} rules; {GRANT_RULES_MAXIMUM} may be", rules.len())));
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
            let grant = HeldGrants::default().grant(&rules).unwrap();
            let first = rules.iter().find(|(filter, _)| matches(filter.as_bytes(), topic.as_bytes()));
            prop_assert_eq!(grant.allows(topic.as_bytes()), first.is_some_and(|(_, allows)| *allows));
        }
    }

    #[test]
    fn a_grant_is_kept_once_and_as_long_as_somebody_holds_it() {
        let mut grants = HeldGrants::default();
        let held: Vec<Grant> = (0..1_000).map(|_| grants.grant(&[("a/#", true)]).unwrap()).collect();
        assert_eq!(grants.len(), 1);
        assert!(held.iter().all(|grant| Arc::ptr_eq(&grant.rules, &held[0].rules)));
        for number in 0..1_000 {
            let other = grants.grant(&[(format!("b/{number}"), true)]).unwrap();
            assert!(other != held[0]);
        }
        assert!(grants.len() <= SWEEP_GRANTS + 1, "{} grants are kept for nobody", grants.len());
        assert!(grants.grant(&[("a/#", true)]).unwrap() == held[0]);
        assert!(grants.grant(&[("a/#", false)]).unwrap() != held[0]);
    }

    #[test]
    fn bad_rules_are_refused() {
        let mut grants = HeldGrants::default();
        assert_eq!(
            grants.grant(&[("a", true), ("a#", true)]),
            Err(Error::Invalid("rule 1 has no topic filter".into()))
        );
        let many = vec![("a", true); GRANT_RULES_MAXIMUM + 1];
        assert!(grants.grant(&many).is_err() && grants.is_empty());
        assert!(!grants.grant::<&str>(&[]).unwrap().allows(b"a"), "no rule matches, so nothing is allowed");
    }
}
