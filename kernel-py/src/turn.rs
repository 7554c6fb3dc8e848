//! What a turn asks several parts at once: one call in place of one for each.

use crate::delivery::Deliveries;
use crate::mqtt::{Inbox, Outboxes};
use crate::pulsar::{PulsarInbox, PulsarOutboxes};
use crate::route::Routes;
use pyo3::prelude::*;

/// What has been answered to the end frees the windows of those who publish.
#[pyfunction]
fn free_answered(inbox: &mut Inbox, deliveries: &mut Deliveries) {
    for (connection, count) in deliveries.inner.take_answered() {
        inbox.inner.answered(connection, count);
    }
}

/// True if a part has something to tell of what did not go as usual.
#[pyfunction]
fn has_exceptions(
    routes: &Routes,
    deliveries: &Deliveries,
    outboxes: &Outboxes,
    pulsar_outboxes: &PulsarOutboxes,
) -> bool {
    routes.inner.grants.has_denied()
        || deliveries.inner.has_reports()
        || outboxes.inner.has_exceptions()
        || pulsar_outboxes.inner.has_gone()
}

/// Whether another turn has something to do at once, whether somebody waits for the disk, and when the rate of all lets
/// something more be decoded.
#[pyfunction]
fn unfinished(
    inbox: &Inbox,
    pulsar_inbox: &PulsarInbox,
    deliveries: &Deliveries,
    outboxes: &Outboxes,
) -> (bool, bool, Option<u64>) {
    let (mqtt, pulsar, deliveries) = (&inbox.inner, &pulsar_inbox.inner, &deliveries.inner);
    let goes_on = mqtt.ready() || pulsar.ready() || deliveries.is_waiting() || outboxes.inner.is_waiting();
    let next_at = mqtt.next_at().into_iter().chain(pulsar.next_at()).min();
    (goes_on, deliveries.awaits_commit(), next_at.map(|at| at.0))
}

/// Adds the functions to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(free_answered, module)?)?;
    module.add_function(wrap_pyfunction!(has_exceptions, module)?)?;
    module.add_function(wrap_pyfunction!(unfinished, module)?)
}
