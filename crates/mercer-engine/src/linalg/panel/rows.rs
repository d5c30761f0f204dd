//! Operations of a panel on some of its rows or on each row, and products of panels that stay on the device.

use super::super::{Part, matmul};
use super::Panel;
use crate::Result;
use crate::compute::Storage::{Cuda, Host};
use crate::compute::cuda::panel as cuda;
use ndarray::{Axis, Zip, concatenate, s};

impl Panel {
    /// Some rows, `[rows, b]`: on every rank, unless they are all and sharded.
    pub fn rows(&self, rows: &Part<'_>) -> Result<Panel> {
        let n = self.nrows();
        if !self.sharding.is_whole() {
            return match rows.is_all(n) {
                true => self.try_clone(),
                false => Panel::from_host(self.device(), self.sharding.at(&rows.list(n), self.own_rows()?.view())?),
            };
        }
        match &self.storage {
            Host(a) => Ok(Panel::from(match rows.range(self.n) {
                None => a.select(Axis(0), &rows.list(self.n)),
                Some(range) => a.slice(s![range, ..]).to_owned(),
            })),
            Cuda(a) => {
                let shape = [rows.len(self.n), self.b];
                let mut out = cuda::allocate(a.gpu(), shape)?;
                cuda::gather_rows((a, [self.n, self.b]), rows, &mut out)?;
                Ok(Panel::from_buffer(shape, out))
            }
        }
    }

    /// Adds `factor` times the rows of `other` `[rows, b]` to some rows, all different.
    pub fn add_to_rows(&mut self, rows: &Part<'_>, factor: f64, other: &Panel) -> Result<()> {
        let n = self.nrows();
        if let Some(shares) = self.sharding.shares().filter(|_| other.sharding.is_whole()) {
            let rows = rows.list(n);
            let (places, own): (Vec<usize>, Vec<usize>) = shares.own_of(&rows).unzip();
            let other = other.rows(&Part::Rows(&places))?;
            return self.add_to_own_rows(&Part::Rows(&own), factor, &other);
        }
        self.add_to_own_rows(if rows.is_all(n) { &Part::All } else { rows }, factor, other)
    }

    /// [`Self::add_to_rows`], with rows counted from the first of this process.
    fn add_to_own_rows(&mut self, rows: &Part<'_>, factor: f64, other: &Panel) -> Result<()> {
        assert_eq!((rows.len(self.n), self.b), (other.n, other.b), "a row for each one that is changed");
        match (&mut self.storage, &other.storage) {
            (Host(a), Host(b)) => match rows.range(self.n) {
                None => {
                    let rows = rows.list(self.n);
                    rows.iter().zip(b.rows()).for_each(|(&i, b)| a.row_mut(i).scaled_add(factor, &b));
                }
                Some(range) => a.slice_mut(s![range, ..]).scaled_add(factor, b),
            },
            (Cuda(a), Cuda(b)) => cuda::scatter_rows(factor, b, rows, (a, [self.n, self.b]))?,
            _ => self.different_devices(other),
        }
        Ok(())
    }

    /// `v_ij ← factor_i v_ij` for each row, with factors `[n, 1]`.
    pub fn scale_rows(&mut self, factors: &Panel) {
        assert_eq!((self.n, 1), (factors.n, factors.b), "a factor for each row");
        match (&mut self.storage, &factors.storage) {
            (Host(a), Host(f)) => *a *= f,
            (Cuda(a), Cuda(f)) => cuda::scale_rows([self.n, self.b], f, a),
            _ => self.different_devices(factors),
        }
    }

    /// `v_i ← max(v_i − Σ_j w_ij², 0)` of one vector `[n, 1]` for the rows of `other` `[n, b]`.
    pub fn subtract_row_squares(&mut self, other: &Panel) {
        self.check_height(other);
        assert_eq!(self.b, 1, "one number for each row");
        match (&mut self.storage, &other.storage) {
            (Host(a), Host(w)) => {
                let squares = w.map_axis(Axis(1), |row| row.dot(&row));
                Zip::from(a.column_mut(0)).and(&squares).for_each(|v, w| *v = (*v - w).max(0.0));
            }
            (Cuda(a), Cuda(w)) => cuda::subtract_row_squares([self.n, other.b], w, a),
            _ => self.different_devices(other),
        }
    }

    /// `v_i ← min(v_i, d_i + d'_j − 2k_ij)` of one vector `[n, 1]` over the columns of a block `k` `[n, b]` of a kernel matrix with the
    /// diagonals `d` `[n, 1]` and `d'` `[b]`: squared distances to new points. What is below `share` of the sum is zero.
    pub fn lower_to_distances(&mut self, k: &Panel, diagonal: &Panel, of_columns: &[f64], share: f64) -> Result<()> {
        self.check_height(k);
        self.check_shape(diagonal);
        assert_eq!((self.b, k.b), (1, of_columns.len()), "one number for each row, and for each column of the block");
        match (&mut self.storage, &k.storage, &diagonal.storage) {
            (Host(v), Host(k), Host(d)) => {
                for ((v, d), k) in v.iter_mut().zip(d).zip(k.rows()) {
                    for (k, of_column) in k.iter().zip(of_columns) {
                        let sum = d + of_column;
                        let square = sum - 2.0 * k;
                        *v = v.min(if square > share * sum { square } else { 0.0 });
                    }
                }
                Ok(())
            }
            (Cuda(v), Cuda(k_), Cuda(d)) => cuda::lower_to_distances([self.n, k.b], k_, d, of_columns, share, v),
            _ => self.different_devices(k),
        }
    }

    /// `amplitude·(cos t, sin t)` `[n, 2b]` of the numbers t of this panel.
    pub fn waves(&self, amplitude: f64) -> Result<Panel> {
        match &self.storage {
            Host(t) => {
                let both = [t.mapv(|t| amplitude * t.cos()), t.mapv(|t| amplitude * t.sin())];
                let both = concatenate(Axis(1), &[both[0].view(), both[1].view()]).expect("equal heights");
                Ok(Panel::from(both).over(&self.sharding))
            }
            Cuda(t) => {
                let mut out = cuda::allocate(t.gpu(), [self.n, 2 * self.b])?;
                cuda::waves([self.n, self.b], amplitude, t, &mut out);
                Ok(Panel::from_buffer([self.n, 2 * self.b], out).over(&self.sharding))
            }
        }
    }

    /// `A + shift·I` for a square panel.
    pub fn shift_diagonal(&mut self, shift: f64) {
        assert!(self.n == self.b && self.sharding.is_whole(), "a square matrix");
        match &mut self.storage {
            Host(a) => a.diag_mut().mapv_inplace(|d| d + shift),
            Cuda(a) => cuda::shift_diagonal(self.n, shift, a),
        }
    }

    /// The transpose `[b, n]`.
    pub fn transposed(&self) -> Result<Panel> {
        assert!(self.sharding.is_whole(), "the rows of a transpose are not sharded");
        match &self.storage {
            Host(a) => Ok(Panel::from(a.t().as_standard_layout().into_owned())),
            Cuda(a) => {
                let mut out = cuda::allocate(a.gpu(), [self.b, self.n])?;
                cuda::transpose([self.n, self.b], true, a, &mut out);
                Ok(Panel::from_buffer([self.b, self.n], out))
            }
        }
    }

    /// `V W` `[n, m]` for `W` `[b, m]`, on the device.
    pub fn times(&self, other: &Panel) -> Result<Panel> {
        assert!(self.b == other.n && other.sharding.is_whole(), "shapes of a product");
        Ok(self.product_with(other, false)?.over(&self.sharding))
    }

    /// `VᵀW` `[b, m]` for `W` `[n, m]`, on the device.
    pub fn t_times(&self, other: &Panel) -> Result<Panel> {
        self.check_height(other);
        if !self.sharding.is_whole() {
            return Panel::from_host(self.device(), self.t_matmul(other)?);
        }
        self.product_with(other, true)
    }

    fn product_with(&self, other: &Panel, transposed: bool) -> Result<Panel> {
        match (&self.storage, &other.storage) {
            (Host(a), Host(b)) => Ok(Panel::from(matmul(if transposed { a.t() } else { a.view() }, b.view()))),
            (Cuda(a), Cuda(b)) => {
                let shape = [if transposed { self.b } else { self.n }, other.b];
                let mut out = cuda::allocate(a.gpu(), shape)?;
                cuda::product([self.n, self.b, other.b], (a, transposed), b, &mut out);
                Ok(Panel::from_buffer(shape, out))
            }
            _ => self.different_devices(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::tests::{close, random};
    use super::*;
    use ndarray::Array2;

    #[test]
    fn operations_on_rows_are_their_formulas() {
        let (v, w, small) = (random(40, 5, 1), random(40, 5, 2), random(5, 3, 3));
        let [pv, pw] = [&v, &w].map(|a| Panel::from(a.clone()));
        let (few, some) = ([7usize, 0, 33], random(3, 5, 6));
        let (listed, range) = (Part::Rows(&few), Part::Range(4..7));
        assert_eq!(pv.rows(&listed).unwrap().to_host().unwrap(), v.select(Axis(0), &few));
        assert_eq!(pv.rows(&range).unwrap().to_host().unwrap(), v.slice(s![4..7, ..]));
        let (mut moved, mut want) = (pv.try_clone().unwrap(), v.clone());
        moved.add_to_rows(&listed, 0.5, &some.clone().into()).unwrap();
        moved.add_to_rows(&range, -2.0, &some.clone().into()).unwrap();
        few.iter().zip(some.rows()).for_each(|(&i, row)| want.row_mut(i).scaled_add(0.5, &row));
        want.slice_mut(s![4..7, ..]).scaled_add(-2.0, &some);
        let factors = random(40, 1, 7);
        moved.scale_rows(&factors.clone().into());
        close(&moved.into_host().unwrap(), &(want * &factors));
        close(&pv.times(&small.clone().into()).unwrap().into_host().unwrap(), &v.dot(&small));
        close(&pv.t_times(&pw).unwrap().into_host().unwrap(), &v.t().dot(&w));
        assert_eq!(pv.transposed().unwrap().into_host().unwrap(), v.t());
        let mut left = Panel::from(Array2::from_elem((40, 1), 5.0));
        left.subtract_row_squares(&pv);
        let squares = v.mapv(|v| v * v).sum_axis(Axis(1)).insert_axis(Axis(1));
        close(&left.into_host().unwrap(), &squares.mapv(|s| (5.0 - s).max(0.0)));
        let (d, of_columns) = (random(40, 1, 9).mapv(|v| v * v + 1.0), [1.0, 2.0, 3.0, 1.5, 1.0]);
        let mut near = Panel::from(Array2::from_elem((40, 1), 2.5));
        near.lower_to_distances(&pv, &d.clone().into(), &of_columns, 1e-3).unwrap();
        for (i, near) in near.into_host().unwrap().iter().enumerate() {
            let square = |j: usize| d[[i, 0]] + of_columns[j] - 2.0 * v[[i, j]];
            let want = (0..5).map(square).fold(2.5f64, f64::min).max(0.0);
            assert!((near - want).abs() < 1e-12 || want < 1e-2);
        }
        let waves = pv.waves(0.5).unwrap().into_host().unwrap();
        assert!((waves[[3, 1]] - 0.5 * v[[3, 1]].cos()).abs() < 1e-15);
        assert!((waves[[3, 6]] - 0.5 * v[[3, 1]].sin()).abs() < 1e-15);
        let mut square = Panel::from(random(5, 5, 8));
        square.shift_diagonal(3.0);
        close(&square.into_host().unwrap(), &(random(5, 5, 8) + Array2::<f64>::eye(5) * 3.0));
    }
}
