//! The report of `cuda_software_report`: work done since the last reset, and live objects.

use std::ffi::c_char;
use std::fmt::Write as _;
use std::sync::PoisonError;

use super::device::put_text;
use super::state::{Counters, driver};

/// Writes a report, one `name=value` a line, ended by a zero and cut to `len` bytes:
/// `live_allocations`, `live_bytes`, `pinned_allocations`, `streams` (with the legacy one),
/// `events`, `modules`, `graphs`, `executable_graphs`, and since the last reset `launches`,
/// `graph_launches`, `graph_nodes` (enqueued by them), `copies`, `copied_bytes`,
/// `host_functions`, `instructions` (each by up to 32 threads), `faults`; last, where there was a
/// fault, `first_fault` with its description.
///
/// Returns the bytes that the whole report needs, with its zero. `buffer` may be null.
///
/// # Safety
/// `buffer` is null or can be written for `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuda_software_report(buffer: *mut c_char, len: usize) -> usize {
    let text = report();
    // SAFETY: the caller's promise. A null buffer is no error here.
    let _ = unsafe { put_text(buffer, len, &text) };
    text.len() + 1
}

fn report() -> String {
    let state = driver().lock();
    let memory = driver().memory.read().unwrap_or_else(PoisonError::into_inner);
    let c = &state.counters;
    let mut text = String::new();
    let lines = [
        ("live_allocations", memory.live() as u64),
        ("live_bytes", memory.used()),
        ("pinned_allocations", state.pinned.len() as u64),
        ("streams", state.streams.len() as u64),
        ("events", state.events.len() as u64),
        ("modules", state.modules.len() as u64),
        ("graphs", state.graphs.len() as u64),
        ("executable_graphs", state.executables.len() as u64),
        ("launches", c.launches),
        ("graph_launches", c.graph_launches),
        ("graph_nodes", c.graph_nodes),
        ("copies", c.copies),
        ("copied_bytes", c.copied_bytes),
        ("host_functions", c.host_functions),
        ("instructions", c.instructions),
        ("faults", c.faults),
    ];
    for (name, value) in lines {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{name}={value}");
    }
    if let Some(fault) = &state.first_fault {
        let _ = writeln!(text, "first_fault={fault}");
    }
    text
}

/// Sets the counters of `cuda_software_report` to zero.
#[unsafe(no_mangle)]
pub extern "C" fn cuda_software_reset_counters() {
    driver().lock().counters = Counters::default();
}
