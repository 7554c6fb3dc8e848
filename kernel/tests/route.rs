//! Routes give each message the targets that a plain list of subscriptions gives.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::as_conversions, clippy::panic, missing_docs)]

use holdfast_kernel::flow::{Arrivals, Fate, Publish, Refusal, Span, Target, Terms};
use holdfast_kernel::ids::{Connection, KeySlot, Party, Queue};
use holdfast_kernel::limits;
use holdfast_kernel::route::trie::{Trie, Walk};
use holdfast_kernel::route::{Routes, Subscription};
use holdfast_kernel::topic;
use proptest::prelude::*;
use std::sync::Arc;

fn subscription(queue: u32) -> Subscription {
    Subscription {
        queue: Queue(queue),
        connection: Connection(queue + 100),
        owner: Party(queue + 200),
        qos: 1,
        no_local: false,
        retain_as_published: false,
        identifier: None,
    }
}

fn publish(arrivals: &mut Arrivals, topic: &[u8], fate: Fate) {
    let span = Span { start: arrivals.bytes.len() as u32, size_bytes: topic.len() as u32 };
    arrivals.bytes.extend_from_slice(topic);
    arrivals.publishes.push(Publish {
        connection: Connection(1),
        publisher: Party(1),
        key_slot: KeySlot(0),
        packet_identifier: 0,
        qos: 0,
        retain: false,
        topic: span,
        properties: Span::default(),
        payload: Span::default(),
        expiry_interval_s: None,
        fate,
        row: None,
        entry: None,
        targets: None,
        stored: None,
    });
}

fn queues(publish: &Publish) -> Vec<u32> {
    publish.targets.iter().flat_map(|targets| targets.iter()).map(|target| target.queue.0).collect()
}

fn levels(of: &'static [&'static str], most: usize) -> impl Strategy<Value = String> {
    let levels = proptest::collection::vec(proptest::sample::select(of), 1..most);
    levels.prop_map(|levels| levels.join("/")).prop_filter("empty", |text| !text.is_empty())
}

fn filters() -> impl Strategy<Value = String> {
    let first_levels = levels(&["a", "b", "+", "", "$s"], 5);
    (first_levels, any::<bool>()).prop_map(|(filter, rest)| if rest { format!("{filter}/#") } else { filter })
}

fn names() -> impl Strategy<Value = String> {
    levels(&["a", "b", "", "$s"], 6)
}

#[derive(Debug, Clone)]
enum Change {
    Subscribe(u32, String),
    Unsubscribe(u32, String),
    Remove(u32),
}

fn changes() -> impl Strategy<Value = Vec<Change>> {
    let filter = || prop_oneof![3 => filters(), 1 => Just("#".to_owned()), 2 => names()];
    let change = prop_oneof![
        5 => (0..5u32, filter()).prop_map(|(queue, filter)| Change::Subscribe(queue, filter)),
        3 => (0..5u32, filter()).prop_map(|(queue, filter)| Change::Unsubscribe(queue, filter)),
        1 => (0..5u32).prop_map(Change::Remove),
    ];
    proptest::collection::vec(change, 1..80)
}

proptest! {
    #[test]
    fn routes_equal_a_list(changes in changes(), topics in proptest::collection::vec(names(), 1..12)) {
        let mut routes = Routes::new(5);
        let mut list: Vec<(u32, String)> = Vec::new();
        let mut arrivals = Arrivals::default();
        topics.iter().for_each(|topic| publish(&mut arrivals, topic.as_bytes(), Fate::Accepted));
        for change in changes {
            match change {
                Change::Subscribe(queue, filter) => {
                    routes.subscribe(filter.as_bytes(), subscription(queue)).unwrap();
                    list.retain(|other| *other != (queue, filter.clone()));
                    list.push((queue, filter));
                }
                Change::Unsubscribe(queue, filter) => {
                    let there = list.contains(&(queue, filter.clone()));
                    prop_assert_eq!(routes.unsubscribe(Queue(queue), filter.as_bytes()), there);
                    list.retain(|other| *other != (queue, filter.clone()));
                }
                Change::Remove(queue) => {
                    routes.remove(Queue(queue));
                    list.retain(|(other, _)| *other != queue);
                }
            }
            routes.route(&mut arrivals);
            prop_assert_eq!(routes.len(), list.len());
            for (name, publish) in topics.iter().zip(&arrivals.publishes) {
                let matching = list.iter().filter(|(_, filter)| topic::matches(filter.as_bytes(), name.as_bytes()));
                let mut expected: Vec<u32> = matching.map(|(queue, _)| *queue).collect();
                expected.sort_unstable();
                expected.dedup();
                prop_assert_eq!(queues(publish), expected, "{}", name);
            }
        }
    }

    #[test]
    fn an_emptied_trie_has_its_root_only(filters in proptest::collection::vec(filters(), 0..60), name in names()) {
        let mut trie = Trie::new(ahash::RandomState::with_seeds(1, 2, 3, 4));
        let mut places: Vec<_> = filters.iter().map(|filter| trie.insert(filter.as_bytes())).collect();
        for (filter, place) in filters.iter().zip(&places) {
            prop_assert_eq!(trie.filter(*place), filter.as_bytes());
            prop_assert_eq!(trie.find(filter.as_bytes()), Some(*place));
        }
        places.sort_unstable();
        places.dedup();
        let mut walk = Walk::default();
        trie.walk(name.as_bytes(), &mut walk);
        walk.found.sort_unstable();
        let mut expected = places.clone();
        expected.retain(|place| topic::matches(&trie.filter(*place), name.as_bytes()));
        prop_assert_eq!(&walk.found, &expected);
        places.into_iter().for_each(|place| trie.remove(place));
        prop_assert_eq!(trie.size(), (1, 0));
        trie.walk(name.as_bytes(), &mut walk);
        prop_assert!(walk.found.is_empty());
    }
}

#[test]
fn subscriptions_of_one_queue_become_one_target() {
    let mut routes = Routes::new(0);
    let one = |qos, no_local, retain_as_published, identifier| Subscription {
        qos,
        no_local,
        retain_as_published,
        identifier,
        ..subscription(3)
    };
    routes.subscribe(b"a/#", one(0, true, false, Some(7))).unwrap();
    routes.subscribe(b"a/+", one(2, true, false, None)).unwrap();
    routes.subscribe(b"#", one(1, true, true, Some(5))).unwrap();
    let terms = |qos, retain_as_published, identifiers: &[u32]| Terms {
        qos,
        retain_as_published,
        identifiers: Some(Arc::from(identifiers)),
    };
    let target = |terms, own| Target {
        queue: Queue(3),
        connection: Connection(103),
        terms,
        own: Some(Arc::new((Party(203), own))),
    };
    assert_eq!(*routes.targets(b"a/b").unwrap(), [target(terms(2, true, &[7, 5]), None)]);
    // Replaced in its place: the order of identifiers stays, and its owner's messages go by this one alone.
    routes.subscribe(b"a/#", one(0, false, false, Some(8))).unwrap();
    let own = Some(terms(0, false, &[8]));
    assert_eq!(*routes.targets(b"a/b").unwrap(), [target(terms(2, true, &[8, 5]), own.clone())]);
    let found = routes.targets(b"a/b").unwrap();
    assert_eq!((found[0].terms_for(Party(203)), found[0].terms_for(Party(4)).unwrap().qos), (own.as_ref(), 2));
    assert_eq!(routes.targets(b"b").unwrap()[0].terms_for(Party(203)), None);
    assert!(routes.targets(b"$a/b").is_none());
}

#[test]
fn only_accepted_messages_are_routed() {
    let mut routes = Routes::new(0);
    routes.subscribe(b"a", subscription(1)).unwrap();
    let mut arrivals = Arrivals::default();
    publish(&mut arrivals, b"a", Fate::Duplicate);
    publish(&mut arrivals, b"a", Fate::Accepted);
    publish(&mut arrivals, b"a", Fate::Refused(Refusal::NotAuthorized));
    publish(&mut arrivals, b"a", Fate::Accepted);
    publish(&mut arrivals, b"b", Fate::Accepted);
    routes.route(&mut arrivals);
    let routed: Vec<bool> = arrivals.publishes.iter().map(|publish| publish.targets.is_some()).collect();
    assert_eq!(routed, [false, true, false, true, false]);
    let shared = [1, 3].map(|index| arrivals.publishes[index].targets.clone().unwrap());
    assert!(Arc::ptr_eq(&shared[0], &shared[1]), "looked up once, then remembered");
}

#[test]
fn a_change_elsewhere_leaves_what_is_remembered() {
    let mut routes = Routes::new(0);
    routes.subscribe(b"a/+", subscription(1)).unwrap();
    let before = routes.targets(b"a/b").unwrap();
    for change in 0..limits::ROUTE_CHANGES_MAXIMUM {
        routes.subscribe(format!("c/{change}/#").as_bytes(), subscription(2)).unwrap();
    }
    routes.subscribe(b"a/c", subscription(2)).unwrap();
    assert!(Arc::ptr_eq(&before, &routes.targets(b"a/b").unwrap()));
    routes.subscribe(b"+/b", subscription(3)).unwrap();
    assert_eq!(routes.targets(b"a/b").unwrap().len(), 2);
}

#[test]
fn a_topic_that_has_missed_too_many_changes_is_looked_up_again() {
    let mut routes = Routes::new(0);
    assert!(routes.targets(b"a/b").is_none());
    routes.subscribe(b"a/+", subscription(1)).unwrap();
    for change in 0..limits::ROUTE_CHANGES_MAXIMUM {
        routes.subscribe(format!("c/{change}/#").as_bytes(), subscription(2)).unwrap();
    }
    assert_eq!(routes.targets(b"a/b").unwrap().len(), 1);
}

#[test]
fn topics_that_somebody_invents_cost_a_bounded_memory() {
    let mut routes = Routes::new(0);
    routes.subscribe(b"#", subscription(1)).unwrap();
    routes.targets(b"kept").unwrap();
    let first = routes.targets(b"kept").unwrap();
    for topic in 0..limits::ROUTE_CACHE_TOPICS_MAXIMUM {
        assert_eq!(routes.targets(format!("invented/{topic}").as_bytes()).unwrap().len(), 1);
    }
    assert!(!Arc::ptr_eq(&first, &routes.targets(b"kept").unwrap()), "the memory was emptied on the way");
    let long = vec![b'x'; limits::ROUTE_CACHE_TOPIC_BYTES_MAXIMUM + 1];
    let once = routes.targets(&long).unwrap();
    assert!(!Arc::ptr_eq(&once, &routes.targets(&long).unwrap()), "a long name is not remembered");
}

#[test]
fn targets_of_all_topics_together_cost_a_bounded_memory() {
    let mut routes = Routes::new(0);
    let subscribers = 10_000;
    for queue in 0..subscribers {
        routes.subscribe(b"#", subscription(queue)).unwrap();
    }
    let first = routes.targets(b"kept").unwrap();
    for topic in 0..limits::ROUTE_CACHE_TARGETS_MAXIMUM / subscribers as usize {
        assert!(Arc::ptr_eq(&first, &routes.targets(b"kept").unwrap()));
        routes.targets(format!("invented/{topic}").as_bytes()).unwrap();
    }
    assert!(!Arc::ptr_eq(&first, &routes.targets(b"kept").unwrap()), "the memory was emptied on the way");
}

#[test]
fn depth_is_bounded() {
    let mut routes = Routes::new(0);
    let deepest = vec!["a"; limits::TOPIC_LEVELS_MAXIMUM].join("/");
    routes.subscribe(deepest.as_bytes(), subscription(1)).unwrap();
    assert!(routes.subscribe(format!("{deepest}/a").as_bytes(), subscription(1)).is_err());
    assert_eq!(routes.len(), 1);
    assert_eq!(routes.targets(deepest.as_bytes()).unwrap().len(), 1);
    assert!(routes.targets(&[b'/'; 65_535]).is_none());
}
