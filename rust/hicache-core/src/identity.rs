//! What else tells pages apart, besides tokens and namespace: a fingerprint of everything that changes
//! a page's bytes or their meaning.
//!
//! Each field is a name and a text that people can read, and they are all there is: two identities differ exactly where
//! their fields do. Fields are length-framed, so that no two identities encode alike. On error: nothing here fails.

use crate::page::PageSize;
use crate::pool::{self, PoolSpec};
use sha2::{Digest as _, Sha256};

/// Version of what is stored: changes when old pages can't be read any more.
pub const FORMAT: u32 = 2;

/// How a stored page is encoded: as it is. The field is there for the first codec.
pub const CODEC: &str = "none";

/// The field that says how often the weights were changed in place.
const EPOCH: &str = "weights_epoch";

/// SHA-256 over all fields of an identity.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Fingerprint(pub [u8; 32]);

impl std::fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

impl Fingerprint {
    /// Of a model's fields (name and value, in any order), the page size and the pools' geometry; of the only rank.
    pub fn of(fields: &[(String, String)], page_size: PageSize, pools: &[PoolSpec]) -> Self {
        Identity::of(fields, &[], &[], page_size, pools).fingerprint()
    }
}

/// The fields of an identity: the model's and the library's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Sorted, so that their order says nothing.
    model: Vec<(String, String)>,
    library: Vec<(String, String)>,
}

impl Identity {
    /// Of a model's fields (name and value, in any order), this process's place in the grid of ranks, the page size
    /// and the pools' geometry.
    pub fn of(
        fields: &[(String, String)],
        rank: &[u32],
        world: &[u32],
        page_size: PageSize,
        pools: &[PoolSpec],
    ) -> Self {
        let mut model = fields.to_vec();
        model.sort();
        let joined = |numbers: &[u32]| numbers.iter().map(u32::to_string).collect::<Vec<_>>().join(".");
        let mut library = vec![
            (String::from("format"), FORMAT.to_string()),
            (String::from("codec"), String::from(CODEC)),
            // Of the payload, which is the same whatever layout a cache's host memory has.
            (String::from("layout"), String::from("page_unified")),
            (String::from("head_groups"), String::from("1")),
            (String::from("page_size"), page_size.tokens().to_string()),
            (String::from("rank"), joined(rank)),
            (String::from("world"), joined(world)),
            (String::from("pools"), pools.len().to_string()),
        ];
        let owners: Vec<&PoolSpec> = pool::owners(pools).collect();
        for (at, (pool, space)) in pools.iter().zip(pool::spaces(pools)).enumerate() {
            library.push((format!("pool {at}"), pool.geometry()));
            // A stored page holds the pools of one space: of another division, it has other bytes.
            if let Some(owner) = usize::from(space).checked_sub(1).and_then(|part| owners.get(part)) {
                library.push((format!("pool {at} has slots of"), owner.name.clone()));
            }
        }
        Self { model, library }
    }

    /// All fields, by name and value, for people.
    pub fn fields(&self) -> Vec<(String, String)> {
        [&self.model[..], &self.library].concat()
    }

    /// What pages of this identity are known by.
    pub fn fingerprint(&self) -> Fingerprint {
        let mut sha = Sha256::new();
        frame(&mut sha, b"hicache-identity");
        // The model's fields can't pass for the library's, whatever their names are.
        for fields in [&self.model, &self.library] {
            frame(&mut sha, &(fields.len() as u64).to_le_bytes());
            for (name, value) in fields {
                frame(&mut sha, name.as_bytes());
                frame(&mut sha, value.as_bytes());
            }
        }
        Fingerprint(sha.finalize().into())
    }

    /// The same after the weights were changed in place: none of the pages before that is this one's.
    #[must_use]
    pub fn bumped(&self) -> Self {
        let mut next = self.clone();
        match next.model.iter_mut().find(|(name, _)| name == EPOCH) {
            // A text that is no number is a version, too: it becomes another one.
            Some((_, value)) => {
                *value = value.parse().map_or_else(
                    |_| format!("{value} + 1"),
                    |epoch: u64| epoch.checked_add(1).map_or(format!("{value} + 1"), |next| next.to_string()),
                );
            }
            None => next.model.push((String::from(EPOCH), String::from("1"))),
        }
        next.model.sort();
        next
    }
}

/// Fields in which two identities differ, with the text of each (none: it isn't there); in order of name.
pub fn differences(
    ours: &[(String, String)],
    theirs: &[(String, String)],
) -> Vec<(String, Option<String>, Option<String>)> {
    let value = |fields: &[(String, String)], name: &str| {
        fields.iter().find(|(field, _)| field == name).map(|(_, value)| value.clone())
    };
    let mut names: Vec<&String> = ours.iter().chain(theirs).map(|(name, _)| name).collect();
    names.sort();
    names.dedup();
    let pairs = names.into_iter().map(|name| (name.clone(), value(ours, name), value(theirs, name)));
    pairs.filter(|(_, ours, theirs)| ours != theirs).collect()
}

fn frame(sha: &mut Sha256, bytes: &[u8]) {
    sha.update((bytes.len() as u64).to_le_bytes());
    sha.update(bytes);
}
