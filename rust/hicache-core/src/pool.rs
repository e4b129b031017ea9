//! Pools as declarations: how many bytes a token has, in how many planes.
//!
//! A plane is what one tensor holds: the K rows of layer 3, say. All planes of a pool use the same
//! slots, and all pools of a cache follow the same ones: a page has one slot per tier.
//! Knows no memory. On error: names the field that can't be meant.

use crate::error::{Result, argument};
use crate::page::PageSize;

/// Most bytes of a token in a plane: with the largest page, sizes of pages can't overflow.
const MAX_ROW: usize = 1 << 30;

/// One tensor's share of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plane {
    /// The layer that reads it, from 0.
    pub layer: u32,
    /// Which of the layer's tensors: 0 for K (or the one latent), 1 for V.
    pub role: u32,
    /// Bytes a token has here: heads × head size × bytes per element.
    pub bytes_per_token: usize,
}

/// A pool's declaration. Planes are in order of layer, then role.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolSpec {
    /// Unique among a cache's pools.
    pub name: String,
    /// In order of layer, then role.
    pub planes: Vec<Plane>,
}

impl PoolSpec {
    /// # Errors
    /// When the name is empty or the planes are out of order.
    pub fn new(name: &str, planes: Vec<Plane>) -> Result<Self> {
        if name.is_empty() {
            return argument("pools", "a pool needs a name");
        }
        let ordered = planes.windows(2).all(|w| (w[0].layer, w[0].role) < (w[1].layer, w[1].role));
        if !ordered {
            return argument("pools", format!("pool {name}: planes must be in order of layer, then role"));
        }
        if planes.iter().any(|plane| plane.bytes_per_token > MAX_ROW) {
            return argument(
                "pools",
                format!("pool {name}: a token has more than {MAX_ROW} bytes in a plane"),
            );
        }
        Ok(Self { name: name.to_owned(), planes })
    }

    /// Payload of one page, in bytes, without any padding.
    pub fn page_bytes(&self, page_size: PageSize) -> usize {
        self.planes.iter().map(|plane| plane.bytes_per_token * page_size.tokens()).sum()
    }

    /// Canonical text for the identity: everything that decides where which byte of a page is.
    pub fn geometry(&self) -> String {
        let planes: Vec<String> = self
            .planes
            .iter()
            .map(|plane| format!("{}.{}:{}", plane.layer, plane.role, plane.bytes_per_token))
            .collect();
        format!("{}[{}]", self.name, planes.join(","))
    }
}
