//! Who opens a store: an identity, what people may read of it, and this process's place among the ranks.
//!
//! On error: names the field.

use crate::error::{Result, argument};
use crate::identity::{Fingerprint, Identity};

/// More axes than any grid of ranks has.
const MOST_AXES: usize = 8;

/// What a store is told of the cache that opens it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Client {
    /// Of its pages.
    pub identity: Fingerprint,
    /// What the identity was computed from: name and value, as text for people.
    pub fields: Vec<(String, String)>,
    /// This process's coordinates in the grid of ranks.
    pub rank: Vec<u32>,
    /// The grid's size.
    pub world: Vec<u32>,
}

impl Client {
    /// Of an identity, at this place of the grid that it was made with.
    ///
    /// # Errors
    /// When the rank is not in the world.
    pub fn new(identity: &Identity, rank: Vec<u32>, world: Vec<u32>) -> Result<Self> {
        let inside = rank.iter().zip(&world).all(|(at, size)| at < size);
        if rank.len() != world.len() || rank.len() > MOST_AXES || !inside {
            return argument("identity", format!("rank {rank:?} is not in a world of {world:?}"));
        }
        Ok(Self { identity: identity.fingerprint(), fields: identity.fields(), rank, world })
    }

    /// The only rank there is, of an identity that nobody can read.
    pub const fn alone(identity: Fingerprint) -> Self {
        Self { identity, fields: Vec::new(), rank: Vec::new(), world: Vec::new() }
    }

    /// Value of a field.
    pub fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(field, _)| field == name).map(|(_, value)| value.as_str())
    }

    /// How many ranks there are.
    pub fn ranks(&self) -> u64 {
        self.world.iter().fold(1, |ranks: u64, &size| ranks.saturating_mul(size.into()))
    }

    /// Name of this rank's directory below one that all share: `all`, or `rank-0.1-of-2.4`.
    pub fn directory(&self) -> String {
        if self.ranks() <= 1 {
            return String::from("all");
        }
        let joined = |numbers: &[u32]| numbers.iter().map(u32::to_string).collect::<Vec<_>>().join(".");
        format!("rank-{}-of-{}", joined(&self.rank), joined(&self.world))
    }

    /// This rank's share of what all of them have together: of the whole world, or of so many that share it.
    pub fn share(&self, bytes: u64, ranks: Option<u64>) -> u64 {
        bytes / ranks.unwrap_or_else(|| self.ranks()).max(1)
    }
}
