// Drives MQTT.js: MQTT 3.1, 3.1.1 and 5, over TCP and WebSocket. What it reads and writes is
// described in tests/interop/driver.py.
"use strict";

const mqtt = require("mqtt");
const readline = require("node:readline");

const OURS_TO_JS = {
  payload_format_indicator: "payloadFormatIndicator",
  message_expiry_interval: "messageExpiryInterval",
  content_type: "contentType",
  response_topic: "responseTopic",
  correlation_data: "correlationData",
  user_properties: "userProperties",
  subscription_identifiers: "subscriptionIdentifier",
  topic_alias: "topicAlias",
  topic_alias_maximum: "topicAliasMaximum",
  session_expiry_interval: "sessionExpiryInterval",
  receive_maximum: "receiveMaximum",
};

function toJs(values) {
  const properties = {};
  for (const [name, value] of Object.entries(values)) {
    properties[OURS_TO_JS[name]] = toJsValue(name, value);
  }
  return properties;
}

function toJsValue(name, value) {
  if (name === "correlation_data") return Buffer.from(value, "base64");
  if (name === "payload_format_indicator") return value === 1;
  if (name !== "user_properties") return value;
  const pairs = {};
  for (const [key, text] of value) pairs[key] = key in pairs ? [pairs[key], text].flat() : text;
  return pairs;
}

function fromJs(properties) {
  const values = {};
  for (const [name, jsName] of Object.entries(OURS_TO_JS)) {
    if (properties && properties[jsName] !== undefined) {
      values[name] = fromJsValue(name, properties[jsName]);
    }
  }
  return values;
}

function fromJsValue(name, value) {
  if (name === "correlation_data") return value.toString("base64");
  if (name === "payload_format_indicator") return value ? 1 : 0;
  if (name === "subscription_identifiers") return [value].flat();
  if (name !== "user_properties") return value;
  return Object.entries(value).flatMap(([key, text]) => [text].flat().map((each) => [key, each]));
}

class DrivenClient {
  constructor(tell) {
    this.tell = tell;
  }

  connect(options, answer) {
    const given = ["session_expiry_interval", "receive_maximum", "topic_alias_maximum"]
      .filter((name) => options[name] !== null)
      .map((name) => [name, options[name]]);
    this.version = options.version;
    this.client = mqtt.connect({
      protocol: options.transport === "ws" ? "ws" : "mqtt",
      host: "127.0.0.1",
      port: options.port,
      path: "/mqtt",
      protocolVersion: options.version,
      protocolId: options.version === 3 ? "MQIsdp" : "MQTT",
      clientId: options.client_identifier,
      clean: options.clean_start,
      keepalive: options.keep_alive_s,
      reconnectPeriod: options.reconnects ? 200 : 0,
      connectTimeout: 60_000,
      properties: options.version === 5 ? toJs(Object.fromEntries(given)) : undefined,
      will: options.will ? this.will(options.will) : undefined,
    });
    this.client.on("message", (topic, payload, packet) => this.arrived(topic, payload, packet));
    this.client.once("connect", (connack) =>
      answer({
        session_present: connack.sessionPresent,
        reason_code: connack.reasonCode ?? connack.returnCode,
        properties: fromJs(connack.properties),
      })
    );
    this.client.on("error", (error) => answer({ error: String(error) }));
  }

  will(will) {
    const properties = this.version === 5 ? toJs(will.properties) : undefined;
    return { ...will, payload: Buffer.from(will.payload, "base64"), properties };
  }

  arrived(topic, payload, packet) {
    this.tell("message", {
      topic,
      payload: payload.toString("base64"),
      qos: packet.qos,
      retain: packet.retain,
      properties: fromJs(packet.properties),
    });
  }

  subscribe({ topic_filter, qos, identifier }, answer) {
    const options = { qos };
    if (identifier !== null) options.properties = { subscriptionIdentifier: identifier };
    this.client.subscribe(topic_filter, options, (error, _granted, packet) =>
      answer(error ? { error: String(error) } : { reason_codes: Array.from(packet.granted) })
    );
  }

  unsubscribe({ topic_filter }, answer) {
    this.client.unsubscribe(topic_filter, (error) => answer(error ? { error: String(error) } : {}));
  }

  publish({ topic, payload, qos, retain, properties }, answer) {
    const options = { qos, retain };
    if (this.version === 5) options.properties = toJs(properties);
    this.client.publish(topic, Buffer.from(payload, "base64"), options, (error) =>
      answer(error ? { error: String(error) } : {})
    );
  }

  disconnect({ reason_code }, answer) {
    this.client.end(false, { reasonCode: reason_code }, () => answer({}));
  }
}

const clients = new Map();

function write(fields) {
  process.stdout.write(JSON.stringify(fields) + "\n");
}

function clientOf(number) {
  if (!clients.has(number)) {
    const tell = (event, fields) => write({ event, client: number, ...fields });
    clients.set(number, new DrivenClient(tell));
  }
  return clients.get(number);
}

const lines = readline.createInterface({ input: process.stdin });
lines.on("line", (line) => {
  const { number, client, do: name, ...options } = JSON.parse(line);
  let answered = false;
  const answer = (fields) => {
    if (!answered) write({ answer: number, ...fields });
    answered = true;
  };
  try {
    clientOf(client)[name](options, answer);
  } catch (error) {
    answer({ error: String(error) });
  }
});
lines.on("close", () => process.exit(0));
