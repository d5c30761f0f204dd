//! Every operation of a panel, on a CUDA device and on the CPU.

use super::*;

/// Shapes that fill a tile, miss it, are one vector, many vectors, and no vector.
const SHAPES: [(usize, usize); 7] = [(1, 1), (7, 3), (1000, 1), (1025, 18), (4096, 32), (30_011, 33), (500, 0)];

/// An operation, the same on both devices.
type Operation = fn(&Panel, &Panel) -> Result<Array2<f64>>;

/// Different rows in no order.
fn some_rows(n: usize) -> Vec<usize> {
    Rng::new(3).sample(n, n.div_ceil(3))
}

/// A copy after `change`.
fn changed(v: &Panel, change: impl FnOnce(&mut Panel) -> Result<()>) -> Result<Array2<f64>> {
    let mut v = v.try_clone()?;
    change(&mut v)?;
    v.into_host()
}

/// A number for each column.
fn factors(v: &Panel) -> Vec<f64> {
    (0..v.ncols()).map(|j| j as f64 - 1.5).collect()
}

#[test]
#[ignore = "needs a GPU"]
fn panel_operations_agree_with_the_cpu() {
    let (device, _held) = cuda();
    // Sums over n rows in another order differ by √n roundings or so.
    let operations: [(&str, f64, Operation); 20] = [
        ("to host", 0.0, |v, _| v.to_host()),
        ("clone", 0.0, |v, _| v.try_clone()?.into_host()),
        ("t_matmul", 1e-12, |v, w| v.t_matmul(w)),
        ("matmul", 1e-13, |v, _| v.matmul(normal(v.ncols(), 5, 3).view())?.into_host()),
        ("matmul by a transpose", 1e-13, |v, _| v.matmul(normal(9, v.ncols(), 3).t())?.into_host()),
        ("add_product", 1e-13, |v, w| changed(v, |v| v.add_product(-0.7, w, normal(w.ncols(), w.ncols(), 4).view()))),
        ("subtract", 0.0, |v, w| {
            changed(v, |v| {
                v.subtract(w);
                Ok(())
            })
        }),
        ("axpy", 1e-15, |v, w| changed(v, |v| v.axpy(&factors(v), w))),
        ("scale", 0.0, |v, _| changed(v, |v| v.scale(&factors(v)))),
        ("joined", 0.0, |v, w| v.joined(w)?.joined(v)?.into_host()),
        ("columns", 0.0, |v, _| v.columns(v.ncols() / 3..v.ncols())?.into_host()),
        ("centred", 1e-13, |v, _| changed(v, |v| v.centre())),
        ("rows", 0.0, |v, _| v.rows(&Part::Rows(&some_rows(v.nrows())))?.into_host()),
        ("range of rows", 0.0, |v, _| v.rows(&Part::Range(v.nrows() / 3..v.nrows()))?.into_host()),
        ("add to rows", 1e-15, |v, w| {
            let (rows, half) = (some_rows(v.nrows()), v.nrows() / 2);
            changed(v, |v| {
                v.add_to_rows(&Part::Rows(&rows), -0.3, &w.rows(&Part::Range(0..rows.len()))?)?;
                v.add_to_rows(&Part::Range(0..half), 2.0, &w.rows(&Part::Range(0..half))?)
            })
        }),
        // The factors themselves are a product.
        ("scale rows", 1e-13, |v, w| {
            let factors = w.matmul(normal(w.ncols(), 1, 5).view())?.into_host()?;
            changed(v, |v| {
                v.scale_rows(&Panel::from_host(v.device(), factors)?);
                Ok(())
            })
        }),
        ("left of row squares", 1e-13, |v, _| {
            let mut left = Panel::from_host(v.device(), Array2::from_elem((v.nrows(), 1), 20.0))?;
            left.subtract_row_squares(v);
            left.into_host()
        }),
        ("products of panels", 1e-12, |v, w| {
            let gram = v.t_times(w)?;
            v.times(&gram)?.transposed()?.into_host()
        }),
        ("concatenated", 0.0, |v, w| {
            let mut gram = v.t_times(w)?;
            gram.shift_diagonal(1.0);
            let shifted = gram.into_host()?;
            assert!(shifted.iter().all(|g| g.is_finite()));
            Panel::concatenated(&[v.try_clone()?, w.columns(0..w.ncols() / 2)?, v.try_clone()?])?.into_host()
        }),
        ("sums over columns", 1e-12, |v, w| {
            let θ = vec![0.3; v.ncols() / 2];
            Ok(column(v.dots(w)?.to_vec().into_iter().chain(v.norms()?).chain(v.residual_norms(w, &θ)?)))
        }),
    ];
    for (n, b) in SHAPES {
        // A mean far from zero, so that centring has something to do.
        let (v, w) = (normal(n, b, 1) + 2.0, normal(n, b, 2));
        let [hv, hw] = [&v, &w].map(|a| Panel::from(a.clone()));
        let [dv, dw] = [&v, &w].map(|a| Panel::from_host(device, a.clone()).unwrap());
        assert_eq!((dv.device(), dv.nrows(), dv.ncols()), (device, n, b));
        for (name, tolerance, operation) in operations {
            let (want, got) = (operation(&hv, &hw).unwrap(), operation(&dv, &dw).unwrap());
            close(got.view(), want.view(), tolerance, &format!("{name} of [{n}, {b}]"));
            let again = operation(&dv, &dw).unwrap();
            assert_eq!(got, again, "{name} of [{n}, {b}] is not deterministic");
        }
        let largest = largest(&v);
        assert!(dv.all_within(largest).unwrap());
        assert_eq!(dv.all_within(0.999 * largest).unwrap(), b == 0);
        let broken = Panel::from_host(device, &v * f64::NAN).unwrap();
        assert_eq!(broken.all_within(f64::INFINITY).unwrap(), b == 0);
    }
}
