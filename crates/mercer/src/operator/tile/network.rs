//! Infinite networks over a tile: each step of the network is one vectorised loop over sixteen lanes at a time, with all
//! that depends on one point alone taken from its profile.

use crate::compute::{Activation, Device};
use crate::kernel::infinite::hermite::{self, TERMS};
use crate::kernel::infinite::logistic::{self, NODES, Node};
use crate::kernel::infinite::{DEEPEST, Expectations, Side, Step, dual_at, place};
use crate::operator::Real;
use crate::operator::tile::aligned::Aligned;
use crate::simd::{Num, Pack, SimdJob, dispatch, vectorized};

/// Pairs that are computed together: one vector of the widest kind in f32.
pub(crate) const LANES: usize = 16;

/// Numbers of one point that a layer of activations takes at each position: the fields of [`Side`].
pub(crate) const FIELDS: usize = 3;

/// What the activations see of one of the two points of each pair, `[FIELDS, groups, WIDTH]`, or `[FIELDS, 1, WIDTH]` for all
/// groups: `WIDTH` is `LANES`, or one where all lanes see the same point.
#[derive(Clone, Copy)]
pub(crate) struct Sides<'a, T, const WIDTH: usize> {
    values: &'a [T],
    /// From one field to the next.
    field: usize,
    /// From one group of lanes to the next.
    group: usize,
    start: usize,
    /// Coefficients of a series, `[terms, groups, WIDTH]` likewise; none where there is no series.
    series: &'a [T],
    terms: usize,
}

impl<'a, T: Real, const WIDTH: usize> Sides<'a, T, WIDTH> {
    /// One for each group.
    pub fn each(values: &'a [T]) -> Self {
        Sides { values, field: values.len() / FIELDS, group: WIDTH, start: 0, series: &[], terms: 0 }
    }

    /// The same for all groups.
    pub fn same(values: &'a [T]) -> Self {
        Sides { group: 0, ..Sides::each(values) }
    }

    /// With the coefficients of a series.
    pub fn with_series(self, series: &'a [T], terms: usize) -> Self {
        Sides { series, terms, ..self }
    }

    /// From this group on.
    pub fn starting_at(self, group: usize) -> Self {
        Sides { start: self.start + group * self.group, ..self }
    }

    #[inline(always)]
    fn fields(&self, group: usize) -> [[T; LANES]; FIELDS] {
        let at = self.start + group * self.group;
        let [variance, deviation, inverse] = [at, self.field + at, 2 * self.field + at];
        [
            lanes::<T, WIDTH>(self.values, variance),
            lanes::<T, WIDTH>(self.values, deviation),
            lanes::<T, WIDTH>(self.values, inverse),
        ]
    }

    #[inline(always)]
    fn term(&self, term: usize, group: usize) -> [T; LANES] {
        lanes::<T, WIDTH>(self.series, term * (self.series.len() / self.terms) + self.start + group * self.group)
    }
}

/// The values of all lanes from `at` on: `LANES` of them, or one for all.
#[inline(always)]
pub(crate) fn lanes<T: Real, const WIDTH: usize>(values: &[T], at: usize) -> [T; LANES] {
    if WIDTH == 1 { [values[at]; LANES] } else { values[at..at + LANES].try_into().expect("LANES values") }
}

/// The covariances of pairs at one place of the network, `[groups, LANES]` each: K, and Θ where it is wanted.
#[derive(Clone, Default)]
pub(crate) struct Covariances<T> {
    pub k: Aligned<T>,
    /// Empty for the NNGP.
    pub theta: Aligned<T>,
}

impl<T: Real> Covariances<T> {
    /// `K ← w K + b`, `Θ ← K + w Θ`.
    pub fn dense(&mut self, weight: f64, bias: f64) {
        dense(T::of(weight), T::of(bias), &mut self.k, &mut self.theta);
    }

    /// A step between the branches of a sum, with those set aside in `aside[..top]`.
    pub fn branch(&mut self, step: &Step, aside: &mut [Covariances<T>], top: &mut usize) {
        match step {
            Step::Fork => {
                aside[*top].k.copy(&self.k);
                aside[*top].theta.copy(&self.theta);
                *top += 1;
            }
            Step::Shortcut => std::mem::swap(self, &mut aside[*top - 1]),
            _ => {
                *top -= 1;
                let other = &aside[*top];
                self.k.iter_mut().zip(&other.k[..]).for_each(|(k, &o)| *k += o);
                self.theta.iter_mut().zip(&other.theta[..]).for_each(|(k, &o)| *k += o);
            }
        }
    }

    /// All steps of a network without positions; `sides` gives those of the i-th activation.
    pub fn run<'s, const X: usize>(
        &mut self,
        steps: &[Step],
        aside: &mut Vec<Covariances<T>>,
        sides: impl Fn(usize) -> (Sides<'s, T, X>, Sides<'s, T, LANES>),
    ) {
        aside.resize_with(DEEPEST, Covariances::default);
        let (mut top, mut activation) = (0, 0);
        for step in steps {
            match step {
                Step::Dense(v) => self.dense(v.weight, v.bias),
                Step::Activation(phi) => {
                    let (x, y) = sides(activation);
                    activate(*phi, &mut self.k, &mut self.theta, x, y);
                    activation += 1;
                }
                Step::Fork | Step::Shortcut | Step::Join => self.branch(step, aside, &mut top),
                // A vector is flat already; the other steps need images.
                Step::Flatten | Step::Conv(..) | Step::AvgPool(_) | Step::Gap => {}
            }
        }
    }
}

vectorized! {
    fn dense<FMA, 'a, T: Real>(w: T, b: T, k: &'a mut [T], theta: &'a mut [T]) {
        let (w, b) = (w.lane::<FMA>(), b.lane::<FMA>());
        for k in k.iter_mut() {
            *k = T::of_lane(k.lane::<FMA>().mul_add(w, b));
        }
        for (theta, k) in theta.iter_mut().zip(k) {
            *theta = T::of_lane(theta.lane::<FMA>().mul_add(w, k.lane::<FMA>()));
        }
    }
}

struct Activate<'a, T, const PHI: usize, const X: usize> {
    phi: Activation,
    k: &'a mut [T],
    theta: &'a mut [T],
    x: Sides<'a, T, X>,
    y: Sides<'a, T, LANES>,
}

impl<T: Real, const PHI: usize, const X: usize> Activate<'_, T, PHI, X> {
    /// Values and slopes of one group of lanes. Sums of many terms see a pack; the other closed forms become vector code by the
    /// loop around them.
    #[inline(always)]
    fn group<const FMA: bool>(&self, group: usize, k: &mut [T; LANES], slopes: &mut [T; LANES]) {
        let phi = self.phi;
        let (x, y) = (self.x.fields(group), self.y.fields(group));
        // Constants: what an activation does not need is not compiled for it.
        if const { is_logistic(PHI) || PHI == place::POLYNOMIAL } {
            let x = Side { variance: pack::<T, FMA>(&x[0]), deviation: pack(&x[1]), inverse: pack(&x[2]) };
            let y = Side { variance: pack(&y[0]), deviation: pack(&y[1]), inverse: pack(&y[2]) };
            let (value, slope) = if const { is_logistic(PHI) } {
                hermite::dual_of_series(
                    phi,
                    pack::<T, FMA>(k),
                    x,
                    y,
                    self.x.terms,
                    #[inline(always)]
                    |m| pack::<T, FMA>(&self.x.term(m, group)) * pack(&self.y.term(m, group)),
                )
            } else {
                dual_at::<_, PHI>(phi, pack::<T, FMA>(k), x, y)
            };
            for l in 0..LANES {
                (k[l], slopes[l]) = (T::of_lane(value.0[l]), T::of_lane(slope.0[l]));
            }
            return;
        }
        for l in 0..LANES {
            let (x, y) = (side::<T, FMA>(&x, l), side::<T, FMA>(&y, l));
            let (value, slope) = dual_at::<_, PHI>(phi, k[l].lane::<FMA>(), x, y);
            (k[l], slopes[l]) = (T::of_lane(value), T::of_lane(slope));
        }
    }
}

/// One lane of the fields of a side.
#[inline(always)]
fn side<T: Real, const FMA: bool>(fields: &[[T; LANES]; FIELDS], l: usize) -> Side<T::Lane<FMA>> {
    let [variance, deviation, inverse] = fields;
    Side { variance: variance[l].lane(), deviation: deviation[l].lane(), inverse: inverse[l].lane() }
}

#[inline(always)]
fn pack<T: Real, const FMA: bool>(values: &[T; LANES]) -> Pack<T::Lane<FMA>, LANES> {
    let mut pack = Pack([values[0].lane::<FMA>(); LANES]);
    pack.0.iter_mut().zip(values).for_each(
        #[inline(always)]
        |(lane, value)| *lane = value.lane::<FMA>(),
    );
    pack
}

impl<T: Real, const PHI: usize, const X: usize> SimdJob for Activate<'_, T, PHI, X> {
    type Output = ();
    #[inline(always)]
    fn run<const FMA: bool>(mut self) {
        let (k, theta) = (std::mem::take(&mut self.k), std::mem::take(&mut self.theta));
        let (k, theta) = (k.as_chunks_mut::<LANES>().0, theta.as_chunks_mut::<LANES>().0);
        let mut slopes = [T::default(); LANES];
        for (group, k) in k.iter_mut().enumerate() {
            self.group::<FMA>(group, k, &mut slopes);
            if let Some(theta) = theta.get_mut(group) {
                for l in 0..LANES {
                    theta[l] = T::of_lane(theta[l].lane::<FMA>() * slopes[l].lane::<FMA>());
                }
            }
        }
    }
}

/// The sums of `kernel/infinite/logistic.rs`, which are series where the inputs are narrow.
const fn is_logistic(place: usize) -> bool {
    matches!(place, place::TANH | place::SIGMOID | place::SOFTPLUS)
}

vectorized! {
    /// The same as [`Activate`] for one group of lanes and tanh, sigmoid or softplus, at inputs of any variance. Terms are the
    /// outer loop: a sum in each lane would be compiled once a lane.
    fn logistic<FMA, 'a, T: Real>(
        phi: Activation, k: &'a mut [T; LANES], theta: &'a mut [T], x: &'a [T; LANES], y: &'a [T; LANES]
    ) {
        let (rule, zero) = (logistic::rule(phi), T::default());
        let mut nodes = [[[[zero; LANES]; 2]; NODES]; 2];
        let (mut left, mut value, mut slope) = ([zero; LANES], [zero; LANES], [zero; LANES]);
        for l in 0..LANES {
            let (k, x, y) = (k[l].lane::<FMA>(), x[l].lane::<FMA>(), y[l].lane::<FMA>());
            left[l] = T::of_lane((x * y - k * k).max(Num::of(0.0)));
        }
        for (i, &scale) in rule.scales.iter().enumerate() {
            for l in 0..LANES {
                let (x, y) = (x[l].lane::<FMA>(), y[l].lane::<FMA>());
                for (side, variance) in [x.max(y), x.min(y)].into_iter().enumerate() {
                    let node = Node::new(scale, variance);
                    nodes[side][i][0][l] = T::of_lane(node.alpha);
                    nodes[side][i][1][l] = T::of_lane(node.rest);
                }
            }
        }
        for &(i, j, weight) in &rule.pairs {
            let ([wide_alpha, wide_rest], [narrow_alpha, narrow_rest]) = (&nodes[0][i], &nodes[1][j]);
            let weight: T::Lane<FMA> = Num::of(weight);
            for l in 0..LANES {
                let wide = Node { alpha: wide_alpha[l].lane::<FMA>(), rest: wide_rest[l].lane() };
                let narrow = Node { alpha: narrow_alpha[l].lane(), rest: narrow_rest[l].lane() };
                let term = wide.term(narrow, phi, k[l].lane(), left[l].lane());
                value[l] = T::of_lane(weight.mul_add(term.0, value[l].lane()));
                slope[l] = T::of_lane(weight.mul_add(term.1, slope[l].lane()));
            }
        }
        let factor: T::Lane<FMA> = Num::of(logistic::factor(phi));
        for l in 0..LANES {
            k[l] = T::of_lane(factor * value[l].lane::<FMA>());
        }
        for (theta, slope) in theta.iter_mut().zip(slope) {
            *theta = T::of_lane(theta.lane::<FMA>() * (factor * slope.lane::<FMA>()));
        }
    }
}

/// `Θ ← Θ E[φ'φ']`, `K ← E[φφ]`, by the copy of the loop that was compiled for `phi`.
pub(crate) fn activate<T: Real, const X: usize>(
    phi: Activation,
    k: &mut [T],
    theta: &mut [T],
    x: Sides<T, X>,
    y: Sides<T, LANES>,
) {
    // Special cases share a copy.
    let phi = match phi {
        Activation::LeakyRelu(slope) => Activation::AbRelu(slope, 1.0),
        Activation::Monomial(_) | Activation::Hermite(_) => Activation::Polynomial(phi.parameters()),
        _ => phi,
    };
    macro_rules! choose {
        ($($i:literal)*) => {
            match phi.place() {
                $($i => dispatch(Activate::<T, $i, X> { phi, k, theta, x, y }),)*
                other => unreachable!("activation {other}"),
            }
        };
    }
    if is_logistic(phi.place()) && x.terms == 0 {
        for (group, k) in k.as_chunks_mut::<LANES>().0.iter_mut().enumerate() {
            let theta = theta.get_mut(group * LANES..(group + 1) * LANES).unwrap_or_default();
            logistic(phi, k, theta, &x.fields(group)[0], &y.fields(group)[0]);
        }
    } else if phi != Activation::Identity {
        choose!(1 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 23);
    }
}

/// The fields of the sides of inputs with these variances, one after the other: `[FIELDS, variances]`.
pub(crate) fn fields<T: Real>(variances: &[T], out: &mut Aligned<T>) {
    let (start, n) = (out.len(), variances.len());
    out.resize(start + FIELDS * n, T::default());
    let (values, others) = out[start..].split_at_mut(n);
    values.copy_from_slice(variances);
    let (deviations, inverses) = others.split_at_mut(n);
    for (i, v) in variances.iter().enumerate() {
        let side = Side::of(v.wide());
        (deviations[i], inverses[i]) = (T::of(side.deviation), T::of(side.inverse));
    }
}

/// The profile of a point of a network without positions, from `‖x‖²/d`: for every activation the variance of its inputs, and
/// the coefficients of its series where it is one.
pub(crate) fn profile<T: Real>(steps: &[Step], square: f64) -> Vec<T> {
    let mut profile = vec![];
    run_variances(steps, vec![square], |phi, now| {
        profile.push(T::of(now[0]));
        profile.extend(hermite::series(phi, now[0]).into_iter().map(T::of));
    });
    profile
}

/// The steps of a network without positions on variances of points; `see(φ, variances)` is shown the inputs of each activation.
pub(crate) fn run_variances(steps: &[Step], mut now: Vec<f64>, mut see: impl FnMut(Activation, &[f64])) {
    let mut aside = vec![];
    for step in steps {
        match step {
            Step::Dense(v) => now.iter_mut().for_each(|k| *k = v.weight * *k + v.bias),
            Step::Activation(phi) => {
                see(*phi, &now);
                now.iter_mut().for_each(|k| *k = phi.second_moment(*k));
            }
            Step::Fork => aside.push(now.clone()),
            Step::Shortcut => std::mem::swap(&mut now, aside.last_mut().expect("a fork comes before")),
            Step::Join => {
                let other = aside.pop().expect("a fork comes before");
                now.iter_mut().zip(other).for_each(|(k, o)| *k += o);
            }
            Step::Flatten | Step::Conv(..) | Step::AvgPool(_) | Step::Gap => {}
        }
    }
}

/// Whether any of its activations is a series.
pub(crate) fn has_series(steps: &[Step]) -> bool {
    places(steps).iter().any(|(_, widest)| widest.is_some())
}

/// Where the activations of a network without positions begin in a [`profile`], and up to which variance they are series.
fn places(steps: &[Step]) -> Vec<(usize, Option<f64>)> {
    let mut start = 0;
    let activations = steps.iter().filter_map(|step| match step {
        Step::Activation(phi) => Some(hermite::widest(*phi)),
        _ => None,
    });
    let place = |widest: Option<f64>| {
        let here = start;
        start += 1 + if widest.is_some() { TERMS } else { 0 };
        (here, widest)
    };
    activations.map(place).collect()
}

/// How many terms of a series count in precision `T`, for profiles `x` and `y` of `length` numbers whose coefficients are
/// those `[TERMS]` from `start` on: what the others add is at most the root of the product of both sides' shares, where
/// `share = Σ_{n left out} n a_n² / Σ n a_n²`, as slopes weigh them.
fn terms_that_count<T: Real>(x: &[T], y: &[T], length: usize, start: usize) -> usize {
    let shares = |profiles: &[T]| {
        let mut largest = vec![0.0f64; TERMS + 1];
        for profile in profiles.chunks_exact(length) {
            let coefficients = &profile[start..start + TERMS];
            let mut left = vec![0.0f64; TERMS + 1];
            for m in (0..TERMS).rev() {
                left[m] = left[m + 1] + (2 * m + 1) as f64 * coefficients[m].wide().powi(2);
            }
            let all = left[0].max(f64::MIN_POSITIVE);
            largest.iter_mut().zip(&left).for_each(|(largest, left)| *largest = largest.max(left / all));
        }
        largest
    };
    let (x, y, bound) = (shares(x), shares(y), 0.01 * T::PRECISION.roundoff(Device::Cpu));
    (1..TERMS).find(|&m| (x[m] * y[m]).sqrt() < bound).unwrap_or(TERMS)
}

/// Buffers that one thread reuses from tile to tile.
#[derive(Default)]
pub(crate) struct NetworkBuffers<T> {
    now: Covariances<T>,
    aside: Vec<Covariances<T>>,
    x: Aligned<T>,
    y: Aligned<T>,
    series: Vec<Series<T>>,
    variances: Vec<T>,
}

/// The series of one activation over a tile.
#[derive(Default)]
struct Series<T> {
    terms: usize,
    /// Coefficients of the columns' points, `[terms, padded]`.
    y: Aligned<T>,
}

impl<T: Real> NetworkBuffers<T> {
    /// `values` `[rows, columns]` from `x·x'/d` to the kernel: Θ with `ntk`, K without. `x` and `y` are the profiles of the
    /// rows and of the columns, `[points, activations]`.
    pub fn fully_connected(&mut self, steps: &[Step], ntk: bool, x: &[T], y: &[T], columns: usize, values: &mut [T]) {
        let (length, places) = (y.len() / columns, places(steps));
        let padded = columns.next_multiple_of(LANES);
        // [activations, FIELDS, padded], and for each series [terms, padded].
        self.y.clear();
        self.series.resize_with(places.len(), Series::default);
        for (&(start, widest), series) in places.iter().zip(&mut self.series) {
            let at = |number: usize| (0..padded).map(move |j| y[j.min(columns - 1) * length + number]);
            self.variances.clear();
            self.variances.extend(at(start));
            fields(&self.variances, &mut self.y);
            let variances =
                |profiles: &[T]| profiles.iter().skip(start).step_by(length).fold(0.0, |m: f64, v| m.max(v.wide()));
            let is_series = widest.is_some_and(|widest| variances(x).max(variances(y)) <= widest);
            series.terms = if is_series { terms_that_count(x, y, length, start + 1) } else { 0 };
            series.y.room(series.terms * padded);
            for (m, row) in series.y.chunks_exact_mut(padded).enumerate() {
                row.iter_mut().zip(at(start + 1 + m)).for_each(|(to, v)| *to = v);
            }
        }
        for (row, values) in values.chunks_exact_mut(columns).enumerate() {
            let profile = &x[row * length..(row + 1) * length];
            // [activations, FIELDS]
            self.x.clear();
            places.iter().for_each(|&(start, _)| fields(&[profile[start]], &mut self.x));
            self.now.k.copy(values);
            self.now.k.resize(padded, T::default());
            self.now.theta.clear();
            self.now.theta.resize(if ntk { padded } else { 0 }, T::default());
            let (x, y, series) = (&self.x, &self.y, &self.series);
            self.now.run(steps, &mut self.aside, |i| {
                let (mine, theirs) = (i * FIELDS, i * FIELDS * padded);
                let Series { terms, y: coefficients } = &series[i];
                let own = places[i].0 + 1;
                let x = Sides::<T, 1>::same(&x[mine..mine + FIELDS]).with_series(&profile[own..own + terms], *terms);
                (x, Sides::each(&y[theirs..theirs + FIELDS * padded]).with_series(coefficients, *terms))
            });
            let result = if ntk { &self.now.theta } else { &self.now.k };
            values.copy_from_slice(&result[..columns]);
        }
    }
}
