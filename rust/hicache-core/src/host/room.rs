//! How much memory this process may still take: the machine's, and that of each of its control groups.
//!
//! Assumes Linux's `/proc` and `/sys/fs/cgroup` (both versions) below a root, which tests make up.
//! On error: what can't be read counts as no limit; [`Room::available`] is `None` where nothing could be read.

use crate::error::{Result, argument};
use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// What limits this process, in bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Room {
    /// What the machine can give without swapping.
    pub machine: Option<u64>,
    /// The least that any control group has left, and which one.
    pub group: Option<(u64, PathBuf)>,
}

impl Room {
    /// Of this process.
    pub fn here() -> Self {
        Self::below(Path::new("/"))
    }

    /// As the files below a root say.
    pub fn below(root: &Path) -> Self {
        let machine =
            numbers(&root.join("proc/meminfo")).get("MemAvailable:").map(|kilobytes| kilobytes * 1024);
        let groups = std::fs::read_to_string(root.join("proc/self/cgroup")).unwrap_or_default();
        let group = groups.lines().filter_map(|line| group_left(root, line)).min();
        Self { machine, group }
    }

    /// The least of all limits.
    pub fn available(&self) -> Option<u64> {
        let group = self.group.as_ref().map(|group| group.0);
        self.machine.into_iter().chain(group).min()
    }

    /// # Errors
    /// When `need` bytes are more than what is left.
    pub fn check(&self, need: u64) -> Result<()> {
        match (self.available(), &self.group) {
            (Some(left), group) if need > left => {
                let whose = match group {
                    Some((least, path)) if *least == left => format!("in control group {}", path.display()),
                    _ => "on this machine".to_owned(),
                };
                argument("host", format!("needs {need} bytes of memory, but {left} are available {whose}"))
            }
            _ => Ok(()),
        }
    }
}

/// What is left in the groups of one line of `/proc/self/cgroup`, from the innermost to the root.
fn group_left(root: &Path, line: &str) -> Option<(u64, PathBuf)> {
    let mut fields = line.splitn(3, ':');
    let (number, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
    let (mount, files) = match (number, controllers) {
        ("0", "") => ("sys/fs/cgroup", VERSION_2),
        (_, "memory") => ("sys/fs/cgroup/memory", VERSION_1),
        _ => return None,
    };
    let mount = root.join(mount);
    let innermost = mount.join(path.trim_start_matches('/'));
    let groups = innermost.ancestors().take_while(|group| group.starts_with(&mount));
    groups.filter_map(|group| Some((left(group, &files)?, group.to_path_buf()))).min()
}

/// The names of a version's files and fields.
struct Files {
    limits: &'static [&'static str],
    used: &'static str,
    /// Of `memory.stat`: cached files, which go when memory is needed.
    cached: [&'static str; 2],
}

const VERSION_2: Files = Files {
    limits: &["memory.max", "memory.high"],
    used: "memory.current",
    cached: ["active_file", "inactive_file"],
};
const VERSION_1: Files = Files {
    limits: &["memory.limit_in_bytes"],
    used: "memory.usage_in_bytes",
    cached: ["total_active_file", "total_inactive_file"],
};

fn left(group: &Path, files: &Files) -> Option<u64> {
    let number = |name: &str| -> Option<u64> {
        // "max" is no number: no limit.
        std::fs::read_to_string(group.join(name)).ok()?.trim().parse().ok()
    };
    let limit = files.limits.iter().filter_map(|name| number(name)).min()?;
    let stat = numbers(&group.join("memory.stat"));
    let cached: u64 = files.cached.iter().filter_map(|name| stat.get(*name)).sum();
    Some(limit.saturating_sub(number(files.used)?.saturating_sub(cached)))
}

/// The first number behind each name of a file with one a line.
fn numbers(file: &Path) -> HashMap<String, u64> {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let pair = |line: &str| {
        let mut words = line.split_whitespace();
        Some((words.next()?.to_owned(), words.next()?.parse().ok()?))
    };
    text.lines().filter_map(pair).collect()
}
