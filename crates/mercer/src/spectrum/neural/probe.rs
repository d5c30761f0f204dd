//! How well codes tell classes apart, watched while functions are trained without them.

use super::{Functions, Pairs, Standardizer};
use crate::Result;
use crate::compute::{Device, Tensor};
use crate::linalg::matmul;
use crate::operator::nearest_neighbours;
use ndarray::{Array2, ArrayView2, Axis, aview1};

/// Rows whose neighbours are looked for, and rows among which they are, at most.
const MOST: [usize; 2] = [1000, 10_000];

/// Neighbours that have a say.
const NEIGHBOURS: usize = 20;

/// Labelled rows that training does not use, and those that it does.
pub struct Probe {
    queries: (Tensor, Vec<usize>),
    bank: (Tensor, Vec<usize>),
}

impl Probe {
    /// Of rows `[n, d]` with their classes `[n]`: those to ask for, and those to compare them with.
    pub(super) fn new(
        (queries, wanted): (ArrayView2<f64>, &[usize]),
        (bank, known): (ArrayView2<f64>, &[usize]),
        standardizer: &Standardizer,
        device: Device,
    ) -> Result<Probe> {
        let first = |x: ArrayView2<f64>, labels: &[usize], most: usize| -> Result<(Tensor, Vec<usize>)> {
            let rows = 0..labels.len().min(most);
            Ok((standardizer.gather(device, x, rows.clone())?, labels[rows].to_vec()))
        };
        Ok(Probe { queries: first(queries, wanted, MOST[0])?, bank: first(bank, known, MOST[1])? })
    }

    /// The share of the rows whose class is that of most of their neighbours in the bank, by the code of the pairs.
    pub(super) fn accuracy(&self, functions: &mut Functions, pairs: &Pairs) -> Result<f64> {
        let scale: Vec<f64> = pairs.eigenvalues.iter().map(|μ| μ.max(0.0).sqrt()).collect();
        let mut code = |x: &Tensor| -> Result<Array2<f64>> {
            Ok(matmul(functions.columns(x)?.view(), pairs.coefficients.view()) * aview1(&scale))
        };
        let (mut queries, mut bank) = (code(&self.queries.0)?, code(&self.bank.0)?);
        if let Some(mean) = bank.mean_axis(Axis(0)) {
            queries -= &mean;
            bank -= &mean;
        }
        Ok(neighbour_accuracy((queries.view(), &self.queries.1), (bank.view(), &self.bank.1)))
    }
}

/// The share of the codes `[m, k]` whose class is that of most of their twenty neighbours by angle in `bank` `[n, k]`.
///
/// ```
/// use mercer::spectrum::neural::neighbour_accuracy;
/// let codes = ndarray::array![[1.0, 0.1], [2.0, 0.0], [0.1, 3.0]];
/// assert_eq!(neighbour_accuracy((codes.slice(ndarray::s![2.., ..]), &[1]), (codes.view(), &[0, 0, 1])), 0.0);
/// assert_eq!(neighbour_accuracy((codes.slice(ndarray::s![..2, ..]), &[0, 0]), (codes.view(), &[0, 0, 1])), 1.0);
/// ```
pub fn neighbour_accuracy(
    (codes, wanted): (ArrayView2<f64>, &[usize]),
    (bank, known): (ArrayView2<f64>, &[usize]),
) -> f64 {
    let [codes, bank] = [codes, bank].map(|codes| directions(codes.to_owned()));
    let classes = known.iter().max().map_or(0, |most| most + 1);
    let near = nearest_neighbours(bank.view(), codes.view(), NEIGHBOURS.min(known.len()));
    let right = near.iter().zip(wanted).filter(|(near, wanted)| {
        let mut votes = vec![0usize; classes];
        near.iter().for_each(|(i, _)| votes[known[*i]] += 1);
        let most = (0..classes).max_by_key(|c| (votes[*c], std::cmp::Reverse(*c)));
        most == Some(**wanted)
    });
    right.count() as f64 / wanted.len().max(1) as f64
}

/// Rows of length one; those of length zero stay.
pub(crate) fn directions(mut codes: Array2<f64>) -> Array2<f64> {
    for mut row in codes.rows_mut() {
        let length = row.dot(&row).sqrt();
        row.mapv_inplace(|v| if length > 0.0 { v / length } else { 0.0 });
    }
    codes
}
