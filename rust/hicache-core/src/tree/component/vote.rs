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
        let mut runs: Vec<[u32; 2]> = self.components.iter().copied().map(full_run).collect();
        let (mut on_device, mut anywhere) = (0, 0);
        for index in self.path(place) {
            let node = &self.arena[index];
            for depth in node.start + 1..=node.end.min(place.depth) {
                self.step(index, depth - 1 - node.start, &mut runs);
                let agree = |view: usize| {
                    let mut votes = self.components.iter().enumerate();
                    votes.all(|(at, component)| match component {
                        Component::Swa { window } => runs[at][view] >= *window,
                        Component::State => depth == node.end && self.checkpoint(index, at, view),
                    })
                };
                if depth <= device && agree(0) {
                    on_device = depth;
                }
                if agree(1) {
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

    /// Lengths of unbroken window state, in both views, one page further.
    fn step(&self, index: u32, offset: u32, runs: &mut [[u32; 2]]) {
        for (part, run) in self.arena[index].parts.iter().zip(runs) {
            let device = part.has(Tier::Device, offset);
            let any = device || part.has(Tier::Host, offset);
            run[0] = if device { run[0].saturating_add(1) } else { 0 };
            run[1] = if any { run[1].saturating_add(1) } else { 0 };
        }
    }

    fn checkpoint(&self, index: u32, component: usize, view: usize) -> bool {
        let part = &self.arena[index].parts[component];
        part.any(Tier::Device) || (view == 1 && part.any(Tier::Host))
    }
}

/// Before the first page there is nothing to remember: the window counts as whole.
fn full_run(component: Component) -> [u32; 2] {
    match component {
        Component::Swa { window } => [window; 2],
        Component::State => [0; 2],
    }
}
