//! Values of every base kernel against golden ones, which `golden/kernels.py` computed with mpmath by other formulas.

mod common;

use common::*;
use mercer::compute::Device::Cpu;
use mercer::kernel::catalogue;
use serde_json::Value;

fn golden() -> Value {
    serde_json::from_str(include_str!("golden/kernels.json")).unwrap()
}

fn stored(rows: &Value) -> Array2<f64> {
    let rows: Vec<Vec<f64>> = serde_json::from_value(rows.clone()).unwrap();
    Array2::from_shape_vec((rows.len(), rows[0].len()), rows.concat()).unwrap()
}

/// The largest error of an entry relative to the larger of itself and `√(κ(x,x)κ(x',x'))`, which bounds it.
fn error(got: &Array2<f64>, want: &Array2<f64>) -> f64 {
    got.indexed_iter().fold(0.0f64, |most, ((i, j), got)| {
        let size = want[[i, j]].abs().max((want[[i, i]] * want[[j, j]]).sqrt()).max(1e-300);
        most.max((got - want[[i, j]]).abs() / size)
    })
}

#[test]
fn every_kernel_has_its_golden_values() {
    let golden = golden();
    for case in golden["cases"].as_array().unwrap() {
        let text = case["kernel"].as_str().unwrap();
        let (kernel, x) = (kernel(text), stored(&golden["inputs"][case["inputs"].as_str().unwrap()]));
        let want = stored(&case["values"]);
        let what = format!("{text} on {}", case["inputs"]);
        let off = error(&by_formula(&kernel, x.view(), x.view()), &want);
        assert!(off <= 1e-14, "{what}: the formula is off by {off:e}");
        let off = error(&matrix(&kernel, x.view()), &want);
        assert!(off <= 2e-14, "{what}: the f64 tile is off by {off:e}");
        let off = error(&gram_cross::<f64>(&kernel, x.view(), (&x + 0.0).view(), Cpu).unwrap(), &want);
        assert!(off <= 2e-14, "{what}: the f64 tile of two sets is off by {off:e}");
        // The slope of arccos(0) is infinite where points are parallel, and exp and powers multiply the error of x·x'.
        let single = if text == "arccos(order=0)" { 3e-4 } else { 1e-5 };
        let off = error(&gram::<f32>(&kernel, x.view(), Cpu).unwrap().mapv(f64::from), &want);
        assert!(off <= single, "{what}: the f32 tile is off by {off:e}");
    }
}

#[test]
fn no_kernel_of_the_catalogue_lacks_golden_values() {
    let golden = golden();
    let networks: Value = serde_json::from_str(include_str!("golden/infinite_networks.json")).unwrap();
    for entry in catalogue() {
        let has = |case: &Value| case["name"] == entry.name || case[entry.name].is_array();
        let cases = [&golden, &networks].into_iter().flat_map(|file| file["cases"].as_array().unwrap());
        assert!(
            cases.filter(|case| has(case)).count() >= 3,
            "{} has no golden values: see golden/kernels.py",
            entry.name
        );
    }
}
