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
    /// The settings of the one that was asked for.
    pub fn asked(&self) -> Option<&Laplace> {
        self.asked.and_then(|asked| self.all.iter().find(|laplace| laplace.method.name() == asked))
    }

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apply::{Predict, Saved};
    use crate::classifier::{Classifier, Settings, train};
    use crate::compute::Device;
    use crate::laplace::FittedLaplace;
    use crate::options::Spelling;
    use ndarray::{Array2, Axis};
    use std::sync::Arc;

    /// `laplace/bias.rs` is one file and one name in the list of methods: it is offered with its option, planned, compared, written and read.
    #[test]
    fn a_method_of_one_file_is_offered_fitted_and_saved() {
        let (fit, validation) = crate::data::digits().with_classes().unwrap().split(0.3, 0).unwrap();
        let start = Classifier::new("dense(12) relu dense(10)", &fit, Device::Cpu, 0).unwrap();
        let settings = Settings { epochs: 10, batch: 64, ..Settings::default() };
        let network = Arc::new(train(start, &fit, None, &settings, &Default::default(), &|_| ()).unwrap().classifier);
        let kind = NetworkKind::of(&network);
        let build = |name: &str, options: &str| {
            posteriors().build(name, Options::new(serde_json::from_str(options).unwrap(), Spelling::Python), &kind)
        };
        let said = build("kfac", r#"{"share": 0.5}"#).unwrap_err().to_string();
        assert_eq!(said, "the method kfac does not take share, which is for auto and bias; leave it out");
        assert!(build("bias", r#"{"share": -1}"#).unwrap_err().to_string().contains("share cannot be `-1`"));
        let rows = Samples { fit, validation, test: None, ood: None };
        let plan = build("auto", "{}").unwrap().plan(&network, &rows, &Default::default()).unwrap();
        assert!(plan.estimates.iter().any(|estimated| estimated.name == "bias" && estimated.cost.bytes > 0));
        let plan = build("bias", r#"{"share": 0.5}"#).unwrap().plan(&network, &rows, &Default::default()).unwrap();
        let found = plan.fit(&network, &rows, &Default::default()).unwrap();
        let kept = &found.all[found.kept];
        assert_eq!((kept.judged.name, found.all.len()), ("bias", 3));
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("m.mercer");
        kept.model.write(None, &path).unwrap();
        let read = FittedLaplace::load(&path, Device::Cpu).unwrap();
        let x = rows.validation.x.to_f64();
        assert_eq!(read.scores(x.view()).unwrap(), kept.model.scores(x.view()).unwrap());
        // H = ½ Σ_i Λ_i, with Λ_i = diag(p_i) − p_i p_iᵀ at the rows of the fit.
        let logits = network.logits(&rows.fit.x).unwrap().mapv(f64::from);
        let p = crate::apply::softmax_rows(logits);
        let h = (Array2::from_diag(&p.sum_axis(Axis(0))) - p.t().dot(&p)) * 0.5;
        let (_, variances) = read.outputs(x.view()).unwrap();
        let shifted = h + Array2::<f64>::eye(10) * read.found.value;
        let want = crate::linalg::Cholesky::new(Device::Cpu, shifted.view()).unwrap().inverse().unwrap();
        assert!(variances.row(3).iter().zip(want.diag()).all(|(v, want)| (v / want - 1.0).abs() < 1e-6), "{variances}");
    }
}
