//! Counters and gauges as one flat dictionary.

use crate::cache::Cache;
use crate::errors::OrRaise;
use hicache_core::histogram::Histogram;
use hicache_core::ids::Tier;
use hicache_core::stats::Stats;
use hicache_core::{HiCache, Leftovers, PartStats};
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// Puts every counter under its own name; a new one in the core fails to compile until it is named here.
macro_rules! put {
    ($dict:expr, $stats:expr, $($name:ident),* $(,)?) => {{
        let Stats { $($name),* } = *$stats;
        $($dict.set_item(stringify!($name), $name)?;)*
    }};
}

pub fn to_dict<'py>(py: Python<'py>, core: &HiCache) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    put!(
        dict,
        core.stats(),
        requests,
        matched_tokens,
        loaded_requests,
        missed_tokens,
        hit_device_tokens,
        hit_host_tokens,
        hit_storage_tokens,
        generated_tokens,
        inserted_pages,
        backed_up_pages,
        backup_no_room_pages,
        load_no_room_pages,
        backup_failed_pages,
        load_failed_pages,
        evicted_device_pages,
        evicted_host_pages,
        moved_pages,
        dropped_pages,
        stored_pages,
        dropped_unsaved_pages,
        dropped_unstored_pages,
        backups_retried,
        backups_forgotten,
        stores_forgotten,
        store_failed_pages,
        store_declined_pages,
        store_cancelled_pages,
        cleared_storage_pages,
        hashed_pages,
        prefetch_asked_pages,
        prefetched_pages,
        corrupt_pages,
        read_failed_pages,
        prefetch_dropped_pages,
        prefetch_no_room,
        prefetch_below_threshold,
        prefetch_doubted_pages,
        load_declined_pages,
        policy_failures,
        warm_prefixes,
        warmed_host_pages,
        warmed_device_pages,
        deadlines_passed,
    );
    let gauges = [
        ("device_slots", core.slots(Tier::Device).capacity()),
        ("device_free", core.device_free(0)),
        ("device_resident", core.tree().resident(Tier::Device)),
        ("host_slots", core.slots(Tier::Host).capacity()),
        ("host_free", core.slots(Tier::Host).free()),
        ("host_resident", core.tree().resident(Tier::Host)),
        ("host_staged_writes", core.staged_of(0)[0]),
        ("host_staged_reads", core.staged_of(0)[1]),
        ("in_flight", core.in_flight()),
        ("nodes", core.tree().nodes()),
    ];
    for (name, now) in gauges {
        dict.set_item(name, now)?;
    }
    dict.set_item("lost_event_pages", core.tree().lost_events())?;
    let Leftovers { found, now, claimed, adopted, given_up, corrupt } = core.leftovers();
    let leftovers = [
        ("leftovers_found", found),
        ("leftovers_adopted", adopted),
        ("leftovers_given_up", given_up),
        ("leftovers_corrupt", corrupt),
        ("leftovers_now", now + claimed),
    ];
    for (name, count) in leftovers {
        dict.set_item(name, count)?;
    }
    Ok(dict)
}

/// Bounds, how many up to each and beyond the last, and their sum: in seconds, pages or tokens.
type Seen = (Vec<f64>, Vec<u64>, f64);

#[pymethods]
impl Cache {
    #[allow(clippy::cast_precision_loss, reason = "a sum for people")]
    fn histograms(&self) -> Vec<(&'static str, Seen)> {
        let told = |(name, seen): (&'static str, Histogram)| {
            let scale = seen.scale();
            let bounds = scale.bounds().iter().map(|&bound| bound as f64 / scale.unit()).collect();
            (name, (bounds, seen.places().to_vec(), seen.sum() as f64 / scale.unit()))
        };
        self.core.histograms().into_iter().map(told).collect()
    }
}

/// The same of one part.
pub fn part_to_dict<'py>(py: Python<'py>, core: &HiCache, part: usize) -> PyResult<Bound<'py, PyDict>> {
    let PartStats {
        inserted,
        backed_up,
        backup_no_room,
        loaded,
        load_no_room,
        evicted_device,
        evicted_host,
        prefetched,
    } = *core.part_stats(part).or_raise(py)?;
    let mut named = vec![
        ("inserted", inserted),
        ("backed_up", backed_up),
        ("backup_no_room", backup_no_room),
        ("loaded", loaded),
        ("load_no_room", load_no_room),
        ("evicted_device", evicted_device),
        ("evicted_host", evicted_host),
        ("prefetched", prefetched),
    ];
    for (tier, names) in Tier::ALL.into_iter().zip([
        ["device_slots", "device_free", "device_resident"],
        ["host_slots", "host_free", "host_resident"],
    ]) {
        let pool = core.part_slots(part, tier).or_raise(py)?;
        let free = if tier == Tier::Device { core.device_free(part + 1) } else { pool.free() };
        let now = [pool.capacity(), free, core.tree().part_resident(part, tier)];
        named.extend(names.into_iter().zip(now.map(|count| count as u64)));
    }
    let staged = core.staged_of(part + 1).map(|count| count as u64);
    named.extend(["host_staged_writes", "host_staged_reads"].into_iter().zip(staged));
    let dict = PyDict::new(py);
    for (name, count) in named {
        dict.set_item(name, count)?;
    }
    Ok(dict)
}
