//! A feature map written outside the crate, the best eigenfunctions of a kernel that are combinations of its features, and a file
//! that holds them.
//! `cargo run --release -p mercer --example own_features`

use mercer::kernel::Kernel;
use mercer::model::Bundle;
use mercer::operator::{Extension, Features, Points};
use mercer::spectrum::{Exact, Method, Problem, Solution, Spectrum, rayleigh_ritz};
use mercer::{Device, FitContext, Registry, Result};
use ndarray::{Array2, s};
use std::f64::consts::PI;

/// `φ_j(x) = cos(π j x)` for j = 0, …, p − 1 and x in [0, 1].
struct Cosines(usize);

impl Features for Cosines {
    fn dim(&self) -> usize {
        self.0
    }

    fn inputs(&self) -> Option<usize> {
        Some(1)
    }

    fn eval(&self, points: Points<'_>) -> Result<Array2<f64>> {
        let x = points.coordinates()?.to_f64();
        Ok(Array2::from_shape_fn((x.nrows(), self.0), |(i, j)| (PI * j as f64 * x[[i, 0]]).cos()))
    }

    fn multiply_adds(&self) -> usize {
        self.0
    }

    fn save(&self, bundle: &mut Bundle) -> Result<&'static str> {
        bundle.set("features.count", self.0);
        Ok("cosines")
    }
}

/// The method whose functions are combinations of so many cosines.
struct CosineRitz(usize);

impl Method for CosineRitz {
    fn name(&self) -> String {
        "cosines".into()
    }

    fn solve(&self, problem: &Problem) -> Result<Solution> {
        let x = problem.operator.points().expect("a kernel operator has points");
        let cosines = Cosines(self.0);
        let (μ, coefficients) = rayleigh_ritz(cosines.eval(x.into())?.view(), problem.operator, problem.k)?;
        Ok(Solution::new(μ, Extension { features: Box::new(cosines), coefficients }))
    }
}

fn main() -> Result<()> {
    let x = Array2::from_shape_fn((300, 1), |(i, _)| i as f64 / 299.0);
    let operator = FitContext::default().kernel_operator(&Kernel::parse("matern52(0.3)")?, x.view())?;
    let exact = Exact.solve(&Problem::new(&operator, 4))?.eigenvalues;
    println!("exact:       {exact:.6?}");
    for count in [4, 8, 16] {
        let cosines = Cosines(count);
        let (μ, a) = rayleigh_ritz(cosines.eval(x.view().into())?.view(), &operator, 4)?;
        println!("{count:>2} cosines:  {μ:.6?}");
        // Eigenvalues in a smaller space are never larger.
        assert!(μ.iter().zip(&exact).all(|(μ, exact)| *μ <= exact * (1.0 + 1e-9)));
        assert!(count < 16 || (μ[3] - exact[3]).abs() < 1e-3 * exact[3]);
        // The functions at new points: φ(x) A.
        let psi = cosines.project(ndarray::array![[0.25], [0.75]].view().into(), a.view())?;
        println!("             ψ_1(¼) = {:.3}, ψ_1(¾) = {:.3}", psi[[0, 0]], psi.slice(s![1, 0]));
    }
    // A spectrum of such functions is saved like any other; to load it, the features are registered under their name.
    let spectrum = Spectrum::fit(&CosineRitz(16), &Problem::new(&operator, 4), None)?;
    let file = std::env::temp_dir().join(format!("mercer-own-features-{}.mercer", std::process::id()));
    spectrum.save(&file)?;
    println!("{}", Spectrum::load(&file, Device::Cpu).err().expect("the features are not known"));
    let load = |bundle: &Bundle, _| Ok(Box::new(Cosines(bundle.value("features.count")?)) as Box<dyn Features>);
    let registry = Registry::new().features("cosines", load)?;
    let loaded = Spectrum::load_with(&file, Device::Cpu, &registry)?;
    assert_eq!(loaded.transform(x.view())?, spectrum.transform(x.view())?);
    std::fs::remove_file(&file).expect("it was written");
    Ok(())
}
