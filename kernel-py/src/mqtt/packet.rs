//! Control packets to and from a kind and a dict of fields.

use super::{invalid, properties, version};
use holdfast_kernel::mqtt::decode::decode;
use holdfast_kernel::mqtt::encode::encode;
use holdfast_kernel::mqtt::fault::Fault;
use holdfast_kernel::mqtt::frame::Frame;
use holdfast_kernel::mqtt::kind::{AcknowledgementKind, Kind};
use holdfast_kernel::mqtt::packet::{
    Acknowledgement, Answers, Connack, Connect, Packet as Decoded, Publish, Reason, Subscribe, SubscriptionRequest,
    Unsubscribe, Will,
};
use holdfast_kernel::mqtt::property::{Place, Properties};
use holdfast_kernel::mqtt::{Role, Version};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList};

/// A control packet, decoded.
#[pyclass(module = "holdfast._kernel", frozen)]
pub struct Packet {
    #[pyo3(get)]
    kind: &'static str,
    #[pyo3(get)]
    fields: Py<PyDict>,
}

#[pymethods]
impl Packet {
    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        Ok(format!("Packet({:?}, {})", self.kind, self.fields.bind(py).repr()?))
    }
}

impl Packet {
    /// A packet or a fault as Python sees it.
    pub fn new(py: Python<'_>, event: Result<Decoded, Fault>) -> PyResult<Packet> {
        let (kind, fields) = match event {
            Ok(packet) => (packet.kind().name(), fields(py, packet)?),
            Err(fault) => ("fault", fault_fields(py, &fault)?),
        };
        Ok(Packet { kind, fields: fields.unbind() })
    }
}

fn fault_fields<'py>(py: Python<'py>, fault: &Fault) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("reason_code", fault.reason_code)?;
    dict.set_item("reason", fault.reason)?;
    dict.set_item("protocol_version", fault.version.map_or(0, Version::level))?;
    Ok(dict)
}

fn fields(py: Python<'_>, packet: Decoded) -> PyResult<Bound<'_, PyDict>> {
    let place = Place::Packet(packet.kind());
    let dict = PyDict::new(py);
    let put_properties =
        |properties: &Properties| dict.set_item("properties", properties::to_dict(py, properties, place)?);
    match packet {
        Decoded::Connect(packet) => {
            connect_fields(py, &dict, &packet)?;
            put_properties(&packet.properties)?;
        }
        Decoded::Connack(packet) => {
            dict.set_item("session_present", packet.session_present)?;
            dict.set_item("reason_code", packet.reason_code)?;
            put_properties(&packet.properties)?;
        }
        Decoded::Publish(packet) => {
            publish_fields(py, &dict, &packet)?;
            put_properties(&packet.properties)?;
        }
        Decoded::Acknowledgement(packet) => {
            dict.set_item("packet_identifier", packet.packet_identifier)?;
            dict.set_item("reason_code", packet.reason_code)?;
            put_properties(&packet.properties)?;
        }
        Decoded::Subscribe(packet) => {
            dict.set_item("packet_identifier", packet.packet_identifier)?;
            let subscriptions = packet.subscriptions.iter().map(|subscription| subscription_fields(py, subscription));
            dict.set_item("subscriptions", PyList::new(py, subscriptions.collect::<PyResult<Vec<_>>>()?)?)?;
            put_properties(&packet.properties)?;
        }
        Decoded::Suback(packet) | Decoded::Unsuback(packet) => {
            dict.set_item("packet_identifier", packet.packet_identifier)?;
            dict.set_item("reason_codes", PyList::new(py, packet.reason_codes)?)?;
            put_properties(&packet.properties)?;
        }
        Decoded::Unsubscribe(packet) => {
            dict.set_item("packet_identifier", packet.packet_identifier)?;
            dict.set_item("topic_filters", packet.topic_filters)?;
            put_properties(&packet.properties)?;
        }
        Decoded::Disconnect(packet) | Decoded::Auth(packet) => {
            dict.set_item("reason_code", packet.reason_code)?;
            put_properties(&packet.properties)?;
        }
        Decoded::Pingreq | Decoded::Pingresp => {}
    }
    Ok(dict)
}

fn connect_fields(py: Python<'_>, dict: &Bound<'_, PyDict>, packet: &Connect) -> PyResult<()> {
    dict.set_item("protocol_version", packet.version.level())?;
    dict.set_item("client_identifier", &packet.client_identifier)?;
    dict.set_item("clean_start", packet.clean_start)?;
    dict.set_item("keep_alive_s", packet.keep_alive_s)?;
    dict.set_item("user_name", packet.user_name.as_deref())?;
    dict.set_item("password", packet.password.as_deref().map(|password| PyBytes::new(py, password)))?;
    let Some(will) = &packet.will else { return dict.set_item("will", py.None()) };
    let fields = PyDict::new(py);
    fields.set_item("topic_name", &will.topic_name)?;
    fields.set_item("payload", PyBytes::new(py, &will.payload))?;
    fields.set_item("qos", will.qos)?;
    fields.set_item("retain", will.retain)?;
    fields.set_item("properties", properties::to_dict(py, &will.properties, Place::Will)?)?;
    dict.set_item("will", fields)
}

fn publish_fields(py: Python<'_>, dict: &Bound<'_, PyDict>, packet: &Publish) -> PyResult<()> {
    dict.set_item("packet_identifier", packet.packet_identifier)?;
    dict.set_item("qos", packet.qos)?;
    dict.set_item("retain", packet.retain)?;
    dict.set_item("dup", packet.dup)?;
    dict.set_item("topic_name", &packet.topic_name)?;
    dict.set_item("payload", PyBytes::new(py, &packet.payload))
}

fn subscription_fields<'py>(py: Python<'py>, subscription: &SubscriptionRequest) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("topic_filter", &subscription.topic_filter)?;
    dict.set_item("qos", subscription.qos)?;
    dict.set_item("no_local", subscription.no_local)?;
    dict.set_item("retain_as_published", subscription.retain_as_published)?;
    dict.set_item("retain_handling", subscription.retain_handling)?;
    Ok(dict)
}

/// Reads a packet's fields, and refuses names that the packet does not have.
struct Fields<'py> {
    dict: Bound<'py, PyDict>,
    read: Vec<&'static str>,
}

impl<'py> Fields<'py> {
    fn new(dict: &Bound<'py, PyDict>) -> Fields<'py> {
        Fields { dict: dict.clone(), read: Vec::new() }
    }

    fn find(&mut self, name: &'static str) -> PyResult<Option<Bound<'py, PyAny>>> {
        self.read.push(name);
        Ok(self.dict.get_item(name)?.filter(|value| !value.is_none()))
    }

    fn get<T: FromPyObject<'py>>(&mut self, name: &'static str) -> PyResult<T> {
        let value = self.find(name)?.ok_or_else(|| PyValueError::new_err(format!("{name} is missing")))?;
        value.extract()
    }

    fn get_or<T: FromPyObject<'py>>(&mut self, name: &'static str, otherwise: T) -> PyResult<T> {
        match self.find(name)? {
            Some(value) => value.extract(),
            None => Ok(otherwise),
        }
    }

    fn bytes(&mut self, name: &'static str) -> PyResult<Option<Vec<u8>>> {
        self.find(name)?.map(|value| Ok(value.cast::<PyBytes>()?.as_bytes().to_vec())).transpose()
    }

    fn properties(&mut self) -> PyResult<Properties> {
        let dict = self.find("properties")?;
        properties::from_dict(dict.as_ref())
    }

    fn dicts(&mut self, name: &'static str) -> PyResult<Vec<Fields<'py>>> {
        let list: Vec<Bound<'py, PyDict>> = self.get(name)?;
        Ok(list.iter().map(Fields::new).collect())
    }

    fn refuse_others(&self) -> PyResult<()> {
        for name in self.dict.keys() {
            let name: String = name.extract()?;
            if !self.read.contains(&name.as_str()) {
                return Err(PyValueError::new_err(format!("{name} is not a field of this packet")));
            }
        }
        Ok(())
    }
}

/// One control packet as bytes.
#[pyfunction]
#[pyo3(signature = (kind, fields, *, protocol_version))]
pub fn encode_packet<'py>(
    py: Python<'py>,
    kind: &str,
    fields: &Bound<'py, PyDict>,
    protocol_version: u8,
) -> PyResult<Bound<'py, PyBytes>> {
    let version = version(protocol_version)?;
    let kind = Kind::from_name(kind).ok_or_else(|| PyValueError::new_err(format!("there is no packet {kind}")))?;
    let mut fields = Fields::new(fields);
    let packet = packet(kind, &mut fields, version)?;
    fields.refuse_others()?;
    Ok(PyBytes::new(py, &encode(&packet, version).map_err(invalid)?))
}

fn packet(kind: Kind, fields: &mut Fields<'_>, version: Version) -> PyResult<Decoded> {
    Ok(match kind {
        Kind::Connect => Decoded::Connect(Box::new(connect(fields, version)?)),
        Kind::Connack => Decoded::Connack(Connack {
            session_present: fields.get("session_present")?,
            reason_code: fields.get_or("reason_code", 0)?,
            properties: fields.properties()?,
        }),
        Kind::Publish => Decoded::Publish(publish(fields)?),
        Kind::Puback => acknowledgement(fields, AcknowledgementKind::Puback)?,
        Kind::Pubrec => acknowledgement(fields, AcknowledgementKind::Pubrec)?,
        Kind::Pubrel => acknowledgement(fields, AcknowledgementKind::Pubrel)?,
        Kind::Pubcomp => acknowledgement(fields, AcknowledgementKind::Pubcomp)?,
        Kind::Subscribe => Decoded::Subscribe(Subscribe {
            packet_identifier: fields.get("packet_identifier")?,
            subscriptions: fields.dicts("subscriptions")?.iter_mut().map(subscription).collect::<PyResult<_>>()?,
            properties: fields.properties()?,
        }),
        Kind::Suback => Decoded::Suback(answers(fields)?),
        Kind::Unsubscribe => Decoded::Unsubscribe(Unsubscribe {
            packet_identifier: fields.get("packet_identifier")?,
            topic_filters: fields.get("topic_filters")?,
            properties: fields.properties()?,
        }),
        Kind::Unsuback => Decoded::Unsuback(answers(fields)?),
        Kind::Pingreq => Decoded::Pingreq,
        Kind::Pingresp => Decoded::Pingresp,
        Kind::Disconnect => Decoded::Disconnect(reason(fields)?),
        Kind::Auth => Decoded::Auth(reason(fields)?),
    })
}

fn connect(fields: &mut Fields<'_>, version: Version) -> PyResult<Connect> {
    // The version is an argument of its own; the field may repeat it, as decoding gives it.
    let level = fields.get_or("protocol_version", version.level())?;
    if level != version.level() {
        return Err(PyValueError::new_err(format!(
            "protocol_version {level} in a packet of version {}",
            version.level()
        )));
    }
    let will = match fields.find("will")? {
        None => None,
        Some(will) => Some(will_fields(&mut Fields::new(will.cast::<PyDict>()?))?),
    };
    Ok(Connect {
        version,
        client_identifier: fields.get("client_identifier")?,
        clean_start: fields.get("clean_start")?,
        keep_alive_s: fields.get_or("keep_alive_s", 0)?,
        user_name: fields.find("user_name")?.map(|name| name.extract()).transpose()?,
        password: fields.bytes("password")?,
        will,
        properties: fields.properties()?,
    })
}

fn will_fields(fields: &mut Fields<'_>) -> PyResult<Will> {
    let will = Will {
        topic_name: fields.get("topic_name")?,
        payload: fields.bytes("payload")?.unwrap_or_default(),
        qos: fields.get_or("qos", 0)?,
        retain: fields.get_or("retain", false)?,
        properties: fields.properties()?,
    };
    fields.refuse_others()?;
    Ok(will)
}

fn publish(fields: &mut Fields<'_>) -> PyResult<Publish> {
    Ok(Publish {
        packet_identifier: fields.get_or("packet_identifier", 0)?,
        qos: fields.get_or("qos", 0)?,
        retain: fields.get_or("retain", false)?,
        dup: fields.get_or("dup", false)?,
        topic_name: fields.get("topic_name")?,
        payload: fields.bytes("payload")?.unwrap_or_default(),
        properties: fields.properties()?,
    })
}

fn acknowledgement(fields: &mut Fields<'_>, kind: AcknowledgementKind) -> PyResult<Decoded> {
    Ok(Decoded::Acknowledgement(Acknowledgement {
        kind,
        packet_identifier: fields.get("packet_identifier")?,
        reason_code: fields.get_or("reason_code", 0)?,
        properties: fields.properties()?,
    }))
}

fn subscription(fields: &mut Fields<'_>) -> PyResult<SubscriptionRequest> {
    let subscription = SubscriptionRequest {
        topic_filter: fields.get("topic_filter")?,
        qos: fields.get_or("qos", 0)?,
        no_local: fields.get_or("no_local", false)?,
        retain_as_published: fields.get_or("retain_as_published", false)?,
        retain_handling: fields.get_or("retain_handling", 0)?,
    };
    fields.refuse_others()?;
    Ok(subscription)
}

fn answers(fields: &mut Fields<'_>) -> PyResult<Answers> {
    Ok(Answers {
        packet_identifier: fields.get("packet_identifier")?,
        reason_codes: fields.get("reason_codes")?,
        properties: fields.properties()?,
    })
}

fn reason(fields: &mut Fields<'_>) -> PyResult<Reason> {
    Ok(Reason { reason_code: fields.get_or("reason_code", 0)?, properties: fields.properties()? })
}

/// Acknowledgements of one kind that say nothing but success, as bytes in their order.
#[pyfunction]
#[pyo3(signature = (kind, packet_identifiers, *, protocol_version))]
pub fn encode_acknowledgements<'py>(
    py: Python<'py>,
    kind: &str,
    packet_identifiers: Vec<u16>,
    protocol_version: u8,
) -> PyResult<Bound<'py, PyBytes>> {
    let version = version(protocol_version)?;
    let kind = match kind {
        "puback" => AcknowledgementKind::Puback,
        "pubrec" => AcknowledgementKind::Pubrec,
        "pubrel" => AcknowledgementKind::Pubrel,
        "pubcomp" => AcknowledgementKind::Pubcomp,
        _ => return Err(PyValueError::new_err(format!("{kind} acknowledges nothing"))),
    };
    let mut bytes = Vec::new();
    for packet_identifier in packet_identifiers {
        let properties = Properties::default();
        let packet = Acknowledgement { kind, packet_identifier, reason_code: 0, properties };
        bytes.extend(encode(&Decoded::Acknowledgement(packet), version).map_err(invalid)?);
    }
    Ok(PyBytes::new(py, &bytes))
}

/// All whole packets in `data`, and the bytes they took. A fault is the last packet.
#[pyfunction]
#[pyo3(signature = (data, *, protocol_version, role))]
pub fn decode_packets(py: Python<'_>, data: &[u8], protocol_version: u8, role: &str) -> PyResult<(Vec<Packet>, usize)> {
    let role = match role {
        "server" => Role::Server,
        "client" => Role::Client,
        _ => return Err(PyValueError::new_err(format!("role {role}"))),
    };
    let mut packets = Vec::new();
    let taken = decode_each(data, version(protocol_version)?, role, |event| {
        packets.push(Packet::new(py, event)?);
        Ok(())
    })?;
    Ok((packets, taken))
}

/// A kind, and what follows one another of it.
type Run<'py> = (&'static str, Bound<'py, PyAny>);

/// All whole packets of a server in `data`, PUBLISH and PUBREL in runs, and the bytes they took.
#[pyfunction]
#[pyo3(signature = (data, *, protocol_version))]
pub fn decode_runs<'py>(py: Python<'py>, data: &[u8], protocol_version: u8) -> PyResult<(Vec<Run<'py>>, usize)> {
    let mut runs: Vec<Run<'py>> = Vec::new();
    let taken = decode_each(data, version(protocol_version)?, Role::Client, |event| {
        let (kind, item) = match event {
            Ok(Decoded::Publish(packet)) => (Kind::Publish.name(), delivery(py, &packet)?),
            Ok(Decoded::Acknowledgement(packet)) if packet.kind == AcknowledgementKind::Pubrel => {
                (Kind::Pubrel.name(), packet.packet_identifier.into_pyobject(py)?.into_any())
            }
            other => {
                let packet = Packet::new(py, other)?;
                runs.push((packet.kind, packet.fields.into_bound(py).into_any()));
                return Ok(());
            }
        };
        match runs.last() {
            Some((last, items)) if *last == kind => items.cast::<PyList>()?.append(item),
            _ => {
                runs.push((kind, PyList::new(py, [item])?.into_any()));
                Ok(())
            }
        }
    })?;
    Ok((runs, taken))
}

fn delivery<'py>(py: Python<'py>, packet: &Publish) -> PyResult<Bound<'py, PyAny>> {
    let properties = properties::to_dict(py, &packet.properties, Place::Packet(Kind::Publish))?;
    let payload = PyBytes::new(py, &packet.payload);
    let (qos, identifier) = (packet.qos, packet.packet_identifier);
    let fields = (&packet.topic_name, payload, qos, packet.retain, packet.dup, identifier, properties);
    Ok(fields.into_pyobject(py)?.into_any())
}

/// Hands over each whole packet, up to a fault; returns the bytes that those without a fault took.
fn decode_each(
    data: &[u8],
    mut version: Version,
    role: Role,
    mut take: impl FnMut(Result<Decoded, Fault>) -> PyResult<()>,
) -> PyResult<usize> {
    let (mut rest, mut taken) = (data, 0);
    loop {
        let decoded = match Frame::read(rest) {
            Ok(Some(frame)) if frame.size_bytes <= rest.len() => {
                let (packet, behind) = rest.split_at(frame.size_bytes);
                rest = behind;
                decode(&frame, packet.get(frame.header_bytes..).unwrap_or_default(), version, role)
            }
            Ok(_) => return Ok(taken),
            Err(fault) => Err(fault),
        };
        let is_fault = decoded.is_err();
        let is_connect = data.get(taken).is_some_and(|first| first >> 4 == Kind::Connect.bits());
        if let Ok(Decoded::Connect(connect)) = &decoded {
            version = connect.version;
        }
        // A CONNECT that is refused says itself what it can be told in.
        take(decoded.map_err(|fault| if is_connect { fault } else { fault.in_version(version) }))?;
        if is_fault {
            return Ok(taken);
        }
        taken = data.len() - rest.len();
    }
}
