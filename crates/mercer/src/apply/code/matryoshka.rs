//! Matryoshka training: one linear map of embeddings whose first m coordinates are trained to be a code, for several lengths m at once.

use crate::apply::{Together, check_points};
use crate::compute::{Device, Rule, Tensor, update};
use crate::linalg::matmul;
use crate::rng::Rng;
use crate::{FitContext, Result, fail_if};
use ndarray::{Array1, Array2, ArrayView2, ArrayViewMut2, Axis, Zip, s};

/// Trains a linear map `x ↦ (x − b) W` by the sum over lengths m of one loss of the first m coordinates:
/// `−log softmax_j(cos(z_i, t_j)/τ)` at the right target, cosines of the first m coordinates. The targets of pairs are the codes of the
/// partners in a batch, and those of classes one trained code for each class.
///
/// It is the trained counterpart of [`EmbeddingCode`](crate::apply::EmbeddingCode), which finds the order by an eigenproblem.
///
/// ```
/// use mercer::apply::{Matryoshka, Together};
/// // Ten columns: nine of noise, and one that says the class.
/// let mut rng = mercer::rng::Rng::new(1);
/// let x = ndarray::Array2::from_shape_fn((200, 10), |(i, c)| if c == 4 { (i % 2) as f64 } else { 2.0 * rng.normal() });
/// let classes = (0..200).map(|i| i % 2).collect();
/// let code = Matryoshka { steps: 300, ..Matryoshka::new(4, Together::Classes(classes)) }.fit(x.view(), &Default::default())?;
/// assert_eq!((code.lengths.as_slice(), code.transform(x.view())?.dim()), (&[4][..], (200, 4)));
/// assert!(code.losses[0] < 0.5 * 2f64.ln());
/// # Ok::<(), mercer::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Matryoshka {
    /// Number of coordinates.
    pub k: usize,
    /// The lengths whose losses are added, each at most k.
    pub lengths: Vec<usize>,
    /// What belongs together: pairs or classes.
    pub together: Together,
    /// Steps of Adam.
    pub steps: usize,
}

/// A trained map. Example: [`Matryoshka`].
#[derive(Clone, Debug, PartialEq)]
pub struct FittedMatryoshka {
    /// The lengths that were trained.
    pub lengths: Vec<usize>,
    /// The loss of each length, its mean over the last tenth of the steps.
    pub losses: Vec<f64>,
    /// Warnings for the user.
    pub notes: Vec<String>,
    /// b `[1, p]`
    shift: Array2<f64>,
    /// W `[p, k]`
    weights: Array2<f64>,
}

/// Rows of a batch.
const BATCH: usize = 256;
/// τ
const TEMPERATURE: f64 = 0.1;
/// The largest learning rate, times √p: steps are a share of the weights' size.
const RATE: f64 = 0.05;

impl Matryoshka {
    /// k coordinates, trained at the lengths 8, 16, 32, … and k.
    pub fn new(k: usize, together: Together) -> Matryoshka {
        let lengths = (3..).map(|e| 1 << e).take_while(|m| *m < k).chain([k]).collect();
        Matryoshka { k, lengths, together, steps: 1000 }
    }

    /// Trains on the embeddings `x` `[n, p]`.
    pub fn fit(&self, x: ArrayView2<f64>, context: &FitContext) -> Result<FittedMatryoshka> {
        self.check(x)?;
        let (n, p) = x.dim();
        let mut rng = Rng::new(context.seed).fork(11);
        let shift = x.mean_axis(Axis(0)).expect("there are rows").insert_axis(Axis(0));
        let size = (x
            .iter()
            .zip(shift.broadcast((n, p)).expect("a mean a column"))
            .map(|(x, b)| (x - b).powi(2))
            .sum::<f64>()
            / (n * p) as f64)
            .sqrt();
        fail_if!(size == 0.0, "all embeddings are the same; there is nothing to train");
        let scaled = |rows: ArrayView2<f64>| (&rows - &shift) / size;
        // W, then a code for each class.
        let classes = self.classes().map_or(0, |classes| classes.iter().max().map_or(0, |most| most + 1));
        let start: Vec<f32> = (0..(p + classes) * self.k).map(|_| (rng.normal() / (p as f64).sqrt()) as f32).collect();
        let mut state = State::new(&start)?;
        let (mut order, mut at) = ((0..n).collect::<Vec<usize>>(), n);
        let (mut losses, mut counted, mut notes) = (vec![0.0; self.lengths.len()], 0.0, vec![]);
        let keeps = context.keeps_best();
        for t in 0..self.steps {
            if keeps.cut_short() {
                notes.push(format!("training was interrupted after {t} of {} steps", self.steps));
                break;
            }
            if at + BATCH.min(n) > n {
                rng.shuffle(&mut order);
                at = 0;
            }
            let rows = &order[at..at + BATCH.min(n)];
            at += rows.len();
            let all = state.parameters(p + classes, self.k);
            let (weights, codes) = all.view().split_at(Axis(0), p);
            let inputs = scaled(x.select(Axis(0), rows).view());
            let z = matmul(inputs.view(), weights);
            let mut gradient = Array2::zeros(all.dim());
            let (of_weights, of_codes) = gradient.view_mut().split_at(Axis(0), p);
            let found = match &self.together {
                Together::Pairs(other) => {
                    let partners = scaled(other.select(Axis(0), rows).view());
                    let targets = matmul(partners.view(), weights);
                    let right: Vec<usize> = (0..rows.len()).collect();
                    let (found, dz, dt) = losses_of(z.view(), targets.view(), &right, &self.lengths);
                    add_products(of_weights, [(inputs.view(), dz.view()), (partners.view(), dt.view())]);
                    found
                }
                _ => {
                    let classes = self.classes().expect("checked");
                    let right: Vec<usize> = rows.iter().map(|i| classes[*i]).collect();
                    let (found, dz, dt) = losses_of(z.view(), codes, &right, &self.lengths);
                    add_products(of_weights, [(inputs.view(), dz.view())]);
                    { of_codes }.assign(&dt);
                    found
                }
            };
            // Down to zero along half a cosine.
            let rate = 0.5 * RATE * (1.0 + (std::f64::consts::PI * t as f64 / self.steps as f64).cos());
            state.step(t, rate / (p as f64).sqrt(), &gradient)?;
            if 10 * t >= 9 * self.steps {
                losses.iter_mut().zip(found).for_each(|(sum, loss)| *sum += loss);
                counted += 1.0;
            }
            context.progress.step("matryoshka", t + 1, self.steps, "");
        }
        losses.iter_mut().for_each(|sum| *sum /= f64::max(counted, 1.0));
        let weights = state.parameters(p + classes, self.k).slice(s![..p, ..]).to_owned() / size;
        Ok(FittedMatryoshka { lengths: self.lengths.clone(), losses, notes, shift, weights })
    }

    fn classes(&self) -> Option<&[usize]> {
        if let Together::Classes(classes) = &self.together { Some(classes) } else { None }
    }

    fn check(&self, x: ArrayView2<f64>) -> Result<()> {
        self.together.check(x, self.k)?;
        let odd = self.lengths.iter().find(|m| **m == 0 || **m > self.k);
        fail_if!(self.lengths.is_empty(), "training needs a length");
        fail_if!(odd.is_some(), "lengths must lie between 1 and k = {}; got {}", self.k, odd.unwrap_or(&0));
        fail_if!(
            !matches!(self.together, Together::Pairs(_) | Together::Classes(_)),
            "Matryoshka training needs pairs or classes of the embeddings"
        );
        Ok(())
    }
}

impl FittedMatryoshka {
    /// The codes `[n, k]` of embeddings `[n, p]`.
    pub fn transform(&self, x: ArrayView2<f64>) -> Result<Array2<f64>> {
        check_points(x)?;
        let (wanted, given) = (self.weights.nrows(), x.ncols());
        fail_if!(wanted != given, "the embeddings have {given} columns, but {wanted} were trained");
        Ok(matmul((&x - &self.shift).view(), self.weights.view()))
    }
}

/// Parameters and Adam's moments of them.
struct State {
    theta: Tensor,
    gradient: Tensor,
    moments: [Tensor; 2],
}

impl State {
    fn new(start: &[f32]) -> Result<State> {
        let zeros = || Tensor::zeros(Device::Cpu, &[start.len()]);
        let theta = Tensor::from_host(Device::Cpu, &[start.len()], start)?;
        Ok(State { theta, gradient: zeros()?, moments: [zeros()?, zeros()?] })
    }

    /// All of them, `[rows, columns]`.
    fn parameters(&self, rows: usize, columns: usize) -> Array2<f64> {
        Array2::from_shape_fn((rows, columns), |(i, j)| f64::from(self.theta.host()[i * columns + j]))
    }

    fn step(&mut self, t: usize, rate: f64, gradient: &Array2<f64>) -> Result<()> {
        self.gradient.copy_from_host(&gradient.iter().map(|g| *g as f32).collect::<Vec<f32>>())?;
        let [m, v] = &mut self.moments;
        update(Rule::ADAM, rate as f32, t as u64 + 1, None, &mut self.theta, &self.gradient, m, v);
        Ok(())
    }
}

/// `to ← Σ aᵀb`
fn add_products<const N: usize>(mut to: ArrayViewMut2<f64>, pairs: [(ArrayView2<f64>, ArrayView2<f64>); N]) {
    pairs.into_iter().for_each(|(a, b)| to += &matmul(a.t(), b));
}

/// For codes `z` `[b, k]` and targets `t` `[m, k]`, of which `right` `[b]` says the one of each row: the loss of each length, and the
/// gradients of their sum with respect to `z` and `t`.
///
/// With `u = z/‖z‖`, `v = t/‖t‖` and `P = softmax(u vᵀ/τ)`, the gradient of the mean loss in the products is `G = (P − 1[right])/(b τ)`,
/// `∂u = G v`, and `∂z = (∂u − (∂u·u)u)/‖z‖`.
fn losses_of(
    z: ArrayView2<f64>,
    t: ArrayView2<f64>,
    right: &[usize],
    lengths: &[usize],
) -> (Vec<f64>, Array2<f64>, Array2<f64>) {
    let (mut dz, mut dt) = (Array2::zeros(z.dim()), Array2::zeros(t.dim()));
    let b = z.nrows() as f64;
    let of_length = |&m: &usize| {
        let [(u, z_norms), (v, t_norms)] = [z, t].map(|all| unit(all.slice_move(s![.., ..m])));
        let mut g = matmul(u.view(), v.t()) / TEMPERATURE;
        let mut loss = 0.0;
        for (mut row, &right) in g.rows_mut().into_iter().zip(right) {
            let most = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let at_right = row[right] - most;
            row.mapv_inplace(|s| (s - most).exp());
            let sum = row.sum();
            loss += sum.ln() - at_right;
            row.mapv_inplace(|e| e / (sum * b * TEMPERATURE));
            row[right] -= 1.0 / (b * TEMPERATURE);
        }
        let (du, dv) = (matmul(g.view(), v.view()), matmul(g.t(), u.view()));
        { dz.slice_mut(s![.., ..m]) }.zip_mut_with(&through_norm(du, &u, &z_norms), |a, b| *a += b);
        { dt.slice_mut(s![.., ..m]) }.zip_mut_with(&through_norm(dv, &v, &t_norms), |a, b| *a += b);
        loss / b
    };
    let losses = lengths.iter().map(of_length).collect();
    (losses, dz, dt)
}

/// Rows over their norms, and the norms.
fn unit(rows: ArrayView2<f64>) -> (Array2<f64>, Array1<f64>) {
    let norms = rows.map_axis(Axis(1), |row| row.dot(&row).sqrt().max(1e-12));
    (&rows / &norms.view().insert_axis(Axis(1)), norms)
}

/// `(∂u − (∂u·u)u)/‖z‖` for each row.
fn through_norm(mut du: Array2<f64>, u: &Array2<f64>, norms: &Array1<f64>) -> Array2<f64> {
    Zip::from(du.rows_mut()).and(u.rows()).and(norms).for_each(|mut du, u, norm| {
        let along = du.dot(&u);
        Zip::from(&mut du).and(u).for_each(|du, u| *du = (*du - along * u) / norm);
    });
    du
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spectrum::neural::neighbour_accuracy;

    #[test]
    fn gradients_are_those_of_differences() {
        let mut rng = Rng::new(3);
        let mut normal = |n, k| rng.normals((n, k));
        let (z, t) = (normal(5, 6), normal(4, 6));
        let (right, lengths) = ([0, 3, 1, 1, 2], [2, 5, 6]);
        let total =
            |z: &Array2<f64>, t: &Array2<f64>| losses_of(z.view(), t.view(), &right, &lengths).0.iter().sum::<f64>();
        let (_, dz, dt) = losses_of(z.view(), t.view(), &right, &lengths);
        let moved = |x: &Array2<f64>, at: [usize; 2], by: f64| {
            let mut x = x.clone();
            x[at] += by;
            x
        };
        let h = 1e-6;
        for (i, j) in (0..4).flat_map(|i| (0..6).map(move |j| (i, j))) {
            let slope = (total(&moved(&z, [i, j], h), &t) - total(&moved(&z, [i, j], -h), &t)) / (2.0 * h);
            assert!((slope - dz[[i, j]]).abs() < 1e-7, "z {i} {j}: {slope} and {}", dz[[i, j]]);
            let slope = (total(&z, &moved(&t, [i, j], h)) - total(&z, &moved(&t, [i, j], -h))) / (2.0 * h);
            assert!((slope - dt[[i, j]]).abs() < 1e-7, "t {i} {j}: {slope} and {}", dt[[i, j]]);
        }
    }

    /// Forty columns, turned: twelve of large noise and six signs, whose 64 patterns are the classes. Principal components begin with the
    /// noise; a code has all that there is to know in its first eight coordinates.
    fn turned_signs(n: usize, seed: u64) -> (Array2<f64>, Vec<usize>) {
        let (mut rng, mut turning) = (Rng::new(seed), Rng::new(5));
        let classes: Vec<usize> = (0..n).map(|i| i % 64).collect();
        let x = Array2::from_shape_fn((n, 40), |(i, c)| match c {
            0..6 => (if classes[i] >> c & 1 == 1 { 1.0 } else { -1.0 }) + 0.25 * rng.normal(),
            6..18 => 2.0 * rng.normal(),
            _ => 0.3 * rng.normal(),
        });
        let turn = Array2::from_shape_simple_fn((40, 40), || turning.normal() / 40f64.sqrt());
        (matmul(x.view(), turn.view()), classes)
    }

    #[test]
    fn the_first_coordinates_say_the_class() {
        let ((x, classes), (new, wanted)) = (turned_signs(3000, 1), turned_signs(600, 2));
        let of_classes = Together::Classes(classes.clone());
        // Partners: another row of the same class, and among the last ones the row 64 before.
        let partners: Vec<usize> = (0..3000).map(|i| if i + 64 < 3000 { i + 64 } else { i - 64 }).collect();
        let partners = x.select(Axis(0), &partners);
        for together in [of_classes, Together::Pairs(partners)] {
            let code = Matryoshka::new(16, together).fit(x.view(), &FitContext::default()).unwrap();
            assert_eq!(code.lengths, [8, 16]);
            let accuracy = |m: usize| {
                let [a, b] = [&new, &x].map(|x| code.transform(x.view()).unwrap().slice_move(s![.., ..m]));
                neighbour_accuracy((a.view(), &wanted), (b.view(), &classes))
            };
            let (first, all) = (accuracy(8), accuracy(16));
            assert!(first > 0.95 && first > all - 0.02, "{first} of the first 8 and {all} of all");
        }
        let pca = crate::apply::EmbeddingCode::new(8, Together::Linear);
        let pca = pca.fit(x.view(), &FitContext::default()).unwrap();
        let [a, b] = [&new, &x].map(|x| crate::apply::Transform::transform(&pca, x.view()).unwrap());
        assert!(neighbour_accuracy((a.view(), &wanted), (b.view(), &classes)) < 0.2);
    }

    #[test]
    fn bad_input_is_refused_with_a_sentence() {
        let x = Array2::<f64>::eye(6);
        let refused = |code: Matryoshka| code.fit(x.view(), &FitContext::default()).unwrap_err().to_string();
        assert!(refused(Matryoshka::new(9, Together::Linear)).contains("between 1 and 6"));
        assert!(refused(Matryoshka::new(2, Together::Linear)).contains("pairs or classes"));
        assert!(refused(Matryoshka::new(2, Together::Classes(vec![0]))).contains("1 classes"));
        assert!(
            refused(Matryoshka { lengths: vec![3], ..Matryoshka::new(2, Together::Classes(vec![0; 6])) })
                .contains("k = 2")
        );
    }
}
