//! What is copied one tier further down, and when: write policies, by name.
//!
//! Knows names and shares; refuses to know pages, tiers' contents and clocks. What each one does is with the verbs:
//! `path/write.rs` (to the host), `path/store.rs` (to storage), `path/reserve.rs` (what is about to leave).
//!
//! On error: a name that isn't one, or a share that is none, is refused, naming the setting.

use crate::error::{Result, argument};

/// When pages are copied to the next tier.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Write {
    /// When they come.
    #[default]
    Through,
    /// When a second request uses them.
    Selective,
    /// When they are about to leave.
    Back,
}

impl Write {
    /// The policy of a name, which was given as `setting`.
    ///
    /// # Errors
    /// When no policy has that name.
    pub fn named(setting: &'static str, name: &str) -> Result<Self> {
        match name {
            "write_through" => Ok(Self::Through),
            "write_through_selective" => Ok(Self::Selective),
            "write_back" => Ok(Self::Back),
            _ => argument(
                setting,
                format!("unknown policy {name:?}: use write_through, write_through_selective or write_back"),
            ),
        }
    }
}

/// What becomes of host copies of pages that are on the device too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HostCopies {
    /// They leave first when the host is short of room.
    #[default]
    GiveWay,
    /// They stay as long as the page is on the device.
    Keep,
}

impl HostCopies {
    /// What a name means.
    ///
    /// # Errors
    /// When it means nothing.
    pub fn named(name: &str) -> Result<Self> {
        match name {
            "give_way" => Ok(Self::GiveWay),
            "keep" => Ok(Self::Keep),
            _ => argument("host_copies", format!("unknown {name:?}: use give_way or keep")),
        }
    }
}

/// How pages go down the tiers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Writing {
    /// From the device to the host.
    pub host: Write,
    /// From the host to storage.
    pub storage: Write,
    /// Whether host copies give way.
    pub host_copies: HostCopies,
    /// The share of a tier's slots that are free, or of pages that leave next and are copied already; 0: none.
    pub clean_reserve: f64,
}

impl Default for Writing {
    fn default() -> Self {
        Self {
            host: Write::default(),
            storage: Write::default(),
            host_copies: HostCopies::default(),
            clean_reserve: 0.05,
        }
    }
}

/// What one request wants of its pages: when they are copied to the host and to storage, or `None`: not for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wish {
    /// From the device to the host.
    pub host: Option<Write>,
    /// From the host to storage.
    pub storage: Option<Write>,
}

impl Writing {
    /// What requests want that don't say.
    pub const fn wish(&self) -> Wish {
        Wish { host: Some(self.host), storage: Some(self.storage) }
    }

    /// # Errors
    /// When the reserve isn't a share.
    pub fn check(&self) -> Result<()> {
        if (0.0..=1.0).contains(&self.clean_reserve) {
            return Ok(());
        }
        argument("clean_reserve", format!("must be a share from 0 to 1, got {}", self.clean_reserve))
    }

    /// Slots of the reserve in a tier of so many.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "a share of a number of slots is one"
    )]
    pub fn reserve(&self, slots: usize) -> usize {
        (slots as f64 * self.clean_reserve).ceil() as usize
    }
}
