//! Counters. Each has one meaning, never goes down, and is counted where the thing happens.

/// What a cache did so far, in tokens or pages as the name says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Requests matched.
    pub requests: u64,
    /// Tokens passed to `match_prefix`.
    pub matched_tokens: u64,
    /// Requests loaded.
    pub loaded_requests: u64,
    /// Tokens of loaded requests that no tier gave: to compute.
    pub missed_tokens: u64,
    /// Tokens that a load found on the device.
    pub hit_device_tokens: u64,
    /// Tokens that a load copied from the host.
    pub hit_host_tokens: u64,
    /// Tokens that a load copied from the host after this request's prefetch brought them there.
    pub hit_storage_tokens: u64,
    /// Tokens generated, as told at release.
    pub generated_tokens: u64,
    /// Pages that entered the device by insert.
    pub inserted_pages: u64,
    /// Pages whose copy to the host was begun; again, if an earlier copy had given way.
    pub backed_up_pages: u64,
    /// Pages of a backup that found no room on the host.
    pub backup_no_room_pages: u64,
    /// Pages of a load that found no room on the device.
    pub load_no_room_pages: u64,
    /// Pages of backups that a fault of the device's copies ended: they are not on the host.
    pub backup_failed_pages: u64,
    /// Pages of loads that a fault ended: they are not on the device.
    pub load_failed_pages: u64,
    /// Pages evicted from the device.
    pub evicted_device_pages: u64,
    /// Pages evicted from the host.
    pub evicted_host_pages: u64,
    /// Pages, and slots of a part, that moved inside a unified device buffer.
    pub moved_pages: u64,
    /// Evicted pages that live in no tier of the tree any more.
    pub dropped_pages: u64,
    /// Pages written to storage, or found there already; with windows and states also theirs.
    pub stored_pages: u64,
    /// Evicted from the device before they were copied to the host, where they were wanted: lost. (Part of
    /// `dropped_pages`.) Where the host is staging: wanted in storage, and neither stored nor on their way.
    pub dropped_unsaved_pages: u64,
    /// Evicted from the host before they were stored, where they were wanted: lost. (Part of `dropped_pages`.)
    pub dropped_unstored_pages: u64,
    /// Paths of which something had found no room on the host, and that were tried again.
    pub backups_retried: u64,
    /// Paths that were to be tried again and aren't, because too many waited: they are backed up when they come again.
    pub backups_forgotten: u64,
    /// Paths that were to be stored and aren't, because too many waited: they are stored when they come again.
    pub stores_forgotten: u64,
    /// Pages that the store failed to write, twice.
    pub store_failed_pages: u64,
    /// Pages whose write was given up: they were removed meanwhile, or the store was detached or cleared.
    pub store_cancelled_pages: u64,
    /// Pages that clears removed from storage.
    pub cleared_storage_pages: u64,
    /// Pages that the store's own rules didn't take: no room, too much written, or not asked for twice yet.
    pub store_declined_pages: u64,
    /// Pages whose digest was computed; a page whose digest is known is never hashed again.
    pub hashed_pages: u64,
    /// Pages asked for by prefetches; with windows and states also theirs.
    pub prefetch_asked_pages: u64,
    /// Pages that prefetches put on the host.
    pub prefetched_pages: u64,
    /// Pages whose bytes were not what was written, or too few.
    pub corrupt_pages: u64,
    /// Pages that the store could not read.
    pub read_failed_pages: u64,
    /// Pages that arrived when nobody could use them any more: the request had gone on, the pages before them
    /// were gone, or others had brought them.
    pub prefetch_dropped_pages: u64,
    /// Prefetches that found no room on the host for all they could have read.
    pub prefetch_no_room: u64,
    /// Prefetches of which the store had less than is worth reading.
    pub prefetch_below_threshold: u64,
    /// Pages that a store said to have and that weren't asked for, since reads of them failed before.
    pub prefetch_doubted_pages: u64,
    /// Pages on the host that a load left there: fewer than are worth it, beyond its budget, or more than the engine's
    /// own policy wanted.
    pub load_declined_pages: u64,
    /// Decisions that the engine's own policy failed to make: the settings made them.
    pub policy_failures: u64,
    /// Prefixes that were to be warmed.
    pub warm_prefixes: u64,
    /// Pages that came to the host for these.
    pub warmed_host_pages: u64,
    /// Pages that became usable on the device by copies for these.
    pub warmed_device_pages: u64,
    /// Waits that a deadline ended.
    pub deadlines_passed: u64,
}
