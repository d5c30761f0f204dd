//! Kernels from outside the crate, loaded through a registry.

use super::*;
use mercer::Registry;
use mercer::apply::{
    Affinity, Fit, Fitted, FittedEigenmaps, FittedRidge, LaplacianEigenmaps, Predict, Ridge, Saved, Transform,
};
use mercer::data::Target;
use mercer::kernel::{self, Formula, Kind, Pair, Parameter, Statistic};

/// `1/(1 + (‖x−x'‖/ℓ)²)`, which the crate does not have.
#[derive(Clone, Debug, PartialEq)]
struct Cauchy {
    lengthscale: f64,
}

impl Formula for Cauchy {
    const NAME: &'static str = "cauchy";
    const HELP: &'static str = "1/(1 + (‖x−x'‖/ℓ)²)";
    const PARAMETERS: &'static [Parameter] = &[Parameter::new("lengthscale", 1.0, Kind::Positive, "ℓ")];
    const STATISTIC: Statistic = Statistic::SquaredDistance;

    fn from_arguments(arguments: &[Option<kernel::Value>], _: Option<usize>) -> mercer::Result<Self> {
        Ok(Cauchy { lengthscale: Self::PARAMETERS[0].number(&arguments[0]) })
    }

    fn arguments(&self) -> Vec<String> {
        vec![format!("lengthscale={}", self.lengthscale)]
    }

    fn eval<R: mercer::Num>(&self, pair: Pair<R>) -> R {
        R::of(1.0) / (R::of(1.0) + pair.s * R::of(1.0 / (self.lengthscale * self.lengthscale)))
    }
}

/// Models of a kernel from outside the crate, alone and in an expression: they load with the registry that has it, to the last
/// bit, and without it the message names the kernel and what to do.
#[test]
fn kernels_from_outside_are_loaded_through_a_registry() {
    let registry = Registry::new().kernel::<Cauchy>().unwrap();
    let (folder, x, context) = (tempfile::tempdir().unwrap(), points(), FitContext::default());
    let path = folder.path().join("m.mercer");
    let missing = ["`cauchy`", "Registry::kernel", "load_with"];
    for kernel in
        [Kernel::from_formula(Cauchy { lengthscale: 0.7 }), registry.parse("0.5*cauchy(0.7) + rbf(2)*cauchy").unwrap()]
    {
        let operator = context.kernel_operator(&kernel, x.view()).unwrap();
        let spectrum = Spectrum::fit(&Exact, &Problem::new(&operator, 3), None).unwrap();
        spectrum.save(&path).unwrap();
        let back = Spectrum::load_with(&path, Device::Cpu, &registry).unwrap();
        assert_eq!(back.transform(x.view()).unwrap(), spectrum.transform(x.view()).unwrap());
        says(Spectrum::load(&path, Device::Cpu), &missing);

        let y = Target::Values(x.column(0).to_vec());
        let ridge = Ridge::new(kernel.clone()).fit(x.view(), &y, &context).unwrap();
        ridge.save(&path).unwrap();
        let Fitted::Predict(back) = Fitted::load_with(&path, Device::Cpu, &registry).unwrap() else { panic!() };
        assert_eq!(back.predict(x.view()).unwrap(), ridge.predict(x.view()).unwrap());
        says(FittedRidge::load(&path, Device::Cpu), &missing);

        let maps = LaplacianEigenmaps { k: 2, affinity: Affinity::Kernel(kernel), ..Default::default() };
        let maps = maps.fit(x.view(), &(), &context).unwrap();
        maps.save(&path).unwrap();
        let back = FittedEigenmaps::load_with(&path, Device::Cpu, &registry).unwrap();
        assert_eq!(back.embedding(), maps.embedding());
        says(FittedEigenmaps::load(&path, Device::Cpu), &missing);
    }
    says(registry.clone().kernel::<Cauchy>(), &["`cauchy` already"]);
    says(registry.parse("cauchi(1)"), &["did you mean 'cauchy'"]);
    says(Kernel::parse("cauchy"), &["unknown kernel 'cauchy'"]);
}
