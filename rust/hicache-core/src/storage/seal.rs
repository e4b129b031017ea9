//! What is put before a page's payload in a store that isn't trusted: whose page it is, which, how long, and its checksum.
//!
//! ```text
//! offset  0       8        12      16        48     80            88         104
//!         magic   version  codec   identity  key    payload size  checksum   payload ...
//! ```
//! The checksum is XXH3-128 over key and payload. It finds damage and mistakes, not malice: whoever may write to a store
//! can forge it. On error: a seal that isn't this page's is a page that isn't there.

use super::view::PageRef;
use crate::hash::Digest;
use crate::identity::{FORMAT, Fingerprint};
use xxhash_rust::xxh3::Xxh3;

/// Bytes of a seal.
pub const BYTES: usize = 104;
const MAGIC: &[u8; 8] = b"HICACHE\n";
/// No codec yet; the field is there for the first one.
const CODEC_NONE: u32 = 0;

/// The seal of a page.
pub fn of(identity: &Fingerprint, key: &Digest, page: &PageRef<'_>) -> [u8; BYTES] {
    let mut seal = [0; BYTES];
    seal[..8].copy_from_slice(MAGIC);
    seal[8..12].copy_from_slice(&FORMAT.to_le_bytes());
    seal[12..16].copy_from_slice(&CODEC_NONE.to_le_bytes());
    seal[16..48].copy_from_slice(&identity.0);
    seal[48..80].copy_from_slice(&key.0);
    seal[80..88].copy_from_slice(&(page.bytes() as u64).to_le_bytes());
    seal[88..104].copy_from_slice(&checksum(key, page).to_le_bytes());
    seal
}

fn checksum(key: &Digest, page: &PageRef<'_>) -> u128 {
    let mut hasher = Xxh3::new();
    hasher.update(&key.0);
    page.runs().iter().for_each(|run| hasher.update(run));
    hasher.digest128()
}
