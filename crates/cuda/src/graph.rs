//! [`Graph`]: recorded work that one call replays.

use std::sync::Arc;

use crate::api::Raw;
use crate::{Context, Result};

/// An executable CUDA graph. The memory and the functions that it uses must outlive every replay.
pub struct Graph {
    context: Arc<Context>,
    raw: Raw,
}

// SAFETY: the driver's functions on executable graphs are thread-safe.
unsafe impl Send for Graph {}
// SAFETY: as above.
unsafe impl Sync for Graph {}

impl Graph {
    /// Instantiates a captured graph and destroys the capture.
    pub(crate) fn instantiate(context: &Arc<Context>, captured: Raw) -> Result<Graph> {
        let driver = context.current()?;
        let mut raw = std::ptr::null_mut();
        // SAFETY: `raw` outlives the call, and the caller passes a valid captured graph.
        let code = unsafe { (driver.functions.graph_instantiate)(&raw mut raw, captured, 0) };
        // SAFETY: the executable graph is a copy and does not refer to `captured`.
        let _ = unsafe { (driver.functions.graph_destroy)(captured) };
        driver.check("cannot instantiate a CUDA graph", code)?;
        Ok(Graph { context: Arc::clone(context), raw })
    }

    pub(crate) fn raw(&self) -> Raw {
        self.raw
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        if let Ok(driver) = self.context.current() {
            // SAFETY: this was the last reference; the driver lets running launches finish.
            let _ = unsafe { (driver.functions.graph_exec_destroy)(self.raw) };
        }
    }
}
