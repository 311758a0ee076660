//! Memory limits of Linux control groups, version 1 and 2. The group of this process and all its ancestors count.

use std::path::{Path, PathBuf};

use super::memory;

/// Returns the bytes that this process may still allocate in the tightest of its control groups. Returns `None` if there is no
/// limit.
///
/// A container usually sees its own group as the root. A service or `systemd-run -p MemoryMax=` does not, so the group is read
/// from `/proc/self/cgroup` and its mount point from `/proc/self/mountinfo`.
pub(crate) fn room() -> Option<u64> {
    let read = |name: &str| std::fs::read_to_string(name).unwrap_or_default();
    least_room(&read("/proc/self/cgroup"), &read("/proc/self/mountinfo"))
}

/// Returns the least free memory in all hierarchies with a memory controller, in bytes.
///
/// Source: cgroups(7), proc_pid_cgroup(5), proc_pid_mountinfo(5).
fn least_room(groups: &str, mounts: &str) -> Option<u64> {
    let hierarchies = mounts.lines().filter_map(Hierarchy::parse);
    hierarchies.filter_map(|hierarchy| hierarchy.room(groups)).min()
}

/// Version of the kernel's control group interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    V1,
    V2,
}

/// A mounted control group hierarchy with a memory controller.
#[derive(Debug, PartialEq, Eq)]
struct Hierarchy {
    version: Version,
    /// Group at the mount point.
    root: String,
    mount: PathBuf,
}

impl Hierarchy {
    /// Parses a line of `mountinfo`: `ID PARENT DEVICE ROOT MOUNT OPTIONS [FIELDS] - TYPE SOURCE SUPER_OPTIONS`.
    fn parse(line: &str) -> Option<Hierarchy> {
        let (mount, kind) = line.split_once(" - ")?;
        let mut mount = mount.split(' ').skip(3);
        let (root, mount) = (mount.next()?, mount.next()?);
        let mut kind = kind.split(' ');
        let version = match (kind.next()?, kind.nth(1)) {
            ("cgroup2", _) => Version::V2,
            ("cgroup", Some(options)) if options.split(',').any(|name| name == "memory") => {
                Version::V1
            }
            _ => return None,
        };
        Some(Hierarchy { version, root: unescaped(root), mount: unescaped(mount).into() })
    }

    /// Returns the least free memory of the groups from this process's group up to the mount point, in bytes.
    fn room(&self, groups: &str) -> Option<u64> {
        let mut rooms = Vec::new();
        let mut folder = self.folder(groups)?;
        loop {
            rooms.extend(self.room_in(&folder));
            if folder == self.mount || !folder.pop() {
                return rooms.into_iter().min();
            }
        }
    }

    /// Returns the folder of this process's group. This is the mount point if the group is outside the mounted part, as can
    /// happen in a container.
    fn folder(&self, groups: &str) -> Option<PathBuf> {
        // `ID:CONTROLLERS:PATH`
        let path = groups.lines().find_map(|line| {
            let mut fields = line.splitn(3, ':');
            let (id, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
            let is_this = match self.version {
                Version::V1 => controllers.split(',').any(|name| name == "memory"),
                Version::V2 => id == "0" && controllers.is_empty(),
            };
            is_this.then_some(path)
        })?;
        let inside = Path::new(path).strip_prefix(&self.root).ok();
        let inside = inside.filter(|path| !path.components().any(|part| part.as_os_str() == ".."));
        let folder = inside.map_or_else(|| self.mount.clone(), |path| self.mount.join(path));
        Some(if folder.is_dir() { folder } else { self.mount.clone() })
    }

    /// Returns the bytes between the usage and the limit of one group. Cached files count as free, because the kernel evicts
    /// them.
    fn room_in(&self, folder: &Path) -> Option<u64> {
        let (limit, usage, cached): (_, _, [&str; 2]) = match self.version {
            Version::V1 => (
                "memory.limit_in_bytes",
                "memory.usage_in_bytes",
                ["total_inactive_file ", "total_active_file "],
            ),
            Version::V2 => ("memory.max", "memory.current", ["inactive_file ", "active_file "]),
        };
        let read = |name: &str| std::fs::read_to_string(folder.join(name)).ok();
        // version 2 writes `max` if there is no limit; version 1 writes a number larger than any memory
        let limit: u64 = read(limit)?.trim().parse().ok()?;
        let usage: u64 = read(usage)?.trim().parse().ok()?;
        let stat = read("memory.stat").unwrap_or_default();
        let cached: u64 = cached.iter().filter_map(|name| memory::field(&stat, name)).sum();
        Some(limit.saturating_sub(usage.saturating_sub(cached)))
    }
}

/// Decodes a path of `mountinfo`, in which blanks, tabs, line breaks and backslashes are octal escapes such as `\040`.
fn unescaped(path: &str) -> String {
    [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")]
        .iter()
        .fold(path.to_owned(), |path, (code, character)| path.replace(code, character))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes the files of a group.
    fn group(folder: &Path, files: &[(&str, &str)]) {
        std::fs::create_dir_all(folder).unwrap();
        for (name, text) in files {
            std::fs::write(folder.join(name), text).unwrap();
        }
    }

    fn v2(folder: &Path, max: &str, current: u64, file: u64) {
        let stat = format!("anon 1\nfile 999999\ninactive_file {file}\nactive_file 1\n");
        let current = format!("{current}\n");
        let max = format!("{max}\n");
        group(
            folder,
            &[("memory.max", &max), ("memory.current", &current), ("memory.stat", &stat)],
        );
    }

    fn v1(folder: &Path, limit: u64, usage: u64, file: u64) {
        let stat = format!(
            "cache 999999\ninactive_file 5\ntotal_inactive_file {file}\ntotal_active_file 1\n"
        );
        let (limit, usage) = (format!("{limit}\n"), format!("{usage}\n"));
        group(
            folder,
            &[
                ("memory.limit_in_bytes", &limit),
                ("memory.usage_in_bytes", &usage),
                ("memory.stat", &stat),
            ],
        );
    }

    #[test]
    fn the_tightest_group_up_to_the_root_counts() {
        let dir = tempfile::tempdir().unwrap();
        let mount = dir.path().join("a b");
        let line = |root: &str| {
            let mount = mount.display().to_string().replace(' ', "\\040");
            format!("30 20 0:26 {root} {mount} rw,nosuid shared:9 - cgroup2 cgroup2 rw\n")
        };
        let groups = "1:name=systemd:/other\n0::/user.slice/run.scope\n";
        std::fs::create_dir_all(&mount).unwrap();
        assert_eq!(least_room(groups, &line("/")), None, "no file, no limit");
        v2(&mount.join("user.slice/run.scope"), "1000", 700, 199);
        assert_eq!(least_room(groups, &line("/")), Some(500), "cached files are free");
        v2(&mount.join("user.slice"), "1200", 901, 0);
        assert_eq!(least_room(groups, &line("/")), Some(300), "the group above is tighter");
        v2(&mount.join("user.slice"), "max", 901, 0);
        assert_eq!(least_room(groups, &line("/")), Some(500));
        // in a container, the mount point is the process's own group, whatever its path is outside
        v2(&mount, "400", 101, 0);
        assert_eq!(least_room("0::/\n", &line("/docker/abc")), Some(300));
        assert_eq!(least_room("0::/../outside\n", &line("/")), Some(300));
        assert_eq!(
            least_room("0::/docker/abc/user.slice/run.scope\n", &line("/docker/abc")),
            Some(300)
        );
        assert_eq!(least_room(groups, "30 20 0:26 / /tmp rw - tmpfs tmpfs rw\n"), None);
    }

    #[test]
    fn groups_of_version_1_count_too() {
        let dir = tempfile::tempdir().unwrap();
        let [memory, unified] = ["memory", "unified"].map(|name| dir.path().join(name));
        let mounts = format!(
            "31 20 0:27 / {0} rw - cgroup cgroup rw,memory\n32 20 0:28 / {1} rw - cgroup2 cgroup2 rw\n33 20 0:29 / /x rw - cgroup cgroup rw,cpu\n",
            memory.display(),
            unified.display()
        );
        let groups = "4:cpu:/\n3:memory,hugetlb:/job/7\n0::/\n";
        v1(&memory, 9_223_372_036_854_771_712, 5000, 0);
        v1(&memory.join("job"), 4000, 1001, 0);
        v1(&memory.join("job/7"), 3000, 2000, 499);
        std::fs::create_dir_all(&unified).unwrap();
        assert_eq!(least_room(groups, &mounts), Some(1500));
        v1(&memory.join("job"), 4000, 3001, 0);
        assert_eq!(least_room(groups, &mounts), Some(1000));
        v2(&unified, "900", 1, 0);
        assert_eq!(least_room(groups, &mounts), Some(900), "of both hierarchies the tighter one");
    }
}
