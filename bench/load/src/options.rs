//! The command line: a scenario and the numbers that describe it.

use crate::error::LoadError;
use crate::mqtt::packet::TOPICS_MAXIMUM;
use crate::pulsar;
use crate::shape::PAYLOAD_BYTES_MAXIMUM;
use crate::speech::Protocol;
use std::time::Duration;

/// Shown for `--help` and after a mistake.
pub const USAGE: &str = "\
usage: holdfast-load SCENARIO --port PORT [OPTIONS]

Loads a broker of MQTT or Pulsar on 127.0.0.1 and prints what it measured as one JSON object.

scenarios
  pair      --pairs publishers with one subscriber each
  fanout    one publisher to --subscribers
  fanin     --publishers to one subscriber with a persistent session
  shared    --publishers to a group of --subscribers, 10 and 4 if they are not said
  latency   one pair at --rate messages a second, whatever comes back
  send      one publisher without subscribers, each message after the acknowledgement of the one before
  steady    --pairs at --rate messages a second together, whatever comes back
  absent    --absent persistent sessions subscribe to everything and leave; then as pair
  backlog   --messages for a persistent subscriber that is away, then it returns and takes them
  return    --messages for --absent persistent sessions that are away; all return and take them
  retained  --messages retained on as many topics, then one subscriber asks for all of them
  connect   --connections are opened, 100 at a time, and held

options                                         default
  --qos 0|1|2            of messages and filters      0
  --protocol mqtt|pulsar  of publishers and subscribers; Pulsar's in pair, latency, send and steady,
                         its producers with --qos 1, for each message has a receipt    mqtt
  --to-protocol mqtt|pulsar   of subscribers    as --protocol
  --batch N              messages in an entry of a Pulsar producer, 0 to send each by itself    0
  --to-port PORT, --to-qos 0|1|2   of subscribers, who listen at another broker    as --port, --qos
  --pairs N, --publishers N, --subscribers N          1, 100, 500
  --window N             messages of one publisher that may be out: not yet acknowledged,
                         or not yet come to all that hear it      100
  --payload BYTES        20 to 65536                  64
  --rate N               messages a second            1000
  --absent N, --messages N, --connections N           0, 200000, 5000
  --topics N             that each publisher takes in turn    1
  --beside-subscriptions N   wildcard filters of others that match nothing here    0
  --beside-connections N     connections of others that do nothing    0
  --warm-up SECONDS, --seconds SECONDS                1, 3
  --deadline SECONDS     the run fails after it       60
  --broker-process PID   also measure this process
";

/// What is played.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scenario {
    /// Publishers with one subscriber each.
    Pair,
    /// One publisher, many subscribers.
    FanOut,
    /// Many publishers, one persistent subscriber.
    FanIn,
    /// Many publishers, a group of subscribers that share the messages.
    Shared,
    /// One pair at a fixed rate.
    Latency,
    /// One publisher, each message after the acknowledgement of the one before.
    Send,
    /// Pairs at a fixed rate that they share.
    Steady,
    /// Pairs beside persistent sessions that are away.
    Absent,
    /// Messages for a persistent subscriber that is away, and their way out.
    Backlog,
    /// Messages for many persistent sessions that are away and come back together.
    Return,
    /// Retained messages for a new subscriber.
    Retained,
    /// Connections that do nothing.
    Connect,
}

/// Everything that the command line says.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    pub scenario: Scenario,
    pub port: u16,
    pub qos: u8,
    pub protocol: Protocol,
    pub to_protocol: Option<Protocol>,
    pub batch: u64,
    pub to_port: Option<u16>,
    pub to_qos: Option<u8>,
    pub pairs: usize,
    pub publishers: usize,
    pub subscribers: usize,
    pub window: u64,
    pub payload_bytes: usize,
    pub rate: u64,
    pub absent: usize,
    pub messages: u64,
    pub connections: usize,
    pub topics: u64,
    pub beside_subscriptions: usize,
    pub beside_connections: usize,
    pub warm_up: Duration,
    pub measured: Duration,
    pub deadline: Duration,
    pub broker_process: Option<u32>,
}

impl Options {
    fn new(scenario: Scenario) -> Self {
        let (publishers, subscribers) = if scenario == Scenario::Shared { (10, 4) } else { (100, 500) };
        Self {
            scenario,
            port: 0,
            qos: 0,
            protocol: Protocol::Mqtt,
            to_protocol: None,
            batch: 0,
            to_port: None,
            to_qos: None,
            pairs: 1,
            publishers,
            subscribers,
            window: 100,
            payload_bytes: 64,
            rate: 1_000,
            absent: 0,
            messages: 200_000,
            connections: 5_000,
            topics: 1,
            beside_subscriptions: 0,
            beside_connections: 0,
            warm_up: Duration::from_secs(1),
            measured: Duration::from_secs(3),
            deadline: Duration::from_secs(60),
            broker_process: None,
        }
    }

    /// Reads the arguments behind the program's name.
    pub fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Self, LoadError> {
        let scenario = arguments.next().ok_or_else(|| LoadError::Options("which scenario?".into()))?;
        let mut options = Self::new(parse_scenario(&scenario)?);
        while let Some(name) = arguments.next() {
            let value = arguments.next().ok_or_else(|| LoadError::Options(format!("{name} needs a value")))?;
            options.set(&name, &value)?;
        }
        if options.port == 0 {
            return Err(LoadError::Options("--port is missing".into()));
        }
        if options.scenario == Scenario::Steady && options.rate < options.pairs as u64 {
            return Err(LoadError::Options("steady needs a --rate of one message a second for each pair".into()));
        }
        if matches!(options.scenario, Scenario::Backlog | Scenario::Return) && options.qos == 0 {
            return Err(LoadError::Options(format!("{scenario} needs --qos 1 or 2: QoS 0 is not kept")));
        }
        if options.scenario == Scenario::Send && options.qos == 0 {
            return Err(LoadError::Options("send needs --qos 1 or 2: QoS 0 has no answer".into()));
        }
        options.check_pulsar().map_err(|reason| LoadError::Options(reason.into()))?;
        Ok(options)
    }

    fn check_pulsar(&self) -> Result<(), &'static str> {
        let to_protocol = self.to_protocol.unwrap_or(self.protocol);
        let is_pair = matches!(self.scenario, Scenario::Pair | Scenario::Latency | Scenario::Send | Scenario::Steady);
        if [self.protocol, to_protocol].contains(&Protocol::Pulsar) && !(is_pair && self.topics == 1) {
            return Err("Pulsar's clients play pair, latency, send and steady, on one topic each");
        }
        if self.protocol == Protocol::Pulsar && self.qos != 1 {
            return Err("--protocol pulsar needs --qos 1: each message has a receipt");
        }
        if self.batch > 0 && (self.protocol, to_protocol) != (Protocol::Pulsar, Protocol::Pulsar) {
            return Err("--batch needs Pulsar's clients on both sides: one stamp is for all messages of an entry");
        }
        if !pulsar::fits(self.batch, self.payload_bytes) {
            return Err("--batch is too large for an entry of such messages");
        }
        if self.batch > self.window {
            return Err("--batch is larger than the --window");
        }
        Ok(())
    }

    fn set(&mut self, name: &str, value: &str) -> Result<(), LoadError> {
        match name {
            "--port" => self.port = number(name, value, 1, 65_535)?,
            "--qos" => self.qos = number(name, value, 0, 2)?,
            "--protocol" => self.protocol = parse_protocol(value)?,
            "--to-protocol" => self.to_protocol = Some(parse_protocol(value)?),
            "--batch" => self.batch = number(name, value, 0, 65_536)?,
            "--to-port" => self.to_port = Some(number(name, value, 1, 65_535)?),
            "--to-qos" => self.to_qos = Some(number(name, value, 0, 2)?),
            "--pairs" => self.pairs = number(name, value, 1, 5_000)?,
            "--publishers" => self.publishers = number(name, value, 1, 5_000)?,
            "--subscribers" => self.subscribers = number(name, value, 1, 10_000)?,
            // Half of the packet identifiers, so that none is used again while it is out.
            "--window" => self.window = number(name, value, 1, 32_767)?,
            "--payload" => self.payload_bytes = number(name, value, 20, PAYLOAD_BYTES_MAXIMUM)?,
            "--rate" => self.rate = number(name, value, 1, 1_000_000)?,
            "--absent" => self.absent = number(name, value, 0, 1_000_000)?,
            "--messages" => self.messages = number(name, value, 1, 100_000_000)?,
            "--connections" => self.connections = number(name, value, 1, 100_000)?,
            "--topics" => self.topics = number(name, value, 1, TOPICS_MAXIMUM)?,
            "--beside-subscriptions" => self.beside_subscriptions = number(name, value, 0, 1_000_000)?,
            "--beside-connections" => self.beside_connections = number(name, value, 0, 100_000)?,
            "--warm-up" => self.warm_up = seconds(name, value)?,
            "--seconds" => self.measured = seconds(name, value)?,
            "--deadline" => self.deadline = seconds(name, value)?,
            "--broker-process" => self.broker_process = Some(number(name, value, 1, u32::MAX)?),
            _ => return Err(LoadError::Options(format!("{name} is not an option"))),
        }
        Ok(())
    }
}

fn parse_scenario(name: &str) -> Result<Scenario, LoadError> {
    Ok(match name {
        "pair" => Scenario::Pair,
        "fanout" => Scenario::FanOut,
        "fanin" => Scenario::FanIn,
        "shared" => Scenario::Shared,
        "latency" => Scenario::Latency,
        "send" => Scenario::Send,
        "steady" => Scenario::Steady,
        "absent" => Scenario::Absent,
        "backlog" => Scenario::Backlog,
        "return" => Scenario::Return,
        "retained" => Scenario::Retained,
        "connect" => Scenario::Connect,
        _ => return Err(LoadError::Options(format!("{name} is not a scenario"))),
    })
}

fn parse_protocol(name: &str) -> Result<Protocol, LoadError> {
    match name {
        "mqtt" => Ok(Protocol::Mqtt),
        "pulsar" => Ok(Protocol::Pulsar),
        _ => Err(LoadError::Options(format!("{name} is not a protocol"))),
    }
}

fn number<T>(name: &str, value: &str, least: T, most: T) -> Result<T, LoadError>
where
    T: std::str::FromStr + PartialOrd + std::fmt::Display,
{
    let allowed = least..=most;
    value.parse().ok().filter(|number| allowed.contains(number)).ok_or_else(|| {
        LoadError::Options(format!("{name} is a number from {} to {}, not {value}", allowed.start(), allowed.end()))
    })
}

fn seconds(name: &str, value: &str) -> Result<Duration, LoadError> {
    Ok(Duration::from_secs_f64(number(name, value, 0.0, 3_600.0)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Options, String> {
        Options::parse(line.split(' ').map(str::to_owned)).map_err(|error| error.to_string())
    }

    #[test]
    fn what_is_not_said_has_its_default() {
        let options = parse("pair --port 1883 --qos 2 --warm-up 0.5").unwrap();
        let expected =
            Options { port: 1883, qos: 2, warm_up: Duration::from_millis(500), ..Options::new(Scenario::Pair) };
        assert_eq!(options, expected);
    }

    #[test]
    fn a_mistake_is_named() {
        for (line, expected) in [
            ("pear --port 1", "pear is not a scenario"),
            ("pair", "--port is missing"),
            ("pair --port", "--port needs a value"),
            ("pair --port 1 --qos 3", "--qos is a number from 0 to 2, not 3"),
            ("pair --port 1 --seconds NaN", "--seconds is a number from 0 to 3600, not NaN"),
            ("pair --port 1 --speed 9", "--speed is not an option"),
            ("steady --port 1 --pairs 9 --rate 8", "steady needs a --rate of one message a second for each pair"),
            ("backlog --port 1", "backlog needs --qos 1 or 2: QoS 0 is not kept"),
            ("send --port 1", "send needs --qos 1 or 2: QoS 0 has no answer"),
            ("pair --port 1 --protocol amqp", "amqp is not a protocol"),
            (
                "fanin --port 1 --to-protocol pulsar",
                "Pulsar's clients play pair, latency, send and steady, on one topic each",
            ),
            ("pair --port 1 --protocol pulsar", "--protocol pulsar needs --qos 1: each message has a receipt"),
            (
                "pair --port 1 --protocol pulsar --qos 1 --to-protocol mqtt --batch 10",
                "--batch needs Pulsar's clients on both sides: one stamp is for all messages of an entry",
            ),
            (
                "pair --port 1 --protocol pulsar --qos 1 --window 30000 --batch 30000",
                "--batch is too large for an entry of such messages",
            ),
            ("pair --port 1 --protocol pulsar --qos 1 --batch 101", "--batch is larger than the --window"),
        ] {
            assert_eq!(parse(line), Err(expected.into()), "{line}");
        }
    }
}
