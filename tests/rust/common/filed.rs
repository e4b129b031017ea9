//! Pages with numbers in a file store.

use super::plain::Plain;
use hicache_core::hash::{Digest, page_digest};
use hicache_core::identity::Fingerprint;
use hicache_core::page::Tokens;
use hicache_core::storage::{Client, Keys, Outcome, PageRef, Store};
use std::fs;
use std::path::{Path, PathBuf};

/// Bytes of a file before its payload.
pub const HEADER: usize = 136;
pub const US: Fingerprint = Fingerprint([1; 32]);

pub const fn client() -> Client {
    Client::alone(US)
}

pub fn key(number: i32) -> Digest {
    page_digest(None, Tokens::I32(&[number]))
}

pub fn page(number: i32) -> Vec<u8> {
    key(number).0.iter().copied().cycle().take(200).collect()
}

pub fn put(store: &dyn Store, number: i32) -> Outcome {
    put_after(store, number, None)
}

/// Behind another page.
pub fn put_after(store: &dyn Store, number: i32, parent: Option<i32>) -> Outcome {
    let keys = [key(number)];
    let keys = Keys { identity: &US, digests: &keys };
    let bytes = page(number);
    store.put(keys, &[parent.map(key)], &[PageRef::from(&bytes[..])])[0]
}

/// Reads a page; a hit must be the very bytes that were put.
pub fn get(store: &dyn Store, number: i32) -> Outcome {
    get_as(store, US, number)
}

pub fn get_as(store: &dyn Store, identity: Fingerprint, number: i32) -> Outcome {
    let mut bytes = vec![0xEE; 200];
    let outcome = Plain(store, identity).get(&[key(number)], &mut [&mut bytes])[0];
    if outcome == Outcome::Hit {
        assert_eq!(bytes, page(number), "wrong bytes were served");
    }
    outcome
}

pub fn exists(store: &dyn Store, number: i32) -> Outcome {
    Plain(store, US).exists(&[key(number)])[0]
}

pub fn file(root: &Path, number: i32) -> PathBuf {
    let name = format!("{:?}", key(number));
    root.join(&format!("{US:?}")[..32]).join(&name[..2]).join(&name[2..])
}

/// How many files there are in folders of pages.
pub fn pages_below(root: &Path) -> usize {
    let inside = |dir: &Path| -> Vec<PathBuf> {
        fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
    };
    let of_pages = |dir: &PathBuf| dir.file_name().is_some_and(|name| name.len() == 32);
    let folders = inside(root).into_iter().filter(of_pages).flat_map(|dir| inside(&dir));
    folders.flat_map(|folder| inside(&folder)).filter(|file| file.is_file()).count()
}
