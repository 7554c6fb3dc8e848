//! `holdfast-forwarder PORT`: passes what comes from anybody on to whoever subscribed last, and answers.
//!
//! The least that a program between two sockets can do: no topic is compared, nothing is kept, QoS 2 is unknown. What
//! a message takes here is the share of the machine and of the generator in what it takes through a broker.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

/// Room for what one read brings: thousands of messages of the generator's usual size.
const READ_BYTES: usize = 262_144;

const CONNECT: u8 = 1;
const PUBLISH: u8 = 3;
const SUBSCRIBE: u8 = 8;

/// Who gets the messages.
type Subscriber = Arc<Mutex<Option<TcpStream>>>;

fn main() -> io::Result<()> {
    let port = std::env::args().nth(1).and_then(|argument| argument.parse().ok());
    let port: u16 = port.ok_or_else(|| io::Error::other("usage: holdfast-forwarder PORT"))?;
    let subscriber = Subscriber::default();
    for stream in TcpListener::bind((Ipv4Addr::LOCALHOST, port))?.incoming() {
        let (stream, subscriber) = (stream?, Arc::clone(&subscriber));
        stream.set_nodelay(true)?;
        // Waiting for a byte is all that a thread of its own does: nothing is quicker to wake.
        thread::spawn(move || pass_on(stream, &subscriber));
    }
    Ok(())
}

/// Serves one connection to its end.
fn pass_on(mut stream: TcpStream, subscriber: &Subscriber) -> io::Result<()> {
    let mut buffer = vec![0; READ_BYTES];
    let mut held = 0;
    let (mut messages, mut answers) = (Vec::new(), Vec::new());
    loop {
        let count = stream.read(&mut buffer[held..])?;
        if count == 0 {
            return Ok(());
        }
        held += count;
        let mut rest = &buffer[..held];
        while let Some((packet, after)) = split_packet(rest) {
            match packet[0] >> 4 {
                CONNECT => answers.extend_from_slice(&[0x20, 2, 0, 0]),
                SUBSCRIBE => {
                    *subscriber.lock().unwrap_or_else(PoisonError::into_inner) = Some(stream.try_clone()?);
                    answers.extend_from_slice(&[0x90, 3, packet[2], packet[3], 1]);
                }
                PUBLISH => {
                    messages.extend_from_slice(packet);
                    answers.extend_from_slice(&puback(packet));
                }
                _ => {}
            }
            rest = after;
        }
        let used = held - rest.len();
        buffer.copy_within(used..held, 0);
        held -= used;
        if let (false, Some(to)) =
            (messages.is_empty(), &mut *subscriber.lock().unwrap_or_else(PoisonError::into_inner))
        {
            to.write_all(&messages)?;
        }
        messages.clear();
        stream.write_all(&answers)?;
        answers.clear();
    }
}

/// The first packet and what follows it; nothing while it is not whole.
fn split_packet(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut length = 0;
    for (index, byte) in bytes.iter().enumerate().skip(1) {
        length |= usize::from(byte & 0x7f) << (7 * (index - 1));
        if byte & 0x80 == 0 {
            return bytes.split_at_checked(index + 1 + length);
        }
    }
    None
}

/// The answer to a message: none at QoS 0.
fn puback(packet: &[u8]) -> Vec<u8> {
    if packet[0] & 0x06 == 0 {
        return vec![];
    }
    let header = 1 + packet[1..].iter().take_while(|byte| **byte & 0x80 > 0).count() + 1;
    let at = header + 2 + usize::from(u16::from_be_bytes([packet[header], packet[header + 1]]));
    vec![0x40, 2, packet[at], packet[at + 1]]
}
