//! From a payload (layer, role, row, head) to a flat page of `SGLang`'s host layouts, and back.
//!
//! | layout | K and V | latent |
//! |---|---|---|
//! | `layer_first`, `page_first_direct` | role, layer, row, head | layer, row |
//! | `page_first` | role, row, layer, head | row, layer |
//! | `page_head` | role, head, row, layer | none |
//!
//! Knows the cache's geometry from the identity's fields, which is where stores are told of it.
//! On error: names `storage` and why there is no such page.

use crate::error::{Result, argument};
use crate::storage::Client;

/// `SGLang`'s layouts that have a flat page.
pub const LAYOUTS: &[&str] = &["layer_first", "page_first", "page_first_direct", "page_head"];

/// Where each byte is.
#[derive(Debug)]
pub struct Order {
    layout: &'static str,
    roles: usize,
    bytes: usize,
    /// Runs: offset in the payload, offset in the flat page, bytes.
    runs: Vec<(usize, usize, usize)>,
}

struct Shape {
    layers: usize,
    roles: usize,
    rows: usize,
    row: usize,
}

impl Order {
    /// Of a cache that has one pool: K and V of one size, or latents.
    ///
    /// # Errors
    /// When its pages are none that `SGLang` has in this layout.
    pub fn of(client: &Client, layout: &'static str, heads: Option<u64>) -> Result<Self> {
        let shape = shape(client)?;
        let Shape { layers, roles, rows, row } = shape;
        let heads = match (layout, heads) {
            ("page_head", _) if roles == 1 => return refuse("page_head has no latents"),
            ("page_head", Some(heads)) => usize::try_from(heads).unwrap_or(0),
            ("page_head", None) => return refuse("layout=page_head needs heads=, the KV heads of a rank"),
            (_, None) => 1,
            (_, Some(_)) => return refuse("heads= is of layout=page_head"),
        };
        if heads == 0 || row % heads != 0 {
            return refuse(format!("a row of {row} bytes has no {heads} heads"));
        }
        let head = row / heads;
        let bytes = layers * roles * rows * row;
        let mut runs = Vec::with_capacity(layers * roles * rows * heads);
        for (layer, role, token, at) in places(&shape, heads) {
            let from = (((layer * roles + role) * rows) + token) * row + at * head;
            let to = match layout {
                "page_first" => ((role * rows + token) * layers + layer) * row + at * head,
                "page_head" => (((role * heads + at) * rows + token) * layers + layer) * head,
                _ => ((role * layers + layer) * rows + token) * row + at * head,
            };
            match runs.last_mut() {
                Some((start, flat, run)) if *start + *run == from && *flat + *run == to => *run += head,
                _ => runs.push((from, to, head)),
            }
        }
        Ok(Self { layout, roles, bytes, runs })
    }

    /// Its name.
    pub const fn layout(&self) -> &'static str {
        self.layout
    }

    /// Whether all ranks have the same bytes, as latents are.
    pub const fn is_latent(&self) -> bool {
        self.roles == 1
    }

    /// Of a payload, and of a flat page.
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// A flat page's payload.
    pub fn payload(&self, flat: &[u8]) -> Vec<u8> {
        let mut payload = vec![0; self.bytes];
        for &(at, from, run) in &self.runs {
            payload[at..at + run].copy_from_slice(&flat[from..from + run]);
        }
        payload
    }

    /// A payload as a flat page.
    pub fn flat(&self, payload: &[u8]) -> Vec<u8> {
        let mut flat = vec![0; self.bytes];
        for &(from, at, run) in &self.runs {
            flat[at..at + run].copy_from_slice(&payload[from..from + run]);
        }
        flat
    }
}

/// Layer, role, row and head of everything, in the payload's order.
fn places(shape: &Shape, heads: usize) -> impl Iterator<Item = (usize, usize, usize, usize)> {
    let &Shape { layers, roles, rows, .. } = shape;
    (0..layers * roles * rows * heads).map(move |at| {
        let (rest, head) = (at / heads, at % heads);
        let (rest, row) = (rest / rows, rest % rows);
        (rest / roles, rest % roles, row, head)
    })
}

/// From the identity's fields: `pools`, `pool 0` such as `kv[0.0:256,0.1:256]`, `page_size`.
fn shape(client: &Client) -> Result<Shape> {
    if client.field("pools") != Some("1") {
        return refuse("names=sglang is for a cache with one pool");
    }
    let rows = client.field("page_size").and_then(|rows| rows.parse().ok());
    let planes = client.field("pool 0").and_then(planes);
    let (Some(rows), Some(planes)) = (rows, planes) else {
        return refuse("names=sglang is for a pool of KV rows, one a token");
    };
    let roles = planes.iter().filter(|(layer, ..)| *layer == planes[0].0).count();
    let row = planes[0].2;
    let regular = (0..).zip(&planes).all(|(at, &(_, role, bytes))| (role, bytes) == (at % roles, row));
    if roles > 2 || !regular || planes.len() % roles != 0 {
        return refuse("names=sglang is for K and V rows of one size, or one latent a layer");
    }
    Ok(Shape { layers: planes.len() / roles, roles, rows, row })
}

/// Layer, role and bytes of each plane.
fn planes(geometry: &str) -> Option<Vec<(u32, usize, usize)>> {
    let (_, planes) = geometry.strip_suffix(']')?.rsplit_once('[')?;
    let plane = |text: &str| {
        let (place, bytes) = text.split_once(':')?;
        let (layer, role) = place.split_once('.')?;
        Some((layer.parse().ok()?, role.parse().ok()?, bytes.parse().ok()?))
    };
    planes.split(',').map(plane).collect()
}

fn refuse<T>(reason: impl Into<String>) -> Result<T> {
    argument("storage", reason)
}
