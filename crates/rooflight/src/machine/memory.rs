//! Free memory of the machine and of GPUs.

use std::path::Path;

use super::control_groups;

/// Returns the free bytes of a GPU's own memory. Returns `None` if the system does not report them; Linux does for AMD GPUs.
/// `bus` is the PCI address of the GPU, such as `0000:01:00.0`.
pub fn card(bus: &str) -> Option<u64> {
    card_room(&Path::new("/sys/bus/pci/devices").join(bus))
}

fn card_room(device: &Path) -> Option<u64> {
    let read = |name: &str| -> Option<u64> {
        std::fs::read_to_string(device.join(name)).ok()?.trim().parse().ok()
    };
    Some(read("mem_info_vram_total")?.saturating_sub(read("mem_info_vram_used")?))
}

/// Memory for tokenizer tables, code and stacks, in bytes.
pub const OVERHEAD: u64 = 100 << 20;

/// Returns the bytes that this process may still allocate: the free memory of the machine, reduced to the limits of its control
/// groups. Returns `None` if the system does not report them.
pub fn available() -> Option<u64> {
    let meminfo = std::fs::read_to_string("/proc/meminfo").ok()?;
    let free = field(&meminfo, "MemAvailable:")? * 1024;
    Some(free.min(control_groups::room().unwrap_or(u64::MAX)))
}

/// Returns the number after a name at the start of a line, as in `/proc/meminfo` and `memory.stat`.
pub(crate) fn field(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(name))?.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_card_has_left() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("mem_info_vram_total"), "8573157376\n").unwrap();
        assert_eq!(card_room(dir.path()), None, "half of it says nothing");
        std::fs::write(dir.path().join("mem_info_vram_used"), "573157376\n").unwrap();
        assert_eq!(card_room(dir.path()), Some(8_000_000_000));
    }
}
