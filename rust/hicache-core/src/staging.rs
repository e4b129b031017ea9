//! Buffer-only mode: host memory as staging. Which slots are whose, and who may take some.
//!
//! ```text
//!  device ──backup──▶ slots of writes ──store──▶ storage ──read──▶ slots of reads ──load──▶ device
//! ```
//! A slot belongs to what moves bytes there or waits to: a backup, what it brought and no batch has taken yet, a batch of
//! writes; a read, what it brought for a request that waits, a load. It is never a page's of the tree: no page is resident
//! on the host in this mode. It comes back when its owner lets go of it, and never before.
//!
//! **Shares.** Either side may have all but a fifth of a space's slots, rounded up. So the other one always can have that
//! fifth: a store that is slow to write can't keep requests from what it has, and requests that wait for their turn, with all
//! that they have read, can't keep what was computed from being written. More than a fifth would make a burst of one
//! kind wait beside slots that nobody uses.
//!
//! Assumes: verbs say whose a slot is when they take it and when they give it back. Refuses to know pages and bytes.
//! On error: no room is a value, fewer slots than were asked for.

use crate::cache::HiCache;
use crate::config::{Config, HostMode};
use crate::error::{Error, Result, argument};
use crate::ids::{HostSlot, Slot};
use crate::policy::{HostCopies, Write};

/// Who has slots of staging.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    /// Device → storage.
    Writes,
    /// Storage → device.
    Reads,
}

/// How many slots of each space either side has.
#[derive(Debug, Default)]
pub(crate) struct Staging {
    held: Vec<[usize; 2]>,
}

impl Staging {
    fn of(&self, side: Side, space: usize) -> usize {
        self.held.get(space).map_or(0, |held| held[side as usize])
    }

    fn change(&mut self, side: Side, space: usize, change: impl FnOnce(&mut usize)) {
        if self.held.len() <= space {
            self.held.resize(space + 1, [0; 2]);
        }
        change(&mut self.held[space][side as usize]);
    }
}

/// Slots that one side may have of so many.
const fn most(capacity: usize) -> usize {
    capacity - capacity.div_ceil(5)
}

/// # Errors
/// Names what buffer-only mode can't go with.
pub(crate) fn check(config: &Config) -> Result<()> {
    if config.host_mode == HostMode::Cache {
        return Ok(());
    }
    if config.host_slots < 2 {
        let need = "host_mode=\"buffer_only\" needs at least two pages of it: one for writes, one for reads";
        return argument("host", need);
    }
    // What has no slots at all goes without it: pages are found where no match needs it.
    let parts = config.part_names().into_iter().zip(&config.parts);
    if let Some((name, _)) = parts.into_iter().find(|(_, part)| part.host == 1) {
        let need = "host_mode=\"buffer_only\" needs two host slots or more: for writes, and for reads";
        return argument("host", format!("pool {name}: {need}"));
    }
    if config.writing.host != Write::default() {
        let reason =
            "isn't asked with host_mode=\"buffer_only\", where nothing stays on the host: set write_storage";
        return argument("write", reason);
    }
    if config.writing.host_copies == HostCopies::Keep {
        return argument("host_copies", "there are none to keep with host_mode=\"buffer_only\"");
    }
    if config.restart.is_some() {
        return argument("host restart", "nothing stays on the host with host_mode=\"buffer_only\"");
    }
    if config.unified.is_some() {
        return argument("unified", "doesn't go with host_mode=\"buffer_only\"");
    }
    Ok(())
}

impl HiCache {
    /// Whether the host is staging, and no tier.
    pub(crate) fn stages(&self) -> bool {
        self.config.host_mode == HostMode::BufferOnly
    }

    /// Host slots that writes and reads have now where the host is staging: those of all spaces.
    pub fn staged(&self) -> [usize; 2] {
        self.staging.held.iter().fold([0; 2], |sum, held| [sum[0] + held[0], sum[1] + held[1]])
    }

    /// The same of one space: 0 is the cache's own, then the parts' in order.
    pub fn staged_of(&self, space: usize) -> [usize; 2] {
        self.staging.held.get(space).copied().unwrap_or_default()
    }

    /// How many slots of a space a side may take now.
    pub(crate) fn may_stage(&self, side: Side, space: usize) -> usize {
        let Some(pool) = self.host_pools().nth(space) else { return 0 };
        pool.free().min(most(pool.capacity()).saturating_sub(self.staging.of(side, space)))
    }

    /// How many it may have at most.
    pub(crate) fn share(&self, space: usize) -> usize {
        self.host_pools().nth(space).map_or(0, |pool| most(pool.capacity()))
    }

    /// Whether reads have less than their share in every space, so that room may come from writes that land.
    pub(crate) fn reads_lack_room(&self) -> bool {
        (0..=self.parts.len()).all(|space| self.staging.of(Side::Reads, space) < self.share(space))
    }

    /// So many slots of a space, or as many as the side may take.
    pub(crate) fn stage(&mut self, side: Side, space: usize, count: usize) -> Vec<Slot> {
        let count = count.min(self.may_stage(side, space));
        let slots = self.host_pool_mut(space).take(count).unwrap_or_default();
        self.staging.change(side, space, |held| *held += slots.len());
        slots
    }

    /// Slots that nobody reads or writes any more are free again.
    pub(crate) fn unstage(&mut self, side: Side, slots: &[HostSlot]) {
        for space in 0..=self.parts.len() {
            let of = slots.iter().filter(|at| usize::from(at.space) == space);
            let back: Vec<Slot> = of.map(|at| at.slot).collect();
            if !back.is_empty() {
                self.staging.change(side, space, |held| *held -= back.len());
                self.host_pool_mut(space).give_back(&back);
            }
        }
    }

    /// Host slots of a space that are out, by who has them: recomputed.
    pub(crate) fn host_out(&self, space: u8) -> [usize; 2] {
        [self.out_for_writes(space), self.out_for_reads(space)]
    }

    fn out_for_writes(&self, space: u8) -> usize {
        if !self.stages() {
            return 0;
        }
        let of = |slots: &mut dyn Iterator<Item = HostSlot>| slots.filter(|at| at.space == space).count();
        let copies = self.flights.backups.iter().flat_map(|copy| &copy.writes);
        let backups = of(&mut copies.map(|(_, page)| page.slot));
        let landed = of(&mut self.to_store.landed.slots());
        let written = self.flights.writes().flat_map(|(.., written)| written);
        backups + landed + of(&mut written.map(|page| page.slot))
    }

    fn out_for_reads(&self, space: u8) -> usize {
        let fetches = self.hits.values().filter_map(|hit| hit.fetch.as_ref());
        let early: usize = fetches.map(|fetch| fetch.held(space)).sum();
        let loads = self.flights.loads.iter().flat_map(|copy| copy.staged.iter().copied());
        let waiting = self.hits.values().flat_map(|hit| hit.staged.all());
        self.flights.reading(space) + early + loads.chain(waiting).filter(|at| at.space == space).count()
    }

    /// # Errors
    /// When a slot is out for nobody, or a side has other ones than its books say.
    pub(crate) fn check_staging(&self) -> Result<()> {
        for (space, pool) in (0..).zip(self.host_pools()) {
            let out = self.host_out(space);
            let held = [Side::Writes, Side::Reads].map(|side| self.staging.of(side, usize::from(space)));
            let what = if pool.out() != out[0] + out[1] {
                "C3: host slots are out without a read or, in staging, a write"
            } else if self.stages() && out != held {
                "C7: a side of staging has other slots than its books say"
            } else if self.stages() && held.iter().any(|&held| held > most(pool.capacity())) {
                "C7: a side of staging has more than its share"
            } else {
                continue;
            };
            return Err(Error::Invariant(what.to_owned()));
        }
        Ok(())
    }
}
