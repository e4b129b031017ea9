//! Clears of a store that fail as they are told to.

use super::store::Fault;
use hicache_core::error::{Error, Result};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

type Plan = Box<dyn Fn(usize) -> Fault + Send>;

pub struct Clears {
    plan: Mutex<Plan>,
    calls: AtomicUsize,
}

impl Default for Clears {
    fn default() -> Self {
        Self { plan: Mutex::new(Box::new(|_| Fault::None)), calls: AtomicUsize::new(0) }
    }
}

impl Clears {
    /// From now on each call (by number, from 1 on) asks what to do; `Answer` is an error.
    pub fn plan(&self, plan: impl Fn(usize) -> Fault + Send + 'static) {
        *self.plan.lock().unwrap() = Box::new(plan);
    }

    /// Those that were begun.
    pub fn calls(&self) -> usize {
        self.calls.load(Ordering::SeqCst)
    }

    pub fn begin(&self, hang: impl FnOnce()) -> Result<()> {
        let call = self.calls.fetch_add(1, Ordering::SeqCst) + 1;
        let fault = (self.plan.lock().unwrap())(call);
        match fault {
            Fault::Answer(_) => {
                return Err(Error::Argument { argument: "storage", reason: "on purpose".into() });
            }
            Fault::Panic => panic!("a store that panics, on purpose"),
            Fault::Hang => hang(),
            _ => {}
        }
        Ok(())
    }
}
