//! Drives rumqttc: MQTT 3.1.1 and 5. What it reads and writes is described in `tests/interop/driver.py`.

mod lines;
mod version_3;
mod version_5;

use lines::{Answer, Command};
use std::collections::HashMap;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, BufReader};

const REQUESTS_MAXIMUM: usize = 1_000;
const PACKET_BYTES_MAXIMUM: u32 = 2 * 1_048_576;
const AGAIN_AFTER: Duration = Duration::from_millis(200);

/// One client of either version.
enum Client {
    Version3(version_3::Client),
    Version5(version_5::Client),
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let mut clients = HashMap::new();
    let mut input = BufReader::new(tokio::io::stdin()).lines();
    while let Ok(Some(line)) = input.next_line().await {
        let command = Command::parse(&line);
        let answer = Answer::to(&command);
        if command.text("do") == "connect" {
            let client = match command.integer("version") {
                5 => Client::Version5(version_5::Client::connect(&command, answer)),
                _ => Client::Version3(version_3::Client::connect(&command, answer)),
            };
            clients.insert(command.integer("client"), client);
            continue;
        }
        match clients.get(&command.integer("client")) {
            Some(Client::Version3(client)) => client.carry_out(&command, answer),
            Some(Client::Version5(client)) => client.carry_out(&command, answer),
            None => answer.fail("this client has not connected"),
        }
    }
}
