//! What will not be delivered, as Python is told.

use holdfast_kernel::flow::{self, Notice};
use pyo3::prelude::*;

/// Why messages will not be delivered.
#[pyclass(module = "holdfast._kernel", frozen, eq, hash)]
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct NoticeKind(pub flow::NoticeKind);

#[pymethods]
impl NoticeKind {
    #[classattr]
    const EXPIRED: NoticeKind = NoticeKind(flow::NoticeKind::Expired);
    #[classattr]
    const SLOW_READER: NoticeKind = NoticeKind(flow::NoticeKind::SlowReader);
    #[classattr]
    const TOO_LARGE: NoticeKind = NoticeKind(flow::NoticeKind::TooLarge);
    #[classattr]
    const RETENTION: NoticeKind = NoticeKind(flow::NoticeKind::Retention);
    #[classattr]
    const REFUSED: NoticeKind = NoticeKind(flow::NoticeKind::Refused);
    #[classattr]
    const DENIED: NoticeKind = NoticeKind(flow::NoticeKind::Denied);
    #[classattr]
    const SESSION_ENDED: NoticeKind = NoticeKind(flow::NoticeKind::SessionEnded);
    #[classattr]
    const OVERFLOW: NoticeKind = NoticeKind(flow::NoticeKind::Overflow);
    #[classattr]
    const LOOPED: NoticeKind = NoticeKind(flow::NoticeKind::Looped);
    #[classattr]
    const UNMAPPABLE: NoticeKind = NoticeKind(flow::NoticeKind::Unmappable);
    #[classattr]
    const CLOSED: NoticeKind = NoticeKind(flow::NoticeKind::Closed);

    fn __repr__(&self) -> String {
        format!("NoticeKind({:?})", self.0)
    }
}

/// Party, kind, first offset, end offset and count.
pub type Told = (u32, NoticeKind, u64, u64, u64);

/// A notice as Python takes it.
pub fn told(notice: &Notice) -> Told {
    (notice.party.0, NoticeKind(notice.kind), notice.first.0, notice.end.0, notice.count)
}

/// Adds the class to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<NoticeKind>()
}
