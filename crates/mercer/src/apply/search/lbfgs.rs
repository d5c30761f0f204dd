//! L-BFGS within bounds.

use crate::Result;
use std::collections::VecDeque;

/// Pairs of steps and changes of the gradient that are kept.
const MEMORY: usize = 10;

/// The most that a variable changes in one step.
const LONGEST: f64 = 2.0;

/// The value of a function and its gradient; none where it has no value.
pub(crate) type Evaluated = Option<(f64, Vec<f64>)>;

/// Where a minimisation ended.
#[derive(Clone, Debug)]
pub(crate) struct Minimum {
    pub x: Vec<f64>,
    pub value: f64,
    /// The largest component of the gradient along which x could still move.
    pub gradient: f64,
    pub steps: usize,
    pub converged: bool,
}

/// A point that was evaluated.
struct Point {
    x: Vec<f64>,
    value: f64,
    gradient: Vec<f64>,
}

/// Minimises `f` from `start` with every variable within its `bounds`, until no component of the gradient is above `tolerance`, `steps` are
/// made, or `goes_on` says no. None where `f` has no value at the start.
pub(crate) fn minimise(
    start: Vec<f64>,
    bounds: &[(f64, f64)],
    (tolerance, steps): (f64, usize),
    mut f: impl FnMut(&[f64]) -> Result<Evaluated>,
    mut goes_on: impl FnMut(usize, f64, f64) -> bool,
) -> Result<Option<Minimum>> {
    let Some((value, gradient)) = f(&start)? else { return Ok(None) };
    let mut at = Point { x: start, value, gradient };
    let mut pairs: VecDeque<(Vec<f64>, Vec<f64>)> = VecDeque::new();
    let mut step = 0;
    let converged = loop {
        let gradient = largest_free(&at, bounds);
        if gradient <= tolerance {
            break true;
        }
        if step == steps || !goes_on(step, at.value, gradient) {
            break false;
        }
        let direction = direction(&at, bounds, &pairs);
        let next = match line_search(&at, &direction, bounds, &mut f)? {
            Some(next) => next,
            // What is remembered of the curvature misleads: once more along the gradient alone.
            None if !pairs.is_empty() => {
                pairs.clear();
                continue;
            }
            // Rounding leaves nothing to gain.
            None => break true,
        };
        let s: Vec<f64> = next.x.iter().zip(&at.x).map(|(a, b)| a - b).collect();
        let y: Vec<f64> = next.gradient.iter().zip(&at.gradient).map(|(a, b)| a - b).collect();
        if dot(&s, &y) > 1e-12 * dot(&y, &y).max(f64::MIN_POSITIVE) {
            pairs.push_back((s, y));
            if pairs.len() > MEMORY {
                pairs.pop_front();
            }
        }
        at = next;
        step += 1;
    };
    let gradient = largest_free(&at, bounds);
    Ok(Some(Minimum { x: at.x, value: at.value, gradient, steps: step, converged }))
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// Whether a variable can move against its gradient.
fn is_free(x: f64, gradient: f64, (low, high): (f64, f64)) -> bool {
    !(x <= low && gradient > 0.0 || x >= high && gradient < 0.0)
}

/// The largest component of the gradient of a free variable.
fn largest_free(at: &Point, bounds: &[(f64, f64)]) -> f64 {
    let free = at.x.iter().zip(&at.gradient).zip(bounds).filter(|((x, g), b)| is_free(**x, **g, **b));
    free.map(|((_, g), _)| g.abs()).fold(0.0, f64::max)
}

/// `−H g` on the free variables, with H the inverse Hessian that the pairs of steps and changes imply (two loops).
fn direction(at: &Point, bounds: &[(f64, f64)], pairs: &VecDeque<(Vec<f64>, Vec<f64>)>) -> Vec<f64> {
    let free: Vec<bool> = at.x.iter().zip(&at.gradient).zip(bounds).map(|((x, g), b)| is_free(*x, *g, *b)).collect();
    let on_free =
        |v: &[f64]| -> Vec<f64> { v.iter().zip(&free).map(|(v, free)| if *free { *v } else { 0.0 }).collect() };
    let mut q = on_free(&at.gradient);
    let mut steps = vec![];
    for (s, y) in pairs.iter().rev() {
        let (s, y) = (on_free(s), on_free(y));
        let sy = dot(&s, &y);
        if sy > 0.0 {
            let a = dot(&s, &q) / sy;
            q.iter_mut().zip(&y).for_each(|(q, y)| *q -= a * y);
            steps.push((s, y, a, sy));
        }
    }
    let scale = steps
        .first()
        .map_or_else(|| 1.0 / q.iter().fold(1.0f64, |m, q| m.max(q.abs())), |(_, y, _, sy)| sy / dot(y, y));
    q.iter_mut().for_each(|q| *q *= scale);
    for (s, y, a, sy) in steps.iter().rev() {
        let b = dot(y, &q) / sy;
        q.iter_mut().zip(s).for_each(|(q, s)| *q += (a - b) * s);
    }
    let longest = q.iter().fold(0.0f64, |m, q| m.max(q.abs()));
    let cut = if longest > LONGEST { LONGEST / longest } else { 1.0 };
    q.iter().map(|q| -q * cut).collect()
}

/// The first of the steps 1, ½, ¼, … along the direction after which the value is lower by a fair part of what the gradient promises.
fn line_search(
    at: &Point,
    direction: &[f64],
    bounds: &[(f64, f64)],
    f: &mut impl FnMut(&[f64]) -> Result<Evaluated>,
) -> Result<Option<Point>> {
    let mut t = 1.0;
    for _ in 0..25 {
        let moved = at.x.iter().zip(direction).zip(bounds).map(|((x, d), (low, high))| (x + t * d).clamp(*low, *high));
        let x: Vec<f64> = moved.collect();
        let change: Vec<f64> = x.iter().zip(&at.x).map(|(a, b)| a - b).collect();
        let promised = dot(&at.gradient, &change);
        if promised >= 0.0 {
            return Ok(None);
        }
        if let Some((value, gradient)) = f(&x)?
            && value <= at.value + 1e-4 * promised
        {
            return Ok(Some(Point { x, value, gradient }));
        }
        t *= 0.5;
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rosenbrock's function and its gradient.
    fn rosenbrock(x: &[f64]) -> (f64, Vec<f64>) {
        let (a, b) = (1.0 - x[0], x[1] - x[0] * x[0]);
        (a * a + 100.0 * b * b, vec![-2.0 * a - 400.0 * x[0] * b, 200.0 * b])
    }

    fn minimum(start: [f64; 2], bounds: [(f64, f64); 2]) -> Minimum {
        let f = |x: &[f64]| Ok(Some(rosenbrock(x)));
        minimise(start.to_vec(), &bounds, (1e-8, 200), f, |_, _, _| true).unwrap().unwrap()
    }

    #[test]
    fn the_minimum_of_a_curved_valley_is_found() {
        let found = minimum([-1.2, 1.0], [(-5.0, 5.0); 2]);
        assert!(found.converged && found.steps < 100, "{found:?}");
        assert!(found.x.iter().all(|x| (x - 1.0).abs() < 1e-7), "{found:?}");
    }

    #[test]
    fn a_bound_is_kept_and_the_rest_minimised() {
        // With x ≤ ½ the minimum has y = x² = ¼.
        let found = minimum([-1.2, 1.0], [(-5.0, 0.5), (-5.0, 5.0)]);
        assert!(found.converged, "{found:?}");
        assert_eq!(found.x[0], 0.5);
        assert!((found.x[1] - 0.25).abs() < 1e-8, "{found:?}");
    }

    #[test]
    fn steps_to_places_without_a_value_are_shortened() {
        // −log x + x, which has no value at x ≤ 0, from far to the right.
        let f = |x: &[f64]| Ok((x[0] > 0.0).then(|| (x[0] - x[0].ln(), vec![1.0 - 1.0 / x[0]])));
        let found = minimise(vec![30.0], &[(-1e9, 1e9)], (1e-10, 100), f, |_, _, _| true).unwrap().unwrap();
        assert!((found.x[0] - 1.0).abs() < 1e-9, "{found:?}");
    }
}
