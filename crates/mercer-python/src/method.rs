//! Methods for eigenpairs by the names that the program has for them.

use crate::options::Options;
use mercer::compute::Rule;
use mercer::net::ScheduleKind;
use mercer::spectrum::neural::{Kind, Nested, Nesting, Neural, NeuralEf, Spin};
use mercer::spectrum::{Exact, Fourier, Krylov, Method, Nystrom, Positive};
use mercer::{Error, Result};
use pyo3::prelude::*;

const UNTRAINED: [&str; 5] = ["exact", "krylov", "nystrom", "rff", "positive"];

/// The names of all methods.
#[pyfunction]
pub fn methods() -> Vec<&'static str> {
    UNTRAINED.into_iter().chain(Kind::all().iter().map(|kind| kind.name())).collect()
}

/// The method of that name for n points and k pairs.
pub fn method(name: &str, mut o: Options, n: usize, k: usize) -> Result<Box<dyn Method + Send>> {
    let method: Box<dyn Method + Send> = match name {
        "exact" => Box::new(Exact),
        "krylov" => Box::new(o.take("tolerance")?.map_or_else(Krylov::default, Krylov::to)),
        "nystrom" => {
            let usual = Nystrom::usual(n, k);
            let landmarks = o.take("landmarks")?.unwrap_or(usual.landmarks);
            Box::new(Nystrom { landmarks, choice: o.named("choice")?.unwrap_or(usual.choice) })
        }
        "rff" => {
            let usual = Fourier::usual(k);
            let features = o.take("features")?.unwrap_or(usual.features);
            let sampling = o.named("sampling")?.unwrap_or(usual.sampling);
            Box::new(Fourier { features, sampling, ritz: o.take("ritz")?.unwrap_or(usual.ritz) })
        }
        "positive" => {
            let usual = Positive::usual(k);
            let features = o.take("features")?.unwrap_or(usual.features);
            Box::new(Positive { features, sampling: o.named("sampling")?.unwrap_or(usual.sampling) })
        }
        trained => {
            let kind = Kind::all().into_iter().find(|kind| kind.name() == trained);
            Box::new(neural(kind.ok_or_else(|| Error::unknown("method", trained, methods()))?, &mut o)?)
        }
    };
    o.finish(&format!("the method {name}"))?;
    Ok(method)
}

/// The method that trains by `kind`.
fn neural(kind: Kind, o: &mut Options) -> Result<Neural> {
    let kind = match kind {
        Kind::NeuralEf(_) if o.take("published")? == Some(true) => NeuralEf::Published.into(),
        Kind::Spin(_) if o.take("published")? == Some(true) => Spin::PUBLISHED.into(),
        Kind::Nested(_) => {
            let words = [("sequential", Nesting::Sequential), ("joint", Nesting::Joint)];
            Nested { nesting: o.word("nesting", &words)? }.into()
        }
        other => other,
    };
    let mut method = Neural::new(kind);
    let settings = &mut method.settings;
    settings.steps = o.take("steps")?.unwrap_or(settings.steps);
    settings.batch = o.take("batch")?.unwrap_or(settings.batch);
    settings.learning_rate = o.take("rate")?.unwrap_or(settings.learning_rate);
    settings.schedule = o.word("schedule", &ScheduleKind::NAMED)?.unwrap_or(settings.schedule);
    settings.rule = o.word("optimizer", &Rule::NAMED)?.unwrap_or(settings.rule);
    settings.checkpoint = o.take("checkpoint")?;
    settings.checkpoint_seconds = o.take("checkpoint_every")?.unwrap_or(settings.checkpoint_seconds);
    settings.resume = o.take("resume")?.unwrap_or(settings.resume);
    settings.overwrite = o.take("overwrite")?.unwrap_or(settings.overwrite);
    settings.finish = o.take("finish")?.unwrap_or(settings.finish);
    method.architecture = o.take("net")?;
    Ok(method)
}
