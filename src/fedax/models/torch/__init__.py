"""PyTorch modules as models: `torch.export` writes a module's forward as operations, which are computed in JAX.

`TorchModel` is the model that a `Problem` takes; `operation` adds an operation that the table does not have.
"""

from fedax.models.torch import operations
from fedax.models.torch.registry import OPERATIONS, Operation, operation
from fedax.models.torch.torch_model import TorchModel

__all__ = ["OPERATIONS", "Operation", "TorchModel", "operation", "operations"]
