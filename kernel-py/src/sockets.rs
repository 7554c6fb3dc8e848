//! Plain sockets, read and written by the turn: one call for all of them, without the interpreter's lock.
//!
//! Owns: the descriptors of plain TCP and Unix connections, which of them are read, and what the system has not taken
//! yet. It tells of commits that have ended too, so that one wait is for both. Never: looks into a byte, or decides
//! that a connection ends.
//!
//! Invariants:
//! 1. A token names one socket from `add` until `news` has told that it is gone.
//! 2. What is written leaves in order; a socket that is closed sends what is left first.
//! 3. Nothing is read of a socket that is paused, and nobody is told that it is gone before it is read again.

use crate::committer::Committer;
use crate::delivery::Deliveries;
use crate::mqtt::{Inbox, Outboxes};
use crate::pulsar::{PulsarInbox, PulsarOutboxes};
use holdfast_kernel::delivery as kernel;
use holdfast_kernel::ids::{Connection, Timestamp};
use holdfast_kernel::limits::TURN_BYTES_MAXIMUM;
use holdfast_kernel::slots::Slots;
use holdfast_kernel::{mqtt, pulsar};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::event::Timespec;
use rustix::io::Errno;
use rustix::net::{self, RecvFlags, SendFlags, SocketAddrAny, SocketFlags};
use std::mem::{self, MaybeUninit};
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// Sockets that one call reads; those beyond are read by the next.
const READY_MAXIMUM: usize = 512;
/// The token of the committer, and of no socket.
const COMMITTER: u32 = u32::MAX;
/// What one read takes. A larger one would not fill in one system call.
const READ_BYTES: usize = 262_144;

/// Tokens with the bytes that wait undecoded; with whether they take bytes; and those that are gone.
type News = (Vec<(u32, usize)>, Vec<(u32, bool)>, Vec<u32>);

/// Tokens with the addresses they come from, if they have any, and the number of the error that ended it, or 0.
type Accepted = (Vec<(u32, Option<(String, u16)>)>, i32);

/// What is for connections without a socket here, and whether there is news.
type Sent<'py> = (Vec<(u32, Bound<'py, PyBytes>)>, bool);

/// One socket.
struct Socket {
    descriptor: OwnedFd,
    /// Whose bytes these are; none once it is closed.
    connection: Option<Connection>,
    is_pulsar: bool,
    /// Whoever has more waiting undecoded is told of.
    read_ahead_bytes: usize,
    is_reading: bool,
    /// It sends what is left, and then it is gone.
    is_ending: bool,
    /// More than `high_bytes` were left, and not yet less than `low_bytes`.
    is_full: bool,
    high_bytes: usize,
    low_bytes: usize,
    watched: EventFlags,
    rest: Vec<u8>,
}

/// Plain sockets by token.
#[pyclass(module = "holdfast._kernel")]
pub struct Sockets {
    inner: Table,
}

struct Table {
    epoll: OwnedFd,
    sockets: Vec<Option<Socket>>,
    free: Vec<u32>,
    tokens: Slots<Connection, u32>,
    buffer: Vec<u8>,
    fed: Vec<(u32, usize)>,
    changed: Vec<(u32, bool)>,
    gone: Vec<u32>,
    received_bytes: u64,
    /// What `send` was given.
    sent_bytes: u64,
}

#[pymethods]
impl Sockets {
    #[new]
    fn new() -> PyResult<Sockets> {
        Ok(Sockets { inner: Table::new().map_err(std::io::Error::from)? })
    }

    fn fileno(&self) -> i32 {
        self.inner.epoll.as_raw_fd()
    }

    fn accept(&mut self, py: Python<'_>, listening: i32, maximum: usize) -> PyResult<Accepted> {
        if listening < 0 {
            return Err(PyValueError::new_err(format!("{listening} is no descriptor")));
        }
        // SAFETY: the caller holds the socket that listens, and does not close it meanwhile.
        #[allow(unsafe_code, reason = "a descriptor comes from Python as a number")]
        let listening = unsafe { BorrowedFd::borrow_raw(listening) };
        let table = &mut self.inner;
        Ok(py.detach(|| table.accept(listening, maximum)))
    }

    fn add(&mut self, descriptor: i32) -> PyResult<u32> {
        if descriptor < 0 {
            return Err(PyValueError::new_err(format!("{descriptor} is no descriptor")));
        }
        // SAFETY: the caller has detached the descriptor from its socket, so that nobody else closes it.
        #[allow(unsafe_code, reason = "a descriptor comes from Python as a number")]
        let descriptor = unsafe { OwnedFd::from_raw_fd(descriptor) };
        Ok(self.inner.add(Socket::new(descriptor)))
    }

    #[pyo3(signature = (token, connection, *, is_pulsar))]
    fn begin(&mut self, token: u32, connection: u32, is_pulsar: bool) {
        self.inner.begin(token, Connection(connection), is_pulsar);
    }

    fn watch(&self, committer: &Committer) -> PyResult<()> {
        let data = EventData::new_u64(u64::from(COMMITTER));
        epoll::add(&self.inner.epoll, committer.woken(), data, EventFlags::IN).map_err(std::io::Error::from)?;
        Ok(())
    }

    fn read_ahead(&mut self, token: u32, maximum_bytes: usize) {
        self.inner.with(token, |socket| socket.read_ahead_bytes = maximum_bytes);
    }

    fn set_limits(&mut self, token: u32, high_bytes: usize, low_bytes: usize) {
        self.inner.with(token, |socket| (socket.high_bytes, socket.low_bytes) = (high_bytes, low_bytes));
    }

    fn set_reading(&mut self, token: u32, is_reading: bool) {
        self.inner.with(token, |socket| socket.is_reading = is_reading);
        self.inner.watch(token);
    }

    fn write(&mut self, token: u32, data: &[u8]) {
        self.inner.write(token, data);
    }

    fn close(&mut self, token: u32) {
        self.inner.end(token);
    }

    fn abort(&mut self, token: u32) {
        self.inner.forget(token);
    }

    fn waiting_bytes(&self, token: u32) -> usize {
        self.inner.get(token).map_or(0, |socket| socket.rest.len())
    }

    fn here(&self, token: u32) -> Option<(String, u16)> {
        host_and_port(net::getsockname(&self.inner.get(token)?.descriptor).ok()?)
    }

    #[pyo3(signature = (inbox, pulsar_inbox, deliveries, now_us, *, tells_all))]
    fn receive(
        &mut self,
        py: Python<'_>,
        inbox: &mut Inbox,
        pulsar_inbox: &mut PulsarInbox,
        deliveries: &Deliveries,
        now_us: u64,
        tells_all: bool,
    ) -> PyResult<(bool, bool)> {
        let (mqtt, pulsar, now) = (&mut inbox.inner, &mut pulsar_inbox.inner, Timestamp(now_us));
        let deliveries = &deliveries.inner;
        let mut into = Inboxes { mqtt, pulsar, deliveries, now, tells_all, is_urgent: false, has_committed: false };
        let table = &mut self.inner;
        py.detach(|| table.receive(&mut into)).map_err(std::io::Error::from)?;
        Ok((into.is_urgent || self.inner.has_news(), into.has_committed))
    }

    fn send<'py>(
        &mut self,
        py: Python<'py>,
        outboxes: &mut Outboxes,
        pulsar_outboxes: &mut PulsarOutboxes,
    ) -> Sent<'py> {
        let (table, mqtt, pulsar) = (&mut self.inner, &mut outboxes.inner, &mut pulsar_outboxes.inner);
        let mut others = Vec::new();
        py.detach(|| {
            mqtt.take(|connection, bytes| table.send(connection, bytes, &mut others));
            pulsar.take(|connection, bytes| table.send(connection, bytes, &mut others));
        });
        let others = others.into_iter().map(|(connection, bytes)| (connection.0, PyBytes::new(py, &bytes)));
        (others.collect(), self.inner.has_news())
    }

    fn news(&mut self) -> News {
        let table = &mut self.inner;
        table.free.extend(&table.gone);
        (mem::take(&mut table.fed), mem::take(&mut table.changed), mem::take(&mut table.gone))
    }

    fn totals(&self) -> (u64, u64) {
        (self.inner.received_bytes, self.inner.sent_bytes)
    }
}

/// Where bytes go that have come.
struct Inboxes<'a> {
    mqtt: &'a mut mqtt::inbox::Inbox,
    pulsar: &'a mut pulsar::inbox::Inbox,
    deliveries: &'a kernel::Deliveries,
    now: Timestamp,
    /// Whoever is fed is told of.
    tells_all: bool,
    /// Something came that somebody waits for.
    is_urgent: bool,
    has_committed: bool,
}

impl Inboxes<'_> {
    /// Bytes that wait undecoded behind that, if there are more than those that may.
    fn feed(&mut self, socket: &Socket, bytes: &[u8]) -> Option<usize> {
        let connection = socket.connection?;
        let waiting = match socket.is_pulsar {
            true => self.pulsar.feed(connection, bytes, self.now),
            false => self.mqtt.feed(connection, bytes, self.now),
        };
        let waiting = waiting.ok()?;
        self.is_urgent |= !self.may_wait(socket.is_pulsar, connection, bytes);
        (self.tells_all || waiting > socket.read_ahead_bytes).then_some(waiting)
    }

    /// True if nothing of what waits can be decoded before more has come, or nobody waits for what these bytes say. It
    /// costs somebody the time that answers wait for company if the end of a large frame looks like them.
    fn may_wait(&mut self, is_pulsar: bool, connection: Connection, bytes: &[u8]) -> bool {
        let (lacks, are_last_answers): (_, fn(&[u8]) -> bool) = match is_pulsar {
            true => (self.pulsar.lacks(connection, bytes), pulsar::command::are_last_answers),
            false => (self.mqtt.lacks(connection, bytes), mqtt::frame::are_last_answers),
        };
        lacks > 0 || are_last_answers(bytes) && self.deliveries.is_at_rest(connection)
    }
}

impl Table {
    fn new() -> rustix::io::Result<Table> {
        Ok(Table {
            epoll: epoll::create(CreateFlags::CLOEXEC)?,
            sockets: Vec::new(),
            free: Vec::new(),
            tokens: Slots::default(),
            buffer: Vec::with_capacity(READ_BYTES),
            fed: Vec::new(),
            changed: Vec::new(),
            gone: Vec::new(),
            received_bytes: 0,
            sent_bytes: 0,
        })
    }

    fn add(&mut self, socket: Socket) -> u32 {
        let token = self.free.pop().unwrap_or_else(|| u32::try_from(self.sockets.len()).unwrap_or(u32::MAX));
        match self.sockets.get_mut(index(token)) {
            Some(place) => *place = Some(socket),
            None => self.sockets.push(Some(socket)),
        }
        token
    }

    /// Takes connections that wait at a socket that listens.
    fn accept(&mut self, listening: BorrowedFd<'_>, maximum: usize) -> Accepted {
        let mut accepted = Vec::new();
        while accepted.len() < maximum {
            match net::acceptfrom_with(listening, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
                Ok((descriptor, from)) => {
                    accepted.push((self.add(Socket::new(descriptor)), from.and_then(host_and_port)));
                }
                Err(error) => return (accepted, error.raw_os_error()),
            }
        }
        (accepted, 0)
    }

    fn begin(&mut self, token: u32, connection: Connection, is_pulsar: bool) {
        self.tokens.put(connection, token);
        self.with(token, |socket| {
            (socket.connection, socket.is_pulsar, socket.is_reading) = (Some(connection), is_pulsar, true);
        });
        self.watch(token);
    }

    fn get(&self, token: u32) -> Option<&Socket> {
        self.sockets.get(index(token))?.as_ref()
    }

    fn get_mut(&mut self, token: u32) -> Option<&mut Socket> {
        self.sockets.get_mut(index(token))?.as_mut()
    }

    fn with(&mut self, token: u32, change: impl FnOnce(&mut Socket)) {
        if let Some(socket) = self.get_mut(token) {
            change(socket);
        }
    }

    fn has_news(&self) -> bool {
        !(self.fed.is_empty() && self.changed.is_empty() && self.gone.is_empty())
    }

    /// Has the system tell of a socket what is to be known now.
    fn watch(&mut self, token: u32) {
        let Some(Some(socket)) = self.sockets.get_mut(index(token)) else { return };
        let mut wanted = EventFlags::empty();
        wanted.set(EventFlags::IN, socket.is_reading);
        wanted.set(EventFlags::OUT, !socket.rest.is_empty());
        if wanted == socket.watched {
            return;
        }
        let data = EventData::new_u64(u64::from(token));
        let asked = match (socket.watched.is_empty(), wanted.is_empty()) {
            (true, _) => epoll::add(&self.epoll, &socket.descriptor, data, wanted),
            (false, true) => epoll::delete(&self.epoll, &socket.descriptor),
            (false, false) => epoll::modify(&self.epoll, &socket.descriptor, data, wanted),
        };
        socket.watched = wanted;
        if asked.is_err() {
            self.forget(token);
        }
    }

    /// Reads once from each socket that has something, as much as a turn takes, and sends what could not be sent.
    fn receive(&mut self, into: &mut Inboxes<'_>) -> rustix::io::Result<()> {
        let mut ready: [MaybeUninit<Event>; READY_MAXIMUM] = [const { MaybeUninit::uninit() }; READY_MAXIMUM];
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        let (ready, _) = match epoll::wait(&self.epoll, &mut ready, Some(&at_once)) {
            Err(Errno::INTR) => return Ok(()),
            waited => waited?,
        };
        let mut room = TURN_BYTES_MAXIMUM;
        for event in ready {
            let (flags, token) = (event.flags, u32::try_from(event.data.u64()).unwrap_or(COMMITTER));
            into.has_committed |= token == COMMITTER;
            if flags.contains(EventFlags::OUT) {
                self.send_rest(token);
            }
            if room > 0 && flags.intersects(EventFlags::IN | EventFlags::HUP | EventFlags::ERR) {
                room = room.saturating_sub(self.read(token, into));
            }
        }
        Ok(())
    }

    /// Reads once; returns how many bytes came.
    fn read(&mut self, token: u32, into: &mut Inboxes<'_>) -> usize {
        let Some(Some(socket)) = self.sockets.get_mut(index(token)) else { return 0 };
        if !socket.is_reading {
            return 0;
        }
        self.buffer.clear();
        match net::recv(&socket.descriptor, spare_capacity(&mut self.buffer), RecvFlags::DONTWAIT) {
            Ok((0, _)) => self.end(token),
            Ok(_) => {
                self.received_bytes = self.received_bytes.wrapping_add(wide(self.buffer.len()));
                self.fed.extend(into.feed(socket, &self.buffer).map(|waiting| (token, waiting)));
                return self.buffer.len();
            }
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(_) => self.forget(token),
        }
        0
    }

    /// Sends to the socket of a connection; what is for another kind of connection goes to `others`.
    fn send(&mut self, connection: Connection, bytes: &[u8], others: &mut Vec<(Connection, Vec<u8>)>) {
        match self.tokens.get(connection) {
            Some(token) => {
                let token = *token;
                self.sent_bytes = self.sent_bytes.wrapping_add(wide(bytes.len()));
                self.write(token, bytes);
            }
            None => others.push((connection, bytes.to_vec())),
        }
    }

    fn write(&mut self, token: u32, bytes: &[u8]) {
        let Some(Some(socket)) = self.sockets.get_mut(index(token)) else { return };
        if socket.is_ending {
            return;
        }
        let taken = match socket.rest.is_empty() {
            true => socket.send(bytes),
            false => Ok(0),
        };
        let Ok(taken) = taken else { return self.fail(token) };
        if let Some(left @ [_, ..]) = bytes.get(taken..) {
            socket.rest.extend_from_slice(left);
            if !socket.is_full && socket.rest.len() > socket.high_bytes {
                socket.is_full = true;
                self.changed.push((token, false));
            }
            self.watch(token);
        }
    }

    fn send_rest(&mut self, token: u32) {
        let Some(Some(socket)) = self.sockets.get_mut(index(token)) else { return };
        let Ok(taken) = socket.send(&socket.rest) else { return self.fail(token) };
        socket.rest.drain(..taken);
        if socket.is_full && socket.rest.len() <= socket.low_bytes {
            socket.is_full = false;
            self.changed.push((token, true));
        }
        if socket.rest.is_empty() {
            socket.rest = Vec::new();
            if socket.is_ending {
                return self.forget(token);
            }
        }
        self.watch(token);
    }

    /// Nothing can be sent any more. What the peer sent before is read first, if anything is.
    fn fail(&mut self, token: u32) {
        let Some(socket) = self.get_mut(token) else { return };
        if !socket.is_reading {
            return self.forget(token);
        }
        socket.is_ending = true;
        socket.rest = Vec::new();
        self.watch(token);
    }

    /// Reads no more, and sends what is left.
    fn end(&mut self, token: u32) {
        let Some(socket) = self.get_mut(token) else { return };
        (socket.is_reading, socket.is_ending) = (false, true);
        if socket.rest.is_empty() {
            return self.forget(token);
        }
        let connection = socket.connection.take();
        self.part(token, connection);
        self.watch(token);
    }

    fn forget(&mut self, token: u32) {
        let Some(socket) = self.sockets.get_mut(index(token)).and_then(Option::take) else { return };
        self.part(token, socket.connection);
        self.gone.push(token);
    }

    /// The connection has this socket no more; its number may be another one's already.
    fn part(&mut self, token: u32, connection: Option<Connection>) {
        if let Some(connection) = connection.filter(|connection| self.tokens.get(*connection) == Some(&token)) {
            self.tokens.take(connection);
        }
    }
}

impl Socket {
    fn new(descriptor: OwnedFd) -> Socket {
        // What is no TCP has no Nagle to be turned off.
        net::sockopt::set_tcp_nodelay(&descriptor, true).ok();
        Socket {
            descriptor,
            connection: None,
            is_pulsar: false,
            read_ahead_bytes: 0,
            is_reading: false,
            is_ending: false,
            is_full: false,
            high_bytes: 0,
            low_bytes: 0,
            watched: EventFlags::empty(),
            rest: Vec::new(),
        }
    }

    /// How much of it the system took.
    fn send(&self, bytes: &[u8]) -> rustix::io::Result<usize> {
        match net::send(&self.descriptor, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
            Err(Errno::AGAIN | Errno::INTR) => Ok(0),
            sent => sent,
        }
    }
}

/// What has no port has neither.
fn host_and_port(address: SocketAddrAny) -> Option<(String, u16)> {
    let address = SocketAddr::try_from(address).ok()?;
    Some((address.ip().to_string(), address.port()))
}

fn index(token: u32) -> usize {
    usize::try_from(token).unwrap_or(usize::MAX)
}

fn wide(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}

/// Adds the class to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Sockets>()
}
