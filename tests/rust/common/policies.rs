//! Other eviction policies: doubles that show what the seam carries.

use hicache_core::policy::{Eviction, Leaf, Left, Moment, Order, Path, Request, Victim, Why};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

/// Least recently used first, by brute force: every order is a plain list that is searched.
#[derive(Debug, Default)]
pub struct Searched(BTreeMap<usize, Vec<Known>>);

#[derive(Clone, Copy, Debug)]
struct Known {
    leaf: u32,
    /// Came back without being used: goes before all that were used.
    old: bool,
}

impl Searched {
    fn order(&mut self, order: Order) -> &mut Vec<Known> {
        self.0.entry(order.number()).or_default()
    }
}

impl Eviction for Searched {
    fn offer(&mut self, order: Order, leaf: Leaf<'_>, why: Why) {
        let known = self.order(order);
        let there = known.iter().any(|other| other.leaf == leaf.id);
        if why != Why::Used && there {
            return;
        }
        known.retain(|other| other.leaf != leaf.id);
        let used = known.iter().position(|other| !other.old).unwrap_or(known.len());
        match why {
            Why::Used => known.push(Known { leaf: leaf.id, old: false }),
            Why::Freed => known.insert(used, Known { leaf: leaf.id, old: true }),
            Why::Exposed => known.insert(0, Known { leaf: leaf.id, old: true }),
        }
    }

    fn withhold(&mut self, order: Order, leaf: u32) {
        self.order(order).retain(|other| other.leaf != leaf);
    }

    fn split(&mut self, order: Order, leaf: u32, head: Leaf<'_>) {
        let known = self.order(order);
        known.retain(|other| other.leaf != head.id);
        if let Some(at) = known.iter().position(|other| other.leaf == leaf) {
            known.insert(at, Known { leaf: head.id, ..known[at] });
        }
    }

    fn left(&mut self, order: Order, leaf: Leaf<'_>, left: Left<'_>) {
        if left.all {
            self.withhold(order, leaf.id);
        }
    }

    fn next(&mut self, order: Order) -> Option<Victim> {
        Some(Victim { leaf: self.order(order).first()?.leaf, pages: u32::MAX })
    }

    fn knows(&self, order: Order, leaf: u32) -> bool {
        self.0.get(&order.number()).is_some_and(|known| known.iter().any(|known| known.leaf == leaf))
    }

    fn ahead(&self, order: Order, visit: &mut dyn FnMut(u32) -> bool) {
        let _ = self.0.get(&order.number()).into_iter().flatten().all(|known| visit(known.leaf));
    }

    fn check(&self, order: Order) -> Result<Vec<u32>, &'static str> {
        Ok(self.0.get(&order.number()).into_iter().flatten().map(|known| known.leaf).collect())
    }
}

/// Fewest uses first, counted over a page's whole life, its absences included; page by page, ties by name.
#[derive(Debug, Default)]
pub struct Fewest {
    uses: BTreeMap<u64, u64>,
    /// Per order: the name of each leaf's last page.
    tails: BTreeMap<usize, BTreeMap<u32, u64>>,
}

impl Eviction for Fewest {
    fn wants_pages(&self) -> bool {
        true
    }

    fn request(&mut self, request: Request, path: Path<'_>) {
        if !matches!(request.moment, Moment::Released { .. }) {
            path.pages.iter().for_each(|page| *self.uses.entry(*page).or_default() += 1);
        }
    }

    fn offer(&mut self, order: Order, leaf: Leaf<'_>, _why: Why) {
        let last = *leaf.pages.last().expect("an offered leaf has pages");
        self.tails.entry(order.number()).or_default().insert(leaf.id, last);
    }

    fn withhold(&mut self, order: Order, leaf: u32) {
        self.tails.entry(order.number()).or_default().remove(&leaf);
    }

    fn split(&mut self, order: Order, leaf: u32, head: Leaf<'_>) {
        if self.tails.entry(order.number()).or_default().contains_key(&leaf) {
            self.offer(order, head, Why::Freed);
        }
    }

    fn left(&mut self, order: Order, leaf: Leaf<'_>, left: Left<'_>) {
        if left.all {
            self.withhold(order, leaf.id);
        } else if self.tails.entry(order.number()).or_default().contains_key(&leaf.id) {
            self.offer(order, leaf, Why::Freed);
        }
    }

    fn next(&mut self, order: Order) -> Option<Victim> {
        let uses = |page: &u64| (self.uses.get(page).copied().unwrap_or(0), *page);
        let leaf = *self.tails.get(&order.number())?.iter().min_by_key(|(_, page)| uses(page))?.0;
        Some(Victim { leaf, pages: 1 })
    }

    fn knows(&self, order: Order, leaf: u32) -> bool {
        self.tails.get(&order.number()).is_some_and(|tails| tails.contains_key(&leaf))
    }

    fn ahead(&self, order: Order, visit: &mut dyn FnMut(u32) -> bool) {
        let uses = |page: u64| (self.uses.get(&page).copied().unwrap_or(0), page);
        let tails = self.tails.get(&order.number()).into_iter().flatten();
        let mut tails: Vec<(u32, u64)> = tails.map(|(leaf, page)| (*leaf, *page)).collect();
        tails.sort_unstable_by_key(|&(_, page)| uses(page));
        let _ = tails.into_iter().all(|(leaf, _)| visit(leaf));
    }

    fn check(&self, order: Order) -> Result<Vec<u32>, &'static str> {
        Ok(self.tails.get(&order.number()).into_iter().flat_map(|leaves| leaves.keys().copied()).collect())
    }
}

/// What a policy was told, in order, and what it can know from that.
#[derive(Debug, Default)]
pub struct Heard {
    pub requests: Vec<(Request, u32, Vec<u64>)>,
    /// Pages per tier, from offers and leavings alone.
    pub pages: [BTreeSet<u64>; 2],
    /// Slots that left, per order.
    pub left: BTreeMap<usize, u32>,
    /// Pages that live nowhere any more.
    pub gone: Vec<u64>,
    /// Heads of edges that were split where the policy had to know.
    pub heads: u32,
    /// Depths of leaves as they were offered last, per order.
    pub depths: BTreeMap<(usize, u32), u32>,
}

/// Decides as another policy does, and notes what it was told.
#[derive(Debug)]
pub struct Listening {
    policy: Box<dyn Eviction>,
    pub heard: Arc<Mutex<Heard>>,
}

impl Listening {
    pub fn to(policy: impl Eviction + 'static) -> (Box<Self>, Arc<Mutex<Heard>>) {
        let heard: Arc<Mutex<Heard>> = Arc::default();
        (Box::new(Self { policy: Box::new(policy), heard: Arc::clone(&heard) }), heard)
    }

    fn see(&self, order: Order, leaf: Leaf<'_>) {
        let mut heard = self.heard.lock().unwrap();
        heard.depths.insert((order.number(), leaf.id), leaf.depth);
        if order.component().is_none() {
            heard.pages[order.tier() as usize].extend(leaf.pages);
        }
    }
}

impl Eviction for Listening {
    fn wants_pages(&self) -> bool {
        true
    }

    fn request(&mut self, request: Request, path: Path<'_>) {
        self.heard.lock().unwrap().requests.push((request, path.depth, path.pages.to_vec()));
        self.policy.request(request, path);
    }

    fn offer(&mut self, order: Order, leaf: Leaf<'_>, why: Why) {
        self.see(order, leaf);
        self.policy.offer(order, leaf, why);
    }

    fn withhold(&mut self, order: Order, leaf: u32) {
        self.policy.withhold(order, leaf);
    }

    fn split(&mut self, order: Order, leaf: u32, head: Leaf<'_>) {
        self.see(order, head);
        self.heard.lock().unwrap().heads += 1;
        self.policy.split(order, leaf, head);
    }

    fn left(&mut self, order: Order, leaf: Leaf<'_>, left: Left<'_>) {
        let mut heard = self.heard.lock().unwrap();
        *heard.left.entry(order.number()).or_default() += left.count;
        if order.component().is_none() {
            assert_eq!(left.pages.len(), left.count as usize);
            let gone = &left.pages[left.pages.len() - left.gone as usize..];
            heard.gone.extend(gone);
            let there = &mut heard.pages[order.tier() as usize];
            assert!(left.pages.iter().all(|page| there.remove(page)), "what leaves was there");
            assert!(leaf.pages.iter().all(|page| there.contains(page)), "the rest stays");
            assert_eq!(left.all, leaf.pages.is_empty());
            let above = 1 - order.tier() as usize;
            assert!(gone.iter().all(|page| !heard.pages[above].contains(page)));
        }
        drop(heard);
        self.policy.left(order, leaf, left);
    }

    fn next(&mut self, order: Order) -> Option<Victim> {
        self.policy.next(order)
    }

    fn knows(&self, order: Order, leaf: u32) -> bool {
        self.policy.knows(order, leaf)
    }

    fn ahead(&self, order: Order, visit: &mut dyn FnMut(u32) -> bool) {
        self.policy.ahead(order, visit);
    }

    fn check(&self, order: Order) -> Result<Vec<u32>, &'static str> {
        self.policy.check(order)
    }
}
