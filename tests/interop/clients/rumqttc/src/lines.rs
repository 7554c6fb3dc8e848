//! Lines of JSON: commands come, answers and events go. And who waits for which acknowledgement.

use base64::engine::general_purpose::STANDARD as BASE64;
use base64::Engine;
use rumqttc::Outgoing;
use serde_json::{json, Value};
use std::collections::{HashMap, VecDeque};
use std::io::Write;

/// One line of standard input.
pub struct Command(Value);

impl Command {
    pub fn parse(line: &str) -> Self {
        Self(serde_json::from_str(line).expect("a command is JSON"))
    }

    pub fn field(&self, name: &str) -> &Value {
        &self.0[name]
    }

    pub fn text(&self, name: &str) -> &str {
        text(&self.0, name)
    }

    pub fn integer(&self, name: &str) -> u64 {
        optional(&self.0, name).expect("a number")
    }

    pub fn flag(&self, name: &str) -> bool {
        self.0[name].as_bool().expect("true or false")
    }

    /// None where the command has null.
    pub fn optional<T: TryFrom<u64>>(&self, name: &str) -> Option<T> {
        optional(&self.0, name)
    }

    pub fn bytes(&self, name: &str) -> Vec<u8> {
        bytes(&self.0, name).expect("bytes")
    }
}

pub fn text<'a>(fields: &'a Value, name: &str) -> &'a str {
    fields[name].as_str().expect("a string")
}

pub fn optional<T: TryFrom<u64>>(fields: &Value, name: &str) -> Option<T> {
    fields[name].as_u64().and_then(|value| T::try_from(value).ok())
}

pub fn bytes(fields: &Value, name: &str) -> Option<Vec<u8>> {
    fields[name].as_str().map(|encoded| BASE64.decode(encoded).expect("base64"))
}

pub fn encoded(bytes: &[u8]) -> String {
    BASE64.encode(bytes)
}

/// Where the answer to a command goes.
pub struct Answer(u64);

impl Answer {
    pub fn to(command: &Command) -> Self {
        Self(command.integer("number"))
    }

    pub fn give(self, mut fields: Value) {
        fields["answer"] = json!(self.0);
        write(&fields);
    }

    pub fn fail(self, error: &str) {
        self.give(json!({ "error": error }));
    }
}

pub fn tell(client: u64, event: &str, mut fields: Value) {
    fields["event"] = json!(event);
    fields["client"] = json!(client);
    write(&fields);
}

fn write(fields: &Value) {
    let mut output = std::io::stdout().lock();
    writeln!(output, "{fields}").expect("the test reads");
    output.flush().expect("the test reads");
}

/// Answers that wait for the broker. rumqttc takes requests in their order and then says which packet identifier each
/// has got; what it says again, it has sent again.
#[derive(Default)]
pub struct Waiting {
    requested: VecDeque<Answer>,
    sent: HashMap<u16, Answer>,
}

impl Waiting {
    pub fn request(&mut self, answer: Answer) {
        self.requested.push_back(answer);
    }

    pub fn sent(&mut self, packet_identifier: u16) {
        if self.sent.contains_key(&packet_identifier) {
            return;
        }
        if let Some(answer) = self.requested.pop_front() {
            if packet_identifier == 0 {
                answer.give(json!({})); // QoS 0: nobody acknowledges it.
            } else {
                self.sent.insert(packet_identifier, answer);
            }
        }
    }

    pub fn acknowledged(&mut self, packet_identifier: u16, fields: Value) {
        if let Some(answer) = self.sent.remove(&packet_identifier) {
            answer.give(fields);
        }
    }
}

/// What one client's commands wait for.
#[derive(Default)]
pub struct Waits {
    pub connect: Option<Answer>,
    pub disconnect: Option<Answer>,
    pub publishes: Waiting,
    pub subscribes: Waiting,
    pub unsubscribes: Waiting,
}

impl Waits {
    /// A request has gone out.
    pub fn sent(&mut self, outgoing: &Outgoing) {
        match outgoing {
            Outgoing::Publish(packet_identifier) => self.publishes.sent(*packet_identifier),
            Outgoing::Subscribe(packet_identifier) => self.subscribes.sent(*packet_identifier),
            Outgoing::Unsubscribe(packet_identifier) => self.unsubscribes.sent(*packet_identifier),
            _ => {}
        }
    }

    /// CONNACK has come; only the first one answers a command.
    pub fn connected(&mut self, fields: Value) {
        if let Some(answer) = self.connect.take() {
            answer.give(fields);
        }
    }

    /// The connection has ended and there will be no other.
    pub fn ended(&mut self, why: &str) {
        if let Some(answer) = self.connect.take() {
            answer.fail(why);
        }
        if let Some(answer) = self.disconnect.take() {
            answer.give(json!({}));
        }
    }
}
