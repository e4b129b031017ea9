//! The vote: where every component agrees, in one pass along the path, with both answers.
//!
//! It may open again after a gap: a window that was broken is whole again `window` pages later, checkpoints
//! are sparse. So the pass never stops early.

use super::Component;
use crate::ids::Tier;
use crate::tree::Tree;
use crate::tree::walk::Place;

impl Tree {
    /// Deepest usable boundaries on the path to `place`: on the device (of which FULL has `device` pages
    /// there), and on device or host.
    pub(in crate::tree) fn vote(&self, place: Place, device: u32) -> (u32, u32) {
        if self.components.is_empty() {
            return (device, place.depth);
        }
        let mut ballot = Ballot::new(&self.components);
        let (mut on_device, mut anywhere) = (0, 0);
        for index in self.path(place) {
            let node = &self.arena[index];
            for depth in node.start + 1..=node.end.min(place.depth) {
                let agreed = ballot.page(|component| {
                    [Tier::Device, Tier::Host].map(|tier| self.part_there(component, tier, index, depth - 1))
                });
                if depth <= device && agreed[0] {
                    on_device = depth;
                }
                if agreed[1] {
                    anywhere = depth;
                }
            }
        }
        (on_device, anywhere)
    }

    /// Nodes from below the root to `place`.
    pub(in crate::tree) fn path(&self, place: Place) -> Vec<u32> {
        let mut nodes = Vec::new();
        let mut at = place.node;
        while !self.arena[at].is_root() {
            nodes.push(at);
            at = self.arena[at].parent;
        }
        nodes.reverse();
        nodes
    }

    /// Whether a component has what belongs to a page of an edge, counted from the root, in a tier.
    pub(in crate::tree) fn part_there(&self, component: usize, tier: Tier, index: u32, page: u32) -> bool {
        let node = &self.arena[index];
        let part = &node.parts[component];
        match self.components[component] {
            Component::Swa { .. } => part.has(tier, page - node.start),
            Component::State => page + 1 == node.end && part.any(tier),
        }
    }
}

/// Where all components agree, page by page from the root on, in both views: device; device or host.
pub(crate) struct Ballot<'a> {
    components: &'a [Component],
    /// Per component, the length of unbroken window state.
    runs: Vec<[u32; 2]>,
}

impl<'a> Ballot<'a> {
    /// Before the first page of a path.
    pub fn new(components: &'a [Component]) -> Self {
        // There is nothing to remember: the window counts as whole.
        let whole = |component: &Component| match component {
            Component::Swa { window } => [*window; 2],
            Component::State => [0; 2],
        };
        Self { components, runs: components.iter().map(whole).collect() }
    }

    /// Somewhere on a path, of whose pages before nothing is known.
    pub fn inside(components: &'a [Component]) -> Self {
        Self { components, runs: vec![[0; 2]; components.len()] }
    }

    /// One page further: what each component has of it, on the device and on the host.
    pub fn page(&mut self, has: impl Fn(usize) -> [bool; 2]) -> [bool; 2] {
        let mut agreed = [true; 2];
        for (at, (component, run)) in self.components.iter().zip(&mut self.runs).enumerate() {
            let [device, host] = has(at);
            for (view, there) in [device, device || host].into_iter().enumerate() {
                run[view] = if there { run[view].saturating_add(1) } else { 0 };
                agreed[view] &= match component {
                    Component::Swa { window } => run[view] >= *window,
                    Component::State => there,
                };
            }
        }
        agreed
    }
}
