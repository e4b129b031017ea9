//! Breaks each invariant on purpose and sees the checker object.

use super::pin::Hold;
use super::{Place, Tree};
use crate::hash::{Digest, Namespace};
use crate::ids::{Slot, Tier};
use crate::page::{PageSize, Tokens};
use crate::policy::{Leaf, Why};

/// Two requests that share two of four pages, on the device; the first of them on the host as well.
fn tree() -> (Tree, Place) {
    let mut tree = Tree::new(PageSize::new(2).unwrap(), true);
    let root = tree.root(&Namespace::default());
    let slots = |from: u32| (from..from + 4).map(Slot).collect::<Vec<_>>();
    let a = tree.extend(root, Tokens::I32(&[1, 2, 3, 4, 5, 6, 7, 8]), Tier::Device, &slots(0));
    tree.extend(root, Tokens::I32(&[1, 2, 3, 4, 9, 9, 9, 9]), Tier::Device, &slots(4));
    tree.extend(root, Tokens::I32(&[1, 2, 3, 4, 5, 6, 7, 8]), Tier::Host, &slots(0));
    tree.check().unwrap();
    (tree, a.place)
}

fn objects(tree: &Tree, invariant: &str) {
    let error = tree.check().unwrap_err().to_string();
    assert!(error.contains(invariant), "expected {invariant}, got: {error}");
}

#[test]
fn t1_links() {
    let (mut t, place) = tree();
    t.arena[place.node].children += 1;
    objects(&t, "T1");

    let (mut t, place) = tree();
    t.arena[place.node].key_hash ^= 1;
    objects(&t, "T1");

    let (mut t, place) = tree();
    t.arena[place.node].root = place.node;
    objects(&t, "T1");

    // Its parent is gone.
    let (mut t, place) = tree();
    let root = t.arena[place.node].root;
    t.arena.remove(root);
    objects(&t, "T1");

    let (mut t, place) = tree();
    let parent = t.arena[place.node].parent;
    t.arena[parent].resident_children[0] -= 1;
    objects(&t, "T1");

    let (mut t, _) = tree();
    t.children.clear();
    objects(&t, "T1");
}

#[test]
fn t2_edges() {
    let (mut t, place) = tree();
    Tier::ALL.into_iter().for_each(|tier| t.strand(place).take(tier, 1, &mut Vec::new()));
    objects(&t, "T2");
}

#[test]
fn t3_prefixes() {
    let (mut t, place) = tree();
    // The other request's pages stay where the ones before them are gone.
    t.strand(place).take(Tier::Device, 3, &mut Vec::new());
    let parent = t.arena[place.node].parent;
    t.arena[parent].resident_children[Tier::Device as usize] -= 1;
    objects(&t, "T3");
}

#[test]
fn t4_slots() {
    let (mut t, place) = tree();
    t.strand(place).set_slot(Tier::Device, 0, Slot(2));
    objects(&t, "T4");

    let (mut t, _) = tree();
    t.resident[0] += 1;
    objects(&t, "T4");
}

#[test]
fn t5_leaving() {
    let (mut t, place) = tree();
    t.leaving.withhold(Tier::Device, place.node);
    objects(&t, "T5");

    // Known to the policy and deferred.
    let (mut t, place) = tree();
    t.leaving.defer(Tier::Device, place.node);
    t.check().unwrap();
    let leaf = Leaf { id: place.node, depth: place.depth, pages: &[] };
    t.leaving.policy.offer(Tier::Device.into(), leaf, Why::Used);
    objects(&t, "T5");

    // Known where it has no pages.
    let (mut t, _) = tree();
    let root = t.root(&Namespace::default());
    let other = t.walk(root, Tokens::I32(&[1, 2, 3, 4, 9, 9, 9, 9])).place;
    t.offer(Tier::Host, other.node, Why::Used);
    objects(&t, "T5");
}

#[test]
fn t6_pins() {
    let (mut t, place) = tree();
    let _receipt = t.pin(place, Hold::Device);
    t.check().unwrap();
    t.pins.corrupt(0, place.depth + 1);
    objects(&t, "T6");

    // One that is deeper than the one it hangs from.
    let (mut t, place) = tree();
    let _receipts = [t.pin(place, Hold::Soft), t.pin(place, Hold::Soft)];
    t.check().unwrap();
    t.pins.corrupt(1, place.depth - 1);
    objects(&t, "T6");

    let (mut t, place) = tree();
    let _receipt = t.pin(place, Hold::Host);
    t.arena[place.node].pins = [u32::MAX; 4];
    objects(&t, "T6");

    let (mut t, place) = tree();
    let _receipt = t.pin(place, Hold::Device);
    t.pins.settle_kept(Tier::Device, 3);
    objects(&t, "T6");

    // A page that left its tier in spite of a pin.
    let (mut t, place) = tree();
    let _receipt = t.pin(place, Hold::Host);
    t.strand(place).take(Tier::Host, 1, &mut Vec::new());
    t.resident[Tier::Host as usize] -= 1;
    objects(&t, "T6");
}

#[test]
fn t7_digests() {
    let (mut t, place) = tree();
    t.strand(place).digests[1] = Digest([7; 32]);
    objects(&t, "T7");

    let (mut t, place) = tree();
    t.start_publishing();
    t.check().unwrap();
    t.strand(place).prints[1] ^= 8;
    objects(&t, "T7");
}

#[test]
fn t8_roots() {
    let (mut t, _) = tree();
    t.root(&Namespace { salt: Some("nobody's".into()), ..Namespace::default() });
    objects(&t, "T8");

    let (mut t, place) = tree();
    t.plain_root = place.node;
    objects(&t, "T8");

    let (mut t, _) = tree();
    t.roots.clear();
    objects(&t, "T8");

    let (mut t, place) = tree();
    let root = t.arena[place.node].root;
    t.arena[root].root = place.node;
    t.arena
        .iter()
        .map(|(index, _)| index)
        .collect::<Vec<_>>()
        .into_iter()
        .for_each(|index| t.arena[index].root = place.node);
    objects(&t, "T8");
}

#[test]
fn t9_strands() {
    let (mut t, place) = tree();
    t.strand(place).tokens.truncate(2);
    objects(&t, "T9");

    let (mut t, place) = tree();
    t.strand(place).damage(0);
    objects(&t, "T9");

    let (mut t, place) = tree();
    t.arena[place.node].start += 1;
    objects(&t, "T9");

    let (mut t, place) = tree();
    t.strand(place).prints.push(0);
    objects(&t, "T9");

    let (mut t, place) = tree();
    let strand = t.arena[place.node].strand;
    t.strands.remove(strand);
    objects(&t, "T9");
}

impl Tree {
    fn strand(&mut self, place: Place) -> &mut super::strand::Strand {
        &mut self.strands[self.arena[place.node].strand]
    }
}
