//! An embedding by name: what it is built for, and what it becomes.

use crate::apply::SavedTransform;
use crate::kernel::Expression;
use crate::options::{Builds, Entry};
use crate::{FitContext, Result, fail_if};
use ndarray::ArrayView2;

/// The coordinates that an embedding is built for. Example: [`learn::embeddings`](crate::learn::embeddings).
#[derive(Clone, Debug)]
pub struct EmbeddingTask {
    /// How many coordinates.
    pub k: usize,
    /// κ; without it the usual one of the method.
    pub kernel: Option<Expression>,
    /// Whether rows are those of a kernel matrix `[n, n]`, and not points.
    pub matrix: bool,
}

impl EmbeddingTask {
    /// For k coordinates of points under this kernel, or the usual one.
    pub fn new(k: usize, kernel: Option<Expression>) -> EmbeddingTask {
        EmbeddingTask { k, kernel, matrix: false }
    }

    /// For k coordinates of a kernel matrix.
    pub fn of_matrix(k: usize) -> EmbeddingTask {
        EmbeddingTask { k, kernel: None, matrix: true }
    }

    /// κ, `rbf(lengthscale=median)` unless it is given.
    pub(crate) fn kernel(&self) -> Result<Expression> {
        self.kernel.clone().map_or_else(|| Expression::parse("rbf(lengthscale=median)"), Ok)
    }
}

impl Builds for EmbeddingTask {
    type Built = Embedding;

    fn check(&self, entry: &Entry<EmbeddingTask>) -> Result<()> {
        fail_if!(
            self.matrix && !entry.can.matrix,
            "the method {} needs points and a kernel expression; a kernel matrix is for the method kpca",
            entry.name
        );
        Ok(())
    }
}

/// Finds coordinates of points `[n, d]`.
type FitEmbedding = dyn Fn(ArrayView2<f64>, &FitContext) -> Result<Box<dyn SavedTransform>> + Send + Sync;

/// An embedding that was built by its name. Example: [`learn::embeddings`](crate::learn::embeddings).
pub struct Embedding {
    fit: Box<FitEmbedding>,
}

impl Embedding {
    pub(crate) fn new<F: SavedTransform + 'static>(
        fit: impl Fn(ArrayView2<f64>, &FitContext) -> Result<F> + Send + Sync + 'static,
    ) -> Embedding {
        let fit = move |x: ArrayView2<f64>, context: &FitContext| -> Result<Box<dyn SavedTransform>> {
            Ok(Box::new(fit(x, context)?))
        };
        Embedding { fit: Box::new(fit) }
    }

    /// Finds coordinates of the points `x` `[n, d]`, or of a kernel matrix `[n, n]`.
    pub fn fit(&self, x: ArrayView2<f64>, context: &FitContext) -> Result<Box<dyn SavedTransform>> {
        (self.fit)(x, context)
    }
}
