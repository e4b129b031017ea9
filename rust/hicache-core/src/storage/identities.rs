//! Whose pages a store holds, for people: `identities/<32 hex>.json` in its directory, and what sets them apart.
//!
//! Keys carry fingerprints, which say that two identities differ and not in what. Here are the fields, so that a store
//! that has another configuration's pages of the same model, and none of ours, can say why every request misses.
//! On error: nothing here stops a store; what can't be read or written isn't explained.

use super::Client;
use crate::identity::{Fingerprint, differences};
use serde_json::{Map, Value};
use std::fs::{self, File};
use std::io::Read as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

const FOLDER: &str = "identities";
/// More than the fields of any model take.
const MOST_BYTES: u64 = 1 << 20;

/// An identity by its name in directories, and its fields.
pub type Kept = (String, Vec<(String, String)>);

/// What an identity is called in directories: half of it, so that names stay short.
pub fn name(identity: &Fingerprint) -> String {
    hex::encode(&identity.0[..16])
}

/// Writes down who this is, once. A client without fields has nothing to say.
pub fn keep(root: &Path, client: &Client) {
    let folder = root.join(FOLDER);
    let path = folder.join(format!("{}.json", name(&client.identity)));
    if client.fields.is_empty() || path.exists() {
        return;
    }
    let fields: Map<String, Value> =
        client.fields.iter().map(|(name, value)| (name.clone(), Value::from(value.clone()))).collect();
    let said = serde_json::json!({ "fingerprint": format!("{:?}", client.identity), "fields": fields });
    let tmp = folder.join(format!(".{}-{}", name(&client.identity), std::process::id()));
    // Whole or not at all, like pages; another process may be quicker, with the same text.
    let written = fs::create_dir_all(&folder)
        .and_then(|()| fs::write(&tmp, format!("{said:#}\n")))
        .and_then(|()| fs::rename(&tmp, &path));
    if written.is_err() {
        let _ = fs::remove_file(&tmp);
    }
}

/// All identities that were written down, in order of name.
pub fn kept(root: &Path) -> Vec<Kept> {
    let files = fs::read_dir(root.join(FOLDER)).into_iter().flatten().flatten();
    let mut kept: Vec<Kept> = files
        .filter_map(|file| {
            let file_name = file.file_name();
            let name = file_name.to_str()?.strip_suffix(".json")?.to_owned();
            Some((name, read(&file.path())?))
        })
        .collect();
    kept.sort();
    kept
}

fn read(path: &Path) -> Option<Vec<(String, String)>> {
    let mut text = String::new();
    File::open(path).ok()?.take(MOST_BYTES).read_to_string(&mut text).ok()?;
    let said: Value = serde_json::from_str(&text).ok()?;
    let fields = said.get("fields")?.as_object()?.iter();
    Some(fields.filter_map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned()))).collect())
}

/// Why a store that holds pages of a client's model holds none of its own; and how many misses that explains.
#[derive(Debug, Default)]
pub struct Unlike {
    why: Option<String>,
    /// Since then a page of ours was found or written.
    over: AtomicBool,
    pages: AtomicU64,
}

impl Unlike {
    /// Compares the client with the identities that are kept, as far as the store holds pages of them.
    pub fn look(client: &Client, kept: &[Kept], holds: impl Fn(&str) -> bool) -> Self {
        let ours = name(&client.identity);
        let why = || {
            let model = client.field("model").filter(|model| !model.is_empty())?;
            let of_model = |fields: &[(String, String)]| {
                fields.iter().any(|(name, value)| name == "model" && value == model)
            };
            let others =
                kept.iter().filter(|(name, fields)| *name != ours && of_model(fields) && holds(name));
            let (other, unlike) = others
                .map(|(name, fields)| (name, differences(&client.fields, fields)))
                .min_by_key(|(_, unlike)| unlike.len())?;
            let text =
                |value: Option<String>| value.map_or(String::from("missing"), |value| format!("{value:?}"));
            let unlike: Vec<String> = unlike
                .into_iter()
                .map(|(name, here, there)| format!("{name} is {} there, {} here", text(there), text(here)))
                .collect();
            Some(format!(
                "pages of {model:?} are here under another identity ({other}): {}",
                unlike.join("; ")
            ))
        };
        let why = if holds(&ours) { None } else { why() };
        Self { why, ..Self::default() }
    }

    /// So many pages of the client's weren't there.
    pub fn missed(&self, pages: usize) {
        if self.why().is_some() {
            self.pages.fetch_add(pages as u64, Ordering::Relaxed);
        }
    }

    /// A page of the client's is there.
    pub fn found(&self) {
        if self.why.is_some() {
            self.over.store(true, Ordering::Relaxed);
        }
    }

    /// In which fields, if that explains misses now.
    pub fn why(&self) -> Option<&str> {
        self.why.as_deref().filter(|_| !self.over.load(Ordering::Relaxed))
    }

    /// Misses that it explained.
    pub fn pages(&self) -> u64 {
        self.pages.load(Ordering::Relaxed)
    }
}
