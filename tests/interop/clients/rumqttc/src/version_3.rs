//! MQTT 3.1.1 with rumqttc.

use crate::lines::{bytes, encoded, optional, tell, text, Answer, Command, Waits};
use crate::{AGAIN_AFTER, PACKET_BYTES_MAXIMUM, REQUESTS_MAXIMUM};
use rumqttc::{
    AsyncClient, ConnAck, Event, EventLoop, LastWill, MqttOptions, Outgoing, Packet, Publish, QoS, SubAck,
    SubscribeReasonCode,
};
use serde_json::{json, Value};
use std::sync::{Arc, Mutex};
use std::time::Duration;

pub struct Client {
    client: AsyncClient,
    waits: Arc<Mutex<Waits>>,
}

impl Client {
    pub fn connect(command: &Command, answer: Answer) -> Self {
        let port = command.optional("port").expect("a port");
        let mut options = MqttOptions::new(command.text("client_identifier"), "127.0.0.1", port);
        options.set_clean_session(command.flag("clean_start"));
        options.set_keep_alive(Duration::from_secs(command.integer("keep_alive_s")));
        let packet_bytes_maximum = PACKET_BYTES_MAXIMUM as usize;
        options.set_max_packet_size(packet_bytes_maximum, packet_bytes_maximum);
        if let will @ Value::Object(_) = command.field("will") {
            let payload = bytes(will, "payload").expect("a payload");
            let retain = will["retain"].as_bool().expect("true or false");
            options.set_last_will(LastWill::new(text(will, "topic"), payload, qos(will), retain));
        }
        let (client, event_loop) = AsyncClient::new(options, REQUESTS_MAXIMUM);
        let waits = Arc::new(Mutex::new(Waits { connect: Some(answer), ..Waits::default() }));
        let (number, reconnects) = (command.integer("client"), command.flag("reconnects"));
        tokio::spawn(run(event_loop, waits.clone(), number, reconnects));
        Self { client, waits }
    }

    pub fn carry_out(&self, command: &Command, answer: Answer) {
        let mut waits = self.waits.lock().expect("no thread has panicked");
        let requested = match command.text("do") {
            "publish" => {
                waits.publishes.request(answer);
                let (qos, retain) = (qos_of(command.integer("qos")), command.flag("retain"));
                self.client.try_publish(command.text("topic"), qos, retain, command.bytes("payload"))
            }
            "subscribe" => {
                waits.subscribes.request(answer);
                self.client.try_subscribe(command.text("topic_filter"), qos_of(command.integer("qos")))
            }
            "unsubscribe" => {
                waits.unsubscribes.request(answer);
                self.client.try_unsubscribe(command.text("topic_filter"))
            }
            _ => {
                waits.disconnect = Some(answer);
                self.client.try_disconnect()
            }
        };
        requested.expect("rumqttc takes the request");
    }
}

async fn run(mut event_loop: EventLoop, waits: Arc<Mutex<Waits>>, client: u64, reconnects: bool) {
    loop {
        let event = event_loop.poll().await;
        let mut waits_now = waits.lock().expect("no thread has panicked");
        match event {
            Ok(Event::Outgoing(Outgoing::Disconnect)) => return waits_now.ended("DISCONNECT"),
            Ok(Event::Outgoing(outgoing)) => waits_now.sent(&outgoing),
            Ok(Event::Incoming(packet)) => take(packet, &mut waits_now, client),
            Err(_) if reconnects => {
                drop(waits_now);
                tokio::time::sleep(AGAIN_AFTER).await;
            }
            Err(error) => return waits_now.ended(&error.to_string()),
        }
    }
}

fn take(packet: Packet, waits: &mut Waits, client: u64) {
    match packet {
        Packet::ConnAck(ConnAck { session_present, code }) => waits.connected(json!({
            "session_present": session_present,
            "reason_code": code as u8,
            "properties": {},
        })),
        Packet::Publish(publish) => arrived(&publish, client),
        Packet::PubAck(acknowledgement) => waits.publishes.acknowledged(acknowledgement.pkid, json!({})),
        Packet::PubComp(acknowledgement) => waits.publishes.acknowledged(acknowledgement.pkid, json!({})),
        Packet::SubAck(SubAck { pkid, return_codes }) => {
            let codes: Vec<u8> = return_codes.iter().map(reason_code).collect();
            waits.subscribes.acknowledged(pkid, json!({ "reason_codes": codes }));
        }
        Packet::UnsubAck(acknowledgement) => waits.unsubscribes.acknowledged(acknowledgement.pkid, json!({})),
        _ => {}
    }
}

fn arrived(publish: &Publish, client: u64) {
    let fields = json!({
        "topic": publish.topic,
        "payload": encoded(&publish.payload),
        "qos": publish.qos as u8,
        "retain": publish.retain,
        "properties": {},
    });
    tell(client, "message", fields);
}

fn reason_code(code: &SubscribeReasonCode) -> u8 {
    match code {
        SubscribeReasonCode::Success(qos) => *qos as u8,
        SubscribeReasonCode::Failure => 0x80,
    }
}

fn qos(fields: &Value) -> QoS {
    qos_of(optional(fields, "qos").expect("a QoS"))
}

fn qos_of(level: u64) -> QoS {
    match level {
        0 => QoS::AtMostOnce,
        1 => QoS::AtLeastOnce,
        _ => QoS::ExactlyOnce,
    }
}
