use super::check_finite;
use crate::FitContext;
use crate::compute::Device;
use crate::data::Scaler;
use crate::kernel::Kernel;
use crate::model::Bundle;
use crate::spectrum::Origin;
use crate::{Error, Result};
use ndarray::{Array2, ArrayView2, CowArray, Ix2};
use std::fmt::Display;
use std::path::Path;
use std::time::Instant;

/// The points that an estimator was fitted on, and where they come from: new points are seen through `κ(x, X)`.
#[derive(Clone, Debug, PartialEq)]
pub struct Reference {
    /// How and on what it was fitted.
    pub origin: Origin,
    /// Applied to new points first, when the data was scaled before the fit.
    pub scaler: Option<Scaler>,
    /// Where kernel values of new points are computed.
    pub device: Device,
    /// X `[n, d]`
    pub(super) points: Array2<f64>,
}

impl Reference {
    pub(super) fn new(
        method: &str,
        kernel: impl Display,
        x: ArrayView2<f64>,
        context: &FitContext,
        start: Instant,
    ) -> Reference {
        let origin = Origin {
            method: method.into(),
            kernel: kernel.to_string(),
            n: x.nrows(),
            d: x.ncols(),
            outputs: 1,
            precision: context.precision,
            seed: context.seed,
            seconds: start.elapsed().as_secs_f64(),
            data: String::new(),
        };
        Reference { origin, scaler: None, device: context.device, points: x.to_owned() }
    }

    /// The points X `[n, d]` of the fit, scaled where they were.
    pub fn points(&self) -> ArrayView2<'_, f64> {
        self.points.view()
    }

    /// New points `[m, d]`, checked and scaled.
    pub(super) fn prepare<'a>(&self, x: ArrayView2<'a, f64>) -> Result<CowArray<'a, f64, Ix2>> {
        prepare(self.origin.d, self.scaler.as_ref(), x)
    }

    /// The kernel that the origin names.
    pub(super) fn kernel(&self) -> Result<Kernel> {
        Kernel::parse(&self.origin.kernel)
    }

    pub(super) fn pack(&self, bundle: &mut Bundle) {
        bundle.set("origin", &self.origin);
        bundle.set("scaler", &self.scaler);
        bundle.put("points", self.points.view());
    }

    pub(super) fn unpack(bundle: &Bundle, device: Device) -> Result<Reference> {
        let reference = Reference {
            origin: bundle.value("origin")?,
            scaler: bundle.value("scaler")?,
            device,
            points: bundle.matrix("points")?,
        };
        fits("points", reference.points.dim(), (reference.origin.n, reference.origin.d))?;
        Ok(reference)
    }
}

/// New points `[m, d]`, checked against the `d` columns of the fit, and scaled.
pub(super) fn prepare<'a>(d: usize, scaler: Option<&Scaler>, x: ArrayView2<'a, f64>) -> Result<CowArray<'a, f64, Ix2>> {
    if x.ncols() != d {
        return Err(Error::input(format!("the model was fitted on {d} columns, the new points have {}", x.ncols())));
    }
    check_finite(x)?;
    Ok(match scaler {
        None => x.into(),
        Some(scaler) => scaler.apply(x)?.into(),
    })
}

/// Refuses a saved matrix of another shape than the model needs.
pub(super) fn fits(name: &str, got: (usize, usize), wanted: (usize, usize)) -> Result<()> {
    if got == wanted {
        return Ok(());
    }
    let ((a, b), (n, m)) = (got, wanted);
    Err(Error::input(format!("its parts do not fit together: '{name}' is {a}×{b} where {n}×{m} is needed")))
}

/// A fitted value that can be written to a file and read back; what it predicts stays the same to the last bit.
pub trait Saved: Sized {
    /// What the file says it holds.
    const KIND: &'static str;

    /// Puts everything but the kind into `bundle`.
    fn pack(&self, bundle: &mut Bundle);

    /// Builds the value from a bundle of this kind, to compute on `device`.
    fn unpack(bundle: &Bundle, device: Device) -> Result<Self>;

    /// Writes the value to a file, whole or not at all.
    fn save(&self, path: &Path) -> Result<()> {
        let mut bundle = Bundle::default();
        bundle.set("kind", Self::KIND);
        self.pack(&mut bundle);
        bundle.write(path)
    }

    /// Reads the value back; a file of another kind is refused.
    fn load(path: &Path, device: Device) -> Result<Self> {
        let bundle = Bundle::read(path)?;
        let read = || {
            let kind = bundle.text("kind")?;
            if kind != Self::KIND {
                return Err(Error::input(format!("holds a model of kind '{kind}', not '{}'", Self::KIND)));
            }
            Self::unpack(&bundle, device)
        };
        read().map_err(|e| Error::file(path, e.to_string()))
    }
}
