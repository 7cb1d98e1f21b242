//! Object stores, where they were not built in.

use super::place::{RemotePlaces, SourceError, Store};
use candlescope_reader::limits::ReadLimits;
use datafusion::arrow::datatypes::SchemaRef;
use object_store::{ObjectMeta, ObjectStore};
use std::sync::Arc;

/// Says how to build what reads them.
pub(super) fn open(url: &str, _: &ReadLimits) -> Result<RemotePlaces, SourceError> {
    let why = "candlescope was built without the feature `object-stores`".to_string();
    let scheme = url.split("://").next().unwrap_or_default();
    Err(SourceError::Store { url: format!("{scheme}://…"), why })
}

/// No file of a store is opened.
pub(super) fn schema(_: &Store, _: &ObjectMeta) -> Option<SchemaRef> {
    None
}

impl Store {
    pub(super) fn connect(&self) -> Result<Arc<dyn ObjectStore>, object_store::Error> {
        Err(object_store::Error::NotImplemented { operation: "connect".into(), implementer: "none".into() })
    }
}
