//! Which side of a fork we are on. Asking the system for the process's number costs as much as a short match.
//!
//! On error: where forks can't be watched, the process's number is asked for after all.

use std::sync::atomic::{AtomicU32, Ordering};

/// Forks that lie between this process and the one that loaded the module.
static FORKS: AtomicU32 = AtomicU32::new(0);

/// The process that something was made in.
pub struct Origin {
    forks: u32,
    /// Only where forks can't be watched.
    process: Option<u32>,
}

impl Origin {
    /// This process.
    pub fn here() -> Self {
        let process = (!watch()).then(std::process::id);
        Self { forks: FORKS.load(Ordering::Relaxed), process }
    }

    /// Whether this process is still the one.
    pub fn is_here(&self) -> bool {
        match self.process {
            None => self.forks == FORKS.load(Ordering::Relaxed),
            Some(process) => process == std::process::id(),
        }
    }
}

/// From the first call on, children count the forks. Whether that works here.
#[cfg(unix)]
fn watch() -> bool {
    static WATCHED: std::sync::OnceLock<bool> = std::sync::OnceLock::new();

    extern "C" fn child() {
        FORKS.fetch_add(1, Ordering::Relaxed);
    }
    *WATCHED.get_or_init(|| {
        // SAFETY: `child` does nothing that a child may not do after a fork, and its code is never unloaded:
        // Python keeps extension modules until the process ends.
        #[allow(unsafe_code)]
        unsafe {
            libc::pthread_atfork(None, None, Some(child)) == 0
        }
    })
}

#[cfg(not(unix))]
const fn watch() -> bool {
    false
}
