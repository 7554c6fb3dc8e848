//! What a reader wants: which topics, and which of their messages.
//!
//! Owns: how criteria are put together. All of them have to be met; a criterion that is not given is met by anything.

use super::dictionary::Dictionary;
use super::record::Record;
use crate::error::{Error, Result};
use crate::ids::{Offset, Party, TopicId};
use crate::limits::PATTERN_BYTES_MAXIMUM;
use ahash::RandomState;
use regex::bytes::{Regex, RegexBuilder};
use std::collections::{HashMap, HashSet};

/// Topic numbers.
pub(super) type Topics = HashSet<u32, RandomState>;

/// A topic filter, and the messages for which it holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filter {
    /// The MQTT topic filter.
    pub topic_filter: Vec<u8>,
    /// It holds from this offset on, ...
    pub from: Offset,
    /// ... up to before this one, ...
    pub until: Offset,
    /// ... and not for what this party published; 0: for everybody's.
    pub without: Party,
}

impl Filter {
    /// One that holds for all messages.
    pub fn always(topic_filter: &[u8]) -> Filter {
        let (from, until) = (Offset(0), Offset(u64::MAX));
        Filter { topic_filter: topic_filter.to_vec(), from, until, without: Party(0) }
    }

    fn is_always(&self) -> bool {
        self.from == Offset(0) && self.until == Offset(u64::MAX) && self.without == Party(0)
    }

    fn holds(&self, record: &Record<'_>) -> bool {
        let within = self.from <= record.offset && record.offset < self.until;
        within && (self.without == Party(0) || self.without != record.publisher)
    }
}

/// A regular expression that a whole topic name has to match.
#[derive(Clone, Debug)]
pub struct Pattern {
    text: String,
    regex: Regex,
}

impl PartialEq for Pattern {
    fn eq(&self, other: &Pattern) -> bool {
        self.text == other.text
    }
}

impl Pattern {
    /// An error says what is wrong with it. Its work is linear in the name's length, whatever it says.
    pub fn new(text: &str) -> Result<Pattern> {
        let whole = format!("^(?:{text})$");
        let regex = RegexBuilder::new(&whole).size_limit(PATTERN_BYTES_MAXIMUM).build();
        let regex = regex.map_err(|problem| Error::Invalid(problem.to_string()))?;
        Ok(Pattern { text: text.to_owned(), regex })
    }
}

/// What a reader wants.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Criteria {
    /// One of these has to match; none at all means every topic that `#` matches.
    pub filters: Vec<Filter>,
    /// The topic's name matches this.
    pub pattern: Option<Pattern>,
    /// The topic's name is one of these.
    pub names: Option<HashSet<Vec<u8>>>,
    /// The topic's name begins with this.
    pub prefix: Vec<u8>,
    /// The message was published at one of these.
    pub qos: Option<Vec<u8>>,
    /// The message's RETAIN flag.
    pub retain: Option<bool>,
    /// The message has one of these keys.
    pub keys: Option<HashSet<Vec<u8>>>,
}

impl Criteria {
    /// The topics that it looks at.
    pub(super) fn topics(&self, dictionary: &Dictionary) -> Topics {
        let mut found = Vec::new();
        if self.filters.is_empty() {
            dictionary.matching(b"#", &mut found);
        }
        for filter in &self.filters {
            dictionary.matching(&filter.topic_filter, &mut found);
        }
        found.retain(|id| self.takes_topic(dictionary.name(*id)));
        let mut topics = Topics::with_hasher(RandomState::with_seeds(61, 62, 63, 64));
        topics.extend(found.into_iter().map(|id| id.0));
        topics
    }

    /// The filters of each topic, where some of them do not hold for all messages.
    pub(super) fn filters_of_topics(&self, dictionary: &Dictionary) -> Option<HashMap<TopicId, Vec<Filter>>> {
        if self.filters.iter().all(Filter::is_always) {
            return None;
        }
        let mut of_topics: HashMap<TopicId, Vec<Filter>> = HashMap::new();
        for filter in &self.filters {
            let mut found = Vec::new();
            dictionary.matching(&filter.topic_filter, &mut found);
            for id in found {
                of_topics.entry(id).or_default().push(filter.clone());
            }
        }
        Some(of_topics)
    }

    /// True if it takes a message of one of its topics.
    pub(super) fn takes(&self, record: &Record<'_>, of_topics: Option<&HashMap<TopicId, Vec<Filter>>>) -> bool {
        let has_key = |keys: &HashSet<Vec<u8>>| record.key.is_some_and(|key| keys.contains(key));
        let holds = |filters: &Vec<Filter>| filters.iter().any(|filter| filter.holds(record));
        self.qos.as_ref().is_none_or(|qos| qos.contains(&record.qos))
            && self.retain.is_none_or(|retain| retain == record.retain)
            && self.keys.as_ref().is_none_or(has_key)
            && of_topics.is_none_or(|of_topics| of_topics.get(&record.topic).is_some_and(holds))
    }

    fn takes_topic(&self, name: &[u8]) -> bool {
        name.starts_with(&self.prefix)
            && self.names.as_ref().is_none_or(|names| names.contains(name))
            && self.pattern.as_ref().is_none_or(|pattern| pattern.regex.is_match(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::LogPosition;
    use crate::store::record::Kind;

    fn found(criteria: &Criteria) -> Vec<&'static str> {
        let names = ["a/1", "a/12", "b/1", "$x/1"];
        let mut dictionary = Dictionary::new(1);
        for name in names {
            let id = dictionary.next_id().unwrap();
            dictionary.declare(id, name.as_bytes(), 0, LogPosition(0));
        }
        let topics = criteria.topics(&dictionary);
        let is_found = |name: &&str| topics.contains(&dictionary.find(name.as_bytes()).unwrap().0);
        names.into_iter().filter(is_found).collect()
    }

    #[test]
    fn topics_have_to_meet_every_criterion() {
        let everything = Criteria::default();
        assert_eq!(found(&everything), ["a/1", "a/12", "b/1"]);
        let by_pattern = Criteria { pattern: Some(Pattern::new("a/.|b/1").unwrap()), ..everything.clone() };
        assert_eq!(found(&by_pattern), ["a/1", "b/1"]);
        let by_prefix = Criteria { prefix: b"a/1".to_vec(), ..everything.clone() };
        assert_eq!(found(&by_prefix), ["a/1", "a/12"]);
        let names = HashSet::from([b"a/1".to_vec(), b"b/1".to_vec(), b"nobody".to_vec()]);
        let by_name = Criteria { names: Some(names), ..by_prefix };
        assert_eq!(found(&by_name), ["a/1"]);
        assert!(found(&Criteria {
            names: by_name.names,
            filters: vec![Filter::always(b"a/12")],
            ..Criteria::default()
        })
        .is_empty());
    }

    #[test]
    fn a_pattern_that_cannot_be_read_says_why() {
        assert!(Pattern::new("a(").unwrap_err().to_string().contains("unclosed group"));
        assert!(Pattern::new("(a{1000}){1000}").is_err());
    }

    #[test]
    fn messages_have_to_meet_every_criterion() {
        let record = Record { qos: 1, key: Some(b"k"), ..Record::plain(Kind::Message, b"") };
        let takes = |criteria: Criteria| criteria.takes(&record, None);
        assert!(takes(Criteria { qos: Some(vec![1, 2]), ..Criteria::default() }));
        assert!(!takes(Criteria { qos: Some(vec![2]), ..Criteria::default() }));
        assert!(!takes(Criteria { retain: Some(true), ..Criteria::default() }));
        assert!(takes(Criteria { keys: Some(HashSet::from([b"k".to_vec()])), ..Criteria::default() }));
        assert!(!takes(Criteria { keys: Some(HashSet::from([b"l".to_vec()])), ..Criteria::default() }));
    }

    #[test]
    fn a_filter_holds_between_its_offsets_and_not_for_its_own_party() {
        let filter = Filter { from: Offset(5), until: Offset(7), without: Party(9), ..Filter::always(b"#") };
        let record = |offset, publisher| Record { offset, publisher, ..Record::plain(Kind::Message, b"") };
        assert!(filter.holds(&record(Offset(5), Party(1))));
        assert!(!filter.holds(&record(Offset(4), Party(1))));
        assert!(!filter.holds(&record(Offset(7), Party(1))));
        assert!(!filter.holds(&record(Offset(6), Party(9))));
    }
}
