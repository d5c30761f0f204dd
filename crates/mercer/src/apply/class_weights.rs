//! Weights of classes in a fit.

use crate::data::Target;
use crate::options::{Kind, Opt, Options};
use crate::{Error, Result, fail_if};
use serde::{Deserialize, Serialize};
use serde_json::Value;

static CLASS_WEIGHT: Opt = Opt::new(
    "class-weight",
    "WEIGHTS",
    Kind::ClassWeights,
    "Weights of the classes: balanced, or numbers such as rare=5,other=1 [default: all 1]",
);

/// How much the rows of each class count in a fit.
///
/// ```
/// use mercer::apply::{Alpha, ClassWeights, FeatureMap, FeatureRidge, Fit, Predict};
/// use mercer::{FitContext, data::Target};
/// let x = ndarray::array![[-3.0], [-2.0], [-1.5], [-1.0], [-0.5], [1.0]];
/// let classes = |labels: &[usize]| Target::Classes { labels: labels.to_vec(), names: vec!["common".into(), "rare".into()] };
/// let y = classes(&[0, 0, 0, 0, 0, 1]);
/// let ridge = FeatureRidge::new(FeatureMap::Linear { scale: 1.0 });
/// let balanced = FeatureRidge { alpha: Alpha::Fixed(0.1), class_weights: ClassWeights::Balanced, ..ridge };
/// let fitted = balanced.fit(x.view(), &y, &FitContext::default())?;
/// assert_eq!(fitted.predict(ndarray::array![[0.2]].view())?, classes(&[1]));
/// # Ok::<(), mercer::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub enum ClassWeights {
    /// Every row counts the same.
    #[default]
    Equal,
    /// Every class counts the same: a row of a class with `n_c` of the n rows counts `n/(C n_c)`.
    Balanced,
    /// A number above zero for some classes, by name; the others count one.
    Given(Vec<(String, f64)>),
}

impl ClassWeights {
    /// The option of [`ClassWeights::of`].
    pub(crate) const OPTION: &'static Opt = &CLASS_WEIGHT;

    /// The weights that the option asks for.
    pub(crate) fn of(o: &mut Options) -> Result<ClassWeights> {
        match o.take::<Value>(&CLASS_WEIGHT)? {
            None => Ok(ClassWeights::Equal),
            Some(Value::String(_)) => Ok(ClassWeights::Balanced),
            Some(pairs) => {
                Ok(ClassWeights::Given(serde_json::from_value(pairs).map_err(|e| Error::input(e.to_string()))?))
            }
        }
    }

    /// The weight of each row; none where all are equal.
    pub(super) fn of_rows(&self, y: &Target) -> Result<Option<Vec<f64>>> {
        let (labels, names) = match (self, y) {
            (ClassWeights::Equal, _) => return Ok(None),
            (_, Target::Classes { labels, names }) => (labels, names),
            (_, Target::Values(_)) => {
                return Err(Error::input("class weights need classes as the target, not numbers"));
            }
        };
        let mut counts = vec![0; names.len()];
        labels.iter().for_each(|&label| counts[label] += 1);
        let of_class = self.of_classes(&counts, names)?;
        Ok(Some(labels.iter().map(|&label| of_class[label]).collect()))
    }

    /// The weight of a row of each class, of which there are `counts`.
    pub(super) fn of_classes(&self, counts: &[u64], names: &[String]) -> Result<Vec<f64>> {
        match self {
            ClassWeights::Equal => Ok(vec![1.0; names.len()]),
            ClassWeights::Balanced => {
                let (n, present) = (counts.iter().sum::<u64>(), counts.iter().filter(|&&count| count > 0).count());
                let share = |count: &u64| n as f64 / (present as u64 * (*count).max(1)) as f64;
                Ok(counts.iter().map(share).collect())
            }
            ClassWeights::Given(given) => {
                let mut weights = vec![1.0; names.len()];
                for (name, weight) in given {
                    fail_if!(
                        !(*weight > 0.0 && weight.is_finite()),
                        "the weight of class '{name}' must be a number above 0, got {weight}"
                    );
                    let class = names.iter().position(|known| known == name);
                    let unknown = || Error::unknown("class", name, names.iter().map(String::as_str));
                    weights[class.ok_or_else(unknown)?] = *weight;
                }
                Ok(weights)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_are_those_of_the_definition() {
        let names: Vec<String> = ["a", "b", "c"].map(String::from).to_vec();
        let y = Target::Classes { labels: vec![0, 0, 0, 1], names };
        // Two classes are present; each counts two rows.
        let balanced = ClassWeights::Balanced.of_rows(&y).unwrap().unwrap();
        assert_eq!(balanced, [2.0 / 3.0, 2.0 / 3.0, 2.0 / 3.0, 2.0]);
        let given = ClassWeights::Given(vec![("b".into(), 5.0)]).of_rows(&y).unwrap().unwrap();
        assert_eq!(given, [1.0, 1.0, 1.0, 5.0]);
        assert_eq!(ClassWeights::Equal.of_rows(&y).unwrap(), None);
        let refused = |weights: ClassWeights, y: &Target| weights.of_rows(y).unwrap_err().to_string();
        assert!(refused(ClassWeights::Given(vec![("d".into(), 5.0)]), &y).contains("unknown class 'd'"));
        assert!(refused(ClassWeights::Given(vec![("a".into(), 0.0)]), &y).contains("above 0"));
        assert!(refused(ClassWeights::Balanced, &Target::Values(vec![1.0])).contains("not numbers"));
    }
}
