//! What else tells pages apart, besides tokens and namespace: a fingerprint of everything that changes
//! a page's bytes or their meaning.
//!
//! Fields are length-framed, so that no two identities encode alike. On error: nothing here fails.

use crate::page::PageSize;
use crate::pool::{self, PoolSpec};
use sha2::{Digest as _, Sha256};

/// Version of what is stored: changes when old pages can't be read any more.
pub const FORMAT: u32 = 1;

/// SHA-256 over all fields of an identity.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fingerprint(pub [u8; 32]);

impl std::fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

impl Fingerprint {
    /// Of a model's fields (name and value, in any order), the page size and the pools' geometry.
    pub fn of(fields: &[(String, String)], page_size: PageSize, pools: &[PoolSpec]) -> Self {
        let mut fields: Vec<&(String, String)> = fields.iter().collect();
        fields.sort();
        let mut sha = Sha256::new();
        frame(&mut sha, b"hicache-identity");
        frame(&mut sha, &FORMAT.to_le_bytes());
        frame(&mut sha, &page_size.tokens().to_le_bytes());
        frame(&mut sha, &(fields.len() as u64).to_le_bytes());
        for (name, value) in fields {
            frame(&mut sha, name.as_bytes());
            frame(&mut sha, value.as_bytes());
        }
        let owners: Vec<&PoolSpec> = pool::owners(pools).collect();
        for (pool, space) in pools.iter().zip(pool::spaces(pools)) {
            frame(&mut sha, b"pool");
            frame(&mut sha, pool.geometry().as_bytes());
            // A stored page holds the pools of one space: of another division, it has other bytes.
            if let Some(owner) = usize::from(space).checked_sub(1).and_then(|part| owners.get(part)) {
                frame(&mut sha, b"slots of");
                frame(&mut sha, owner.name.as_bytes());
            }
        }
        Self(sha.finalize().into())
    }
}

fn frame(sha: &mut Sha256, bytes: &[u8]) {
    sha.update((bytes.len() as u64).to_le_bytes());
    sha.update(bytes);
}
