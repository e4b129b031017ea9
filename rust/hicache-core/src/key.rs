//! A request's tokens as keys of the tree: as they are, or as pairs of neighbours.

use crate::error::Result;
use crate::page::{OwnedTokens, PageSize, Tokens};

/// Tokens as the tree compares them. Plain tokens are borrowed; pairs are made, and checked, here.
pub(crate) enum Key<'a> {
    Plain(Tokens<'a>),
    Pairs(OwnedTokens),
}

impl<'a> Key<'a> {
    /// # Errors
    /// When a token of a pair is negative. Plain tokens are not looked at yet.
    pub fn new(tokens: Tokens<'a>, bigrams: bool) -> Result<Self> {
        Ok(if bigrams { Self::Pairs(tokens.checked()?.bigrams()) } else { Self::Plain(tokens) })
    }

    /// Tokens or pairs.
    pub fn units(&self) -> usize {
        match self {
            Self::Plain(tokens) => tokens.len(),
            Self::Pairs(words) => words.view().len() / 2,
        }
    }

    /// The first `pages` pages; `words` is what a page has in the tree.
    pub fn pages(&self, pages: usize, words: PageSize) -> Tokens<'_> {
        self.words(pages * words.tokens())
    }

    /// The first words.
    pub fn words(&self, words: usize) -> Tokens<'_> {
        match self {
            Self::Plain(tokens) => tokens.range(0..words),
            Self::Pairs(all) => all.view().range(0..words),
        }
    }
}
