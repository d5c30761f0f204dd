"""The jobs of the GPU comparison; each description says the precision and, for iterative methods, the tolerance."""
SIZES = ["1-32-10-256", "784-256-16-512", "64-128-32-1024", "1024-1024-64-8192"]

# job: (description, the peer's jobs in the same arithmetic, target ratio, arithmetic of the limit or None)
JOBS = {
    "rbf_f32": ("RBF Kv, n=65 536, d=64, 16 columns, f32", ["rbf_f32", "rbf_f32_compiled", "rbf_f32_keops"], 1.8, "f32"),
    "rbf_tf32": ("RBF Kv, n=65 536, d=64, 16 columns, TF32", ["rbf_tf32", "rbf_tf32_compiled"], 3, "tf32"),
    "ntk_tf32": ("NTK Kv, 3 ReLU layers, same sizes, TF32", ["ntk_tf32", "ntk_tf32_compiled"], 3, "tf32"),
    "rbf_f64": ("RBF Kv, n=65 536, d=64, 16 columns, f64", ["rbf_f64_keops"], None, None),
    "images_f32": ("NTK of 3 convolutions with global average pooling, 1000 images of 32×32×3, f32", [], None, None),
    "million_tf32": ("RBF Kv, n=1 000 000, d=64, 16 columns, TF32", [], None, None),
    "million_f32": ("RBF Kv, n=1 000 000, d=64, 16 columns, f32", ["million_f32_keops"], None, None),
    "top10_f32": ("top 10 eigenpairs of RBF, n=65 536, d=64, f32, tolerance 1e-6, certified", [], None, None),
} | {
    f"neuralef_{size}_tf32": (
        f"NeuralEF step, (d,h,k,B) = ({size.replace('-', ',')}), TF32",
        [f"neuralef_{size}_{how}" for how in ("tf32", "f32", "tf32_compiled", "tf32_graph", "tf32_compiled_graph")],
        1 if size.endswith("8192") else 3, None)
    for size in SIZES
} | {
    f"neuralef_{SIZES[-1]}_bf16": (f"NeuralEF step, (d,h,k,B) = ({SIZES[-1].replace('-', ',')}), bf16", [], None, None),
} | {
    f"ritz_{size}_tf32": (f"Ritz step, (d,p,k,B) = ({size.replace('-', ',')}), TF32", [], None, None)
    for size in ("2-64-10-256", "3-128-10-256")
} | {
    f"certificate_{math}": (f"NeuralEF for 2000 steps with networks in {math}, certified", [], None, None)
    for math in ("f32", "tf32", "bf16")
}
