//! Embeddings by eigenvectors: kernel PCA, Laplacian eigenmaps, diffusion maps.

pub(crate) mod diffusion_maps;
pub(crate) mod eigen_solver;
pub(crate) mod eigenmaps;
pub(crate) mod embedding_task;
pub(crate) mod kernel_pca;
pub(crate) mod laplacian_eigenmaps;
pub(crate) mod pre_image;
pub(crate) mod slow_pairs;
