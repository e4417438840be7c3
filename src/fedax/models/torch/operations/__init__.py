"""PyTorch's operations in JAX, one family a file. Importing this fills the table."""

from fedax.models.torch.operations import (
    activations,
    attention,
    convolutions,
    elementwise,
    embeddings,
    indexing,
    normalisation,
    pooling,
    products,
    random_draws,
    recurrence,
    reductions,
    resampling,
    shapes,
)

__all__ = [
    "activations",
    "attention",
    "convolutions",
    "elementwise",
    "embeddings",
    "indexing",
    "normalisation",
    "pooling",
    "products",
    "random_draws",
    "recurrence",
    "reductions",
    "resampling",
    "shapes",
]
