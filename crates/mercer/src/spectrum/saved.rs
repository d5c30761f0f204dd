//! Spectra to and from files.

use super::neural::NetworkFeatures;
use super::{Features, RandomFeatures, Spectrum};
use crate::apply::read;
use crate::compute::Device;
use crate::model::Bundle;
use crate::operator::{Extension, KernelFeatures, RowFeatures, SampleFeatures};
use crate::{Error, Result, fail_if};
use std::path::Path;

impl Spectrum {
    /// Writes the spectrum to a file, whole or not at all.
    pub fn save(&self, path: &Path) -> Result<()> {
        let mut bundle = Bundle::default();
        bundle.set("kind", "spectrum");
        self.pack(&mut bundle);
        bundle.write(path)
    }

    /// Everything but the kind, so that a model that stands on a spectrum can hold one.
    pub(crate) fn pack<'a>(&'a self, bundle: &mut Bundle<'a>) {
        bundle.set("eigenvalues", &self.eigenvalues);
        bundle.set("certificate", &self.certificate);
        bundle.set("origin", &self.origin);
        bundle.set("scaler", &self.scaler);
        bundle.put("coefficients", self.coefficients.view());
        let features = self.features.save(bundle);
        bundle.set("features", features);
        if let Some(Extension { features, coefficients }) = &self.by_samples {
            features.save(bundle);
            bundle.put("by_samples", coefficients.view());
        }
        bundle.set("by_samples", self.by_samples.is_some());
        if let Some(training) = &self.training {
            bundle.set("training", training);
        }
    }

    /// Reads a spectrum back, to be evaluated on `device`.
    pub fn load(path: &Path, device: Device) -> Result<Spectrum> {
        read(path, |bundle, kind| match kind {
            "spectrum" => Spectrum::unpack(bundle, device),
            _ => Err(Error::input(format!("holds a model of kind '{kind}', not a spectrum"))),
        })
    }

    /// The counterpart of [`Self::pack`].
    pub(crate) fn unpack(bundle: &Bundle, device: Device) -> Result<Spectrum> {
        let kind = bundle.text("features")?;
        let by_samples = match bundle.value("by_samples") {
            Ok(true) => {
                let (features, coefficients) = (Box::new(SampleFeatures::load(bundle)?), bundle.matrix("by_samples")?);
                Some(Extension { features, coefficients })
            }
            _ => None,
        };
        let spectrum = Spectrum {
            eigenvalues: bundle.value("eigenvalues")?,
            certificate: bundle.value("certificate")?,
            origin: bundle.value("origin")?,
            scaler: bundle.value("scaler")?,
            training: (kind == NetworkFeatures::KIND).then(|| bundle.value("training")).transpose()?,
            features: features(kind, bundle, device)?,
            coefficients: bundle.matrix("coefficients")?,
            by_samples,
        };
        let (p, k) = spectrum.coefficients.dim();
        fail_if!(
            (p, k) != (spectrum.features.dim(), spectrum.eigenvalues.len()),
            "its parts do not fit together: coefficients {p}×{k}"
        );
        Ok(spectrum)
    }
}

/// The feature map of a saved model. A new kind of feature is one more line here.
fn features(kind: &str, bundle: &Bundle, device: Device) -> Result<Box<dyn Features>> {
    match kind {
        NetworkFeatures::KIND => Ok(Box::new(NetworkFeatures::load(bundle, device)?)),
        KernelFeatures::KIND => Ok(Box::new(KernelFeatures::load(bundle, device)?)),
        SampleFeatures::KIND => Ok(Box::new(SampleFeatures::load(bundle)?)),
        RandomFeatures::FOURIER | RandomFeatures::POSITIVE => Ok(Box::new(RandomFeatures::load(kind, bundle)?)),
        RowFeatures::KIND => Ok(Box::new(RowFeatures::load(bundle)?)),
        other => {
            Err(Error::input(format!("the model holds features of kind '{other}', which this version does not know")))
        }
    }
}
