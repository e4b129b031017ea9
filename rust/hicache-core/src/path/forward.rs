//! `begin_forward` and `end_forward`: a forward of the model that is under way while other verbs are called, over a
//! unified buffer.
//!
//! What it may use is what the engine holds when it begins, and nobody has to name it:
//! - slots that are out: it may write these. They stay in their frames until it is through, whoever has them by then;
//! - pages, windows and states that loaded hits hold: it reads them. They may move, and leave their old frames to
//!   nobody until it is through. A hit that is released or moves along meanwhile leaves its pin behind until then, so
//!   that nothing of it is evicted.
//!
//! So a verb that finds room only where such a frame is finds none, which is its outcome: no room now. Frames that
//! were looked up after it began are right for it until it is through. Knows gates, pins and slots; refuses to know
//! what a forward computes.
//!
//! On error: a forward that is not under way is refused; nothing was changed.

use crate::cache::HiCache;
use crate::error::{Error, Result, argument};
use crate::ids::ForwardId;
use crate::parts::ENDS;
use crate::tree::PinId;
use crate::unified::{Gate, GateId};
use std::collections::{BTreeMap, VecDeque};

/// Forwards under way.
#[derive(Debug, Default)]
pub(crate) struct Forwards {
    /// The last one's number.
    begun: u64,
    open: BTreeMap<u64, GateId>,
    /// Pins that hits left behind, and the last forward that had begun then. In order of these.
    kept: VecDeque<(u64, PinId)>,
}

impl Forwards {
    /// How many are under way: each has a gate.
    pub fn len(&self) -> usize {
        self.open.len()
    }

    /// Pins that hits left behind.
    pub fn pins(&self) -> usize {
        self.kept.len()
    }
}

impl HiCache {
    /// A forward begins: until it ends, nobody gets the bytes that it may use, and nothing that it may write moves.
    /// Several may be under way. Looks at all slots once.
    ///
    /// # Errors
    /// When device memory is not one unified buffer, or there is none; when the cache is closed.
    pub fn begin_forward(&mut self) -> Result<ForwardId> {
        self.open()?;
        if self.config.unified.is_none() {
            return argument("unified", "device memory is not one buffer: nothing in it moves");
        }
        self.on_device()?;
        let of_space = |(at, &end)| {
            let outs = self.device_pool(at).into_iter().flat_map(crate::host::SlotPool::outs);
            outs.map(move |slot| (end, slot))
        };
        let writes = ENDS.iter().enumerate().flat_map(of_space).collect();
        let gate = self.unified.as_mut().ok_or(Error::Detached)?.open(Gate::Forward { writes })?;
        self.forwards.begun += 1;
        self.forwards.open.insert(self.forwards.begun, gate);
        Ok(ForwardId(self.forwards.begun))
    }

    /// It is through, in whatever order they end: what only waited for it is free. Also where the cache is closed.
    ///
    /// # Errors
    /// When it is not under way.
    pub fn end_forward(&mut self, id: ForwardId) -> Result<()> {
        let Some(gate) = self.forwards.open.remove(&id.0) else {
            return argument("forward", format!("forward {} is not under way", id.0));
        };
        self.close_gate(Some(gate));
        let first = self.forwards.open.first_key_value().map_or(u64::MAX, |(&first, _)| first);
        while self.forwards.kept.front().is_some_and(|&(last, _)| last < first) {
            self.forwards.kept.pop_front().into_iter().for_each(|(_, pin)| self.tree.unpin(pin));
        }
        self.publish();
        Ok(())
    }

    /// Forwards under way.
    pub fn forwards(&self) -> usize {
        self.forwards.len()
    }

    /// A loaded hit leaves its place. What it held there may be in use by forwards that are under way.
    pub(crate) fn leave_place(&mut self, pin: PinId) {
        if self.forwards.open.is_empty() {
            self.tree.unpin(pin);
        } else {
            self.forwards.kept.push_back((self.forwards.begun, pin));
        }
    }
}
