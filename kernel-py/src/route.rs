//! `Routes`: filters of attached queues.

use crate::flow::{subscriptions_of, Arrivals};
use holdfast_kernel::flow;
use holdfast_kernel::ids::{Connection, Offset, Party, Queue};
use holdfast_kernel::route;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

type Rules = Vec<(Vec<u8>, bool)>;

/// Filters of attached queues, and the memory of what each topic matched.
#[pyclass(module = "holdfast._kernel")]
pub struct Routes {
    pub inner: route::Routes,
}

#[pymethods]
impl Routes {
    #[new]
    fn new(seed: u64) -> Routes {
        Routes { inner: route::Routes::new(seed) }
    }

    fn subscribe(&mut self, queue: u32, connection: u32, owner: u32, subscriptions: &Bound<'_, PyAny>) -> PyResult<()> {
        for item in subscriptions_of(subscriptions)?.iter().filter(|item| item.until == Offset(u64::MAX)) {
            let subscription = route::Subscription {
                queue: Queue(queue),
                connection: Connection(connection),
                owner: Party(owner),
                qos: item.qos,
                no_local: item.no_local,
                retain_as_published: item.retain_as_published,
                identifier: item.identifier,
            };
            let done = self.inner.subscribe(&item.filter, subscription);
            done.map_err(|error| PyValueError::new_err(error.to_string()))?;
        }
        Ok(())
    }

    fn unsubscribe(&mut self, queue: u32, topic_filter: &[u8]) -> bool {
        self.inner.unsubscribe(Queue(queue), topic_filter)
    }

    fn remove(&mut self, queue: u32) {
        self.inner.remove(Queue(queue));
    }

    #[pyo3(signature = (connection, publish, receive))]
    fn grant(&mut self, connection: u32, publish: Option<Rules>, receive: Option<Rules>) -> PyResult<()> {
        let done = self.inner.grant(Connection(connection), publish.as_deref(), receive.as_deref());
        done.map_err(|error| PyValueError::new_err(error.to_string()))
    }

    fn ungrant(&mut self, connection: u32) {
        // Nothing can be wrong with no rules.
        let _granted = self.inner.grant::<Vec<u8>>(Connection(connection), None, None);
    }

    fn denied(&mut self) -> Vec<(u32, u64)> {
        let denied = self.inner.grants.take_denied().into_iter();
        denied.map(|(connection, count)| (connection.0, count)).collect()
    }

    fn counters<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let counters = self.inner.grants.counters();
        let dict = PyDict::new(py);
        dict.set_item("publishes_denied", counters.publishes_denied)?;
        dict.set_item("topics_withheld", counters.topics_withheld)?;
        Ok(dict)
    }

    fn route(&mut self, arrivals: &mut Arrivals) {
        self.inner.route(&mut arrivals.inner);
    }

    fn r#match(&mut self, topic_name: &[u8]) -> Vec<(u32, u8)> {
        let targets = self.inner.targets(topic_name);
        targets.iter().flat_map(|targets| targets.iter()).map(|target| (target.queue.0, target.terms.qos)).collect()
    }

    /// All that a target says: queue, connection, terms for others, and the owner with the terms for its own messages.
    fn targets(&mut self, topic_name: &[u8]) -> Vec<Target> {
        let targets = self.inner.targets(topic_name);
        let all = targets.iter().flat_map(|targets| targets.iter());
        all.map(|target| {
            let own = target.own.as_deref().map(|(owner, own)| (owner.0, own.as_ref().map(plain)));
            (target.queue.0, target.connection.0, plain(&target.terms), own)
        })
        .collect()
    }

    fn __len__(&self) -> usize {
        self.inner.len()
    }
}

/// Queue, connection, terms, and the owner with the terms for its own messages.
type Target = (u32, u32, Terms, Option<(u32, Option<Terms>)>);

/// QoS, Retain As Published, identifiers.
type Terms = (u8, bool, Vec<u32>);

fn plain(terms: &flow::Terms) -> Terms {
    (terms.qos, terms.retain_as_published, terms.identifiers.as_deref().unwrap_or_default().to_vec())
}

/// Adds the class to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Routes>()
}
