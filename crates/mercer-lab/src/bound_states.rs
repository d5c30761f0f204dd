//! Bound states of a Schrödinger operator by several methods with equal budgets, compared with the exact energies.

use crate::{Column, Shown, indices, table};
use mercer::rng::Rng;
use mercer::spectrum::neural::{FunctionOperator, Kind, Ritz, Schroedinger, Settings, Trained, rayleigh_ritz, train};
use mercer::{Error, FitContext, Result};
use mercer_figure::report::{Report, Table};
use mercer_figure::{Grid, Plot, text};
use ndarray::Array2;
use serde::Serialize;
use serde_json::json;
use std::time::Instant;

/// An operator in the plane with known energies.
pub struct System {
    pub name: &'static str,
    /// The operator `K` for `k` states.
    pub operator: fn(usize) -> Result<Schroedinger>,
    /// The first `k` energies, ascending, repeated by their multiplicity.
    pub energies: fn(usize) -> Vec<f64>,
    /// Half the side of the figures.
    pub extent: f64,
}

/// A method for the energies: networks trained with an objective, or untrained, followed by Rayleigh–Ritz.
#[derive(Clone, Copy)]
pub struct Contender {
    pub name: &'static str,
    /// The objective. It has one network per state; Ritz combines the hidden units of a single network.
    pub kind: Kind,
    pub trained: bool,
}

impl Contender {
    /// All objectives, and the hidden units of an untrained network.
    pub fn all() -> Vec<Contender> {
        let untrained = Contender { name: "random features", kind: Ritz.into(), trained: false };
        let trained = Kind::all().into_iter().map(|kind| Contender { name: kind.name(), kind, trained: true });
        trained.chain([untrained]).collect()
    }
}

/// The budget, equal for all methods.
#[derive(Clone, Serialize)]
pub struct Budget {
    pub steps: u64,
    /// Points per training step.
    pub batch: usize,
    pub learning_rate: f64,
    /// Points of the final Rayleigh–Ritz step.
    pub finish_points: usize,
    /// The network of each state.
    pub networks: String,
    /// The network whose hidden units are combined (Ritz).
    pub units: String,
    pub seed: u64,
}

impl Budget {
    /// A budget of the size of the published comparison.
    pub fn published(finish_points: usize, networks: &str, units: &str) -> Budget {
        let (networks, units) = (networks.into(), units.into());
        Budget { steps: 2000, batch: 512, learning_rate: 3e-3, finish_points, networks, units, seed: 0 }
    }

    /// A budget of a few seconds.
    pub fn quick(self) -> Budget {
        Budget { steps: 300, batch: 256, finish_points: 8192, ..self }
    }
}

#[derive(Serialize)]
pub struct Levels {
    pub method: String,
    /// Energies after Rayleigh–Ritz, ascending.
    pub energies: Vec<f64>,
    /// `|E − E_exact|/|E_exact|` of each energy.
    pub errors: Vec<f64>,
    /// `‖Hψ − Eψ‖/|E|` on the points of the final Rayleigh–Ritz step.
    pub residuals: Vec<f64>,
    /// The objective's own energies at the end of training, in its order.
    pub raw: Vec<f64>,
    /// Groups of nearly equal energies, as `(mean energy, multiplicity)`.
    pub multiplets: Vec<(f64, usize)>,
    pub parameters: usize,
    /// Steps run; fewer than in the budget if training converged.
    pub steps: u64,
    /// The step whose functions were kept: the one with the smallest residual on validation points.
    pub kept: u64,
    /// Seconds of training and of the final Rayleigh–Ritz step.
    pub seconds: f64,
    /// `ψ` `[side², k]` on the grid of the figure.
    #[serde(skip)]
    pub states: Array2<f64>,
}

impl Levels {
    pub fn worst(&self) -> f64 {
        self.errors.iter().fold(0.0, |a, b| a.max(*b))
    }

    pub fn mean(&self) -> f64 {
        self.errors.iter().sum::<f64>() / self.errors.len().max(1) as f64
    }
}

#[derive(Serialize)]
pub struct BoundStates {
    pub system: String,
    /// Exact energies, ascending, repeated by their multiplicity.
    pub exact: Vec<f64>,
    pub budget: Budget,
    pub methods: Vec<Levels>,
    /// The methods that failed, with the reason.
    pub failed: Vec<(String, String)>,
    /// The grid of the figure has `side × side` points over `[−extent, extent]²`, in rows of equal y from `y = −extent`.
    pub extent: f64,
    pub side: usize,
}

impl BoundStates {
    /// The methods, sorted by their worst error, the smallest first.
    pub fn ranking(&self) -> Vec<&Levels> {
        let mut methods: Vec<&Levels> = self.methods.iter().collect();
        methods.sort_by(|a, b| a.worst().total_cmp(&b.worst()));
        methods
    }

    /// One sentence per method, the best first.
    pub fn verdict(&self) -> String {
        let k = self.exact.len();
        let line = |m: &Levels| {
            let (worst, mean) = (100.0 * m.worst(), 100.0 * m.mean());
            let correct = m.multiplets.iter().map(|m| m.1).eq(multiplets(&self.exact, 0.0).iter().map(|m| m.1));
            let outcome = if correct {
                format!(
                    "finds the first {k} energies within {worst:.3} % ({mean:.3} % on average) with their multiplicities"
                )
            } else {
                format!("misses some of the first {k} energies: off by up to {worst:.0} %, {mean:.1} % on average")
            };
            format!("{} {outcome}, in {} steps and {:.1} s.", m.method, m.steps, m.seconds)
        };
        self.ranking().into_iter().map(line).collect::<Vec<_>>().join("\n")
    }

    pub fn lead(&self) -> String {
        format!("{}. Best: {}", self.system, self.verdict().lines().next().unwrap_or_default())
    }

    pub fn section(&self, report: Report) -> Report {
        let ranking = table(self.ranking(), &COLUMNS).lowest(1).lowest(2).lowest(6);
        let mut report = report
            .section(&format!("The first {} energies", self.exact.len()))
            .text(&self.settings())
            .table(ranking.caption("Best first; errors are relative to the exact energies."))
            .figure(&self.errors(), "Relative error of each energy after Rayleigh–Ritz.")
            .table(self.energies());
        for (method, why) in &self.failed {
            report = report.text(&format!("{method} failed: {why}."));
        }
        match self.ranking().first() {
            Some(best) => report.figure(
                &self.states(),
                &format!(
                    "The states of {}, all on one colour scale. States of equal energy are defined up to a rotation.",
                    best.method
                ),
            ),
            None => report,
        }
    }

    fn settings(&self) -> String {
        let Budget { steps, batch, learning_rate, finish_points, networks, units, seed } = &self.budget;
        format!(
            "{steps} steps on batches of {batch}, Adam at {learning_rate} (cosine), seed {seed}; one network \"{networks}\" per \
             state, or the units of \"{units}\" (ritz, random features); all end with Rayleigh–Ritz over {} points.",
            text::grouped(*finish_points)
        )
    }

    fn errors(&self) -> String {
        let mut plot = Plot::new(format!("{}: errors", self.system)).x("state j").y_log("relative error");
        for (i, m) in self.methods.iter().enumerate() {
            plot = plot.line(&m.method, &indices(m.errors.len()), &m.errors).markers().colour(i);
        }
        plot.size(720.0, 400.0).svg()
    }

    /// The exact energies, and for each method those after Rayleigh–Ritz and the raw ones.
    fn energies(&self) -> Table {
        let row = |name: String, energies: &[f64], digits: usize| -> Vec<String> {
            [name].into_iter().chain(energies.iter().map(|e| text::number(*e, digits))).collect()
        };
        let table = Table::new(&row("energies".into(), &self.exact, 4))
            .caption("The headings are the exact energies. Raw energies are the objective's own.");
        self.methods.iter().fold(table, |table, m| {
            let table = table.row(&row(m.method.clone(), &m.energies, 5));
            let raw = m.raw.len() == m.energies.len();
            if raw { table.row(&row(format!("{}, raw", m.method), &m.raw, 5)) } else { table }
        })
    }

    /// The states of the best method over the plane.
    fn states(&self) -> String {
        let mut grid = Grid::new(self.system.clone(), 5).panel_size(150.0, 150.0).one_scale("ψ");
        let (side, range) = (self.side, (-self.extent, self.extent));
        for m in self.ranking().into_iter().take(1) {
            for (psi, e) in m.states.columns().into_iter().zip(&m.energies) {
                let plot = Plot::new(format!("E = {}", text::number(*e, 4)));
                grid = grid.panel(plot.field("", range, range, [side, side], &psi.to_vec()).diverging().equal());
            }
        }
        grid.svg()
    }
}

/// The output of an experiment: the figure is that of the first of its results.
pub fn shown(report: Report, all: &[BoundStates]) -> Shown {
    let describe = |found: &BoundStates| {
        let (settings, ranking) = (found.settings(), table(found.ranking(), &COLUMNS).text());
        format!("{}, {settings}\n{ranking}\n{}\n", found.system, found.verdict())
    };
    let texts: Vec<String> = all.iter().map(describe).collect();
    Shown { figure: all[0].states(), report, numbers: json!(all), text: texts.join("\n") }
}

const COLUMNS: [Column<Levels>; 7] = [
    ("method", |m| m.method.clone()),
    ("worst error", |m| format!("{:.3} %", 100.0 * m.worst())),
    ("mean error", |m| format!("{:.3} %", 100.0 * m.mean())),
    ("multiplicities", |m| {
        let counts: Vec<String> = m.multiplets.iter().map(|(_, count)| count.to_string()).collect();
        if counts.len() > 8 { format!("{} …", counts[..8].join(", ")) } else { counts.join(", ") }
    }),
    ("steps", |m| m.steps.to_string()),
    ("parameters", |m| text::grouped(if m.steps == 0 { 0 } else { m.parameters })),
    ("seconds", |m| format!("{:.1}", m.seconds)),
];

/// Groups consecutive energies with a relative difference of at most `gap`, as `(mean, multiplicity)`.
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

/// Runs all contenders on the first `k` states of `system`.
pub fn run(
    system: &System,
    k: usize,
    contenders: &[Contender],
    budget: &Budget,
    context: &FitContext<'_>,
) -> Result<BoundStates> {
    const SIDE: usize = 81;
    let (operator, exact) = ((system.operator)(k)?, (system.energies)(k));
    let at = |i: usize| system.extent * (2.0 * i as f64 / (SIDE - 1) as f64 - 1.0);
    let grid = Array2::from_shape_fn((SIDE * SIDE, 2), |(p, axis)| at([p % SIDE, p / SIDE][axis]));
    let (mut methods, mut failed) = (vec![], vec![]);
    for contender in contenders {
        match levels(&operator, &exact, &grid, *contender, budget, context) {
            Ok(found) => methods.push(found),
            Err(Error::Numerical(why)) => failed.push((contender.name.into(), why)),
            Err(error) => return Err(error),
        }
    }
    let (name, extent) = (system.name.into(), system.extent);
    Ok(BoundStates { system: name, exact, budget: budget.clone(), methods, failed, extent, side: SIDE })
}

fn levels(
    operator: &Schroedinger,
    exact: &[f64],
    grid: &Array2<f64>,
    contender: Contender,
    budget: &Budget,
    context: &FitContext<'_>,
) -> Result<Levels> {
    let (start, rng, k) = (Instant::now(), Rng::new(budget.seed), exact.len());
    let architecture = if contender.kind.solves_last_layer() { &budget.units } else { &budget.networks };
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
            "{} has only {} independent functions for {k} states; use a wider network",
            contender.name,
            pairs.eigenvalues.len()
        )));
    }
    let seconds = start.elapsed().as_secs_f64();
    let energies: Vec<f64> = pairs.eigenvalues.iter().map(|μ| operator.eigenvalue(*μ)).collect();
    let errors = energies.iter().zip(exact).map(|(e, exact)| (e - exact).abs() / exact.abs()).collect();
    let residual = |(r, e): (&f64, &f64)| operator.energy_scale() * r / e.abs();
    let states = operator.wavefunctions(&mut functions, pairs.coefficients.view(), grid.view())?;
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
