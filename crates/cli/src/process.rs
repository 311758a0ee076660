//! Settings of this process that the operating system keeps: signals, resource limits, core files.

/// Lets a write beyond the limit of file sizes (`ulimit -f`) fail with an error, where the system would end the process by a
/// signal. Threads that start later inherit it.
pub(crate) fn survive_file_limits() {
    #[cfg(unix)]
    {
        use nix::sys::signal::{SigSet, Signal};
        let mut signals = SigSet::empty();
        signals.add(Signal::SIGXFSZ);
        // where it is refused, the signal ends the process as before
        let _ = signals.thread_block();
    }
}

/// Leave no image of this process behind, whatever becomes of it: prompts and keys would be in it. Other processes of its user
/// may not look into it either.
pub(crate) fn keep_to_itself() {
    #[cfg(unix)]
    {
        use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
        let Rlimit { maximum, .. } = getrlimit(Resource::Core);
        // where it is refused, an image is the system's own decision
        let _ = setrlimit(Resource::Core, Rlimit { current: Some(0), maximum });
    }
    #[cfg(target_os = "linux")]
    {
        use rustix::process::{DumpableBehavior, set_dumpable_behavior};
        // where it is refused, a core file is the system's own decision
        let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
    }
}

/// Files that a server may want to have open: connections, models, caches, logs, downloads.
#[cfg(unix)]
const FILES: u64 = 4096;

/// Raises the soft limit of open files as far as the hard one allows: macOS begins with 256, as many as a server has connections.
pub(crate) fn allow_many_files() {
    #[cfg(unix)]
    {
        use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
        let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
        let wanted = maximum.map_or(FILES, |maximum| maximum.min(FILES));
        if current.is_some_and(|current| current < wanted) {
            // where it is refused, the server takes fewer connections
            let _ = setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum });
        }
    }
}

/// Whether the end of its terminal is to end it: not where whoever started it had that ignored, as `nohup` does.
pub(crate) fn hears_hangups() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    ignored(&status).is_some_and(|ignored| ignored & 1 == 0)
}

/// The signals that are ignored, a bit each from the first on.
fn ignored(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("SigIgn:"))?;
    u64::from_str_radix(line.trim(), 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_that_are_ignored_are_read() {
        assert_eq!(ignored("Name:\tx\nSigIgn:\t0000000000001001\n"), Some(0x1001));
        assert_eq!((ignored("SigIgn:\tx"), ignored("")), (None, None));
    }
}
