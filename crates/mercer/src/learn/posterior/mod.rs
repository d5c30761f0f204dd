//! Posteriors of networks: those to compare by name, what a fit takes, and the choice among them.

mod compare;
mod plan;
mod trajectory;

pub use compare::{Answers, Compared, Comparison, FunctionRows, Judged, Sample, Samples, least_loss};
pub use plan::{Estimated, LeftOut, Plan};
pub use trajectory::{Snapshots, TrajectoryCandidate, TrajectoryCandidates, trajectories};

use crate::laplace::method::{DRAWS, PRIOR, TEMPERED};
use crate::laplace::{Laplace, Method, NetworkKind, Predictive, Prior};
use crate::options::{Builds, Caps, Entry, Family, Opt, Options};
use crate::{Error, Result, fail_if};
use std::sync::LazyLock;

/// Posteriors to compare, baselines first, and the one that is kept. Example: [`posteriors`].
#[derive(Clone, Debug, PartialEq)]
pub struct Candidates {
    /// Their settings.
    pub all: Vec<Laplace>,
    /// The one that was asked for; none for that with the lowest NLL on the validation rows.
    pub asked: Option<&'static str>,
}

/// Every posterior of a network: `auto` first, which compares all of them, and then the baselines.
///
/// ```
/// use mercer::classifier::{Classifier, Settings, train};
/// use mercer::laplace::NetworkKind;
/// use mercer::learn::{Samples, posteriors};
/// use mercer::options::{Options, Spelling};
/// use std::sync::Arc;
/// let (fit, validation) = mercer::data::digits().with_classes()?.split(0.3, 0)?;
/// let start = Classifier::new("dense(32) relu dense(10)", &fit, mercer::Device::Cpu, 0)?;
/// let settings = Settings { epochs: 5, ..Settings::default() };
/// let network = Arc::new(train(start, &fit, None, &settings, &Default::default(), &|_| ())?.classifier);
///
/// let kind = NetworkKind::of(&network);
/// let given = serde_json::from_str(r#"{"functions": 8}"#).unwrap();
/// let candidates = posteriors().build("ella", Options::new(given, Spelling::Python), &kind)?;
/// let rows = Samples { fit, validation, test: None, ood: None };
/// let plan = candidates.plan(&network, &rows, &Default::default())?;
/// let found = plan.fit(&network, &rows, &Default::default())?;
/// let names: Vec<&str> = found.all.iter().map(|compared| compared.judged.name).collect();
/// assert_eq!((names, found.kept), (vec!["map", "temperature", "ella"], 2));
/// assert!(found.all[2].judged.validation_nll < found.all[0].judged.validation_nll);
/// # Ok::<(), mercer::Error>(())
/// ```
pub fn posteriors() -> &'static Family<NetworkKind> {
    static POSTERIORS: LazyLock<Family<NetworkKind>> = LazyLock::new(|| Family {
        noun: "method",
        entries: std::iter::once(auto()).chain(Method::all().into_iter().map(entry)).collect(),
        renamed: &[("count", "functions")],
    });
    &POSTERIORS
}

impl Builds for NetworkKind {
    type Built = Candidates;

    fn check(&self, entry: &Entry<NetworkKind>) -> Result<()> {
        let name = entry.name;
        if self.functions && !entry.can.functions {
            let others = posteriors().entries.iter().filter(|other| other.can.functions).map(|other| other.name);
            return Err(Error::input(format!(
                "the method {name} needs the network itself; for its outputs and functions alone there are {}",
                others.collect::<Vec<_>>().join(", ")
            )));
        }
        fail_if!(
            !self.functions && !entry.can.networks,
            "the method {name} is for a network that is given by its outputs and functions"
        );
        Ok(())
    }
}

/// That with the lowest NLL of all that are fitted in time and within the memory.
fn auto() -> Entry<NetworkKind> {
    let mut options: Vec<&'static Opt> = vec![];
    for option in Method::all().iter().flat_map(|method| method.recipe().options()) {
        if !options.iter().any(|known| known.name == option.name) {
            options.push(option);
        }
    }
    let build = |o: &mut Options, kind: &NetworkKind| Candidates::of(o, *kind, None);
    Entry {
        can: Caps { networks: true, functions: true, numbers: true, classes: true, ..Caps::default() },
        ..Entry::new("auto", "the method with the lowest NLL on the validation rows", options, build)
    }
}

fn entry(method: Method) -> Entry<NetworkKind> {
    let recipe = method.recipe();
    let build = move |o: &mut Options, kind: &NetworkKind| {
        method.recipe().check(*kind)?;
        Candidates::of(o, *kind, Some(method))
    };
    Entry { can: recipe.can(), ..Entry::new(recipe.name(), recipe.about(), recipe.options(), build) }
}

impl Candidates {
    /// The baselines for a kind of network, and beside them the method that was asked for, or all.
    fn of(o: &mut Options, kind: NetworkKind, asked: Option<Method>) -> Result<Candidates> {
        let prior = o.take_word(&PRIOR, &Prior::NAMED)?.unwrap_or_default();
        let spelling = o.spelling();
        fail_if!(
            kind.functions && prior == Prior::Likelihood,
            "{} needs the network's parameters, which its functions do not tell; use {}",
            spelling.set(PRIOR.name, "likelihood"),
            spelling.set(PRIOR.name, "validation")
        );
        let predictive = o.take(&DRAWS)?.map_or(Predictive::Probit, |count| Predictive::Sampling { count });
        let tempered = o.flag(&TEMPERED)?;
        let wanted =
            |method: &Method| !method.has_posterior() || asked.is_none_or(|asked| asked.name() == method.name());
        let candidate = |method: Method| -> Result<Laplace> {
            let method = method.recipe().with_options(&mut o.clone())?.unwrap_or(method);
            Ok(Laplace { method, prior, predictive, tempered: tempered && method.has_posterior() })
        };
        let all = Method::all_for(kind).into_iter().filter(wanted).map(candidate).collect::<Result<_>>()?;
        Ok(Candidates { all, asked: asked.map(|method| method.name()) })
    }
}
