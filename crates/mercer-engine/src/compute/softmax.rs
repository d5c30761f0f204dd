//! Softmax cross-entropy: the loss of a classifier, its gradient, and the number of correct predictions.

use super::cuda::images;
use super::tensor::{Tensor, on_gpu};

/// With `p = softmax(z)`, adds the loss `Σ_b −ln p_{b,y}` and the number of correct predictions to `totals` `[2]`, and
/// optionally writes the gradient of the *mean* loss, `(p − 1_y)/b`.
///
/// `logits` and `grad` `[1, b, classes]`; `labels` `[b, 1]` holds whole numbers below `classes`. Nothing is copied to the
/// host. If logits are equal, the first class is predicted.
pub fn softmax_cross_entropy(logits: &Tensor, labels: &Tensor, grad: Option<&mut Tensor>, totals: &mut Tensor) {
    let (count, batch, classes) = logits.as_matrices();
    assert!(count == 1 && labels.len() == batch && totals.len() == 2, "softmax of {logits} with {labels} labels");
    assert!(grad.as_ref().is_none_or(|g| g.len() == logits.len()), "softmax: grad and logits differ in size");
    on_gpu!(logits, |gpu| images::softmax_cross_entropy(gpu, logits, labels, grad.as_deref(), totals));
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

    #[test]
    fn if_logits_are_equal_the_first_class_is_predicted() {
        let tensor = |shape: &[usize], data: &[f32]| Tensor::from_host(Device::Cpu, shape, data).unwrap();
        let (logits, labels) = (tensor(&[1, 2, 3], &[1.0; 6]), tensor(&[2, 1], &[1.0, 0.0]));
        let mut totals = tensor(&[2], &[0.0; 2]);
        softmax_cross_entropy(&logits, &labels, None, &mut totals);
        assert_eq!(totals.host()[1], 1.0);
    }
}
