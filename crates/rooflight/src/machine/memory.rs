//! How much memory is free.

use std::path::Path;

use super::control_groups;

/// Bytes of a card's own memory that nobody has, where the system tells: Linux does for AMD's. `bus` is the card's place, such as
/// `0000:01:00.0`.
pub fn card(bus: &str) -> Option<u64> {
    card_room(&Path::new("/sys/bus/pci/devices").join(bus))
}

fn card_room(device: &Path) -> Option<u64> {
    let read = |name: &str| -> Option<u64> {
        std::fs::read_to_string(device.join(name)).ok()?.trim().parse().ok()
    };
    Some(read("mem_info_vram_total")?.saturating_sub(read("mem_info_vram_used")?))
}

/// Tables of the tokenizer, code and stacks.
pub const OVERHEAD: u64 = 100 << 20;

/// Bytes this process may still take: the machine's free memory, cut by the limits of its control groups.
/// `None` where that cannot be told.
pub fn available() -> Option<u64> {
    let meminfo = std::fs::read_to_string("/proc/meminfo").ok()?;
    let free = field(&meminfo, "MemAvailable:")? * 1024;
    Some(free.min(control_groups::room().unwrap_or(u64::MAX)))
}

/// The number behind a name that begins a line, as in `/proc/meminfo` and `memory.stat`.
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
