//! The names of the layouts. A layout is declared, never guessed.
//! On error: an unknown name is refused with the names there are.

use crate::error::{Error, Result, argument};

/// Order of the axes; the table is in [`super`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LayoutKind {
    /// Planes outermost, like the device.
    LayerFirst,
    /// Tokens outermost: a token's layers are one run.
    PageFirst,
    /// Pages outermost, then layers: a page of K is one run, a layer's page too.
    PageFirstDirect,
    /// Pages outermost, then heads: what one head needs of a page of K is one run.
    PageHead,
    /// Pages outermost, K and V together: a page is one run, and so is a window of layers of a head group.
    PageUnified,
}

impl LayoutKind {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::LayerFirst, Self::PageFirst, Self::PageFirstDirect, Self::PageHead, Self::PageUnified];

    /// As settings spell it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::LayerFirst => "layer_first",
            Self::PageFirst => "page_first",
            Self::PageFirstDirect => "page_first_direct",
            Self::PageHead => "page_head",
            Self::PageUnified => "page_unified",
        }
    }
}

impl std::str::FromStr for LayoutKind {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        let known = Self::ALL.into_iter().find(|kind| kind.name() == name);
        let names = Self::ALL.map(Self::name).join(", ");
        known.map_or_else(|| argument("layout", format!("unknown layout {name:?}: use one of {names}")), Ok)
    }
}
