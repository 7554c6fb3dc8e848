//! MQTT 5 properties to and from a dict of property name to value.

use super::invalid;
use holdfast_kernel::mqtt::kind::Kind;
use holdfast_kernel::mqtt::property::{
    Form, Place, Properties, Property, Value, MESSAGE_EXPIRY_INTERVAL, SUBSCRIPTION_IDENTIFIER,
};
use holdfast_kernel::mqtt::Role;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList};

/// True if the property may come several times at `place`; its value is a list then.
fn is_repeated(property: &Property, place: Place) -> bool {
    let in_publish = place == Place::Packet(Kind::Publish);
    property.form == Form::Pair || (property.identifier == SUBSCRIPTION_IDENTIFIER && in_publish)
}

/// The properties as a dict, in order.
pub fn to_dict<'py>(py: Python<'py>, properties: &Properties, place: Place) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    for (property, value) in properties.items() {
        let value = to_object(py, value)?;
        if !is_repeated(property, place) {
            dict.set_item(property.name, value)?;
        } else if let Some(list) = dict.get_item(property.name)? {
            list.cast::<PyList>()?.append(value)?;
        } else {
            dict.set_item(property.name, PyList::new(py, [value])?)?;
        }
    }
    Ok(dict)
}

fn to_object<'py>(py: Python<'py>, value: Value<'_>) -> PyResult<Bound<'py, PyAny>> {
    Ok(match value {
        Value::Number(number) => number.into_pyobject(py)?.into_any(),
        Value::Text(text) => text.into_pyobject(py)?.into_any(),
        Value::Binary(binary) => PyBytes::new(py, binary).into_any(),
        Value::Pair(key, value) => (key, value).into_pyobject(py)?.into_any(),
    })
}

/// The dict as properties, in its order.
pub fn from_dict(dict: Option<&Bound<'_, PyAny>>) -> PyResult<Properties> {
    let mut properties = Properties::default();
    let Some(dict) = dict else { return Ok(properties) };
    for (name, value) in dict.cast::<PyDict>()? {
        let name: String = name.extract()?;
        let property =
            Property::from_name(&name).ok_or_else(|| PyValueError::new_err(format!("there is no property {name}")))?;
        match value.cast::<PyList>() {
            Ok(list) => {
                for value in list {
                    push(&mut properties, property, &value)?;
                }
            }
            Err(_) => push(&mut properties, property, &value)?,
        }
    }
    Ok(properties)
}

/// What of a dict travels with a message, as the log keeps it, and after how many seconds the message expires. An error
/// where it has something else, or something that may not be said.
pub fn travelling(dict: &Bound<'_, PyAny>) -> PyResult<(Properties, Option<u32>)> {
    let given = from_dict(Some(dict))?;
    let place = Place::Packet(Kind::Publish);
    let checked = Properties::checked(given.as_bytes(), place, Role::Client);
    let checked = checked.map_err(|fault| PyValueError::new_err(fault.reason))?;
    let (mut kept, mut expiry_interval_s) = (Properties::default(), None);
    for (property, value) in checked.items() {
        match value {
            Value::Number(seconds) if property.identifier == MESSAGE_EXPIRY_INTERVAL => {
                expiry_interval_s = Some(seconds)
            }
            value if property.is_forwarded() => kept.push(property, value).map_err(invalid)?,
            _ => return Err(PyValueError::new_err(format!("{} does not travel with a message", property.name))),
        }
    }
    Ok((kept, expiry_interval_s))
}

fn push(properties: &mut Properties, property: &'static Property, value: &Bound<'_, PyAny>) -> PyResult<()> {
    let pushed = match property.form {
        Form::Flag | Form::TwoBytes | Form::FourBytes | Form::Variable => {
            properties.push(property, Value::Number(value.extract()?))
        }
        Form::Text => properties.push(property, Value::Text(&value.extract::<String>()?)),
        Form::Binary => properties.push(property, Value::Binary(value.extract()?)),
        Form::Pair => {
            let (key, value): (String, String) = value.extract()?;
            properties.push(property, Value::Pair(&key, &value))
        }
    };
    pushed.map_err(invalid)
}
