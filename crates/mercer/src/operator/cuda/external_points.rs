//! Points that another library holds in the memory of a GPU, prepared for a kernel: shifts and lifts are computed there.

use super::device::{CudaKernel, DevicePoints};
use super::external::{ExternalArray, source};
use super::launch::{Card, Launch};
use super::program::{Kind, Program};
use super::{ADVICE, compiles};
use crate::compute::cuda::{Arg, Buffer};
use crate::data::Rows;
use crate::kernel::{Base, Circles, Kernel, Lift};
use crate::operator::Precision;
use crate::operator::tile::duplicates::Names;
use crate::operator::tile::points::{Norms, Plan};
use crate::{Error, Result, fail_if};
use std::borrow::Cow;

/// How the GPU makes a view of the points; see `pack_view` in `external.cu`.
#[derive(Debug, PartialEq)]
struct DeviceLift {
    shift: Option<Vec<f64>>,
    scale: Option<Vec<f64>>,
    kind: i32,
    parameter: f64,
}

const AS_THEY_ARE: i32 = 0;
const OVER_NORM: i32 = 1;
const PERIODIC: i32 = 2;

impl DeviceLift {
    /// Of a plan's view of points of width `d`; none where the host alone can make it.
    fn of(plan: &Plan, view: usize, d: usize) -> Option<DeviceLift> {
        let (shift, base) = plan.steps_to(view);
        let (kind, parameter, scale) = match base {
            None => (AS_THEY_ARE, 0.0, None),
            Some(Base::Custom(_)) => return None,
            Some(base) => {
                let scale = base.divisors(d);
                let divided =
                    |by: f64| Some((0..d).map(|j| scale.as_ref().map_or(1.0, |scale| scale[j]) * by).collect());
                match base.lift_of(d) {
                    Lift::Itself => (AS_THEY_ARE, 0.0, divided(1.0)),
                    Lift::Over(by) => (AS_THEY_ARE, 0.0, divided(by)),
                    Lift::OverNorm => (OVER_NORM, 1.0, scale.map(Cow::into_owned)),
                    Lift::OverRootOfNorm => (OVER_NORM, 0.5, scale.map(Cow::into_owned)),
                    // The device lifts all columns by one period.
                    Lift::Circles(Circles { periods: Some(_), .. }) => return None,
                    Lift::Circles(Circles { period, lengthscales, .. }) => {
                        (PERIODIC, period, lengthscales.map(<[f64]>::to_vec))
                    }
                }
            }
        };
        Some(DeviceLift { shift: shift.map(|shift| shift.to_vec()), scale, kind, parameter })
    }

    /// Queues `pack_view` into the columns from `first` on of the raw points `out` `[n, width]`, or into nothing; returns where the
    /// least and the largest squared norm will be.
    fn queue(&self, x: &ExternalArray, out: Option<(&Buffer, &Program, usize)>) -> Result<Buffer> {
        let what = || "what is subtracted from the points".to_string();
        let uploaded = |values: &Option<Vec<f64>>| values.as_ref().map(|v| x.gpu.upload(v, &what, ADVICE)).transpose();
        let (shift, scale) = (uploaded(&self.shift)?, uploaded(&self.scale)?);
        let norms = x.gpu.upload(&[Norms::NONE.least, Norms::NONE.largest], &what, ADVICE)?;
        let pointer = |buffer: Option<&Buffer>| Arg::U64(buffer.map_or(0, Buffer::pointer));
        let [width, first, low] = out.map_or([0; 3], |(_, program, view)| {
            [program.source_width(), program.views[view].source_first, program.low_first()]
        });
        let [n, d] = x.shape.map(Arg::size);
        let of_lift =
            [n, d, pointer(shift.as_ref()), pointer(scale.as_ref()), Arg::I32(self.kind), Arg::F64(self.parameter)];
        let of_out = [pointer(out.map(|(out, ..)| out)), Arg::size(width), Arg::size(first), Arg::size(low)];
        x.launch(x.per_row("pack_view"), &[&of_lift[..], &of_out, &[Arg::from(&norms)]].concat());
        Ok(norms)
    }
}

/// The norms of the points in each view.
fn norms(lifts: &[DeviceLift], x: &ExternalArray) -> Result<Vec<Norms>> {
    let of_view = |lift: &DeviceLift| {
        let mut found = [0.0; 2];
        lift.queue(x, None)?.read(0, &mut found)?;
        Ok(Norms { least: found[0], largest: found[1] })
    };
    lifts.iter().map(of_view).collect()
}

/// A kernel compiled for points on a GPU, and those points in the layout of its tiles.
pub(super) struct Ready {
    pub kernel: CudaKernel,
    /// One set or two.
    pub points: Vec<DevicePoints>,
}

impl Ready {
    /// For the points `x` and `others` `[·, d]`, where there are two sets; they share the mean of `x`. None where the host alone
    /// can prepare points for the kernel.
    pub fn new(
        kernel: &Kernel,
        x: &ExternalArray,
        others: Option<&ExternalArray>,
        precision: Precision,
    ) -> Result<Option<Ready>> {
        let d = x.shape[1];
        kernel.check_columns(d)?;
        if kernel.sees_images() || !compiles(kernel) {
            return Ok(None);
        }
        let keys = x.keys()?;
        let of_others = others.map(ExternalArray::keys).transpose()?;
        // The mean of one row is the row.
        let plan = Plan::new(kernel, Rows::from(&x.mean()?));
        let Some(lifts) =
            (0..plan.views()).map(|view| DeviceLift::of(&plan, view, d)).collect::<Option<Vec<DeviceLift>>>()
        else {
            return Ok(None);
        };
        let of_x = norms(&lifts, x)?;
        let norms_of_others = others.map(|others| norms(&lifts, others)).transpose()?;
        let names = match &of_others {
            None => Names::repeated(&keys),
            Some(of_others) => Names::shared(of_others, &keys),
        };
        let norms = [&of_x, norms_of_others.as_ref().unwrap_or(&of_x)];
        let program = Program::of_facts(plan, d, norms, names, precision.into(), Card::of(x.gpu));
        let kernel = CudaKernel::of_program(x.gpu, program);
        let mut points = vec![prepared(&kernel, &lifts, x, &keys)?];
        if let (Some(others), Some(keys)) = (others, &of_others) {
            points.push(prepared(&kernel, &lifts, others, keys)?);
        }
        Ok(Some(Ready { kernel, points }))
    }
}

/// Points in the layout of the tiles.
fn prepared(kernel: &CudaKernel, lifts: &[DeviceLift], x: &ExternalArray, keys: &[u128]) -> Result<DevicePoints> {
    let n = x.shape[0];
    let raw = kernel.allocate_raw(n)?;
    for (view, lift) in lifts.iter().enumerate() {
        lift.queue(x, Some((&raw, &kernel.program, view)))?;
    }
    if kernel.program.has_duplicates() {
        let names: Vec<f64> = keys.iter().map(|key| kernel.program.name(*key)).collect();
        let names = x.gpu.upload(&names, &|| format!("the names of {n} points"), ADVICE)?;
        let arguments = [&names, &raw].map(Arg::from);
        let sizes = [n, kernel.program.source_width()].map(Arg::size);
        // SAFETY: `names` has n numbers and `raw` n rows.
        unsafe {
            let launch = Launch::elementwise("put_names", n);
            launch.run(x.gpu, source(true), &[&arguments[..], &sizes].concat());
        }
    }
    let points = kernel.allocate_points(n)?;
    kernel.prepare_points(true, raw.pointer(), 0, &points);
    Ok(points)
}

/// `κ(X, Z)` `[n, m]`, or `κ(X, X)` without a `z`, in the memory of the GPU that holds the points: f64 for [`Precision::F64`], else
/// f32. The work is done when it returns. None where the host alone can prepare points for the kernel.
pub fn device_gram(
    kernel: &Kernel,
    x: &ExternalArray,
    z: Option<&ExternalArray>,
    precision: Precision,
) -> Result<Option<Buffer>> {
    let columns = z.unwrap_or(x);
    if z.is_some_and(|z| z.gpu.ordinal != x.gpu.ordinal) {
        let (x, z) = (x.gpu.ordinal, columns.gpu.ordinal);
        return Err(Error::input(format!("X is on cuda:{x} and Y on cuda:{z}; both must be on one device")));
    }
    let [(n, d), (m, columns_of_z)] = [x, columns].map(|side| (side.shape[0], side.shape[1]));
    fail_if!(d != columns_of_z, "X has {d} columns and Y has {columns_of_z}; they must have the same");
    let Some(ready) = Ready::new(kernel, columns, z.map(|_| x), precision)? else {
        return Ok(None);
    };
    let out = x.gpu.allocate(
        n * m * precision.bytes() as usize,
        &|| format!("a {n} × {m} kernel matrix"),
        "use mercer.operator, which stores no matrix",
    )?;
    let sides = [ready.points.last().expect("points"), &ready.points[0]];
    ready.kernel.gram(Kind::Gram, sides, z.is_none().then_some(0), out.pointer(), m);
    x.gpu.synchronize()?;
    Ok(Some(out))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::catalogue;
    use crate::rng::Rng;
    use ndarray::Array2;

    /// What `pack_view` makes of a point, by its definition; `.ci/emulate_external.py` compares the kernel with the same.
    fn lifted(lift: &DeviceLift, x: &[f64]) -> Vec<f64> {
        let at = |values: &Option<Vec<f64>>, j: usize, none: f64| values.as_ref().map_or(none, |values| values[j]);
        let scale = |j: usize| at(&lift.scale, j, 1.0);
        let first = |j: usize| if lift.kind == PERIODIC { 1.0 } else { scale(j) };
        let t = |j: usize| (x[j] - at(&lift.shift, j, 0.0)) / first(j);
        let t: Vec<f64> = (0..x.len()).map(t).collect();
        let turns = |t: f64| std::f64::consts::TAU * t / lift.parameter;
        match lift.kind {
            OVER_NORM => {
                let norm = t.iter().map(|v| v * v).sum::<f64>().sqrt();
                t.iter().map(|v| v / norm.powf(lift.parameter)).collect()
            }
            PERIODIC => {
                let waves = |wave: fn(f64) -> f64| t.iter().enumerate().map(move |(j, t)| (j, wave(turns(*t))));
                waves(f64::cos).chain(waves(f64::sin)).map(|(j, wave)| wave / scale(j)).collect()
            }
            _ => t,
        }
    }

    #[test]
    fn every_view_of_points_is_made_as_the_host_makes_it() {
        let mut rng = Rng::new(2);
        let x = Array2::from_shape_simple_fn((7, 3), || rng.normal() + 2.0);
        let names = catalogue().into_iter().map(|entry| entry.name.to_string());
        let more = [
            "rbf([1, 2, 3])",
            "arccos(0)",
            "periodic(0.7, 2)",
            "nngp(depth=2)",
            "rbf(2)*linear + laplacian([3, 1, 2])",
            "linear(2)",
            "poly(2, 1, 0.5, [1, 2, 3])",
            "expdot(3, [1, 2, 3])",
            "cosine([1, 2, 3])",
            "arccos(0, [1, 2, 3])",
            "arccos(2, 3)",
            "periodic(0.7, [1, 2, 3])",
            "ntk(depth=2, lengthscale=[1, 2, 3])",
            "nngp(depth=1, lengthscale=2)",
        ];
        for expression in names.chain(more.map(String::from)) {
            let plan = Plan::new(&Kernel::parse(&expression).unwrap(), Rows::from(&x));
            let points = plan.points::<f64>(Rows::from(&x));
            for (view, seen) in points.views.iter().enumerate() {
                let lift =
                    DeviceLift::of(&plan, view, 3).unwrap_or_else(|| panic!("{expression} has no lift on a GPU"));
                for (row, want) in x.rows().into_iter().zip(seen.x.rows()) {
                    let got = lifted(&lift, row.as_slice().unwrap());
                    assert_eq!(got.len(), want.len(), "{expression}");
                    assert!(got.iter().zip(want).all(|(a, b)| (a - b).abs() < 1e-14), "{expression}: {got:?}, {want}");
                }
            }
        }
    }
}
