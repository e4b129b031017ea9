//! The page hash chain by which storage is addressed.
//!
//! Byte-compatible with the chain that `SGLang`'s hierarchical cache uses, so that keys can be compared:
//! `digest = SHA-256(prior || tag || body)`, where `prior` is the digest of the page before, or the
//! namespace's seed for the first page, or nothing; `tag` is one byte 0xFF where a token of the page
//! exceeds 32 bits; `body` is the tokens as little-endian words of 32 bits (64 in a tagged page).
//!
//! Nothing but tokens and namespace enters: what else tells pages apart is [`crate::identity`]'s.
//! On error: nothing here fails.

use crate::page::{PageSize, Tokens};
use crate::sha::Padded;
use sha2::{Digest as _, Sha256};
use std::borrow::Cow;

/// A page's place in the chain: 32 raw bytes, never text.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Digest(pub [u8; 32]);

impl std::fmt::Debug for Digest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

/// What precedes a wide page's words.
const WIDE_TAG: u8 = 0xFF;

/// The digest of one page (or of any run of tokens taken as one page).
pub fn page_digest(prior: Option<&Digest>, page: Tokens<'_>) -> Digest {
    let mut sha = Sha256::new();
    if let Some(prior) = prior {
        sha.update(prior.0);
    }
    let mut body = Vec::with_capacity(page.len() * 8);
    if page.is_narrow() {
        #[expect(clippy::cast_possible_truncation, reason = "is_narrow() looked at every token")]
        page.for_each(|t| body.extend_from_slice(&(t as u32).to_le_bytes()));
    } else {
        sha.update([WIDE_TAG]);
        page.for_each(|t| body.extend_from_slice(&t.to_le_bytes()));
    }
    sha.update(&body);
    Digest(sha.finalize().into())
}

/// The digests of all whole pages of `tokens`, continued from `prior`.
pub fn chain(prior: Option<Digest>, tokens: Tokens<'_>, page_size: PageSize) -> Vec<Digest> {
    let (size, pages) = (page_size.tokens(), page_size.pages(tokens.len()));
    let mut digests = Vec::with_capacity(pages);
    let padded = if tokens.is_narrow() { Padded::of(size) } else { None };
    while digests.len() < pages {
        let (last, page) = (digests.last().copied().or(prior), digests.len());
        match (&padded, last) {
            (Some(padded), Some(last)) => tokens.from(page * size).chain_narrow(last, padded, &mut digests),
            _ => digests.push(page_digest(last.as_ref(), tokens.range(page * size..(page + 1) * size))),
        }
    }
    digests
}

/// The key of a part (a window's or a state's) of a page, whose own digest names all tokens up to its end.
/// Domain and the part's name are framed, so that no two parts and no page share a key.
pub fn of_part(page: &Digest, part: &str) -> Digest {
    let mut sha = Sha256::new();
    sha.update(b"hicache-part-v1");
    sha.update((part.len() as u64).to_le_bytes());
    sha.update(part.as_bytes());
    sha.update(page.0);
    Digest(sha.finalize().into())
}

/// Who may share a prefix. Namespaces never share, in any tier.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Namespace {
    /// Any text by which the engine tells requests apart. `Some("")` differs from `None`.
    pub extra_key: Option<String>,
    /// The tenant's secret. The empty text counts as none.
    pub salt: Option<String>,
    /// The adapter (LoRA) whose weights took part.
    pub adapter: Option<String>,
}

impl Namespace {
    /// What the first page's digest is continued from; `None` for the namespace without any field.
    ///
    /// Fields are framed by a presence byte and their length, so that no two namespaces encode alike.
    /// Without an adapter the bytes are those of the reference chain; an adapter changes the domain.
    pub fn seed(&self) -> Option<Digest> {
        let salt = self.salt.as_deref().filter(|s| !s.is_empty());
        if self.extra_key.is_none() && salt.is_none() && self.adapter.is_none() {
            return None;
        }
        let mut sha = Sha256::new();
        sha.update(match self.adapter {
            None => b"sglang-cache-namespace-v1".as_slice(),
            Some(_) => b"hicache-namespace-adapter-v1".as_slice(),
        });
        part(&mut sha, self.extra_key.as_deref());
        part(&mut sha, salt);
        if self.adapter.is_some() {
            part(&mut sha, self.adapter.as_deref());
        }
        Some(Digest(sha.finalize().into()))
    }

    /// Whether it has no field at all.
    pub(crate) const fn is_plain(&self) -> bool {
        self.extra_key.is_none() && self.salt.is_none() && self.adapter.is_none()
    }

    /// The same namespace in the one form that the tree compares: an empty salt is no salt.
    #[must_use]
    pub fn canonical(&self) -> Cow<'_, Self> {
        if self.salt.as_deref() == Some("") {
            Cow::Owned(Self { salt: None, ..self.clone() })
        } else {
            Cow::Borrowed(self)
        }
    }
}

fn part(sha: &mut Sha256, text: Option<&str>) {
    match text {
        None => sha.update([0]),
        Some(text) => {
            sha.update([1]);
            sha.update((text.len() as u64).to_le_bytes());
            sha.update(text.as_bytes());
        }
    }
}
