//! Breaks each invariant of components on purpose and sees the checker object.

use super::{ABSENT, Component};
use crate::hash::Namespace;
use crate::ids::{Slot, Tier};
use crate::page::{PageSize, Tokens};
use crate::policy::{Order, Why};
use crate::tree::{Hold, Place, Tree};

const WINDOW: usize = 0;
const STATE: usize = 1;

/// Four pages, the last two with a window, a checkpoint at the end; all of it on the device, FULL on the host.
fn tree() -> (Tree, Place) {
    let components = [Component::Swa { window: 3 }, Component::State];
    let mut tree = Tree::with_components(PageSize::new(1).unwrap(), false, &components);
    let root = tree.root(&Namespace::default());
    let slots: Vec<Slot> = (0..4).map(Slot).collect();
    let end = tree.extend(root, Tokens::I32(&[1, 2, 3, 4]), Tier::Device, &slots).place;
    tree.mirror(end, &slots[..3]);
    assert_eq!(tree.attach(WINDOW, Tier::Device, end, &[2, 3], &slots[..2]), []);
    assert_eq!(tree.attach(STATE, Tier::Device, end, &[3], &slots[..1]), []);
    tree.check().unwrap();
    (tree, end)
}

fn objects(tree: &Tree, invariant: &str) {
    let error = tree.check().unwrap_err().to_string();
    assert!(error.contains(invariant), "expected {invariant}, got: {error}");
}

#[test]
fn s1_shapes() {
    let (mut t, end) = tree();
    t.arena[end.node].parts[WINDOW].slots[0].pop();
    objects(&t, "S1");

    let (mut t, end) = tree();
    t.arena[end.node].parts[STATE].slots[0].push(Slot(9));
    objects(&t, "S1");

    let (mut t, end) = tree();
    t.arena[end.node].parts.pop();
    objects(&t, "S1");
}

#[test]
fn s2_nothing_where_full_is_not() {
    let (mut t, end) = tree();
    t.arena[end.node].parts[WINDOW].slots[Tier::Host as usize] = vec![ABSENT, ABSENT, ABSENT, Slot(0)];
    objects(&t, "S2");

    let (mut t, end) = tree();
    t.arena[end.node].parts[STATE].slots[Tier::Host as usize] = vec![Slot(0)];
    objects(&t, "S2");
}

#[test]
fn s3_owners() {
    let (mut t, end) = tree();
    t.arena[end.node].parts[WINDOW].slots[0][2] = Slot(1);
    objects(&t, "S3");

    let (mut t, _) = tree();
    t.part_resident[STATE][0] += 1;
    objects(&t, "S3");
}

#[test]
fn s4_orders() {
    let (mut t, end) = tree();
    t.leaving.withhold(Order::of(WINDOW, Tier::Device), end.node);
    objects(&t, "S4");

    let (mut t, end) = tree();
    t.offer(Order::of(STATE, Tier::Host), end.node, Why::Used);
    objects(&t, "S4");
}

#[test]
fn s5_held() {
    let (mut t, end) = tree();
    let _receipt = t.pin(end, Hold::Device);
    t.check().unwrap();
    t.arena[end.node].parts[WINDOW].held[0] = 0;
    objects(&t, "S5");

    let (mut t, end) = tree();
    let _receipt = t.pin(end, Hold::Device);
    t.arena[end.node].parts[STATE].held[0] += 1;
    objects(&t, "S5");
}
