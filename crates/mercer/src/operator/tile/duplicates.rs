//! Equal points. Their kernel value is that of a point with itself, bit for bit: a matrix product would round it, and a kernel
//! with a kink there (Matérn 1/2, arccos(0), networks of ReLUs) turns a rounding error ε into √ε.

use crate::data::Rows;
use crate::operator::Real;
use crate::operator::tile::workspace::ranges;
use ndarray::{Array1, ArrayView1, ArrayViewMut2};
use rayon::prelude::*;
use std::ops::Range;
use std::sync::Arc;

/// Points whose keys are taken together.
const ROWS: usize = 256;

/// A key of each point of `x` `[n, d]`: equal points have equal keys, and 128 bits keep all others apart.
pub(crate) fn keys(x: Rows<'_>) -> Vec<u128> {
    let of_few = |rows: Range<usize>| {
        let x = x.slice(rows).to_f64();
        let x = x.as_standard_layout();
        let row = |x: ArrayView1<f64>| key(x.to_slice().expect("points lie row by row"));
        x.rows().into_iter().map(row).collect::<Vec<_>>()
    };
    ranges(x.n(), ROWS).into_par_iter().with_min_len(4).map(of_few).collect::<Vec<_>>().concat()
}

/// Coordinates that are mixed side by side: a chain of multiplications waits for each of them.
const CHAINS: usize = 4;

/// Two independent products over the bits of the coordinates; −0 counts as 0.
fn key(x: &[f64]) -> u128 {
    let mix = |hash: u64, bits: u64, turn: u32, factor: u64| (hash.rotate_left(turn) ^ bits).wrapping_mul(factor);
    let next = |[a, b]: [u64; 2], bits: u64| {
        [mix(a, bits, 23, 0x9E37_79B9_7F4A_7C15), mix(b, bits ^ bits >> 32, 41, 0xC2B2_AE3D_27D4_EB4F)]
    };
    let mut chains: [[u64; 2]; CHAINS] = std::array::from_fn(|chain| [chain as u64 + 1, chain as u64 + 11]);
    for few in x.chunks(CHAINS) {
        for (chain, v) in chains.iter_mut().zip(few) {
            *chain = next(*chain, (v + 0.0).to_bits());
        }
    }
    let join = |[a, b]: [u64; 2], [c, d]: [u64; 2]| [next([a, b], c)[0], next([a, b], d)[1]];
    let [first, second] = chains.into_iter().reduce(join).expect("a chain");
    u128::from(first) << 64 | u128::from(second)
}

/// The keys of points that may have a duplicate, in order; a point's name is the place of its key.
#[derive(Clone, Debug, Default)]
pub(crate) struct Names(Vec<u128>);

impl Names {
    /// Every key.
    pub fn all(keys: &[u128]) -> Names {
        let mut all = keys.to_vec();
        all.par_sort_unstable();
        all.dedup();
        Names(all)
    }

    /// The keys that two of the points have.
    pub fn repeated(keys: &[u128]) -> Names {
        let mut all = keys.to_vec();
        all.par_sort_unstable();
        let mut repeated: Vec<u128> = all.windows(2).filter(|two| two[0] == two[1]).map(|two| two[0]).collect();
        repeated.dedup();
        Names(repeated)
    }

    /// The keys that points of both sides have.
    pub fn shared(a: &[u128], b: &[u128]) -> Names {
        let of_b = Names::all(b);
        Names::all(&a.iter().copied().filter(|key| of_b.find(*key).is_some()).collect::<Vec<_>>())
    }

    /// The name of the points with this key.
    pub fn find(&self, key: u128) -> Option<usize> {
        self.0.binary_search(&key).ok()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether no point has a duplicate.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The points of each name, in order.
    pub fn members(&self, keys: &[u128]) -> Vec<Vec<usize>> {
        let mut members = vec![vec![]; self.len()];
        if !self.is_empty() {
            keys.iter()
                .enumerate()
                .for_each(|(j, key)| self.find(*key).into_iter().for_each(|name| members[name].push(j)));
        }
        members
    }
}

/// The entries of `κ(A, B)` whose points are equal, with their values.
pub(crate) struct Duplicates {
    /// (row, name, `κ(x,x)`), in order.
    rows: Vec<(usize, usize, f64)>,
    /// The columns of each name, in order.
    columns: Arc<Vec<Vec<usize>>>,
}

impl Duplicates {
    /// For the points A with these keys and the `columns` of each name; `diagonal` gives `κ(x,x)` of the rows it is asked for.
    pub fn new(
        names: &Names,
        keys: &[u128],
        columns: Arc<Vec<Vec<usize>>>,
        diagonal: impl FnOnce(&[usize]) -> Array1<f64>,
    ) -> Duplicates {
        if names.is_empty() {
            return Duplicates { rows: vec![], columns };
        }
        let found = keys.iter().enumerate().filter_map(|(i, key)| Some((i, names.find(*key)?)));
        let (rows, named): (Vec<usize>, Vec<usize>) = found.unzip();
        let values = if rows.is_empty() { Array1::default(0) } else { diagonal(&rows) };
        let rows = rows.into_iter().zip(named).zip(values).map(|((i, name), value)| (i, name, value)).collect();
        Duplicates { rows, columns }
    }

    /// Writes the values of equal points into the tile `[rows, columns]`.
    pub fn write<T: Real>(&self, tile: &mut ArrayViewMut2<T>, rows: Range<usize>, columns: Range<usize>) {
        let first = self.rows.partition_point(|(i, ..)| *i < rows.start);
        for &(i, name, value) in self.rows[first..].iter().take_while(|(i, ..)| *i < rows.end) {
            let of_name = &self.columns[name];
            let first = of_name.partition_point(|j| *j < columns.start);
            for j in of_name[first..].iter().take_while(|j| **j < columns.end) {
                tile[[i - rows.start, j - columns.start]] = T::of(value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ndarray::{Array2, array};

    #[test]
    fn equal_points_and_no_others_have_one_key() {
        let x = array![[0.0, 1.0], [1.0, 0.0], [-0.0, 1.0], [0.0, 1.0 + f64::EPSILON], [0.0, 0.0], [1.0, 0.0]];
        let keys = keys(x.view().into());
        let same = |i: usize, j: usize| keys[i] == keys[j];
        assert!(same(0, 2) && same(1, 5));
        assert!(!same(0, 1) && !same(0, 3) && !same(0, 4) && !same(3, 4) && !same(1, 3));
        let names = Names::repeated(&keys);
        let mut members = names.members(&keys);
        members.sort();
        assert_eq!(members, [vec![0, 2], vec![1, 5]]);
        assert!(Names::shared(&keys[..1], &keys[3..]).is_empty() && Names::repeated(&keys[..2]).is_empty());
        assert_eq!(Names::shared(&keys[..2], &keys[2..]).members(&keys[2..]).concat().len(), 2);
    }

    #[test]
    fn the_keys_of_a_grid_differ() {
        let x = Array2::from_shape_fn((40_000, 3), |(i, j)| [(i / 200) as f64, (i % 200) as f64, 1.0][j]);
        assert!(Names::repeated(&keys(x.view().into())).is_empty());
    }

    #[test]
    fn values_go_where_both_points_are_equal() {
        let keys = [7, 8, 7, 9, 8];
        let names = Names::repeated(&keys);
        let columns = Arc::new(names.members(&keys));
        let duplicates =
            Duplicates::new(&names, &keys, columns, |rows| rows.iter().map(|i| 10.0 + *i as f64).collect());
        let mut tile = Array2::<f64>::zeros((4, 3));
        duplicates.write(&mut tile.view_mut(), 1..5, 0..3);
        assert_eq!(tile, array![[0.0, 11.0, 0.0], [12.0, 0.0, 12.0], [0.0; 3], [0.0, 14.0, 0.0]]);
    }
}
