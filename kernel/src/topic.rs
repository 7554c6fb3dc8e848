//! Topic names and filters: the one place that says whether a filter matches a name (MQTT 5 section 4.7).

pub mod grant;

/// True if `filter` matches the topic name `name`, level by level: `+` one level, `#` the rest, parent included.
/// A filter that starts with a wildcard does not match names that start with `$` [MQTT-4.7.2-1].
pub fn matches(filter: &[u8], name: &[u8]) -> bool {
    if name.first() == Some(&b'$') && matches!(filter.first(), Some(b'+' | b'#')) {
        return false;
    }
    let mut filter_levels = filter.split(|byte| *byte == b'/');
    let mut name_levels = name.split(|byte| *byte == b'/');
    loop {
        match (filter_levels.next(), name_levels.next()) {
            (Some(b"#"), _) => return true,
            (Some(b"+"), Some(_)) => {}
            (Some(wanted), Some(level)) if wanted == level => {}
            (None, None) => return true,
            _ => return false,
        }
    }
}

/// True if a filter can match more than the one name that it spells.
pub fn has_wildcard(filter: &[u8]) -> bool {
    filter.iter().any(|byte| matches!(byte, b'+' | b'#'))
}

/// True if the topic is the server's own, on which only it publishes: `$SYS` and what is below.
pub fn is_reserved(name: &[u8]) -> bool {
    name.strip_prefix(b"$SYS").is_some_and(|rest| matches!(rest.first(), None | Some(b'/')))
}

/// True if `name` may be published to: not empty, at most 65 535 bytes, UTF-8 without U+0000, no wildcard.
pub fn is_valid_name(name: &[u8]) -> bool {
    is_valid_text(name) && !name.iter().any(|byte| matches!(byte, b'+' | b'#'))
}

/// True if `filter` may be subscribed with: wildcards stand alone in their level and `#` only at the end.
pub fn is_valid_filter(filter: &[u8]) -> bool {
    if !is_valid_text(filter) {
        return false;
    }
    let mut levels = filter.split(|byte| *byte == b'/').peekable();
    while let Some(level) = levels.next() {
        match level {
            b"#" if levels.peek().is_some() => return false,
            b"#" | b"+" => {}
            _ if level.iter().any(|byte| matches!(byte, b'+' | b'#')) => return false,
            _ => {}
        }
    }
    true
}

fn is_valid_text(text: &[u8]) -> bool {
    !text.is_empty() && text.len() <= 65_535 && !text.contains(&0) && std::str::from_utf8(text).is_ok()
}
