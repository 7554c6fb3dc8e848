//! The kinds of control packets, by their numbers and names.

/// The kind of a control packet (MQTT 5 section 2.1.2).
#[allow(missing_docs)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Connect,
    Connack,
    Publish,
    Puback,
    Pubrec,
    Pubrel,
    Pubcomp,
    Subscribe,
    Suback,
    Unsubscribe,
    Unsuback,
    Pingreq,
    Pingresp,
    Disconnect,
    Auth,
}

const KINDS: [(Kind, &str); 15] = [
    (Kind::Connect, "connect"),
    (Kind::Connack, "connack"),
    (Kind::Publish, "publish"),
    (Kind::Puback, "puback"),
    (Kind::Pubrec, "pubrec"),
    (Kind::Pubrel, "pubrel"),
    (Kind::Pubcomp, "pubcomp"),
    (Kind::Subscribe, "subscribe"),
    (Kind::Suback, "suback"),
    (Kind::Unsubscribe, "unsubscribe"),
    (Kind::Unsuback, "unsuback"),
    (Kind::Pingreq, "pingreq"),
    (Kind::Pingresp, "pingresp"),
    (Kind::Disconnect, "disconnect"),
    (Kind::Auth, "auth"),
];

impl Kind {
    /// The kind with this packet type; 0 is reserved.
    #[inline]
    pub fn from_bits(bits: u8) -> Option<Kind> {
        let index = usize::from(bits).checked_sub(1)?;
        KINDS.get(index).map(|(kind, _)| *kind)
    }

    /// The packet type: 1 to 15.
    pub fn bits(self) -> u8 {
        let index = KINDS.iter().position(|(kind, _)| *kind == self).unwrap_or_default();
        u8::try_from(index + 1).unwrap_or_default()
    }

    /// The name in lower case.
    pub fn name(self) -> &'static str {
        KINDS.iter().find(|(kind, _)| *kind == self).map(|(_, name)| *name).unwrap_or_default()
    }

    /// The kind of this name.
    pub fn from_name(name: &str) -> Option<Kind> {
        KINDS.iter().find(|(_, known)| *known == name).map(|(kind, _)| *kind)
    }

    /// The flags that a packet of this kind must have; PUBLISH has flags of its own [MQTT-2.1.3-1].
    #[inline]
    pub fn reserved_flags(self) -> u8 {
        match self {
            Kind::Pubrel | Kind::Subscribe | Kind::Unsubscribe => 0b0010,
            _ => 0,
        }
    }
}

/// Which acknowledgement a packet is.
#[allow(missing_docs)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AcknowledgementKind {
    Puback,
    Pubrec,
    Pubrel,
    Pubcomp,
}

impl From<AcknowledgementKind> for Kind {
    fn from(kind: AcknowledgementKind) -> Kind {
        match kind {
            AcknowledgementKind::Puback => Kind::Puback,
            AcknowledgementKind::Pubrec => Kind::Pubrec,
            AcknowledgementKind::Pubrel => Kind::Pubrel,
            AcknowledgementKind::Pubcomp => Kind::Pubcomp,
        }
    }
}
