//! Embeddings by eigenvectors.

use crate::apply::{DiffusionMaps, EmbeddingTask, KernelPca, LaplacianEigenmaps};
use crate::options::Family;
use std::sync::LazyLock;

/// Every way to give points coordinates by eigenvectors.
///
/// ```
/// use mercer::apply::EmbeddingTask;
/// use mercer::{FitContext, learn, options::{Options, Spelling}};
/// let x = ndarray::Array2::from_shape_fn((60, 2), |(i, j)| (i as f64 * [0.61, 0.37][j]) % 1.0);
/// let given = serde_json::from_str(r#"{"solver": "exact"}"#).unwrap();
/// let pca = learn::embeddings().build("kpca", Options::new(given, Spelling::Python), &EmbeddingTask::new(3, None))?;
/// let fitted = pca.fit(x.view(), &FitContext::default())?;
/// assert_eq!((fitted.embedding().dim(), fitted.explained().unwrap().len()), ((60, 3), 3));
/// # Ok::<(), mercer::Error>(())
/// ```
pub fn embeddings() -> &'static Family<EmbeddingTask> {
    static EMBEDDINGS: LazyLock<Family<EmbeddingTask>> = LazyLock::new(|| Family {
        noun: "method",
        entries: vec![KernelPca::entry(), LaplacianEigenmaps::entry(), DiffusionMaps::entry()],
        renamed: &[],
    });
    &EMBEDDINGS
}
