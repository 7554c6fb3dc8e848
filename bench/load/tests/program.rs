//! The whole program against a broker of a few lines that can misbehave.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic)]

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Output};
use std::thread;

/// What the broker does to each message; the number counts them from 0.
type Forward = fn(number: usize, message: &[u8], subscriber: &mut TcpStream);

/// Reads one packet; each that this test meets is shorter than 128 bytes. None when the client has gone.
fn read_packet(stream: &mut TcpStream) -> Option<Vec<u8>> {
    let mut packet = vec![0; 2];
    stream.read_exact(&mut packet).ok()?;
    let length = usize::from(packet[1]);
    packet.resize(2 + length, 0);
    stream.read_exact(&mut packet[2..]).ok()?;
    Some(packet)
}

fn accept(listener: &TcpListener) -> TcpStream {
    let mut stream = listener.accept().unwrap().0;
    assert_eq!(read_packet(&mut stream).unwrap()[0], 0x10, "CONNECT comes first");
    stream.write_all(&[0x20, 2, 0, 0]).unwrap();
    stream
}

/// Serves one pair: the subscriber, then the publisher, until the publisher goes or `messages` have come.
fn serve(listener: &TcpListener, messages: usize, forward: Forward) {
    let mut subscriber = accept(listener);
    assert_eq!(read_packet(&mut subscriber).unwrap()[0], 0x82, "SUBSCRIBE comes next");
    subscriber.write_all(&[0x90, 3, 0, 1, 0]).unwrap();
    let mut publisher = accept(listener);
    for number in 0..messages {
        let Some(message) = read_packet(&mut publisher) else { return };
        forward(number, &message, &mut subscriber);
    }
}

fn run(scenario: &str, messages: usize, forward: Forward) -> Output {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    let broker = thread::spawn(move || serve(&listener, messages, forward));
    let options = ["--port", &port, "--warm-up", "0", "--seconds", "0.1", "--rate", "200", "--deadline", "20"];
    let output = Command::new(env!("CARGO_BIN_EXE_holdfast-load")).arg(scenario).args(options).output().unwrap();
    broker.join().unwrap();
    output
}

fn pass_on(_: usize, message: &[u8], subscriber: &mut TcpStream) {
    // The subscriber leaves first; what was for it then goes nowhere.
    let _gone = subscriber.write_all(message);
}

fn figure(output: &Output, name: &str) -> f64 {
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    let Some((_, rest)) = text.split_once(&format!("\"{name}\": ")) else {
        panic!("no {name} in {text}, {}", String::from_utf8_lossy(&output.stderr));
    };
    rest.split([',', '}']).next().unwrap().parse().unwrap()
}

#[test]
fn what_comes_once_is_neither_lost_nor_duplicated() {
    let output = run("pair", usize::MAX, pass_on);
    assert!(figure(&output, "received") > 0.0);
    assert_eq!((figure(&output, "lost"), figure(&output, "duplicated")), (0.0, 0.0));
}

#[test]
fn what_a_broker_drops_and_doubles_is_counted() {
    let output = run("latency", usize::MAX, |number, message, subscriber| match number {
        3 | 5 => {}
        7 => pass_on(number, &[message, message].concat(), subscriber),
        _ => pass_on(number, message, subscriber),
    });
    assert_eq!((figure(&output, "lost"), figure(&output, "duplicated")), (2.0, 1.0));
}

#[test]
fn a_broker_that_closes_ends_the_run_with_a_sentence() {
    let output = run("pair", 10, pass_on);
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("the connection of"), "{said}");
    assert!(output.stdout.is_empty());
}

#[test]
fn pairs_keep_to_the_rate() {
    let output = run("steady", usize::MAX, pass_on);
    // A tenth of a second at 200 a second; what a busy machine makes late comes after it.
    assert!((1.0..=25.0).contains(&figure(&output, "published")), "{output:?}");
    assert_eq!(figure(&output, "lost"), 0.0);
}

#[test]
fn the_bare_forwarder_loses_nothing() {
    let port = TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port().to_string();
    let mut forwarder = Command::new(env!("CARGO_BIN_EXE_holdfast-forwarder")).arg(&port).spawn().unwrap();
    while TcpStream::connect(format!("127.0.0.1:{port}")).is_err() {
        assert!(forwarder.try_wait().unwrap().is_none(), "the forwarder has ended");
        thread::yield_now();
    }
    let options = ["--port", &port, "--qos", "1", "--payload", "1024", "--warm-up", "0", "--seconds", "0.1"];
    let output = Command::new(env!("CARGO_BIN_EXE_holdfast-load")).arg("pair").args(options).output();
    forwarder.kill().unwrap();
    forwarder.wait().unwrap();
    let output = output.unwrap();
    assert!(figure(&output, "received") > 0.0);
    assert!(figure(&output, "acknowledged") > 0.0);
    assert_eq!((figure(&output, "lost"), figure(&output, "duplicated")), (0.0, 0.0));
}
