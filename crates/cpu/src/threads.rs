//! How many threads to use: one for each physical core that this process may run on.

/// Physical cores this process may use: its affinity mask, hyper-threads of one core counted once, and the CPU quota
/// of its control group.
pub fn default_threads() -> usize {
    let allowed = std::thread::available_parallelism().map_or(1, usize::from);
    physical_cores().unwrap_or(allowed).clamp(1, allowed)
}

#[cfg(target_os = "linux")]
fn physical_cores() -> Option<usize> {
    let mask = rustix::thread::sched_getaffinity(None).ok()?;
    let mut cores = std::collections::BTreeSet::new();
    for cpu in (0..rustix::thread::CpuSet::MAX_CPU).filter(|&cpu| mask.is_set(cpu)) {
        let path = format!("/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list");
        // without topology every logical CPU counts as a core
        let siblings = std::fs::read_to_string(path).unwrap_or_else(|_| cpu.to_string());
        cores.insert(siblings.trim().to_owned());
    }
    Some(cores.len()).filter(|&n| n > 0)
}

#[cfg(not(target_os = "linux"))]
fn physical_cores() -> Option<usize> {
    None
}

#[cfg(test)]
mod tests {
    #[test]
    fn at_least_one_and_no_more_than_allowed() {
        let n = super::default_threads();
        assert!(n >= 1 && n <= std::thread::available_parallelism().expect("known here").get());
    }
}
