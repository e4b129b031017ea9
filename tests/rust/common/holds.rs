//! Keys of a store whose reads wait until they are let go.

use hicache_core::hash::Digest;
use std::collections::HashSet;
use std::sync::{Condvar, Mutex};

#[derive(Default)]
pub struct Holds {
    keys: Mutex<HashSet<Digest>>,
    freed: Condvar,
}

impl Holds {
    pub fn hold(&self, key: Digest) {
        self.keys.lock().unwrap().insert(key);
    }

    pub fn free(&self, key: &Digest) {
        self.keys.lock().unwrap().remove(key);
        self.freed.notify_all();
    }

    pub fn wait(&self, key: &Digest) {
        drop(self.freed.wait_while(self.keys.lock().unwrap(), |keys| keys.contains(key)).unwrap());
    }
}
