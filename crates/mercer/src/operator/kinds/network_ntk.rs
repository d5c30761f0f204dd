//! The empirical neural tangent kernel of a network as an operator.

use crate::compute::{self, Tensor, ledger};
use crate::linalg::Panel;
use crate::net::ntk::EmpiricalNtk;
use crate::operator::{Operator, Precision};
use crate::{Error, Result};
use ndarray::{Array1, Array2, ArrayView2};

/// The empirical NTK of a network over points, never formed: `Θv = J(Jᵀv)`, one vjp and one jvp a vector. Its values are n·C, the
/// outputs of a point side by side.
///
/// ```
/// use mercer::compute::{Device, Tensor};
/// use mercer::net::{Network, ntk::EmpiricalNtk};
/// use mercer::operator::NtkOperator;
/// use mercer::{FitContext, rng::Rng, spectrum::top_pairs};
///
/// let net = Network::parse("dense(64) erf dense(2)", 1, 1)?;
/// let theta = net.init(Device::Cpu, &Rng::new(0))?;
/// let x: Vec<f32> = (0..50).map(|i| i as f32 / 25.0 - 1.0).collect();
/// let x = Tensor::from_host(Device::Cpu, &[50, 1], &x)?;
/// let operator = NtkOperator::new(EmpiricalNtk::new(&net, &theta)?, x)?;
/// let top = top_pairs(&operator, 3, 1e-4, &FitContext::default())?;
/// assert_eq!(top.vectors.dim(), (100, 3));
/// # Ok::<(), mercer::Error>(())
/// ```
pub struct NtkOperator<'a> {
    ntk: EmpiricalNtk<'a>,
    /// `[n, d]`
    x: Tensor,
    outputs: usize,
    diagonal: Array1<f64>,
}

impl<'a> NtkOperator<'a> {
    /// Over the points `x` `[n, d]`.
    pub fn new(ntk: EmpiricalNtk<'a>, x: Tensor) -> Result<Self> {
        let n = ntk.points(&x)?;
        let outputs = ntk.outputs();
        let mut diagonal = Array1::zeros(n * outputs);
        // Θ(x,x) of a few points at a time, so that little else is computed with it.
        for start in (0..n).step_by(FEW) {
            let rows: Vec<usize> = (start..n.min(start + FEW)).collect();
            let theta = ntk.exact(&gathered(&x, &rows)?, None, &(0..outputs).collect::<Vec<_>>())?;
            for (i, row) in rows.iter().enumerate() {
                (0..outputs).for_each(|c| diagonal[row * outputs + c] = f64::from(theta[[i, i, c, c]]));
            }
        }
        match diagonal.iter().all(|d: &f64| d.is_finite()) {
            true => Ok(NtkOperator { ntk, x, outputs, diagonal }),
            false => Err(Error::input("the network's derivatives are not finite at these points; scale them down")),
        }
    }
}

const FEW: usize = 4;

fn gathered(x: &Tensor, rows: &[usize]) -> Result<Tensor> {
    let mut out = Tensor::zeros(x.device(), &[0])?;
    compute::gather_rows(x, rows, &mut out)?;
    Ok(out)
}

impl Operator for NtkOperator<'_> {
    fn n(&self) -> usize {
        self.diagonal.len()
    }

    fn apply(&self, v: ArrayView2<f64>) -> Result<Array2<f64>> {
        self.apply_panel(&Panel::from_host(self.x.device(), v.to_owned())?)?.into_host()
    }

    fn apply_panel(&self, v: &Panel) -> Result<Panel> {
        let device = self.x.device();
        if v.device() != device {
            return v.through_host(|v| self.apply(v));
        }
        let mut out = Panel::zeros(device, [v.nrows(), v.ncols()])?;
        for (column, &norm) in v.norms()?.iter().enumerate().filter(|(_, norm)| **norm > 0.0) {
            // Single precision has a narrow range: a unit vector is safe, whatever v is.
            let mut unit = v.rounded(column, 1.0 / norm)?;
            unit.reshape(&[self.x.shape()[0], self.outputs])?;
            out.put(column, norm, &self.ntk.apply(&self.x, &unit)?);
        }
        ledger::ran("products with the empirical NTK", device, v.ncols());
        Ok(out)
    }

    fn block(&self, rows: &[usize], columns: &[usize]) -> Result<Array2<f64>> {
        let c = self.outputs;
        let points = |values: &[usize]| {
            let mut points: Vec<usize> = values.iter().map(|v| v / c).collect();
            points.sort_unstable();
            points.dedup();
            points
        };
        let (left, right) = (points(rows), points(columns));
        let all: Vec<usize> = (0..c).collect();
        let theta = self.ntk.exact(&gathered(&self.x, &left)?, Some(&gathered(&self.x, &right)?), &all)?;
        let place = |points: &[usize], v: usize| points.binary_search(&(v / c)).expect("it is among them");
        Ok(Array2::from_shape_fn((rows.len(), columns.len()), |(i, j)| {
            let (v, w) = (rows[i], columns[j]);
            f64::from(theta[[place(&left, v), place(&right, w), v % c, w % c]])
        }))
    }

    fn diagonal(&self) -> Result<Array1<f64>> {
        Ok(self.diagonal.clone())
    }

    fn roundoff(&self) -> f64 {
        Precision::F32.roundoff(self.x.device())
    }

    fn outputs(&self) -> usize {
        self.outputs
    }

    fn describe(&self) -> String {
        format!("the empirical NTK at {} points", self.x.shape()[0])
    }
}
