//! The files of a directory: those of a process before this one, if they are what is asked for, or new ones.
//!
//! On error: names `host restart`, or how much memory there is; what can't be taken over is said in a few words.

use super::directory::{Directory, TABLE, slab};
use super::table::{About, Record, Table};
use crate::config::Config;
use crate::error::Result;
use crate::host::{Layout, Room};
use sha2::{Digest as _, Sha256};
use std::fs::File;

/// A digest of all that decides where bytes are and what they mean, beside the identity.
pub(super) fn shape(config: &Config, layouts: &[Layout]) -> [u8; 32] {
    let mut sha = Sha256::new();
    let pages: Vec<(usize, usize)> =
        layouts.iter().map(|layout| (layout.page_bytes(), layout.bytes())).collect();
    let all = (config.layout, config.page_size, config.bigrams, config.host_spaces(), &config.pools, pages);
    sha.update(format!("{all:?}"));
    sha.finalize().into()
}

/// The files of a process before this one, if they are what is asked for; else why not, if there was anything.
pub(super) fn taken_over(
    directory: &Directory,
    about: &About,
    layouts: &[Layout],
) -> std::result::Result<(Table, Vec<File>), Option<String>> {
    let file = directory.existing(TABLE, None).ok_or(None)?;
    let damaged = || Some("what was there is damaged: given up".to_owned());
    let table = Table::map(&file).map_err(|_| damaged())?;
    let was = table.about().ok_or_else(damaged)?;
    if was != *about {
        let slots = 0..usize::try_from(was.slots).unwrap_or(0);
        let pages = slots.filter(|&slot| table.record(slot) != Record::Empty).count();
        let what = if was.identity == about.identity {
            "other pools, layout or numbers of slots"
        } else {
            "another identity"
        };
        return Err(Some(format!("{pages} pages of {what} were given up")));
    }
    let slab =
        |(pool, layout): (usize, &Layout)| directory.existing(&slab(pool), Some(layout.bytes() as u64));
    let slabs = layouts.iter().enumerate().map(slab).collect::<Option<Vec<File>>>();
    Ok((table, slabs.ok_or_else(damaged)?))
}

/// New files. The table is whole last.
pub(super) fn made(directory: &Directory, about: &About, layouts: &[Layout]) -> Result<(Table, Vec<File>)> {
    directory.empty()?;
    let table = Table::bytes(about.slots);
    Room::here()
        .check(layouts.iter().map(|layout| layout.bytes() as u64).fold(table, u64::saturating_add))?;
    let slab = |(pool, layout): (usize, &Layout)| directory.make(&slab(pool), layout.bytes() as u64);
    let slabs = layouts.iter().enumerate().map(slab).collect::<Result<Vec<File>>>()?;
    let table = Table::map(&directory.make(TABLE, table)?)?;
    table.begin(about);
    Ok((table, slabs))
}
