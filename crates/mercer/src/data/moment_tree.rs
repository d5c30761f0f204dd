//! Moments of many rows, merged in an order that does not depend on how the rows are divided.

use super::scale::Moments;

/// Rows of a leaf.
pub(super) const LEAF: usize = 256;

/// Moments of consecutive leaves of rows. Two nodes are merged where they are siblings in the binary tree over all leaves of the file, so that the
/// total has the same bits wherever its leaves were divided among ranks.
#[derive(Clone, Debug, Default)]
pub(super) struct MomentTree {
    /// In the order of the rows; no two of them are siblings.
    pub nodes: Vec<Node>,
}

/// The moments of the leaves from `place·2^level` to `(place + 1)·2^level`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Node {
    pub level: u32,
    pub place: u64,
    pub moments: Moments,
}

impl MomentTree {
    /// Adds the node after the last.
    pub fn push(&mut self, mut node: Node) {
        let siblings = |a: &Node, b: &Node| a.level == b.level && a.place.is_multiple_of(2) && a.place + 1 == b.place;
        while let Some(last) = self.nodes.pop_if(|last| siblings(last, &node)) {
            let moments = last.moments.merged(node.moments);
            node = Node { level: node.level + 1, place: node.place / 2, moments };
        }
        self.nodes.push(node);
    }

    /// Of all leaves.
    pub fn total(&self) -> Moments {
        self.nodes.iter().fold(Moments::NONE, |sum, node| sum.merged(node.moments))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;
    use ndarray::Array1;

    /// Leaves that are divided anywhere have the total of one tree to the bit, and that of all numbers at once to rounding.
    #[test]
    fn the_total_does_not_depend_on_the_division() {
        let mut rng = Rng::new(4);
        for leaves in [1, 2, 7, 64, 93] {
            let x = Array1::from_shape_simple_fn(leaves * 10, || 1e6 + rng.normal());
            let node = |i: usize| Node {
                level: 0,
                place: i as u64,
                moments: Moments::of(x.slice(ndarray::s![10 * i..10 * (i + 1)])),
            };
            let tree = |range: std::ops::Range<usize>| {
                let mut tree = MomentTree::default();
                range.for_each(|i| tree.push(node(i)));
                tree
            };
            let want = tree(0..leaves).total();
            let all = Moments::of(x.view());
            assert!((want.mean - all.mean).abs() < 1e-15 * all.mean && want.count == all.count);
            assert!((want.squares - all.squares).abs() < 1e-9 * all.squares);
            for cuts in [[0, 0], [1, 3], [5, 6], [leaves / 3, 2 * leaves / 3], [leaves - 1, leaves]] {
                let [a, b] = cuts.map(|cut: usize| cut.min(leaves));
                let mut whole = MomentTree::default();
                for part in [0..a, a..b, b..leaves] {
                    tree(part).nodes.into_iter().for_each(|node| whole.push(node));
                }
                assert_eq!(whole.total(), want, "{leaves} leaves at {a} and {b}");
            }
        }
    }
}
