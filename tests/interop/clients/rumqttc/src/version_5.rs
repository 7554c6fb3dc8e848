//! MQTT 5 with rumqttc.

use crate::lines::{bytes, encoded, optional, tell, text, Answer, Command, Waits};
use crate::{AGAIN_AFTER, PACKET_BYTES_MAXIMUM, REQUESTS_MAXIMUM};
use rumqttc::v5::mqttbytes::v5::{
    ConnAck, ConnectProperties, ConnectReturnCode, LastWill, LastWillProperties, Packet, Publish, PublishProperties,
    SubAck, SubscribeProperties, SubscribeReasonCode,
};
use rumqttc::v5::mqttbytes::QoS;
use rumqttc::v5::{AsyncClient, Event, EventLoop, MqttOptions};
use rumqttc::Outgoing;
use serde_json::{json, Map, Value};
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
        options.set_clean_start(command.flag("clean_start"));
        options.set_keep_alive(Duration::from_secs(command.integer("keep_alive_s")));
        options.set_connect_properties(ConnectProperties {
            session_expiry_interval: command.optional("session_expiry_interval"),
            receive_maximum: command.optional("receive_maximum"),
            topic_alias_max: command.optional("topic_alias_maximum"),
            max_packet_size: Some(PACKET_BYTES_MAXIMUM),
            ..ConnectProperties::new()
        });
        if let will @ Value::Object(_) = command.field("will") {
            let payload = bytes(will, "payload").expect("a payload");
            let retain = will["retain"].as_bool().expect("true or false");
            let properties = Some(will_properties(&will["properties"]));
            options.set_last_will(LastWill::new(text(will, "topic"), payload, qos(will), retain, properties));
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
                let properties = publish_properties(command.field("properties"));
                let (topic, payload) = (command.text("topic"), command.bytes("payload"));
                self.client.try_publish_with_properties(topic, qos, retain, payload, properties)
            }
            "subscribe" => {
                waits.subscribes.request(answer);
                let properties = SubscribeProperties { id: command.optional("identifier"), user_properties: vec![] };
                let (topic_filter, qos) = (command.text("topic_filter"), qos_of(command.integer("qos")));
                self.client.try_subscribe_with_properties(topic_filter, qos, properties)
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
        Packet::ConnAck(ConnAck { session_present, code, properties }) => {
            let maximum = properties.and_then(|values| values.topic_alias_max);
            waits.connected(json!({
                "session_present": session_present,
                "reason_code": if code == ConnectReturnCode::Success { 0 } else { 0x80 },
                "properties": { "topic_alias_maximum": maximum },
            }));
        }
        Packet::Publish(publish) => arrived(&publish, client),
        Packet::PubAck(acknowledgement) => waits.publishes.acknowledged(acknowledgement.pkid, json!({})),
        Packet::PubComp(acknowledgement) => waits.publishes.acknowledged(acknowledgement.pkid, json!({})),
        Packet::SubAck(SubAck { pkid, return_codes, .. }) => {
            let codes: Vec<u8> = return_codes.iter().map(reason_code).collect();
            waits.subscribes.acknowledged(pkid, json!({ "reason_codes": codes }));
        }
        Packet::UnsubAck(acknowledgement) => waits.unsubscribes.acknowledged(acknowledgement.pkid, json!({})),
        _ => {}
    }
}

fn arrived(publish: &Publish, client: u64) {
    let fields = json!({
        "topic": String::from_utf8_lossy(&publish.topic),
        "payload": encoded(&publish.payload),
        "qos": publish.qos as u8,
        "retain": publish.retain,
        "properties": publish.properties.as_ref().map_or(json!({}), told),
    });
    tell(client, "message", fields);
}

/// Those that are there.
fn told(properties: &PublishProperties) -> Value {
    let values = [
        ("payload_format_indicator", json!(properties.payload_format_indicator)),
        ("message_expiry_interval", json!(properties.message_expiry_interval)),
        ("content_type", json!(properties.content_type)),
        ("response_topic", json!(properties.response_topic)),
        ("correlation_data", json!(properties.correlation_data.as_deref().map(encoded))),
        ("user_properties", json!(properties.user_properties)),
        ("subscription_identifiers", json!(properties.subscription_identifiers)),
    ];
    let there = values.into_iter().filter(|(_, value)| !value.is_null());
    Value::Object(there.map(|(name, value)| (name.to_owned(), value)).collect::<Map<_, _>>())
}

fn publish_properties(values: &Value) -> PublishProperties {
    PublishProperties {
        payload_format_indicator: optional(values, "payload_format_indicator"),
        message_expiry_interval: optional(values, "message_expiry_interval"),
        topic_alias: optional(values, "topic_alias"),
        response_topic: values["response_topic"].as_str().map(str::to_owned),
        correlation_data: bytes(values, "correlation_data").map(Into::into),
        user_properties: user_properties(values),
        subscription_identifiers: vec![],
        content_type: values["content_type"].as_str().map(str::to_owned),
    }
}

fn will_properties(values: &Value) -> LastWillProperties {
    LastWillProperties {
        delay_interval: None,
        payload_format_indicator: None,
        message_expiry_interval: None,
        content_type: values["content_type"].as_str().map(str::to_owned),
        response_topic: None,
        correlation_data: None,
        user_properties: user_properties(values),
    }
}

fn user_properties(values: &Value) -> Vec<(String, String)> {
    serde_json::from_value(values["user_properties"].clone()).unwrap_or_default()
}

fn reason_code(code: &SubscribeReasonCode) -> u8 {
    match code {
        SubscribeReasonCode::Success(qos) => *qos as u8,
        _ => 0x80,
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
