"""The Gaussian processes of gpytorch: `gp_peers.py JOB DATA_FOLDER REPEATS` prints one line of JSON, as peers.py does."""
import json
import math
import pathlib
import resource
import sys
import time

import gpytorch
import numpy as np
import torch


class Model(gpytorch.models.ExactGP):
    def __init__(self, x, y, likelihood):
        super().__init__(x, y, likelihood)
        self.mean_module = gpytorch.means.ZeroMean()
        self.covar_module = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel(ard_num_dims=x.shape[1]))

    def forward(self, x):
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


def step(folder, n=2000, d=50):
    """log p(y)/n with its gradient by the 52 hyper-parameters, by Cholesky: lengthscales √d, amplitude 1, noise 0.1, f64."""
    load = lambda name: torch.from_numpy(np.load(pathlib.Path(folder) / f"{name}.npy")[:n])
    x, y = load("x5000x50"), load("y5000x1")[:, 0]
    y = (y - y.mean()) / y.std(correction=0)
    likelihood = gpytorch.likelihoods.GaussianLikelihood().double()
    model = Model(x, y, likelihood).double()
    likelihood.noise, model.covar_module.outputscale = 0.1, 1.0
    model.covar_module.base_kernel.lengthscale = math.sqrt(d)
    model.train(), likelihood.train()
    objective = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)

    def work():
        model.zero_grad()
        with gpytorch.settings.fast_computations(False, False, False), gpytorch.settings.max_cholesky_size(10**6):
            value = objective(model(x), y)
            value.backward()
        # The derivative by the logarithm of the first lengthscale, from that by the raw parameter of softplus.
        raw = model.covar_module.base_kernel.raw_lengthscale
        slope = raw.grad[0, 0] / torch.sigmoid(raw[0, 0]) * math.sqrt(d)
        return value.item(), slope.item()
    return work


def main(job, folder, repeats):
    torch.set_num_threads(2)
    work = {"gp-step-2000": step}[job](folder)
    seconds = []
    result = work()
    for _ in range(repeats):
        start = time.perf_counter()
        result = work()
        seconds.append(time.perf_counter() - start)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps({"seconds": seconds, "peak_bytes": peak, "check": result}))


main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
