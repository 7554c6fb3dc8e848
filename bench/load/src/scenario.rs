//! The scenarios: which clients there are, and what they do in which order.

use crate::error::LoadError;
use crate::fleet::{Door, Fleet, Pace};
use crate::histogram::Histogram;
use crate::options::{Options, Scenario};
use crate::report::Report;
use crate::shape::Shape;
use crate::subscriber::Heard;
use crate::usage::{self, Usage};
use std::ops::Range;

/// Handshakes that wait for the broker at the same time when many sessions are made.
const HANDSHAKES: usize = 100;

/// Filters of one bystander, which it asks for in one packet.
const FILTERS_EACH: usize = 500;

/// What all topics of a run have in common.
const EVERYTHING: &str = "bench/#";

/// Plays the scenario that the options name.
pub fn play(options: &Options) -> Result<Report, LoadError> {
    let from = Door { protocol: options.protocol, port: options.port, qos: options.qos };
    let to = Door {
        protocol: options.to_protocol.unwrap_or(from.protocol),
        port: options.to_port.unwrap_or(from.port),
        qos: options.to_qos.unwrap_or(from.qos),
    };
    let mut fleet = Fleet::new(from, to, options.deadline)?;
    make_bystanders(&mut fleet, options)?;
    match options.scenario {
        Scenario::Pair | Scenario::FanOut | Scenario::FanIn | Scenario::Latency | Scenario::Steady | Scenario::Send => {
            flow(&mut fleet, options)
        }
        Scenario::Shared => {
            fleet.shared = true;
            flow(&mut fleet, options)
        }
        Scenario::Absent => {
            make_absent_sessions(&mut fleet, options.absent)?;
            flow(&mut fleet, options)
        }
        Scenario::Backlog => backlog(&mut fleet, options),
        Scenario::Return => all_return(&mut fleet, options),
        Scenario::Retained => retained(&mut fleet, options),
        Scenario::Connect => connect(&mut fleet, options),
    }
}

/// Who hears whom.
struct Cast {
    publishers: usize,
    subscribers: usize,
    topics: u64,
    scenario: Scenario,
}

impl Cast {
    fn new(options: &Options) -> Self {
        let (publishers, subscribers) = match options.scenario {
            Scenario::FanOut => (1, options.subscribers),
            Scenario::FanIn => (options.publishers, 1),
            Scenario::Shared => (options.publishers, options.subscribers),
            Scenario::Latency => (1, 1),
            Scenario::Send => (1, 0),
            _ => (options.pairs, options.pairs),
        };
        Self { publishers, subscribers, topics: options.topics, scenario: options.scenario }
    }

    fn hearers(&self, publisher: usize) -> Range<usize> {
        match self.scenario {
            Scenario::FanOut | Scenario::FanIn | Scenario::Shared | Scenario::Send => 0..self.subscribers,
            _ => publisher..publisher + 1,
        }
    }

    fn heard(&self, subscriber: usize) -> Heard {
        match self.scenario {
            Scenario::FanOut | Scenario::FanIn | Scenario::Shared => Heard::new(0, self.publishers),
            _ => Heard::new(subscriber, 1),
        }
    }

    fn topic_filter(&self, subscriber: usize) -> String {
        match self.scenario {
            Scenario::FanIn => EVERYTHING.into(),
            Scenario::Shared => format!("$share/group/{EVERYTHING}"),
            Scenario::FanOut => topic(0),
            _ if self.topics > 1 => format!("{}/#", topic(subscriber)),
            _ => topic(subscriber),
        }
    }

    /// How many copies of its messages a publisher causes.
    fn copies(&self) -> u64 {
        match self.scenario {
            Scenario::Shared => 1,
            _ => self.hearers(0).len() as u64,
        }
    }
}

fn topic(publisher: usize) -> String {
    format!("bench/{publisher}")
}

fn add_publisher(fleet: &mut Fleet, options: &Options, index: usize, hearers: Range<usize>) -> Result<(), LoadError> {
    let shape = Shape {
        topic: &topic(index),
        topics: options.topics,
        qos: options.qos,
        retain: options.scenario == Scenario::Retained,
        payload_bytes: options.payload_bytes,
        batch: options.batch,
    };
    fleet.add_publisher(shape, hearers)
}

/// The counters at one moment.
struct Mark {
    at_ns: u64,
    processor_s: f64,
    broker: Usage,
    published: u64,
    acknowledged: u64,
    received: u64,
}

impl Mark {
    fn take(fleet: &Fleet, options: &Options) -> Self {
        Self {
            at_ns: fleet.now_ns(),
            processor_s: usage::own_processor_s(),
            broker: options.broker_process.and_then(usage::of_process).unwrap_or_default(),
            published: fleet.published(),
            acknowledged: fleet.acknowledged(),
            received: fleet.received(),
        }
    }

    fn seconds_until(&self, end: &Self) -> f64 {
        (end.at_ns - self.at_ns) as f64 / 1e9
    }

    /// Notes what happened between two marks.
    fn note_until(&self, end: &Self, report: &mut Report) {
        report.note("seconds", self.seconds_until(end));
        report.note("published", (end.published - self.published) as f64);
        report.note("acknowledged", (end.acknowledged - self.acknowledged) as f64);
        report.note("received", (end.received - self.received) as f64);
        report.note("processor_s", end.processor_s - self.processor_s);
        report.note("broker_processor_s", end.broker.processor_s - self.broker.processor_s);
        report.note("broker_resident_kib_before", self.broker.resident_kib as f64);
        report.note("broker_resident_kib_after", end.broker.resident_kib as f64);
    }
}

/// Joins everybody, warms up, measures, lets the last messages arrive, and counts what did not.
fn flow(fleet: &mut Fleet, options: &Options) -> Result<Report, LoadError> {
    let cast = Cast::new(options);
    join(fleet, options, &cast)?;
    let idle = Mark::take(fleet, options);
    fleet.set_pace(pace(fleet, options))?;
    fleet.drive_for("the warm-up", options.warm_up)?;
    fleet.latency.clear();
    fleet.lateness.clear();
    fleet.waits.clear();
    let start = Mark::take(fleet, options);
    fleet.drive_for("the measured part", options.measured)?;
    let end = Mark::take(fleet, options);
    let mut report = Report::default();
    Mark { broker: Usage { resident_kib: idle.broker.resident_kib, ..start.broker }, ..start }
        .note_until(&end, &mut report);
    let latency = if options.scenario == Scenario::Send { &fleet.waits } else { &fleet.latency };
    note_latency(fleet, latency, &mut report);
    fleet.drain()?;
    note_losses(fleet, cast.copies(), &mut report);
    report.note("connections", (cast.publishers + cast.subscribers) as f64);
    Ok(report)
}

fn pace(fleet: &Fleet, options: &Options) -> Pace {
    match options.scenario {
        Scenario::Latency => Pace::Rate { per_second: options.rate, from_ns: fleet.now_ns() },
        // Each publisher's part; what does not divide is left out.
        Scenario::Steady => Pace::Rate { per_second: options.rate / options.pairs as u64, from_ns: fleet.now_ns() },
        Scenario::Send => Pace::Window(1),
        _ => Pace::Window(options.window),
    }
}

fn join(fleet: &mut Fleet, options: &Options, cast: &Cast) -> Result<(), LoadError> {
    let persistent = matches!(options.scenario, Scenario::FanIn | Scenario::Shared);
    add_subscribers(fleet, "subscriber", cast.subscribers, persistent, |index| cast.heard(index))?;
    fleet.subscribe(|index| cast.topic_filter(index))?;
    fleet.drive("subscribers join", |fleet| fleet.subscribers.iter().all(|subscriber| subscriber.subscribed))?;
    for index in 0..cast.publishers {
        add_publisher(fleet, options, index, cast.hearers(index))?;
    }
    publishers_join(fleet)
}

fn publishers_join(fleet: &mut Fleet) -> Result<(), LoadError> {
    fleet.drive("publishers join", |fleet| fleet.publishers.iter().all(|publisher| publisher.connected))
}

fn add_subscribers(
    fleet: &mut Fleet,
    name: &str,
    count: usize,
    persistent: bool,
    heard: impl Fn(usize) -> Heard,
) -> Result<(), LoadError> {
    let mut answered = 0;
    for index in 0..count {
        fleet.add_subscriber(format!("{name} {index}"), persistent, heard(index))?;
        fleet.drive("subscribers connect", |fleet| {
            // Answers come nearly in order; counting on from the first that is missing keeps this cheap.
            while fleet.subscribers.get(answered).is_some_and(|subscriber| subscriber.connected) {
                answered += 1;
            }
            answered + HANDSHAKES > index
        })?;
    }
    fleet.drive("subscribers connect", |fleet| fleet.subscribers.iter().all(|subscriber| subscriber.connected))
}

/// Makes persistent sessions that match every message, and lets them go, a hundred at a time.
fn make_absent_sessions(fleet: &mut Fleet, count: usize) -> Result<(), LoadError> {
    for first in (0..count).step_by(HANDSHAKES) {
        let group = HANDSHAKES.min(count - first);
        add_subscribers(fleet, &absent_name(first), group, true, |_| Heard::new(0, 0))?;
        fleet.subscribe(|_| EVERYTHING.into())?;
        fleet.drive("absent sessions subscribe", |fleet| {
            fleet.subscribers.iter().all(|subscriber| subscriber.subscribed)
        })?;
        fleet.dismiss_subscribers()?;
    }
    Ok(())
}

fn absent_name(first: usize) -> String {
    format!("absent {first}")
}

fn note_latency(fleet: &Fleet, latency: &Histogram, report: &mut Report) {
    let microseconds = |ns: u64| ns as f64 / 1e3;
    report.note("latency_p50_us", microseconds(latency.quantile(0.5)));
    report.note("latency_p90_us", microseconds(latency.quantile(0.9)));
    report.note("latency_p99_us", microseconds(latency.quantile(0.99)));
    report.note("latency_maximum_us", microseconds(latency.maximum()));
    report.note("lateness_p99_us", microseconds(fleet.lateness.quantile(0.99)));
}

fn note_losses(fleet: &Fleet, copies: u64, report: &mut Report) {
    let unique = fleet.received() - fleet.duplicated();
    report.note("lost", (fleet.published() * copies).saturating_sub(unique) as f64);
    report.note("duplicated", fleet.duplicated() as f64);
    report.note("stalls", fleet.stalls as f64);
}

/// Publishes a number of messages to a subscriber that is away, then lets it take them.
fn backlog(fleet: &mut Fleet, options: &Options) -> Result<Report, LoadError> {
    const NAME: &str = "returning";
    add_subscribers(fleet, NAME, 1, true, |_| Heard::new(0, 1))?;
    fleet.subscribe(|_| EVERYTHING.into())?;
    fleet.drive("the subscriber joins", |fleet| fleet.subscribers.iter().all(|subscriber| subscriber.subscribed))?;
    fleet.dismiss_subscribers()?;
    let (start, taken_in) = take_in(fleet, options)?;
    add_subscribers(fleet, NAME, 1, true, |_| Heard::new(0, 1))?;
    fleet.publishers[0].hearers = 0..1;
    fleet.drain()?;
    let mut end = Mark::take(fleet, options);
    // A drain that ends in silence (messages are missing) ended when the last message came.
    end.at_ns = end.at_ns.min(fleet.last_event_ns());
    let mut report = Report::default();
    start.note_until(&end, &mut report);
    report.note("take_in_per_second", options.messages as f64 / start.seconds_until(&taken_in));
    report.note("drain_per_second", end.received as f64 / taken_in.seconds_until(&end));
    report.note("broker_resident_kib_taken_in", taken_in.broker.resident_kib as f64);
    note_losses(fleet, 1, &mut report);
    Ok(report)
}

/// One publisher sends its messages to nobody; the counters before and after.
fn take_in(fleet: &mut Fleet, options: &Options) -> Result<(Mark, Mark), LoadError> {
    add_publisher(fleet, options, 0, 0..0)?;
    publishers_join(fleet)?;
    fleet.publishers[0].limit = options.messages;
    let start = Mark::take(fleet, options);
    fleet.set_pace(Pace::Window(options.window))?;
    fleet.drive("the broker takes in", |fleet| fleet.acknowledged() == options.messages)?;
    let taken_in = Mark::take(fleet, options);
    fleet.set_pace(Pace::Idle)?;
    Ok((start, taken_in))
}

/// Publishes for many persistent sessions that are away, then has all of them come back and take what is theirs.
fn all_return(fleet: &mut Fleet, options: &Options) -> Result<Report, LoadError> {
    make_absent_sessions(fleet, options.absent)?;
    let (start, taken_in) = take_in(fleet, options)?;
    for first in (0..options.absent).step_by(HANDSHAKES) {
        let group = HANDSHAKES.min(options.absent - first);
        add_subscribers(fleet, &absent_name(first), group, true, |_| Heard::new(0, 1))?;
    }
    fleet.publishers[0].hearers = 0..options.absent;
    fleet.drain()?;
    let mut end = Mark::take(fleet, options);
    end.at_ns = end.at_ns.min(fleet.last_event_ns());
    let mut report = Report::default();
    start.note_until(&end, &mut report);
    report.note("drain_per_second", end.received as f64 / taken_in.seconds_until(&end));
    note_losses(fleet, options.absent as u64, &mut report);
    Ok(report)
}

/// Publishes retained messages, each to a topic of its own, and has one subscriber ask for all of them.
fn retained(fleet: &mut Fleet, options: &Options) -> Result<Report, LoadError> {
    let options = &Options { topics: options.messages, ..options.clone() };
    let (start, taken_in) = take_in(fleet, options)?;
    add_subscribers(fleet, "late", 1, false, |_| Heard::new(0, 1))?;
    fleet.publishers[0].hearers = 0..1;
    let asked = Mark::take(fleet, options);
    fleet.subscribe(|_| EVERYTHING.into())?;
    fleet.drain()?;
    let mut end = Mark::take(fleet, options);
    end.at_ns = end.at_ns.min(fleet.last_event_ns());
    let mut report = Report::default();
    start.note_until(&end, &mut report);
    report.note("take_in_per_second", options.messages as f64 / start.seconds_until(&taken_in));
    report.note("drain_per_second", end.received as f64 / asked.seconds_until(&end));
    note_losses(fleet, 1, &mut report);
    Ok(report)
}

/// Joins whoever is only there: with filters that match nothing of this run, or without any.
fn make_bystanders(fleet: &mut Fleet, options: &Options) -> Result<(), LoadError> {
    let holders = options.beside_subscriptions.div_ceil(FILTERS_EACH);
    add_subscribers(fleet, "bystander", holders, false, |_| Heard::new(0, 0))?;
    fleet.subscribe_many(|holder| {
        let first = holder * FILTERS_EACH;
        let end = options.beside_subscriptions.min(first + FILTERS_EACH);
        (first..end).map(filter_beside).collect()
    })?;
    fleet.drive("bystanders subscribe", |fleet| fleet.subscribers.iter().all(|subscriber| subscriber.subscribed))?;
    fleet.set_subscribers_aside()?;
    add_subscribers(fleet, "idler", options.beside_connections, false, |_| Heard::new(0, 0))?;
    fleet.set_subscribers_aside()
}

/// A filter that begins as the topics of this run do, or could, and matches none of them.
fn filter_beside(number: usize) -> String {
    match number % 3 {
        0 => format!("+/beside-{number}"),
        1 => format!("bench/+/beside-{number}/#"),
        _ => format!("bench/+/+/beside-{number}"),
    }
}

/// Opens connections and holds them: how fast, and what each costs the broker.
fn connect(fleet: &mut Fleet, options: &Options) -> Result<Report, LoadError> {
    // Nobody comes yet: a broker that listens may still be about the rest of its start.
    fleet.drive_for("the warm-up", options.warm_up)?;
    let start = Mark::take(fleet, options);
    add_subscribers(fleet, "idle", options.connections, false, |_| Heard::new(0, 0))?;
    let end = Mark::take(fleet, options);
    let mut report = Report::default();
    start.note_until(&end, &mut report);
    report.note("connections", options.connections as f64);
    report.note("connections_per_second", options.connections as f64 / start.seconds_until(&end));
    let grown_kib = end.broker.resident_kib.saturating_sub(start.broker.resident_kib);
    report.note("broker_kib_per_connection", grown_kib as f64 / options.connections as f64);
    Ok(report)
}
