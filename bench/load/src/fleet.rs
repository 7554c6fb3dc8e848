//! All clients of a run on one thread and one epoll set.
//!
//! Owns: the clients, the clock of the run, the pace at which publishers send, the deadline.
//! Never: knows which scenario it plays; `scenario` moves it from phase to phase.
//!
//! One turn: wait, read what is readable (one large read for each socket), answer in the same write, then let every
//! publisher send what its pace allows and write that at once.

use crate::connection::{Connection, READ_BYTES};
use crate::error::LoadError;
use crate::histogram::Histogram;
use crate::mqtt;
use crate::publisher::Publisher;
use crate::pulsar;
use crate::shape::Shape;
use crate::speech::{Protocol, Publishes, Subscribes};
use crate::subscriber::{Heard, Subscriber};
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::fd::OwnedFd;
use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec};
use std::time::{Duration, Instant};

const NANOSECONDS: u64 = 1_000_000_000;

/// How long one wait lasts at most, so that phases that end by the clock end in time.
const TICK_NS: i64 = 20_000_000;

/// Silence after which messages of QoS 0 that are still out count as lost, and the window opens again.
const STALL_NS: u64 = NANOSECONDS;

/// Silence after which nothing more is expected at the end: far longer than a busy disk takes for a commit.
const QUIET_NS: u64 = 10 * NANOSECONDS;

/// How long acknowledgements of a Pulsar consumer wait for company at most, as those of the official clients do.
const GROUP_NS: u64 = NANOSECONDS / 10;

/// Events that one wait returns.
const EVENTS: usize = 1_024;

/// Tokens of subscribers have this bit; a publisher's token is its index.
const SUBSCRIBER: u64 = 1 << 32;

/// The timer's token.
const TIMER: u64 = u64::MAX;

/// When publishers send.
#[derive(Clone, Copy)]
pub enum Pace {
    /// Not now.
    Idle,
    /// As long as fewer messages of a publisher than this are out.
    Window(u64),
    /// This many a second from a given time, whatever comes back.
    Rate { per_second: u64, from_ns: u64 },
}

/// Where clients connect, and what they speak there.
#[derive(Clone, Copy)]
pub struct Door {
    pub protocol: Protocol,
    pub port: u16,
    /// Of messages that are published, or of subscriptions.
    pub qos: u8,
}

/// The clients of a run.
pub struct Fleet {
    from: Door,
    /// Where subscribers listen: at another broker behind the first one, if that is measured.
    to: Door,
    epoll: OwnedFd,
    timer: Option<OwnedFd>,
    events: Vec<Event>,
    buffer: Vec<u8>,
    origin: Instant,
    deadline: Instant,
    last_event_ns: u64,
    last_group_ns: u64,
    pace: Pace,
    /// All publishers; their order is their number in the stamps.
    pub publishers: Vec<Publisher>,
    /// All subscribers.
    pub subscribers: Vec<Subscriber>,
    /// Connections that only stay open.
    bystanders: Vec<Subscriber>,
    /// From sending to reading, of the messages that came since it was last cleared.
    pub latency: Histogram,
    /// From sending to the last acknowledgement, of messages sent one by one.
    pub waits: Histogram,
    /// How late this generator sent what a rate made due.
    pub lateness: Histogram,
    /// How often QoS 0 stood still and was written off.
    pub stalls: u64,
    /// Those that hear a publisher share its messages: each comes to one of them.
    pub shared: bool,
}

impl Fleet {
    /// No clients yet.
    pub fn new(from: Door, to: Door, deadline: Duration) -> Result<Self, LoadError> {
        let origin = Instant::now();
        Ok(Self {
            from,
            to,
            epoll: epoll::create(CreateFlags::CLOEXEC).map_err(|error| LoadError::System("epoll", error.into()))?,
            timer: None,
            events: Vec::with_capacity(EVENTS),
            buffer: vec![0; READ_BYTES + mqtt::packet::PACKET_BYTES_MAXIMUM.max(pulsar::FRAME_BYTES_MAXIMUM)],
            origin,
            deadline: origin + deadline,
            last_event_ns: 0,
            last_group_ns: 0,
            pace: Pace::Idle,
            publishers: vec![],
            subscribers: vec![],
            bystanders: vec![],
            latency: Histogram::default(),
            waits: Histogram::default(),
            lateness: Histogram::default(),
            stalls: 0,
            shared: false,
        })
    }

    /// Nanoseconds since the fleet was made.
    pub fn now_ns(&self) -> u64 {
        u64::try_from(self.origin.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Adds a publisher; the broker's answer is still to come.
    pub fn add_publisher(&mut self, shape: Shape<'_>, hearers: std::ops::Range<usize>) -> Result<(), LoadError> {
        let index = self.publishers.len();
        let mut connection = Connection::open(format!("publisher {index}"), self.from.port, &self.epoll, index as u64)?;
        let identifier = connection.name().replace(' ', "-");
        let (number, outbox) = (index as u32, connection.outbox());
        let speech: Box<dyn Publishes> = match self.from.protocol {
            Protocol::Mqtt => Box::new(mqtt::Publisher::new(&identifier, shape, number, outbox)),
            Protocol::Pulsar => Box::new(pulsar::Producer::new(&identifier, shape, number, outbox)),
        };
        let mut publisher = Publisher::new(connection, speech, hearers);
        publisher.flush(&self.epoll)?;
        self.publishers.push(publisher);
        Ok(())
    }

    /// Adds a subscriber called `name`; the broker's answer is still to come.
    pub fn add_subscriber(&mut self, name: String, persistent: bool, heard: Heard) -> Result<(), LoadError> {
        let token = SUBSCRIBER | self.subscribers.len() as u64;
        let mut connection = Connection::open(name, self.to.port, &self.epoll, token)?;
        let identifier = connection.name().replace(' ', "-");
        let speech: Box<dyn Subscribes> = match self.to.protocol {
            Protocol::Mqtt => Box::new(mqtt::Subscriber::new(&identifier, persistent, connection.outbox())),
            Protocol::Pulsar => Box::new(pulsar::Consumer::new(&identifier, connection.outbox())),
        };
        let mut subscriber = Subscriber::new(connection, speech, heard);
        subscriber.flush(&self.epoll)?;
        self.subscribers.push(subscriber);
        Ok(())
    }

    /// Has each subscriber ask for its filter.
    pub fn subscribe(&mut self, topic_filter: impl Fn(usize) -> String) -> Result<(), LoadError> {
        self.subscribe_many(|index| vec![topic_filter(index)])
    }

    /// Has each subscriber ask for its filters, all in one packet; one without any asks for nothing.
    pub fn subscribe_many(&mut self, topic_filters: impl Fn(usize) -> Vec<String>) -> Result<(), LoadError> {
        for (index, subscriber) in self.subscribers.iter_mut().enumerate() {
            let topic_filters = topic_filters(index);
            if !topic_filters.is_empty() {
                subscriber.subscribe(&topic_filters, self.to.qos);
                subscriber.flush(&self.epoll)?;
            }
        }
        Ok(())
    }

    /// The subscribers stay connected, and nothing more is heard or expected of them.
    pub fn set_subscribers_aside(&mut self) -> Result<(), LoadError> {
        for mut subscriber in std::mem::take(&mut self.subscribers) {
            subscriber.set_aside(&self.epoll)?;
            self.bystanders.push(subscriber);
        }
        Ok(())
    }

    /// All subscribers say DISCONNECT, and are gone when this returns.
    pub fn dismiss_subscribers(&mut self) -> Result<(), LoadError> {
        for subscriber in &mut self.subscribers {
            subscriber.leave(&self.epoll)?;
        }
        self.drive("subscribers leave", |fleet| fleet.subscribers.iter().all(|subscriber| subscriber.left))?;
        self.subscribers.clear();
        Ok(())
    }

    /// Sets when publishers send from now on.
    pub fn set_pace(&mut self, pace: Pace) -> Result<(), LoadError> {
        self.pace = pace;
        self.last_event_ns = self.now_ns();
        if let Pace::Rate { per_second, .. } = pace {
            self.timer = Some(self.start_timer(NANOSECONDS / per_second.max(1))?);
        } else {
            self.timer = None;
        }
        Ok(())
    }

    /// A timer of its own, because the wait's timeout is only as fine as a millisecond.
    fn start_timer(&self, interval_ns: u64) -> Result<OwnedFd, LoadError> {
        let failed = |error: rustix::io::Errno| LoadError::System("timerfd", error.into());
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let timer = rustix::time::timerfd_create(TimerfdClockId::Monotonic, flags).map_err(failed)?;
        let interval =
            Timespec { tv_sec: (interval_ns / NANOSECONDS) as i64, tv_nsec: (interval_ns % NANOSECONDS) as i64 };
        let spec = Itimerspec { it_interval: interval, it_value: interval };
        rustix::time::timerfd_settime(&timer, TimerfdTimerFlags::empty(), &spec).map_err(failed)?;
        epoll::add(&self.epoll, &timer, EventData::new_u64(TIMER), EventFlags::IN).map_err(failed)?;
        Ok(timer)
    }

    /// Turns until `done`, or fails at the deadline, naming the phase.
    pub fn drive(&mut self, phase: &'static str, mut done: impl FnMut(&Self) -> bool) -> Result<(), LoadError> {
        while !done(self) {
            if Instant::now() > self.deadline {
                return Err(LoadError::Deadline(phase, self.state()));
            }
            self.turn()?;
        }
        Ok(())
    }

    /// Turns for a while.
    pub fn drive_for(&mut self, phase: &'static str, duration: Duration) -> Result<(), LoadError> {
        let end = Instant::now() + duration;
        self.drive(phase, |_| Instant::now() >= end)
    }

    /// Turns until everything published has come back, or nothing comes any more.
    pub fn drain(&mut self) -> Result<(), LoadError> {
        self.set_pace(Pace::Idle)?;
        self.drive("the last messages arrive", |fleet| {
            let all = (0..fleet.publishers.len()).all(|index| fleet.outstanding(index) == 0);
            all || fleet.now_ns() > fleet.last_event_ns + QUIET_NS
        })
    }

    /// Messages of a publisher that are not yet acknowledged (QoS 1, 2) or have not yet come to all that hear it.
    pub fn outstanding(&self, index: usize) -> u64 {
        let publisher = &self.publishers[index];
        let acknowledged = if self.from.qos == 0 { u64::MAX } else { publisher.acknowledged };
        let hearers = &self.subscribers[publisher.hearers.clone()];
        let reached = if self.shared {
            hearers.iter().map(|hearer| hearer.heard.came(index)).sum()
        } else {
            hearers.iter().map(|hearer| hearer.heard.reached(index)).min().unwrap_or(u64::MAX)
        };
        let done = acknowledged.min(reached).max(publisher.forgiven);
        publisher.published.saturating_sub(done)
    }

    /// When the last packet of the broker came.
    pub fn last_event_ns(&self) -> u64 {
        self.last_event_ns
    }

    /// Messages received by all subscribers, each copy counted.
    pub fn received(&self) -> u64 {
        self.subscribers.iter().map(|subscriber| subscriber.heard.received).sum()
    }

    /// Messages whose number was not above one before.
    pub fn duplicated(&self) -> u64 {
        self.subscribers.iter().map(|subscriber| subscriber.heard.duplicated).sum()
    }

    /// Messages published by all.
    pub fn published(&self) -> u64 {
        self.publishers.iter().map(|publisher| publisher.published).sum()
    }

    /// Messages acknowledged to all publishers.
    pub fn acknowledged(&self) -> u64 {
        self.publishers.iter().map(|publisher| publisher.acknowledged).sum()
    }

    fn state(&self) -> String {
        let connected = self.subscribers.iter().filter(|subscriber| subscriber.connected).count()
            + self.publishers.iter().filter(|publisher| publisher.connected).count();
        format!(
            "{connected} of {} connected, {} published, {} acknowledged, {} received",
            self.subscribers.len() + self.publishers.len(),
            self.published(),
            self.acknowledged(),
            self.received()
        )
    }

    fn turn(&mut self) -> Result<(), LoadError> {
        self.events.clear();
        let tick = Timespec { tv_sec: 0, tv_nsec: TICK_NS };
        match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut self.events), Some(&tick)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(LoadError::System("epoll_wait", error.into())),
        }
        let events = std::mem::take(&mut self.events);
        let mut woken = false;
        for event in &events {
            woken |= self.serve(event.data.u64(), event.flags)?;
        }
        self.events = events;
        let now_ns = self.now_ns();
        if woken {
            self.last_event_ns = now_ns;
        } else {
            self.write_off_a_stall(now_ns);
        }
        self.acknowledge_groups(now_ns)?;
        self.publish(now_ns)
    }

    /// Serves one ready descriptor; true if a client was behind it.
    fn serve(&mut self, token: u64, flags: EventFlags) -> Result<bool, LoadError> {
        if token == TIMER {
            if let Some(timer) = &self.timer {
                // How often it fired does not matter: what is due follows from the clock.
                let _ticks = rustix::io::read(timer, &mut [0; 8]);
            }
            return Ok(false);
        }
        let readable = !flags.difference(EventFlags::OUT).is_empty();
        let now_ns = self.now_ns();
        let index = (token & (SUBSCRIBER - 1)) as usize;
        if token & SUBSCRIBER == 0 {
            let publisher = &mut self.publishers[index];
            if readable {
                publisher.read(&mut self.buffer, now_ns, &mut self.waits)?;
            }
            return Ok(true); // Its answers leave together with what it publishes at the end of the turn.
        }
        let subscriber = &mut self.subscribers[index];
        if readable {
            subscriber.read(&mut self.buffer, now_ns, &mut self.latency)?;
        }
        subscriber.flush(&self.epoll)?;
        Ok(true)
    }

    fn acknowledge_groups(&mut self, now_ns: u64) -> Result<(), LoadError> {
        if self.to.protocol == Protocol::Pulsar && now_ns >= self.last_group_ns + GROUP_NS {
            self.last_group_ns = now_ns;
            for subscriber in &mut self.subscribers {
                subscriber.acknowledge(&self.epoll)?;
            }
        }
        Ok(())
    }

    fn publish(&mut self, now_ns: u64) -> Result<(), LoadError> {
        for index in 0..self.publishers.len() {
            let count = match self.pace {
                Pace::Idle => 0,
                Pace::Window(window) => refill(window, self.outstanding(index)),
                Pace::Rate { per_second, from_ns } => self.due(index, per_second, from_ns, now_ns),
            };
            let publisher = &mut self.publishers[index];
            publisher.publish(count, now_ns, &self.epoll)?;
            publisher.flush(&self.epoll)?;
        }
        Ok(())
    }

    /// How many messages the rate has made due by now; notes how late each is.
    fn due(&mut self, index: usize, per_second: u64, from_ns: u64, now_ns: u64) -> u64 {
        let published = self.publishers[index].published;
        let due = now_ns.saturating_sub(from_ns) * per_second / NANOSECONDS;
        for number in published..due {
            self.lateness.add(now_ns - from_ns - number * NANOSECONDS / per_second);
        }
        due.saturating_sub(published)
    }

    /// A broker may drop messages of QoS 0. Without this one that was dropped would stop its publisher for ever.
    fn write_off_a_stall(&mut self, now_ns: u64) {
        let stalled = matches!(self.pace, Pace::Window(_)) && now_ns > self.last_event_ns + STALL_NS;
        if self.from.qos > 0 || !stalled {
            return;
        }
        for publisher in &mut self.publishers {
            publisher.forgiven = publisher.published;
        }
        self.stalls += 1;
        self.last_event_ns = now_ns;
    }
}

/// How many messages to send now. Below a quarter of the window it waits for more to come back, so that a broker that
/// answers each message by itself does not have the generator write each message by itself too.
fn refill(window: u64, outstanding: u64) -> u64 {
    let free = window.saturating_sub(outstanding);
    if free * 4 >= window {
        free
    } else {
        0
    }
}

#[cfg(test)]
mod tests {
    use super::refill;

    #[test]
    fn a_window_is_refilled_by_quarters() {
        assert_eq!([0, 75, 76, 99, 100, 130].map(|outstanding| refill(100, outstanding)), [100, 25, 0, 0, 0, 0]);
        assert_eq!([0, 1].map(|outstanding| refill(1, outstanding)), [1, 0]);
    }
}
