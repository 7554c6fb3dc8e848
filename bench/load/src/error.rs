//! Why a run ended without a result, in a sentence for the person who started it.

use crate::speech::Fault;
use std::{fmt, io};

/// Every way to fail.
#[derive(Debug)]
pub enum LoadError {
    /// The command line is wrong.
    Options(String),
    /// The machine refused something (a socket, epoll, a timer).
    System(&'static str, io::Error),
    /// The broker ended a connection, or the connection broke.
    Closed(String, Option<io::Error>),
    /// The broker sent what ends the run.
    Heard(String, Fault),
    /// The run's deadline came first.
    Deadline(&'static str, String),
}

impl fmt::Display for LoadError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Options(reason) => write!(formatter, "{reason}"),
            Self::System(what, error) => write!(formatter, "{what}: {error}"),
            Self::Closed(who, None) => write!(formatter, "the broker closed the connection of {who}"),
            Self::Closed(who, Some(error)) => write!(formatter, "the connection of {who} broke: {error}"),
            Self::Heard(who, Fault::Nonsense(what)) => write!(formatter, "the broker sent {who} {what}"),
            Self::Heard(who, Fault::Refused(what, how)) => {
                write!(formatter, "the broker refused the {what} of {who} with {how}")
            }
            Self::Heard(who, Fault::Foreign) => write!(formatter, "{who} got a message that this run did not publish"),
            Self::Deadline(phase, state) => write!(formatter, "the deadline came while {phase}: {state}"),
        }
    }
}

impl std::error::Error for LoadError {}
