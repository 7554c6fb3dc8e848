//! `holdfast-load`: loads a broker of MQTT or Pulsar on this machine and prints what it measured.
//!
//! One thread, one epoll set, large reads, one write for each connection and turn, no allocation for a message: it
//! must take far less of the processor than the broker it measures, and it says how much it took.
//!
//! Flow: `options` -> `scenario` drives `fleet` (`publisher`, `subscriber` on `connection`, which say and hear by
//! `mqtt` or `pulsar`) -> `report`.
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::panic))]

mod connection;
mod error;
mod fleet;
mod histogram;
mod mqtt;
mod options;
mod publisher;
mod pulsar;
mod report;
mod scenario;
mod shape;
mod speech;
mod stamp;
mod subscriber;
mod usage;

use error::LoadError;
use options::Options;
use std::process::ExitCode;

fn main() -> ExitCode {
    if std::env::args().any(|argument| argument == "--help") {
        print!("{}", options::USAGE);
        return ExitCode::SUCCESS;
    }
    match Options::parse(std::env::args().skip(1)).and_then(|options| scenario::play(&options)) {
        Ok(report) => {
            println!("{report}");
            ExitCode::SUCCESS
        }
        Err(error @ LoadError::Options(_)) => {
            eprintln!("holdfast-load: {error}\n\n{}", options::USAGE);
            ExitCode::from(2)
        }
        Err(error) => {
            eprintln!("holdfast-load: {error}");
            ExitCode::FAILURE
        }
    }
}
