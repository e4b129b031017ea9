//! Nodes and the arena that owns them.
//!
//! ```text
//!  pages of the path   0 ............ start | start+1 ..................... end
//!                      ancestors' edges     | this node's edge
//!  device slots                             |#############                        in its strand
//!  host slots                               |###########################
//! ```
//! The longer of the two always reaches the edge's end (T2).

use super::component::Part;
use super::epoch::Rooted;
use crate::ids::NodeId;
use crate::segments::Segments;
use crate::soon;

/// No node.
pub(super) const NIL: u32 = u32::MAX;

/// An edge of whole pages. What a walk looks at is one cache line.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Node {
    /// Hash under which `children` holds the node.
    pub key_hash: u64,
    pub parent: u32,
    /// Where its path begins: a root's own index.
    pub root: u32,
    /// What holds its pages; a root has none.
    pub strand: u32,
    /// Pages from the root to the edge's first page, and to its end.
    pub start: u32,
    pub end: u32,
    pub children: u32,
    /// The child that came last. It may have gone since, and its index may be another node's now.
    pub heir: u32,
    /// Of the request that brought it.
    pub turn: u32,
    /// Per kind (`Hold`): the deepest of the pins whose place is on this edge.
    pub pins: [u32; 4],
    /// Children with at least one page in the tier.
    pub resident_children: [u32; 2],
    /// Per component besides FULL; empty in a tree that has none.
    pub parts: Vec<Part>,
    /// Only a root has one.
    pub rooted: Option<Box<Rooted>>,
}

impl Node {
    pub fn new(parent: u32, strand: u32, start: u32, end: u32) -> Self {
        Self {
            parent,
            root: NIL,
            strand,
            start,
            end,
            children: 0,
            heir: NIL,
            resident_children: [0; 2],
            turn: 0,
            pins: [NIL; 4],
            key_hash: 0,
            parts: Vec::new(),
            rooted: None,
        }
    }

    pub fn is_root(&self) -> bool {
        self.parent == NIL
    }

    pub fn is_pinned(&self) -> bool {
        self.pins != [NIL; 4]
    }

    /// All of them live somewhere.
    pub fn pages(&self) -> u32 {
        self.end - self.start
    }
}

#[derive(Debug)]
#[repr(C, align(64))]
struct Entry {
    node: Option<Node>,
    generation: u32,
}

// Two cache lines, of which a walk reads one.
const _: () = assert!(size_of::<Entry>() == 128 && std::mem::offset_of!(Node, parts) <= 64);

/// All nodes. A freed index is used again under a new generation.
#[derive(Debug, Default)]
pub(super) struct Arena {
    entries: Segments<Entry>,
    free: Vec<u32>,
}

impl Arena {
    pub fn insert(&mut self, node: Node) -> u32 {
        if let Some(index) = self.free.pop() {
            self.entries[index].node = Some(node);
            return index;
        }
        self.entries.push(Entry { generation: 0, node: Some(node) })
    }

    /// A node will be inserted.
    pub fn will_grow(&self) {
        match self.free.last() {
            Some(&index) => soon::item(&self.entries[index]),
            None => self.entries.will_grow(),
        }
    }

    pub fn remove(&mut self, index: u32) -> Option<Node> {
        let entry = &mut self.entries[index];
        let node = entry.node.take();
        if node.is_some() {
            entry.generation = entry.generation.wrapping_add(1);
            self.free.push(index);
        }
        node
    }

    pub fn id(&self, index: u32) -> NodeId {
        NodeId { index, generation: self.entries[index].generation }
    }

    /// The index of a node that still lives under this id.
    pub fn alive(&self, id: NodeId) -> Option<u32> {
        let entry = self.entries.get(id.index)?;
        (entry.generation == id.generation && entry.node.is_some()).then_some(id.index)
    }

    pub fn holds(&self, index: u32) -> bool {
        self.entries.get(index).is_some_and(|entry| entry.node.is_some())
    }

    /// The node's only child, if that is the one that came last.
    pub fn only_child(&self, index: u32) -> Option<u32> {
        let node = &self[index];
        let heir = self.entries.get(node.heir).filter(|_| node.children == 1)?.node.as_ref()?;
        (heir.parent == index).then_some(node.heir)
    }

    pub fn len(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    pub fn iter(&self) -> impl Iterator<Item = (u32, &Node)> {
        (0u32..).zip(self.entries.iter()).filter_map(|(index, entry)| Some((index, entry.node.as_ref()?)))
    }
}

impl std::ops::Index<u32> for Arena {
    type Output = Node;
    #[expect(clippy::expect_used, reason = "a dangling index is a bug: T1")]
    fn index(&self, index: u32) -> &Node {
        self.entries[index].node.as_ref().expect("T1: index of a removed node")
    }
}

impl std::ops::IndexMut<u32> for Arena {
    #[expect(clippy::expect_used, reason = "a dangling index is a bug: T1")]
    fn index_mut(&mut self, index: u32) -> &mut Node {
        self.entries[index].node.as_mut().expect("T1: index of a removed node")
    }
}
