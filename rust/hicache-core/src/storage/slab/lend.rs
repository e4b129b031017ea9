//! Asking extents for slots: what is there is had at once, under whatever mutex; what has to be waited for, or made, is
//! had without.
//!
//! ```text
//! take ─▶ Have, or None: there is none    grow ─▶ Have, or None: there may be no more
//!      └▶ Wait ─▶ settle ─▶ again              └▶ Wait ─▶ provide (makes a file, or removes one) ─▶ again
//! ```
//! On error: nothing is provided, and the reason is in `stats`.

use super::extents::{Extents, Place};
use super::state::State;
use std::sync::Arc;

/// An answer to who can't wait now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Asked<T> {
    /// Here it is.
    Have(T),
    /// Perhaps after `settle`, or `provide`.
    Wait,
    /// There is none to be had.
    None,
}

impl Extents {
    /// A free slot: one that was written before, if the class has one. `Wait` where the only ones are those that
    /// zeros are being written to.
    pub fn take(&self, slot_bytes: u32) -> Asked<Place> {
        let slot = u64::from(slot_bytes);
        let mut state = self.shared.state();
        match hand_out(&mut state, slot) {
            Some(place) => Asked::Have(place),
            None if state.claims_of(slot) => Asked::Wait,
            None => Asked::None,
        }
    }

    /// Gives a class a spare extent. `most`: how many files there may be then. `Wait`: one has to be made, or made
    /// ready, or removed since there are two.
    pub fn grow(&self, slot_bytes: u32, most: u32) -> Asked<u32> {
        let slots = self.slots(slot_bytes);
        if slots == 0 {
            return Asked::None;
        }
        let mut state = self.shared.state();
        let most = most.min(self.shared.options.most);
        state.asked = most;
        let best = state.spare.iter().map(|&number| (number, &state.extents[&number]));
        let best = best.max_by_key(|(_, extent)| (!extent.writing, extent.supply.bytes().0));
        match best.map(|(number, extent)| (number, extent.writing)) {
            _ if state.files() > most && (state.spare.len() > 1 || state.is_busy_with_files()) => Asked::Wait,
            _ if state.files() > most => Asked::None,
            Some((number, false)) => {
                state.most = most;
                state.give(number, u64::from(slot_bytes), slots);
                drop(state);
                self.shared.changed.notify_all();
                Asked::Have(number)
            }
            Some(_) => Asked::Wait,
            None if state.files() < most || state.is_busy_with_files() => Asked::Wait,
            None => Asked::None,
        }
    }

    /// Waits, though not for long, until no zeros are being written to slots of this size; false: it took too long.
    pub fn settle(&self, slot_bytes: u32) -> bool {
        let state = self.shared.state();
        !state.claims_of(slot_bytes.into()) || self.shared.wait(state)
    }

    /// What `grow` needs to have something next time, if it can be done; whether it was. Does I/O, and waits, though not
    /// for long.
    pub fn provide(&self, most: u32) -> bool {
        let state = self.shared.state();
        let idle = state.spare.iter().copied().find(|number| !state.extents[number].writing);
        let (any, files, busy) = (!state.spare.is_empty(), state.files(), state.is_busy_with_files());
        if files > most && state.spare.len() > 1 {
            drop(state);
            return idle.is_some_and(|number| self.shared.remove(number));
        }
        if busy || (any && idle.is_none()) {
            // The thread ends its step soon: it sees that somebody waits.
            return self.shared.wait(state);
        }
        drop(state);
        any || files >= most || self.shared.make().is_some()
    }
}

fn hand_out(state: &mut State, slot: u64) -> Option<Place> {
    let class = state.classes.get(&slot)?;
    let &extent = class.ready.first().or_else(|| class.todo.first())?;
    let found = state.extents.get_mut(&extent)?;
    let (offset, written) = found.supply.take(slot)?;
    let file = Arc::clone(&found.file);
    state.file(extent);
    state.first_written += if written { 0 } else { slot };
    Some(Place { extent, slot: u32::try_from(offset / slot).ok()?, offset, written, file })
}
