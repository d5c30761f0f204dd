//! Products with some rows of a sparse matrix, for functions that can be evaluated at any column.

use super::control::Control;
use super::cuda::gpu;
use super::cuda::points::DeviceRows;
use super::tensor::{Device, Indices, Tensor};
use crate::Result;
use std::collections::HashMap;

/// A sparse matrix `P` `[n, n]`, batches of whose rows are taken one after the other.
///
/// For each batch, [`SparseRows::list`] names the columns that its rows touch, the caller evaluates functions there, and
/// [`SparseRows::apply`] forms the product.
#[derive(Debug)]
pub struct SparseRows {
    /// `[n + 1]`
    starts: Vec<u32>,
    columns: Vec<u32>,
    values: Vec<f64>,
    /// The columns of the batch; none where functions are wanted at all of them.
    list: Option<Indices>,
    batch: usize,
    device: Option<DeviceRows>,
}

impl SparseRows {
    /// Row i has the entries `values[starts[i]..starts[i + 1]]` in the columns of the same places, in ascending order.
    /// Batches have `batch` rows, and at most `steps` of them are drawn ahead.
    pub fn new(
        device: Device,
        (starts, columns, values): (Vec<u32>, Vec<u32>, Vec<f64>),
        [steps, batch]: [usize; 2],
    ) -> Result<SparseRows> {
        let most = most_entries(&starts, batch);
        let (list, rows) = match device {
            Device::Cpu => (Some(Indices::zeros(device, &[0])?), None),
            Device::Cuda(ordinal) => {
                let listed = most < starts.len() - 1;
                let rows =
                    DeviceRows::new(gpu(ordinal)?, (&starts, &columns, &values), listed.then_some(steps * batch))?;
                // Places of the list that a batch leaves unused keep a valid column.
                (listed.then(|| Indices::zeros(device, &[most])).transpose()?, Some(rows))
            }
        };
        Ok(SparseRows { starts, columns, values, list, batch, device: rows })
    }

    /// Brings what goes with the rows `[steps, batch]` of the next batches.
    pub fn bring(&mut self, rows: &[u32]) {
        if let (Some(device), Some(_)) = (&mut self.device, &self.list) {
            let starts = &self.starts;
            let places: Vec<u32> = rows.chunks_exact(self.batch).flat_map(|rows| places(starts, rows)).collect();
            device.bring(&places);
        }
    }

    /// The columns in which one of `rows` has an entry, some perhaps more than once; `None` for all columns.
    pub fn list(&mut self, control: &Control, rows: &Indices) -> Result<Option<&Indices>> {
        assert_eq!(rows.len(), self.batch, "the rows are not those of a batch");
        match (&self.device, &mut self.list) {
            (Some(device), Some(list)) => device.list(control, rows, list),
            (Some(_), None) => {}
            (None, list) => {
                let of = |row: &u32| &self.columns[entries(&self.starts, *row)];
                let mut all: Vec<u32> = rows.host().iter().flat_map(of).copied().collect();
                all.sort_unstable();
                all.dedup();
                *list = Some(Indices::from_host(Device::Cpu, &[all.len()], &all)?);
            }
        }
        Ok(self.list.as_ref())
    }

    /// `out ← f + (Pf − f)/shift` in `rows`, from `psi` `[k, B, 1]`, f at the rows, and `there` `[k, m, 1]`, f at the columns
    /// of the last [`SparseRows::list`]. Sums are taken in `f64`.
    pub fn apply(
        &self,
        control: &Control,
        rows: &Indices,
        shift: f64,
        there: &Tensor,
        psi: &Tensor,
        out: &mut Tensor,
    ) -> Result<()> {
        let k = psi.shape()[0];
        assert!(
            psi.len() == k * rows.len() && there.shape()[0] == k,
            "sparse rows: {psi} at the rows, {there} at the columns"
        );
        out.reshape(psi.shape())?;
        if let Some(device) = &self.device {
            device.apply(control, rows, shift, there, psi, out);
            return Ok(());
        }
        let list = self.list.as_ref().expect("columns are listed in host memory").host();
        let place = |column: &u32| list.binary_search(column).expect("a listed column");
        let entries = |row: &u32| -> Vec<(usize, f64)> {
            let range = entries(&self.starts, *row);
            self.columns[range.clone()].iter().map(place).zip(self.values[range].iter().copied()).collect()
        };
        let (entries, m): (Vec<_>, usize) = (rows.host().iter().map(entries).collect(), list.len());
        let functions = out.host_mut().chunks_exact_mut(rows.len()).zip(psi.host().chunks_exact(rows.len()));
        for ((out, psi), there) in functions.zip(there.host().chunks_exact(m)) {
            for ((out, f), entries) in out.iter_mut().zip(psi).zip(&entries) {
                let sum: f64 = entries.iter().map(|(at, p)| p * f64::from(there[*at])).sum();
                let f = f64::from(*f);
                *out = (f + (sum - f) / shift) as f32;
            }
        }
        Ok(())
    }
}

/// The places of the entries of a row.
fn entries(starts: &[u32], row: u32) -> std::ops::Range<usize> {
    starts[row as usize] as usize..starts[row as usize + 1] as usize
}

/// The most entries that `b` rows have together: those of the b longest. `starts` `[n + 1]`.
fn most_entries(starts: &[u32], b: usize) -> usize {
    let mut lengths: Vec<usize> = starts.windows(2).map(|pair| (pair[1] - pair[0]) as usize).collect();
    lengths.sort_unstable_by(|a, b| b.cmp(a));
    lengths.iter().take(b).sum()
}

/// Where the columns of each of `rows` begin when those of the batch lie one after the other, each row's once.
fn places(starts: &[u32], rows: &[u32]) -> Vec<u32> {
    let (mut at, mut end) = (HashMap::with_capacity(rows.len()), 0);
    let place = |&row: &u32| {
        *at.entry(row).or_insert_with(|| {
            let first = end;
            end += starts[row as usize + 1] - starts[row as usize];
            first
        })
    };
    rows.iter().map(place).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_of_a_batch_lie_apart_and_fit() {
        // Rows with 3, 1, 4 and 2 entries.
        let starts = [0, 3, 4, 8, 10];
        assert_eq!(places(&starts, &[2, 0, 2, 3, 0]), [0, 4, 0, 7, 4]);
        assert_eq!(most_entries(&starts, 1), 4);
        assert_eq!(most_entries(&starts, 3), 9);
        assert_eq!(most_entries(&starts, 9), 10);
    }
}
