// Drives pulsar-flex, which is JavaScript from the socket up. What it reads and writes is described
// in tests/interop/driver.py, and what a Pulsar client is asked in tests/interop/pulsar/official.py.
"use strict";

const { Consumer, Producer } = require("pulsar-flex");
const readline = require("node:readline");

const LOCAL = "persistent://public/default/";
const NOT_TOLD = [0, 0, -1];

class DrivenClient {
  constructor() {
    this.producers = new Map();
    this.consumers = new Map();
    this.received = [];
  }

  async connect({ address }) {
    this.address = address;
    return {};
  }

  options(topic) {
    return { discoveryServers: [this.address], topic: LOCAL + topic, logLevel: 0 };
  }

  async produce({ producer, topic }) {
    const made = new Producer(this.options(topic));
    await made.create();
    this.producers.set(producer, made);
    return { name: "", last_sequence_id: -1 };
  }

  async send({ producer, payload, properties }) {
    await this.producers.get(producer).sendMessage(message(payload, properties));
    return { message_id: NOT_TOLD };
  }

  async send_many({ producer, payloads, properties }) {
    const messages = payloads.map((payload) => message(payload, properties));
    await this.producers.get(producer).sendBatch({ messages });
    return { message_ids: payloads.map(() => NOT_TOLD) };
  }

  async subscribe({ consumer, topic, subscription, kind }) {
    const subType = Consumer.SUB_TYPES[(kind || "Exclusive").toUpperCase()];
    const made = new Consumer({
      ...this.options(topic), subscription, subType, consumerName: consumer,
    });
    const waiting = { came: [], wanted: [], made };
    await made.subscribe();
    await made.run({ autoAck: false, onMessage: async (found) => arrived(waiting, found) });
    this.consumers.set(consumer, waiting);
    return {};
  }

  async receive({ consumer, timeout_ms }) {
    const found = await next(this.consumers.get(consumer), timeout_ms);
    this.received.push(found);
    const { ledgerid, entryid } = found.command.messageId;
    return {
      place: this.received.length - 1,
      payload: Buffer.from(found.message).toString("base64"),
      message_id: [ledgerid, entryid, -1],
      topic: "",
      properties: found.properties,
      key: "",
      ordering_key: "",
      event_time_ms: 0,
      publish_time_ms: 0,
      producer: "",
      redeliveries: found.redeliveryCount,
    };
  }

  async acknowledge({ place, up_to }) {
    const type = Consumer.ACK_TYPES[up_to ? "CUMULATIVE" : "INDIVIDUAL"];
    await this.received[place].ack({ type });
    return {};
  }

  async give_back({ place }) {
    await this.received[place].ack({ type: Consumer.ACK_TYPES.NEGATIVE });
    return {};
  }

  async unsubscribe({ consumer }) {
    await this.consumers.get(consumer).made.unsubscribe();
    this.consumers.delete(consumer);
    return {};
  }

  async disconnect() {
    for (const { made } of this.consumers.values()) await made.unsubscribe();
    for (const each of this.producers.values()) await each.close();
    return {};
  }
}

function message(payload, properties) {
  return { payload: Buffer.from(payload, "base64"), properties: properties || {} };
}

function arrived(waiting, found) {
  const wanted = waiting.wanted.shift();
  if (wanted) wanted(found);
  else waiting.came.push(found);
}

function next(waiting, timeout_ms) {
  if (waiting.came.length) return waiting.came.shift();
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => {
      waiting.wanted.splice(waiting.wanted.indexOf(taken), 1);
      reject(new Error("Timeout"));
    }, timeout_ms);
    const taken = (found) => {
      clearTimeout(timer);
      resolve(found);
    };
    waiting.wanted.push(taken);
  });
}

const clients = new Map();

function clientOf(number) {
  if (!clients.has(number)) clients.set(number, new DrivenClient());
  return clients.get(number);
}

function write(fields) {
  process.stdout.write(JSON.stringify(fields) + "\n");
}

const lines = readline.createInterface({ input: process.stdin });
lines.on("line", async (line) => {
  const { number, client, do: name, ...options } = JSON.parse(line);
  try {
    write({ answer: number, ...(await clientOf(client)[name](options)) });
  } catch (error) {
    write({ answer: number, error: `${error.name}: ${error.message}` });
  }
});
lines.on("close", () => process.exit(0));
