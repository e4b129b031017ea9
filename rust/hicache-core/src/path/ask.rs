//! Decisions of a policy outside of the core, an engine's own: told as values, before the verb that follows them.
//!
//! Nobody is called from here, and nothing waits: a request that nothing was said for is decided by the settings.
//!
//! On error: nothing was changed.

use crate::cache::HiCache;
use crate::error::Result;
use crate::explain::Reason;
use crate::ids::HitId;
use crate::policy::{Name, Wish};
use crate::tree::Found;

/// What an engine decides itself.
#[derive(Debug, Default)]
pub(crate) struct Asking {
    /// Its policy, for people.
    pub name: Name,
    /// Whether each request says what is to be written of it.
    pub writes: bool,
}

impl HiCache {
    /// From now on a policy of the engine's decides, by this name; `writes`: also what is copied further down, by what
    /// [`HiCache::wish`] says of each request.
    pub fn ask_outside(&mut self, name: String, writes: bool) {
        self.asking = Asking { name: name.into(), writes };
        self.tell_saving();
    }

    /// What a request wants to be written of its path: what it finds, and what it will insert.
    ///
    /// # Errors
    /// When the hit was released.
    pub fn wish(&mut self, id: HitId, wish: Wish) -> Result<()> {
        self.open()?;
        self.hit_mut(id)?.wish = Some(wish);
        Ok(())
    }

    /// A request's load is to end after so many tokens, in whole pages, or where the device's own end.
    ///
    /// # Errors
    /// When the hit was released.
    pub fn at_most(&mut self, id: HitId, tokens: usize) -> Result<()> {
        self.open()?;
        let pages = self.config.page_size.pages(tokens);
        self.hit_mut(id)?.most = Some(u32::try_from(pages).unwrap_or(u32::MAX));
        Ok(())
    }

    /// A decision was asked for, and none was made.
    pub const fn policy_failed(&mut self) {
        self.stats.policy_failures += 1;
    }

    /// Tokens of a request's prompt, those before a cursor included.
    ///
    /// # Errors
    /// When the hit was released.
    pub fn prompt(&self, id: HitId) -> Result<u64> {
        Ok(self.hit(id)?.story.tokens)
    }

    /// What a load may use of what was found.
    pub(super) fn shortened(&mut self, id: HitId, found: Found) -> Result<Found> {
        let most = self.hit(id)?.most.map(|most| most.max(found.device));
        let Some(most) = most.filter(|&most| most < found.usable) else { return Ok(found) };
        let less = self.tree.found(self.tree.ancestor(found.place, most));
        let (tokens, policy) = (self.tokens(most as usize), self.asking.name.clone());
        self.stats.load_declined_pages += u64::from(found.usable - less.usable);
        let reason = Reason::DeclinedByPolicy { policy, tokens };
        self.hit_mut(id)?.story.note(less.usable..found.usable, reason);
        Ok(less)
    }
}
