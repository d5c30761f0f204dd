//! How much memory this process may still take: what the system has, within the limits of its control groups and of its address space.

use std::path::Path;

/// Where Linux shows the state of processes, and where control groups are mounted.
const PROC: &str = "/proc";
const GROUPS: &str = "/sys/fs/cgroup";

/// Bytes that can be allocated without swapping: Linux's `MemAvailable`, within the limits of the control groups that this process is in
/// (version 1 or 2, each group and its parents), and of its address space (`ulimit -v`).
#[doc(hidden)]
pub fn free_memory() -> u64 {
    let groups = free_in_groups(Path::new(PROC), Path::new(GROUPS)).unwrap_or(u64::MAX);
    available(Path::new(PROC)).min(groups).min(free_addresses().unwrap_or(u64::MAX))
}

/// The most bytes of memory that the process held at a time, where the system says so.
#[doc(hidden)]
pub fn peak_memory() -> Option<u64> {
    of_status("VmHWM:")
}

/// The bytes of memory that the process holds now; 0 where the system does not say.
#[doc(hidden)]
pub fn resident_memory() -> u64 {
    of_status("VmRSS:").unwrap_or(0)
}

/// The bytes on a line of the process's status.
fn of_status(name: &str) -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    line.trim().trim_end_matches("kB").trim().parse::<u64>().ok().map(|kib| 1024 * kib)
}

fn read(path: &Path) -> Option<String> {
    std::fs::read_to_string(path).ok()
}

fn number(path: &Path) -> Option<u64> {
    read(path)?.trim().parse().ok()
}

/// `MemAvailable`; 8 GiB where the system does not say.
fn available(proc: &Path) -> u64 {
    let kib = |text: String| {
        let rest = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
        rest.trim().trim_end_matches("kB").trim().parse::<u64>().ok()
    };
    read(&proc.join("meminfo")).and_then(kib).map_or(8 << 30, |kib| kib * 1024)
}

/// The least that a group of this process, or a parent of it, leaves of its limit. A line of `/proc/self/cgroup` is `0::/a/b` in version 2, and
/// `4:memory:/a/b` in version 1, whose groups lie in a folder `memory`. In a container, the path may be that of the host: then only the root is there.
fn free_in_groups(proc: &Path, mounted: &Path) -> Option<u64> {
    let lines = read(&proc.join("self/cgroup")).unwrap_or_default();
    let own = lines.lines().filter_map(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, path) = (parts.next()?, parts.next()?.trim_start_matches('/'));
        let names = ["memory.max", "memory.current"];
        let old_names = ["memory.limit_in_bytes", "memory.usage_in_bytes"];
        match controllers {
            "" => Some((mounted.to_owned(), path.to_owned(), names)),
            _ if controllers.split(',').any(|name| name == "memory") => {
                Some((mounted.join("memory"), path.to_owned(), old_names))
            }
            _ => None,
        }
    });
    own.flat_map(|(root, path, [limit, used])| {
        let groups: Vec<_> = Path::new(&path).ancestors().map(|group| root.join(group)).collect();
        groups.into_iter().filter_map(move |group| {
            let limit = number(&group.join(limit))?;
            Some(limit.saturating_sub(number(&group.join(used)).unwrap_or(0)))
        })
    })
    .min()
}

/// What the limit on addresses leaves; none without a limit.
#[cfg(target_os = "linux")]
fn free_addresses() -> Option<u64> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the call writes to the structure that it is given, and to nothing else.
    let known = unsafe { libc::getrlimit(libc::RLIMIT_AS, &mut limit) } == 0;
    if !known || limit.rlim_cur == libc::RLIM_INFINITY {
        return None;
    }
    let kib = |text: String| {
        let rest = text.lines().find_map(|line| line.strip_prefix("VmSize:"))?;
        rest.trim().trim_end_matches("kB").trim().parse::<u64>().ok()
    };
    let used = read(&Path::new(PROC).join("self/status")).and_then(kib)? * 1024;
    Some(limit.rlim_cur.saturating_sub(used))
}

#[cfg(not(target_os = "linux"))]
fn free_addresses() -> Option<u64> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes files below a folder.
    fn write(folder: &Path, files: &[(&str, &str)]) {
        for (name, text) in files {
            let path = folder.join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
    }

    #[test]
    fn the_tightest_group_counts_in_both_versions() {
        let folder = tempfile::tempdir().unwrap();
        let (proc, groups) = (folder.path().join("proc"), folder.path().join("groups"));
        let free = || free_in_groups(&proc, &groups);
        assert_eq!(free(), None);
        write(&proc, &[("self/cgroup", "0::/job/step\n")]);
        assert_eq!(free(), None);
        write(&groups, &[("memory.max", "9000\n"), ("memory.current", "1000\n")]);
        assert_eq!(free(), Some(8000));
        // The group itself has no limit, its parent has one.
        write(
            &groups,
            &[("job/step/memory.max", "max\n"), ("job/memory.max", "5000\n"), ("job/memory.current", "700\n")],
        );
        assert_eq!(free(), Some(4300));
        write(&groups, &[("job/step/memory.max", "2000\n"), ("job/step/memory.current", "2500\n")]);
        assert_eq!(free(), Some(0));
        let old = "12:cpu,cpuacct:/a\n4:hugetlb,memory:/a/b\n";
        write(&proc, &[("self/cgroup", old)]);
        write(&groups, &[("memory/a/memory.limit_in_bytes", "600"), ("memory/a/memory.usage_in_bytes", "500")]);
        assert_eq!(free(), Some(100));
        write(&groups, &[("memory/a/b/memory.limit_in_bytes", "9223372036854771712")]);
        assert_eq!(free(), Some(100));
    }

    #[test]
    fn available_memory_is_read_in_kib() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(available(folder.path()), 8 << 30);
        write(folder.path(), &[("meminfo", "MemTotal: 9 kB\nMemAvailable:   1234 kB\n")]);
        assert_eq!(available(folder.path()), 1234 * 1024);
    }
}
