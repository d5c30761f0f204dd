//! Softmax cross-entropy: the loss of a classifier, its gradient, and the number of correct predictions.

use super::cuda::images as cuda;
use super::tensor::Tensor;

/// With `p = softmax(z)`, adds the loss `Σ_b −ln p_{b,y}` and the number of correct predictions to `totals` `[2]`, and
/// optionally writes the gradient of the *mean* loss, `(p − 1_y)/b`.
///
/// `logits` and `grad` `[1, b, classes]`; `labels` `[b, 1]` holds whole numbers below `classes`. Nothing is copied to the
/// host. If logits are equal, the first class is predicted.
pub fn softmax_cross_entropy(logits: &Tensor, labels: &Tensor, grad: Option<&mut Tensor>, totals: &mut Tensor) {
    let (count, batch, classes) = logits.as_matrices();
    assert!(
        count == 1 && labels.len() == batch && totals.len() == 2,
        "softmax_cross_entropy of {:?} with {:?} labels",
        logits.shape(),
        labels.shape()
    );
    assert!(
        grad.as_ref().is_none_or(|g| g.len() == logits.len()),
        "softmax_cross_entropy: grad and logits differ in size"
    );
    if let Some(gpu) = logits.gpu() {
        return cuda::softmax_cross_entropy(gpu, logits, labels, grad, totals);
    }
    let mut grad = grad.map(|g| g.host_mut().chunks_exact_mut(classes));
    let (mut loss, mut right) = (0.0, 0.0);
    for (z, &label) in logits.host().chunks_exact(classes).zip(labels.host()) {
        let label = label as usize;
        let most = z.iter().fold(f32::NEG_INFINITY, |a, &b| a.max(b));
        let sum: f32 = z.iter().map(|z| (z - most).exp()).sum();
        loss += f64::from(sum.ln() - (z[label] - most));
        right += f32::from(z[label] >= most && z.iter().take(label).all(|&z| z < most));
        if let Some(g) = grad.as_mut().and_then(Iterator::next) {
            let share = 1.0 / (sum * batch as f32);
            g.iter_mut().zip(z).for_each(|(g, z)| *g = (z - most).exp() * share);
            g[label] -= 1.0 / batch as f32;
        }
    }
    let totals = totals.host_mut();
    totals[0] += loss as f32;
    totals[1] += right;
}

#[cfg(test)]
mod tests {
    use super::super::Device;
    use super::*;

    fn tensor(shape: &[usize], data: &[f32]) -> Tensor {
        Tensor::from_host(Device::Cpu, shape, data).unwrap()
    }

    #[test]
    fn the_loss_is_its_definition_and_the_gradient_its_difference() {
        let z = [0.5f32, -1.0, 2.0, 1000.0, 999.0, 0.0, 1.0, 1.0, 1.0];
        let (labels, classes) = (tensor(&[3, 1], &[0.0, 1.0, 1.0]), 3);
        let loss = |z: &[f32]| -> f64 {
            let row = |z: &[f32], y: usize| {
                let most = z.iter().fold(f64::MIN, |a, &z| a.max(f64::from(z)));
                most + z.iter().map(|&z| (f64::from(z) - most).exp()).sum::<f64>().ln() - f64::from(z[y])
            };
            z.chunks_exact(classes).zip([0, 1, 1]).map(|(z, y)| row(z, y)).sum()
        };
        let (mut grad, mut totals) = (tensor(&[1, 3, 3], &[0.0; 9]), tensor(&[2], &[10.0, 5.0]));
        softmax_cross_entropy(&tensor(&[1, 3, 3], &z), &labels, Some(&mut grad), &mut totals);
        assert!((f64::from(totals.host()[0]) - 10.0 - loss(&z)).abs() < 1e-5);
        // In the third row all logits are equal: the first class is predicted, which is wrong.
        assert_eq!(totals.host()[1], 5.0);
        for (i, g) in grad.host().iter().enumerate() {
            let moved = |h: f32| {
                let mut z = z;
                z[i] += h;
                loss(&z)
            };
            let difference = (moved(0.125) - moved(-0.125)) / 0.25 / 3.0;
            assert!((f64::from(*g) - difference).abs() < 2e-3, "{i}: {g} {difference}");
        }
    }
}
