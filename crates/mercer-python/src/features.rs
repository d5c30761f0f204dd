//! Feature maps: Nyström's, and random Fourier features.

use crate::array::{Held, matrix};
use crate::kernel::check_finite;
use crate::run::{Settings, evaluate, here, raised, run};
use mercer::kernel::Expression;
use mercer::spectrum::{Landmarks, NystromFeatures, RandomFeatures};
use pyo3::prelude::*;
use std::sync::Arc;

/// `x ↦ φ(x)` with `φ(x)·φ(x') ≈ κ(x,x')`.
#[pyclass(frozen, module = "mercer._mercer")]
pub struct Features(Arc<Map>);

enum Map {
    Nystrom(NystromFeatures),
    Random(RandomFeatures),
}

#[pymethods]
impl Features {
    /// Nyström's map of landmarks `z` `[m, d]` under a kernel whose parameters are numbers.
    #[staticmethod]
    fn nystrom(py: Python<'_>, kernel: &str, z: &Bound<'_, PyAny>, settings: &Settings) -> PyResult<Features> {
        let (expression, z) = (Expression::parse(kernel).map_err(raised)?, Held::new(z)?);
        let map = run(py, settings, move |context| {
            NystromFeatures::new(&expression.resolve(z.rows(), context.seed)?, z.rows(), context)
        })?;
        Ok(Features(Arc::new(Map::Nystrom(map))))
    }

    /// Random Fourier features of a shift-invariant kernel for points of `d` columns.
    #[staticmethod]
    fn fourier(kernel: &str, d: usize, features: usize, sampling: &str, seed: u64) -> PyResult<Features> {
        let made = || {
            let kernel = mercer::kernel::Kernel::parse(kernel)?;
            RandomFeatures::fourier(&kernel, d, features, sampling.parse()?, seed)
        };
        Ok(Features(Arc::new(Map::Random(here(made).map_err(raised)?))))
    }

    /// `φ(x)` `[n, r]` at points `[n, d]`, in the precision of the points.
    fn transform<'py>(&self, py: Python<'py>, x: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let (map, held) = (self.0.clone(), Held::new(x)?);
        check_finite(&held)?;
        let cost = held.len() * self.dim();
        Ok(if matches!(held.rows(), mercer::data::Rows::F32(_)) {
            matrix(
                py,
                evaluate(py, cost, move || match &*map {
                    Map::Nystrom(map) => map.transform::<f32>(held.rows()),
                    Map::Random(map) => map.transform::<f32>(held.rows()),
                })?,
            )
            .into_any()
        } else {
            matrix(
                py,
                evaluate(py, cost, move || match &*map {
                    Map::Nystrom(map) => map.transform::<f64>(held.rows()),
                    Map::Random(map) => map.transform::<f64>(held.rows()),
                })?,
            )
            .into_any()
        })
    }

    /// Number of features.
    #[getter]
    fn dim(&self) -> usize {
        use mercer::spectrum::Features as _;
        match &*self.0 {
            Map::Nystrom(map) => map.dim(),
            Map::Random(map) => map.dim(),
        }
    }

    /// The rows of `m` landmarks among points `[n, d]`, chosen in a way that the library knows.
    #[staticmethod]
    fn landmarks(
        py: Python<'_>,
        kernel: &str,
        x: &Bound<'_, PyAny>,
        m: usize,
        choice: &str,
        settings: &Settings,
    ) -> PyResult<Vec<usize>> {
        let (expression, x) = (Expression::parse(kernel).map_err(raised)?, Held::new(x)?);
        check_finite(&x)?;
        let choice: Landmarks = choice.parse().map_err(raised)?;
        run(py, settings, move |context| {
            let kernel = expression.resolve(x.rows(), context.seed)?;
            let operator = context.kernel_operator(&kernel, x.rows())?;
            choice.choose(&operator, m, context.seed, context.precision)
        })
    }
}
