//! Bound states of a Schrödinger operator by several methods under one budget, beside the exact energies.

use mercer::FitContext;
use mercer::rng::Rng;
use mercer::spectrum::neural::{FunctionOperator, Kind, Schroedinger, Settings, Trained, rayleigh_ritz, train};
use mercer::{Error, Result};
use ndarray::Array2;
use serde::Serialize;
use std::time::Instant;

/// How the energies are sought: networks trained by an objective, or left as they were drawn, then Rayleigh–Ritz.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Contender {
    /// Its name.
    pub name: &'static str,
    /// One network a state, or (Ritz) the hidden units of a single one.
    pub kind: Kind,
    /// Whether the networks are trained.
    pub trained: bool,
}

impl Contender {
    /// Every objective, and hidden units as they were drawn.
    pub fn all() -> Vec<Contender> {
        let untrained = Contender { name: "random features", kind: Kind::Ritz, trained: false };
        let trained = Kind::ALL.map(|(name, kind)| Contender { name, kind, trained: true });
        trained.into_iter().chain([untrained]).collect()
    }
}

/// The same for every method.
#[derive(Clone, Debug, Serialize)]
pub struct Budget {
    /// Training steps.
    pub steps: u64,
    /// Points of a training step.
    pub batch: usize,
    /// Largest learning rate.
    pub learning_rate: f64,
    /// Points of the Rayleigh–Ritz finish.
    pub finish_points: usize,
    /// One state's network.
    pub networks: String,
    /// The network whose hidden units are combined.
    pub units: String,
    /// Seed of networks and points.
    pub seed: u64,
}

impl Budget {
    /// A tenth of it or so, for a look in seconds.
    pub fn quick(self) -> Budget {
        Budget { steps: 300, batch: 256, finish_points: 8192, ..self }
    }
}

/// What one method found.
#[derive(Clone, Debug, Serialize)]
pub struct Levels {
    /// Its name.
    pub method: String,
    /// Energies after Rayleigh–Ritz, ascending.
    pub energies: Vec<f64>,
    /// `|E − E_exact|/|E_exact|`, one for each.
    pub errors: Vec<f64>,
    /// `‖Hψ − Eψ‖/|E|` on the points of the finish.
    pub residuals: Vec<f64>,
    /// Energies as the objective had them at the end of training, in its own order.
    pub raw: Vec<f64>,
    /// Energies that belong together, as `(mean energy, how many)`.
    pub multiplets: Vec<(f64, usize)>,
    /// Trained numbers.
    pub parameters: usize,
    /// Steps run; fewer than planned where training had converged.
    pub steps: u64,
    /// The step whose functions were kept: the smallest residual on points of their own.
    pub kept: u64,
    /// Seconds of training and finish.
    pub seconds: f64,
    /// `ψ` `[side², k]` on the figure's grid.
    #[serde(skip)]
    pub states: Array2<f64>,
}

impl Levels {
    /// The largest relative error.
    pub fn worst(&self) -> f64 {
        self.errors.iter().fold(0.0, |a, b| a.max(*b))
    }

    /// The mean relative error.
    pub fn mean(&self) -> f64 {
        self.errors.iter().sum::<f64>() / self.errors.len().max(1) as f64
    }
}

/// An experiment's outcome.
#[derive(Clone, Debug, Serialize)]
pub struct BoundStates {
    /// The operator, in words.
    pub system: String,
    /// Exact energies, ascending, repeated as often as they occur.
    pub exact: Vec<f64>,
    /// What every method was given.
    pub budget: Budget,
    /// One for each method that ended.
    pub methods: Vec<Levels>,
    /// Methods that broke down, and why.
    pub failed: Vec<(String, String)>,
    /// The figure's grid is `side × side` points over `[−extent, extent]²`, row by row from `y = −extent`.
    pub extent: f64,
    /// See [`BoundStates::extent`].
    pub side: usize,
}

impl BoundStates {
    /// The methods, the one with the smallest worst error first.
    pub fn ranking(&self) -> Vec<&Levels> {
        let mut methods: Vec<&Levels> = self.methods.iter().collect();
        methods.sort_by(|a, b| a.worst().total_cmp(&b.worst()));
        methods
    }

    /// One sentence a method, best first.
    pub fn verdict(&self) -> String {
        let k = self.exact.len();
        let line = |m: &Levels| {
            let (worst, mean, counts) = (100.0 * m.worst(), 100.0 * m.mean(), self.multiplicities());
            let right = m.multiplets.iter().map(|(_, count)| *count).eq(counts);
            let budget = format!("in {} steps and {:.1} s", m.steps, m.seconds);
            if right {
                format!(
                    "{} finds the first {k} energies within {worst:.3} % ({mean:.3} % on average) with their multiplicities, {budget}.",
                    m.method
                )
            } else {
                format!(
                    "{} misses some of the first {k} energies: off by up to {worst:.0} %, {mean:.1} % on average, {budget}.",
                    m.method
                )
            }
        };
        self.ranking().into_iter().map(line).collect::<Vec<_>>().join("\n")
    }

    /// How often each exact energy occurs.
    fn multiplicities(&self) -> Vec<usize> {
        multiplets(&self.exact, 0.0).iter().map(|(_, count)| *count).collect()
    }
}

/// Consecutive energies less than `gap` of themselves apart belong together: their mean, and how many.
pub fn multiplets(energies: &[f64], gap: f64) -> Vec<(f64, usize)> {
    let mut groups: Vec<Vec<f64>> = vec![];
    for &e in energies {
        match groups.last_mut().filter(|g| (e - g[g.len() - 1]).abs() <= gap * e.abs().max(g[0].abs())) {
            Some(group) => group.push(e),
            None => groups.push(vec![e]),
        }
    }
    groups.iter().map(|g| (g.iter().sum::<f64>() / g.len() as f64, g.len())).collect()
}

/// The points of the figure, `[side², 2]`.
fn grid(extent: f64, side: usize) -> Array2<f64> {
    let at = |i: usize| extent * (2.0 * i as f64 / (side - 1).max(1) as f64 - 1.0);
    Array2::from_shape_fn((side * side, 2), |(p, axis)| at(if axis == 0 { p % side } else { p / side }))
}

/// An operator of the plane with known energies.
pub(super) struct System {
    pub name: &'static str,
    pub operator: Schroedinger,
    pub exact: Vec<f64>,
    /// Half the side of the figures.
    pub extent: f64,
}

/// Runs every contender on `system`.
pub(super) fn run(
    system: System,
    contenders: &[Contender],
    budget: &Budget,
    context: &FitContext<'_>,
) -> Result<BoundStates> {
    const SIDE: usize = 81;
    let (mut methods, mut failed) = (vec![], vec![]);
    for contender in contenders {
        match levels(&system, *contender, budget, SIDE, context) {
            Ok(found) => methods.push(found),
            Err(Error::Numerical(why)) => failed.push((contender.name.into(), why)),
            Err(error) => return Err(error),
        }
    }
    let System { name, exact, extent, .. } = system;
    Ok(BoundStates { system: name.into(), exact, budget: budget.clone(), methods, failed, extent, side: SIDE })
}

fn levels(
    system: &System,
    contender: Contender,
    budget: &Budget,
    side: usize,
    context: &FitContext<'_>,
) -> Result<Levels> {
    let (start, rng, k) = (Instant::now(), Rng::new(budget.seed), system.exact.len());
    let operator = &system.operator;
    let architecture = if contender.kind == Kind::Ritz { &budget.units } else { &budget.networks };
    let functions = contender.kind.functions(architecture, operator.inputs(), k, context.device, &rng.fork(1))?;
    let objective = contender.kind.objective(&functions, k)?;
    let settings = Settings {
        steps: if contender.trained { budget.steps } else { 0 },
        batch: budget.batch,
        learning_rate: budget.learning_rate,
        clip: Some(1.0),
        validation_points: 2048,
        seed: budget.seed,
        ..Settings::default()
    };
    let Trained { mut functions, record } = train(operator, functions, objective, k, &settings, context)?;
    let sample = operator.sample(context.device, &mut rng.fork(4), budget.finish_points)?;
    let pairs = context.device.enter(|| rayleigh_ritz(operator, &mut functions, &sample, k))?;
    if pairs.eigenvalues.len() < k {
        return Err(Error::Numerical(format!(
            "{} spans {} functions, fewer than the {k} states asked for; use a wider network",
            contender.name,
            pairs.eigenvalues.len()
        )));
    }
    let seconds = start.elapsed().as_secs_f64();
    let energies: Vec<f64> = pairs.eigenvalues.iter().map(|μ| operator.eigenvalue(*μ)).collect();
    let errors = energies.iter().zip(&system.exact).map(|(e, exact)| (e - exact).abs() / exact.abs()).collect();
    let residual = |(r, e): (&f64, &f64)| operator.energy_scale() * r / e.abs();
    let states = operator.wavefunctions(&mut functions, pairs.coefficients.view(), grid(system.extent, side).view())?;
    Ok(Levels {
        method: contender.name.into(),
        errors,
        residuals: pairs.residuals.iter().zip(&energies).map(residual).collect(),
        multiplets: multiplets(&energies, 0.05),
        energies,
        steps: record.steps,
        kept: record.kept,
        parameters: record.parameters,
        raw: record.raw_eigenvalues,
        seconds,
        states,
    })
}
