//! Matrices inside a tensor, one for each network.

use super::Tensor;
use std::fmt;

impl Tensor {
    /// The tensor as a stack of matrices: `[m, n]` is one matrix shared by all networks, `[k, m, n]` one for each of k.
    pub fn stack(&self) -> Stack<'_> {
        let (count, rows, cols) = self.as_matrices();
        self.matrices(0, if count == 1 { 0 } else { rows * cols }, rows, cols)
    }

    /// The writable form of [`Tensor::stack`].
    pub fn stack_mut(&mut self) -> StackMut<'_> {
        let (count, rows, cols) = self.as_matrices();
        self.matrices_mut(0, rows * cols, count, rows, cols)
    }

    /// Row-major `rows × cols` matrices inside a flat tensor: the j-th starts at `offset + j·stride`.
    pub fn matrices(&self, offset: usize, stride: usize, rows: usize, cols: usize) -> Stack<'_> {
        Stack { tensor: self, offset, stride, rows, cols, transposed: false }
    }

    /// The writable form of [`Tensor::matrices`], `count` of them. Panics if they overlap or reach beyond the tensor.
    pub fn matrices_mut(
        &mut self,
        offset: usize,
        stride: usize,
        count: usize,
        rows: usize,
        cols: usize,
    ) -> StackMut<'_> {
        assert!(count <= 1 || stride >= rows * cols, "matrices [{rows}, {cols}] overlap at stride {stride}");
        check_inside(self.len(), [offset, stride, count, rows, cols]);
        StackMut { tensor: self, offset, stride, count, terms: 1, rows, cols }
    }

    /// `(count, rows, cols)` of a tensor of rank two or three.
    pub(super) fn as_matrices(&self) -> (usize, usize, usize) {
        match self.shape()[..] {
            [rows, cols] => (1, rows, cols),
            [count, rows, cols] => (count, rows, cols),
            _ => panic!("a tensor of shape {:?} is not a stack of matrices", self.shape()),
        }
    }
}

/// Matrices inside a tensor, one for each network, or one shared by all if the stride is zero.
#[derive(Clone, Copy, Debug)]
pub struct Stack<'a> {
    pub(super) tensor: &'a Tensor,
    pub(super) offset: usize,
    pub(super) stride: usize,
    pub(super) rows: usize,
    pub(super) cols: usize,
    pub(super) transposed: bool,
}

impl<'a> Stack<'a> {
    /// The transposed matrices.
    pub fn t(self) -> Stack<'a> {
        Stack { transposed: !self.transposed, ..self }
    }

    /// Number of rows, after transposition.
    pub fn rows(&self) -> usize {
        if self.transposed { self.cols } else { self.rows }
    }

    /// Number of columns, after transposition.
    pub fn cols(&self) -> usize {
        if self.transposed { self.rows } else { self.cols }
    }

    /// Whether all networks share one matrix.
    pub(super) fn is_shared(&self) -> bool {
        self.stride == 0
    }

    /// Panics unless the tensor has a matrix for each of `count` networks. A kernel on a GPU reads them without a check.
    pub(super) fn check(&self, count: usize) {
        check_inside(self.tensor.len(), [self.offset, self.stride, count, self.rows, self.cols]);
    }

    /// The elements of matrix `j` in row-major order (before transposition).
    pub(super) fn host(&self, j: usize) -> &'a [f32] {
        let start = self.offset + j * self.stride;
        &self.tensor.host()[start..start + self.rows * self.cols]
    }
}

impl fmt::Display for Stack<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{}, {}]", self.rows(), self.cols())
    }
}

/// Panics unless `count` matrices of `[rows, cols]`, the first at `offset` and each `stride` after the last, lie within `len`
/// elements.
fn check_inside(len: usize, [offset, stride, count, rows, cols]: [usize; 5]) {
    let end = || {
        let last = stride.checked_mul(count.checked_sub(1)?)?.checked_add(offset)?;
        rows.checked_mul(cols)?.checked_add(last)
    };
    assert!(
        count == 0 || end().is_some_and(|end| end <= len),
        "{count} matrices [{rows}, {cols}] from {offset} on at stride {stride} reach beyond a tensor of {len} elements"
    );
}

/// Writable matrices inside a tensor, one for each network, or one for the sum over all of them. No two overlap.
#[derive(Debug)]
pub struct StackMut<'a> {
    pub(super) tensor: &'a mut Tensor,
    pub(super) offset: usize,
    pub(super) stride: usize,
    pub(super) count: usize,
    /// How many networks are summed into each matrix.
    pub(super) terms: usize,
    pub(super) rows: usize,
    pub(super) cols: usize,
}

impl fmt::Display for StackMut<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", [self.count, self.rows, self.cols])
    }
}

impl<'a> StackMut<'a> {
    /// The matrix receives the sum over `networks` networks. Panics if there is more than one matrix.
    pub fn sum_of(self, networks: usize) -> StackMut<'a> {
        assert!(self.count == 1 && networks > 0, "a sum over {networks} networks into {} matrices", self.count);
        StackMut { terms: networks, ..self }
    }

    /// Number of networks whose results go into these matrices.
    pub(super) fn networks(&self) -> usize {
        self.count * self.terms
    }

    /// From the first element of the first matrix to the last of the last.
    pub(super) fn host_mut(&mut self) -> &mut [f32] {
        let Some(others) = self.count.checked_sub(1) else { return &mut [] };
        let end = self.offset + others * self.stride + self.rows * self.cols;
        &mut self.tensor.host_mut()[self.offset..end]
    }

    /// The elements of each matrix in row-major order.
    pub(super) fn host_matrices(&mut self) -> impl Iterator<Item = &mut [f32]> {
        let (size, stride, count) = (self.rows * self.cols, self.stride, self.count);
        let mut rest = self.host_mut();
        (0..count).map(move |j| {
            let mut next = |len| rest.split_off_mut(..len).expect("the matrices lie within the tensor");
            let matrix = next(size);
            if j + 1 < count {
                next(stride - size);
            }
            matrix
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::Device;
    use super::*;

    #[test]
    fn matrices_that_overlap_or_reach_beyond_the_tensor_are_refused() {
        let mut t = Tensor::zeros(Device::Cpu, &[12]).unwrap();
        for [offset, stride, count, rows, cols] in [
            [0, 0, 2, 2, 2],
            [0, 3, 2, 2, 2],
            [9, 4, 1, 2, 2],
            [1, 4, 3, 2, 2],
            [0, usize::MAX, 3, 2, 2],
            [usize::MAX, 4, 1, 2, 2],
            [0, 0, 1, usize::MAX, 2],
        ] {
            let made = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                t.matrices_mut(offset, stride, count, rows, cols);
            }));
            let message = *made.expect_err("a stack was made").downcast::<String>().unwrap();
            assert!(message.contains("overlap") || message.contains("beyond"), "{message}");
        }
        for (j, matrix) in t.matrices_mut(1, 5, 2, 2, 2).host_matrices().enumerate() {
            matrix.fill(1.0 + j as f32);
        }
        assert_eq!(t.host(), [0.0, 1.0, 1.0, 1.0, 1.0, 0.0, 2.0, 2.0, 2.0, 2.0, 0.0, 0.0]);
        assert_eq!(t.matrices_mut(0, 0, 1, 3, 4).sum_of(7).networks(), 7);
        assert_eq!(t.matrices_mut(40, 0, 0, 3, 4).host_matrices().count(), 0);
    }
}
