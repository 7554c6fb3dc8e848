//! Nanoseconds per routed message and per subscription, and the memory of a subscription.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::as_conversions, missing_docs)]

use holdfast_kernel::flow::{Arrivals, Fate, Publish, Span};
use holdfast_kernel::ids::{Connection, KeySlot, Party, Queue};
use holdfast_kernel::route::{Routes, Subscription};
use std::hint::black_box;
use std::time::Instant;

const SUBSCRIPTIONS: u32 = 100_000;

fn subscription(queue: u32) -> Subscription {
    Subscription {
        queue: Queue(queue),
        connection: Connection(queue),
        owner: Party(queue + 1),
        qos: 1,
        no_local: false,
        retain_as_published: false,
        identifier: None,
    }
}

fn report(name: &str, began: Instant, count: u64) {
    println!("{name:58} {:8.1} ns", began.elapsed().as_nanos() as f64 / count as f64);
}

fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    status.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok()).unwrap_or_default() * 4_096
}

/// A batch of publishes, `topics` in turn, each `run` times in a row.
fn batch(topics: &[String], run: usize) -> Arrivals {
    let mut arrivals = Arrivals::default();
    for topic in topics {
        for _ in 0..run {
            let start = arrivals.bytes.len() as u32;
            arrivals.bytes.extend_from_slice(topic.as_bytes());
            arrivals.publishes.push(Publish {
                connection: Connection(1),
                publisher: Party(1),
                key_slot: KeySlot(0),
                packet_identifier: 0,
                qos: 0,
                retain: false,
                topic: Span { start, size_bytes: topic.len() as u32 },
                properties: Span::default(),
                payload: Span::default(),
                expiry_interval_s: None,
                fate: Fate::Accepted,
                row: None,
                entry: None,
                targets: None,
                stored: None,
            });
        }
    }
    arrivals
}

fn routed(name: &str, routes: &mut Routes, topics: &[String], run: usize) {
    let mut arrivals = batch(topics, run);
    routes.route(&mut arrivals);
    let count = arrivals.publishes.len() as u64;
    let rounds = 100_000 / count + 1;
    let run = || {
        let began = Instant::now();
        for _ in 0..rounds {
            routes.route(&mut arrivals);
            black_box(&arrivals);
        }
        began.elapsed().as_nanos() as f64 / (rounds * count) as f64
    };
    // The best of several runs: whatever else the machine does only makes them slower.
    let best = std::iter::repeat_with(run).take(9).fold(f64::MAX, f64::min);
    println!("{name:58} {best:8.1} ns");
}

fn topics(count: u32) -> Vec<String> {
    (0..count).map(|index| format!("zebra/fx/{}/reads", index * 61 % SUBSCRIPTIONS)).collect()
}

fn main() {
    let before = resident_bytes();
    let mut routes = Routes::new(7);
    let began = Instant::now();
    for queue in 0..SUBSCRIPTIONS {
        routes.subscribe(format!("zebra/fx/{queue}/+").as_bytes(), subscription(queue)).unwrap();
    }
    report("subscribe, 100 000 filters of one queue each", began, SUBSCRIPTIONS.into());
    println!("{:58} {:8} bytes", "memory per subscription", (resident_bytes() - before) / u64::from(SUBSCRIPTIONS));
    for (queue, filter) in ["#", "zebra/#", "zebra/+/+/reads", "+/fx/#", "$SYS/#"].iter().enumerate() {
        routes.subscribe(filter.as_bytes(), subscription(SUBSCRIPTIONS + queue as u32)).unwrap();
    }
    routed("route, remembered, 50 topics in turn", &mut routes, &topics(50), 1);
    routed("route, remembered, 50 topics, 20 in a row", &mut routes, &topics(50), 20);
    routed("route, remembered, 10 000 topics in turn", &mut routes, &topics(10_000), 1);

    let rules: Vec<(String, bool)> = (0..20).map(|index| (format!("zebra/fx/{index}/none"), false)).collect();
    let rules: Vec<(&str, bool)> = rules.iter().map(|(filter, allowed)| (filter.as_str(), *allowed)).collect();
    routes.grant(Connection(1), Some(&[rules.as_slice(), &[("zebra/#", true)]].concat()), None).unwrap();
    routed("route with a table of 21 rules, 50 topics in turn", &mut routes, &topics(50), 1);
    routed("route with a table of 21 rules, 10 000 topics in turn", &mut routes, &topics(10_000), 1);
    routes.grant::<&str>(Connection(1), None, None).unwrap();

    // A change of `#` makes each topic of the batch look again.
    let names = topics(20_000);
    let mut arrivals = batch(&names, 1);
    let mut best = f64::MAX;
    for _ in 0..9 {
        routes.subscribe(b"#", subscription(SUBSCRIPTIONS)).unwrap();
        let began = Instant::now();
        routes.route(&mut arrivals);
        best = best.min(began.elapsed().as_nanos() as f64 / names.len() as f64);
    }
    println!("{:58} {best:8.1} ns", "route, looked up: 5 of 100 005 filters match");

    let few = topics(50);
    let mut arrivals = batch(&few, 20);
    let began = Instant::now();
    for round in 0..200u32 {
        let filter = format!("zebra/fx/{}/+", 99_000 + round);
        routes.subscribe(filter.as_bytes(), subscription(7)).unwrap();
        routes.unsubscribe(Queue(7), filter.as_bytes());
        routes.route(&mut arrivals);
    }
    report("route 1 000 in 50 topics, two wildcard changes before", began, 200 * 1_000);

    let began = Instant::now();
    for queue in 0..SUBSCRIPTIONS / 2 {
        routes.unsubscribe(Queue(queue), format!("zebra/fx/{queue}/+").as_bytes());
    }
    report("unsubscribe", began, u64::from(SUBSCRIPTIONS / 2));
    let began = Instant::now();
    for queue in SUBSCRIPTIONS / 2..SUBSCRIPTIONS {
        routes.remove(Queue(queue));
    }
    report("remove a queue of one subscription", began, u64::from(SUBSCRIPTIONS / 2));
    many_to_one_filter();
}

fn many_to_one_filter() {
    let mut routes = Routes::new(7);
    let began = Instant::now();
    for queue in 0..SUBSCRIPTIONS {
        routes.subscribe(b"news/+", subscription(queue)).unwrap();
    }
    report("subscribe, 100 000 queues to one filter", began, SUBSCRIPTIONS.into());
    let began = Instant::now();
    assert_eq!(routes.targets(b"news/1").unwrap().len(), SUBSCRIPTIONS as usize);
    report("look up, per target of 100 000", began, SUBSCRIPTIONS.into());
    let began = Instant::now();
    for queue in 0..SUBSCRIPTIONS {
        routes.remove(Queue(queue));
    }
    report("remove each of 100 000 queues of one filter", began, SUBSCRIPTIONS.into());
    assert!(routes.is_empty());
}
