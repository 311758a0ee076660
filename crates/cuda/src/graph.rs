//! [`Graph`]: work that a device repeats when it is told once.

use std::sync::Arc;

use crate::api::Raw;
use crate::{Context, Result};

/// A graph, ready to run. The memory and the functions that are in it must live as long as it is replayed.
pub struct Graph {
    context: Arc<Context>,
    raw: Raw,
}

// SAFETY: the driver's functions on graphs that are ready to run are thread-safe, and streams are given one at a time.
unsafe impl Send for Graph {}
// SAFETY: as above.
unsafe impl Sync for Graph {}

impl Graph {
    /// Of what was captured, which is gone then.
    pub(crate) fn of(context: &Arc<Context>, captured: Raw) -> Result<Graph> {
        let driver = context.current()?;
        let mut raw = std::ptr::null_mut();
        // SAFETY: `raw` outlives the call, and what was captured is there.
        let code = unsafe { (driver.functions.graph_instantiate)(&raw mut raw, captured, 0) };
        // SAFETY: what runs is a copy of it.
        let _ = unsafe { (driver.functions.graph_destroy)(captured) };
        driver.check("a CUDA graph", code)?;
        Ok(Graph { context: Arc::clone(context), raw })
    }

    pub(crate) fn raw(&self) -> Raw {
        self.raw
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        if let Ok(driver) = self.context.current() {
            // SAFETY: nobody has it any more; a launch that runs ends by itself.
            let _ = unsafe { (driver.functions.graph_exec_destroy)(self.raw) };
        }
    }
}
