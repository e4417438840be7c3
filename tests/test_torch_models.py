"""A PyTorch module as a model: from a module to a federated run and back."""

from __future__ import annotations

import copy
import subprocess
import sys
import warnings
from pathlib import Path
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'fedax[torch]'")
from torch import nn  # noqa: E402

import fedax  # noqa: E402
from fedax.cli import invoke  # noqa: E402
from fedax.errors import FedaxError  # noqa: E402
from fedax.experiments import prepare, read  # noqa: E402
from fedax.experiments.building import config_of  # noqa: E402
from fedax.model_state import parted  # noqa: E402
from fedax.models.torch import OPERATIONS, TorchModel, operation  # noqa: E402
from fedax.runs.files import read_json  # noqa: E402

KEY = jax.random.key(0)
RNG = np.random.default_rng(0)


class Net(nn.Module):
    """Everything at once: a buffer, a frozen layer, tied weights, batch normalisation, dropout."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(3, 3)
        self.again = nn.Linear(3, 3)
        self.again.weight = self.inner.weight
        self.norm = nn.BatchNorm1d(3)
        self.drop = nn.Dropout(0.5)
        self.head = nn.Linear(3, 2)
        self.fixed = nn.Linear(3, 3).requires_grad_(False)
        self.register_buffer("scale", torch.tensor([1.0, 2.0, 3.0]))

    def forward(self, x):
        hidden = torch.relu(self.inner(self.fixed(x)) * self.scale)
        return self.head(self.drop(self.norm(self.again(hidden))))


class Function(nn.Module):
    """A linear layer, then any function."""

    def __init__(self, function):
        super().__init__()
        self.layer, self.function = nn.Linear(3, 3), function

    def forward(self, x):
        return self.function(self.layer(x))


def rows(n=5, *shape):
    return RNG.normal(size=(n, *(shape or (3,)))).astype(np.float32)


def test_parameters_state_and_constants():
    net = Net()
    model = TorchModel(net)
    params, state = model.init(KEY, rows())
    assert set(params) == {name for name, _ in net.named_parameters()}
    assert "again.weight" not in params  # tied to inner.weight
    assert all(model.is_trained(name) == ("fixed" not in name) for name in params)
    assert set(state) == {"norm.running_mean", "norm.running_var", "norm.num_batches_tracked"}


def test_evaluation_is_pytorchs():
    net, x = Net().eval(), rows()
    model = TorchModel(net)
    params, state = model.init(KEY, x)
    outputs, after = model.apply(params, state, x, None, False)
    np.testing.assert_allclose(outputs, net(torch.tensor(x)).detach(), atol=1e-6)
    assert after is state


def test_training_without_dropout_is_pytorchs_with_its_statistics():
    net = Net()
    net.drop.p = 0.0
    model = TorchModel(copy.deepcopy(net))
    params, state = model.init(KEY, rows())
    for _ in range(3):
        x = rows()
        outputs, state = model.apply(params, state, x, KEY, True)
        np.testing.assert_allclose(outputs, net.train()(torch.tensor(x)).detach(), atol=1e-5)
    for name, value in state.items():
        np.testing.assert_allclose(value, dict(net.named_buffers())[name], atol=1e-6)
    assert int(state["norm.num_batches_tracked"]) == 3


def test_gradients_of_tied_weights():
    net, x = Net().eval(), rows()
    model = TorchModel(net)
    params, state = model.init(KEY, x)
    found = jax.grad(lambda p: jnp.sum(model.apply(p, state, x, None, False)[0] ** 2))(params)
    (net(torch.tensor(x)) ** 2).sum().backward()
    for name, p in net.named_parameters():
        if p.requires_grad:
            np.testing.assert_allclose(found[name], p.grad, rtol=1e-4, atol=1e-5, err_msg=name)


def test_dropout_draws_from_the_key():
    net = nn.Sequential(nn.Linear(3, 400), nn.Dropout(0.25), nn.Dropout(0.25), nn.Dropout1d(0.0))
    with torch.no_grad():
        net[0].weight.zero_()
        net[0].bias.fill_(1.0)
    model, x = TorchModel(net), rows()
    params, state = model.init(KEY, x)
    keys = jax.random.split(KEY, 3)
    drawn = jax.vmap(lambda key: model.apply(params, state, x, key, True)[0])(keys)
    np.testing.assert_array_equal(drawn[0], model.apply(params, state, x, keys[0], True)[0])
    assert not np.array_equal(drawn[0], drawn[1])
    assert set(np.unique(np.round(drawn, 4))) == {0.0, np.float32(np.round(1 / 0.75**2, 4))}
    assert np.mean(drawn > 0) == pytest.approx(0.75**2, abs=0.03)  # the second draws from a key of its own
    with pytest.raises(FedaxError, match=r"1 \(Dropout\) draws random numbers .* give a key"):
        model.apply(params, state, x, None, True)


def test_draws_in_evaluation_are_refused():
    problem = fedax.Problem(Function(lambda y: nn.functional.dropout(y)), loss="cross_entropy")
    words = r"Function draws random numbers in evaluation too \(aten.native_dropout.default\): let it draw in training"
    with pytest.raises(FedaxError, match=words):
        fedax.simulate(problem, federation(), fedax.FedAvg(lr=0.1), rounds=1, local_steps=1, batch_size=4)


def test_recurrent_dropout_and_attention_dropout_draw():
    class Sequence(nn.Module):
        def __init__(self):
            super().__init__()
            self.rnn = nn.LSTM(3, 4, 2, dropout=0.5, batch_first=True)
            self.block = nn.TransformerEncoderLayer(4, 2, 6, dropout=0.5, batch_first=True)

        def forward(self, x):
            return self.block(self.rnn(x)[0])

    model, x = TorchModel(Sequence()), rows(2, 5, 3)
    params, state = model.init(KEY, x)
    one, two = (model.apply(params, state, x, jax.random.key(seed), True)[0] for seed in (1, 2))
    assert not np.allclose(one, two)
    assert np.all(np.isfinite(one))


def test_one_graph_serves_all_numbers_of_rows():
    model = TorchModel(Net())
    params, state = model.init(KEY, rows())
    for n in (2, 3, 7, 64):
        assert model.apply(params, state, rows(n), KEY, True)[0].shape == (n, 2)
    assert len({id(graph) for graph in model._graphs.values()}) == 1
    assert model.apply(params, state, rows(1), None, False)[0].shape == (1, 2)


def test_a_module_of_one_number_of_rows():
    """Where the forward names it, each number of rows has a graph of its own."""
    model, five = TorchModel(Function(lambda y: y.reshape(5, 3))), rows(5)
    params, state = model.init(KEY, five)
    assert model.apply(params, state, five, None, False)[0].shape == (5, 3)
    with pytest.raises(FedaxError, match=r"Function does not take rows of shape \(3,\)"):
        model.apply(params, state, rows(4), None, False)


def test_a_dictionary_of_inputs():
    class Tokens(nn.Module):
        def __init__(self):
            super().__init__()
            self.table, self.head = nn.Embedding(9, 4, padding_idx=0), nn.Linear(4, 2)

        def forward(self, ids, mask):
            return {"loss": None, "logits": self.head((self.table(ids) * mask[..., None]).mean(1))}

    net, ids = Tokens(), RNG.integers(0, 9, (6, 5))
    x = {"ids": ids, "mask": (ids > 0).astype(np.float32)}
    model = TorchModel(net)
    params, state = model.init(KEY, x)
    expected = net(**{name: torch.tensor(a) for name, a in x.items()})["logits"]
    np.testing.assert_allclose(model.apply(params, state, x, None, False)[0], expected.detach(), atol=1e-6)


def test_bytes_are_scaled_and_double_precision_is_kept(x64):
    net = nn.Sequential(nn.Flatten(), nn.Linear(4, 2))
    model, x = TorchModel(net), RNG.integers(0, 256, (3, 2, 2)).astype(np.uint8)
    params, state = model.init(KEY, x)
    outputs = model.apply(params, state, x, None, False)[0]
    assert params["1.weight"].dtype == outputs.dtype == jnp.float64
    np.testing.assert_allclose(outputs, net.double()(torch.tensor(x / 255)).detach(), atol=1e-12)


def test_back_to_pytorch():
    net = Net()
    model = TorchModel(net)
    params, state = model.init(KEY, rows())
    params = jax.tree.map(lambda a: a + 0.5, params)
    state = model.apply(params, state, rows(), KEY, True)[1]
    other = Net()
    other.load_state_dict(model.state_dict(params, state), strict=True)
    other.again.weight = other.inner.weight
    x = rows()
    expected = other.eval()(torch.tensor(x)).detach()
    np.testing.assert_allclose(model.apply(params, state, x, None, False)[0], expected, atol=1e-5)


def test_weights_drawn_for_a_seed():
    net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.MultiheadAttention(4, 2), nn.PReLU())
    net.forward = lambda x: net[3](net[2](*3 * [net[1](net[0](x))[None]])[0][0])
    model = TorchModel(net, init="reset")
    before = torch.random.get_rng_state()
    one, again, two = (model.init(jax.random.key(seed), rows())[0] for seed in (1, 1, 2))
    assert torch.equal(before, torch.random.get_rng_state())
    np.testing.assert_array_equal(one["0.weight"], again["0.weight"])
    assert not np.array_equal(one["0.weight"], two["0.weight"])
    own = TorchModel(net)
    np.testing.assert_array_equal(own.init(jax.random.key(1), rows())[0]["0.weight"], net[0].weight.detach())


def test_an_operation_of_ones_own():
    class Mode(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.Sequential(Function(lambda y: torch.special.bessel_j0(y)))

        def forward(self, x):
            return self.layers(x)

    words = (
        r"layers.0 \(Function\) needs aten.special_bessel_j0.default, which is not among Fedax's operations: add it "
        r"with @fedax.models.torch.operation\('aten.special_bessel_j0.default'\)"
    )
    with pytest.raises(FedaxError, match=words):
        TorchModel(Mode()).init(KEY, rows())
    operation("aten.special_bessel_j0.default")(jnp.cos)
    try:
        model, x = TorchModel(Mode()), rows()
        params, state = model.init(KEY, x)
        expected = np.cos(x @ params["layers.0.layer.weight"].T + params["layers.0.layer.bias"])
        np.testing.assert_allclose(model.apply(params, state, x, None, False)[0], expected, atol=1e-5)
    finally:
        del OPERATIONS["aten.special_bessel_j0.default"]


class Straight(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.sign()

    @staticmethod
    def backward(ctx, g):
        return g


def quantised():
    net = nn.Linear(3, 2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch wants another package for it
        net.register_buffer("scale", torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8))
    return net


def packed():
    rnn, pack = nn.RNN(3, 2), nn.utils.rnn.pack_padded_sequence
    return Function(lambda y: rnn(pack(y[None], (y[:, 0] < 9).long(), enforce_sorted=False))[1][0])


def scripted():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch calls it old
        return torch.jit.trace(nn.Linear(3, 2), torch.ones(1, 3))


class OnGPU(nn.Sequential):
    """What a module on a GPU says of its parameters, where there is no GPU."""

    def named_parameters(self, *args, **kwargs):
        weight = SimpleNamespace(is_quantized=False, is_complex=lambda: False, device=torch.device("cuda:0"))
        return iter([("0.weight", weight)])


REFUSED = {
    "a branch": (lambda: Function(lambda y: y if y.sum() > 0 else -y), "depends on the data.*torch.where"),
    "a number": (lambda: Function(lambda y: y * y.max().item()), "a number is taken out of a tensor"),
    "entries": (lambda: Function(lambda y: y[y > 0]), r"shape of aten.index.Tensor in Function depends on the data"),
    "places": (lambda: Function(lambda y: y.nonzero().float()), "shape of aten.nonzero.default in Function depends on"),
    "NumPy": (lambda: Function(lambda y: torch.tensor(y.detach().numpy())), "computes in NumPy, where torch.export"),
    "an error": (
        lambda: Function(lambda y: {}["a"]),
        r"<lambda> \(.*test_torch_models.py, line \d+\) raises KeyError: 'a'",
    ),
    "TorchScript": (lambda: scripted(), "is compiled by TorchScript: give the module that it was made from"),
    "packed": (lambda: packed(), "takes a size from a tensor's values, as packed sequences do"),
    "two outputs": (lambda: Function(lambda y: (y, y)), "gives a tuple of 2 tensors: the loss takes one tensor"),
    "a dictionary": (lambda: Function(lambda y: {"a": y, "b": y}), "gives a dictionary of a, b"),
    "rows": (lambda: nn.Linear(4, 2), r"Linear does not take rows of shape \(3,\)"),
    "no values": (lambda: nn.Linear(3, 2, device="meta"), "'weight' is on the device meta"),
    "complex": (lambda: nn.Linear(3, 2, dtype=torch.complex64), "'weight' is complex"),
    "quantised": (lambda: quantised(), "buffer 'scale' is quantised: train the module before it is quantised"),
    "quantised layer": (
        lambda: nn.Sequential(torch.ao.nn.quantized.Quantize(0.1, 0, torch.qint8)),
        "0 is quantised: train the module before it is quantised",
    ),
    "a GPU": (lambda: OnGPU(), r"'0.weight' is on the device cuda:0: move the module to the CPU with net.cpu\(\)"),
    "lazy": (lambda: nn.LazyLinear(2), "'weight' has no shape yet: call the module once"),
    "momentum": (lambda: nn.BatchNorm1d(3, momentum=None), "BatchNorm1d has momentum=None"),
    "max_norm": (lambda: nn.Sequential(nn.Embedding(3, 2, max_norm=1.0)), "0 has max_norm, which changes weights"),
    "frozen": (lambda: nn.Linear(3, 2).requires_grad_(False), "has no parameter that needs a gradient"),
    "backward": (lambda: Function(Straight.apply), "calls Straight, an autograd.Function, whose backward"),
    "no reset": (
        lambda: TorchModel(nn.ParameterList([torch.ones(3)]), init="anew"),
        "init must be 'module' or 'reset', not 'anew'",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refusals_are_one_sentence(case):
    make, words = REFUSED[case]

    def trained():
        model, x = TorchModel(make()), rows()
        model.apply(*model.init(KEY, x), x, KEY, True)

    with pytest.raises(FedaxError, match=words) as refused:
        trained()
    assert "\n" not in str(refused.value)


def test_a_class_and_a_loss_of_pytorchs_own():
    with pytest.raises(FedaxError, match=r"model is the class Net: give a model made by it, such as Net\(\)"):
        fedax.Problem(Net, loss="cross_entropy")
    for loss in (nn.CrossEntropyLoss(), nn.functional.cross_entropy):
        with pytest.raises(FedaxError, match="losses are computed in JAX: give its counterpart, loss='cross_entropy'"):
            fedax.Problem(Net(), loss=loss)
    with pytest.raises(FedaxError, match=r"loss is PyTorch's HuberLoss, .*: give a function of \(outputs, y\)"):
        fedax.Problem(Net(), loss=nn.HuberLoss())


def test_classes_second_as_in_segmentation():
    """Outputs [rows, classes, height, width] are compared as PyTorch's own loss compares them."""
    net, x, y = nn.Conv2d(1, 5, 3, padding=1), rows(4, 1, 6, 7), RNG.integers(0, 5, (4, 6, 7))
    problem = fedax.Problem(net, loss="cross_entropy", metrics=["perplexity"])
    made = fedax.Federation.from_clients([{"x": x, "y": y}])
    found = fedax.simulate(problem, made, fedax.FedAvg(lr=0.1), rounds=1, local_steps=1, eval_on=["train"])
    outputs = net(torch.tensor(x))
    expected = nn.functional.cross_entropy(outputs, torch.tensor(y)).item()
    assert found.history[0]["train_loss"] == pytest.approx(expected, rel=1e-5)
    assert found.history[0]["train_perplexity"] == pytest.approx(np.exp(expected), rel=1e-5)
    assert found.history[0]["train_accuracy"] == pytest.approx(np.mean(outputs.argmax(1).numpy() == y))


def test_one_row_in_training_with_batch_normalisation():
    model = TorchModel(nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2)))
    params, state = model.init(KEY, rows(1))
    with pytest.raises(FedaxError, match="batch normalisation in Sequential needs two rows or more in training"):
        model.apply(params, state, rows(1), KEY, True)


def test_a_state_dict_of_another_architecture():
    model = TorchModel(nn.Linear(3, 2))
    params, _ = model.init(KEY, rows())
    with pytest.raises(
        FedaxError, match=r"'weight' has shape \(2, 3\) and in Linear \(2, 4\): .* another architecture"
    ):
        TorchModel(nn.Linear(4, 2)).state_dict(params)
    uncopied = nn.Linear(3, 2)
    uncopied.tied = 2 * uncopied.weight  # as the old torch.nn.utils.weight_norm leaves one
    with pytest.raises(FedaxError, match="PyTorch cannot copy Linear: where it uses"):
        TorchModel(uncopied).restored(params, {})
    with pytest.raises(FedaxError, match=r"'0.weight' is not in Linear"):
        model.state_dict({"0.weight": params["weight"]})


def test_parameters_without_reset():
    net = Function(lambda y: y)
    net.own = nn.Parameter(torch.ones(3))
    with pytest.raises(FedaxError, match=r"the module \(Function\) has parameters of its own and no reset_parameters"):
        TorchModel(net, init="reset").init(KEY, rows())


def federation(clients=4, n=24):
    truth = RNG.normal(size=3)
    made = []
    for _ in range(clients):
        x = rows(n)
        made.append({"x": x, "y": (x @ truth > 0).astype(np.int32)})
    return fedax.Federation.from_clients(made)


OPTIONS = {"rounds": 6, "cohort": 3, "local_steps": 4, "batch_size": 8, "eval_every": 3}


@pytest.mark.parametrize("executor", ["batched", "looped"])
def test_a_run_and_back(executor):
    """Batch normalisation, dropout, a frozen layer and tied weights through the engine."""
    net = Net()
    before = {name: t.clone() for name, t in net.state_dict().items()}
    problem = fedax.Problem(net, loss="cross_entropy")
    result = fedax.simulate(
        problem, federation(), fedax.FedAvg(lr=0.1), executor=executor, model_state="average", **OPTIONS
    )
    assert all(torch.equal(net.state_dict()[name], before[name]) for name in before)
    trained = result.to_torch(net).eval()
    x = rows()
    expected = problem.outputs(result.model, {"x": jnp.asarray(x)})
    np.testing.assert_allclose(trained(torch.tensor(x)).detach(), expected, atol=1e-5)
    assert torch.equal(trained.fixed.weight, net.fixed.weight)
    assert not torch.equal(trained.norm.running_mean, net.norm.running_mean)


def test_requires_grad_decides_unless_trainable_does():
    net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    net[0].requires_grad_(False)
    one_round = {**OPTIONS, "rounds": 1, "eval_every": 1, "cohort": 1}
    for trainable, moved, floats in ((None, "2", 4 * 2 + 2), ("0.*", "0", 3 * 4 + 4)):
        problem = fedax.Problem(net, loss="cross_entropy", trainable=trainable)
        result = fedax.simulate(problem, federation(), fedax.FedAvg(lr=0.1), **one_round)
        assert result.history[-1]["floats_up"] == floats
        for name, value in net.state_dict().items():
            assert np.array_equal(value, result.model[name]) == (not name.startswith(moved)), name


def test_personal_models_back():
    net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    problem = fedax.Problem(net, loss="cross_entropy")
    result = fedax.simulate(problem, federation(), fedax.Ditto(lr=0.1, lam=0.1), **OPTIONS)
    one, two = (result.personal_to_torch(client, net) for client in (0, 1))
    assert not torch.equal(one[0].weight, two[0].weight)
    np.testing.assert_allclose(one[0].weight.detach(), result.personal(0)["0.weight"])


def test_pytorch_is_not_imported_unless_a_module_is_given():
    code = "import sys, fedax; fedax.Problem(loss='mse', model=(print, print)); assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_without_pytorch(monkeypatch):
    from fedax.models.torch import refusals

    refusals.installed.cache_clear()
    monkeypatch.setitem(sys.modules, "torch", None)
    try:
        with pytest.raises(FedaxError, match=r"a PyTorch module needs PyTorch: pip install 'fedax\[torch\]'"):
            refusals.installed()
    finally:
        refusals.installed.cache_clear()


def test_an_older_pytorch(monkeypatch):
    from fedax.models.torch import refusals

    refusals.installed.cache_clear()
    monkeypatch.setattr(torch, "__version__", "2.5.1+cpu")
    try:
        with pytest.raises(
            FedaxError, match=r"^PyTorch 2.5.1\+cpu is too old: Fedax needs 2.13 or later, so pip install"
        ):
            fedax.Problem(nn.Linear(3, 2), loss="cross_entropy")
    finally:
        refusals.installed.cache_clear()


def test_federations_from_datasets():
    x, y = torch.randn(12, 3), torch.arange(12) % 2
    whole = torch.utils.data.TensorDataset(x, y)
    parts = torch.utils.data.random_split(whole, [5, 7])
    given = fedax.data.from_torch([parts[0], torch.utils.data.DataLoader(parts[1], batch_size=2)], split=None)
    np.testing.assert_array_equal(given.train.count, [5, 7])
    np.testing.assert_array_equal(given.client(0)["x"], x[parts[0].indices])
    np.testing.assert_array_equal(given.client(1)["y"], y[parts[1].indices])
    with pytest.raises(FedaxError, match=r"client 0 is a Subset: fedax.data.from_torch makes a federation"):
        fedax.Federation.from_clients(parts)
    divided = fedax.data.from_torch(whole, partition=fedax.data.IID(3), seed=1)
    assert (divided.clients, divided.rows) == (3, 12)
    with pytest.raises(FedaxError, match="one dataset needs partition=, or give a list of datasets"):
        fedax.data.from_torch(whole)
    with pytest.raises(FedaxError, match="client 0's dataset gives 2 values in row 0 and 3 values in row 1: make them"):
        fedax.data.from_torch([[(1, 2), (1, 2, 3)]])
    with pytest.raises(FedaxError, match="client 0's dataset gives x, y in row 0 and x in row 1: make them alike"):
        fedax.data.from_torch([[{"x": 1, "y": 0}, {"x": 1}]])


def test_the_pages_script():
    """The lines of docs/models.md beside the PyTorch script are ten of the whole one, which test_pages.py runs."""
    page = (Path(__file__).parent.parent / "docs" / "models.md").read_text()
    script = page.split("```python\n")[1].split("```")[0]
    beside = page.split("```py\n")[2].split("```")[0].splitlines()
    assert len(beside) == 10
    assert all(line in script.splitlines() for line in beside)


MINE = """\
import torch

class Net(torch.nn.Module):
    def __init__(self, outputs, width=4):
        super().__init__()
        self.body, self.norm = torch.nn.Linear(64, width), torch.nn.BatchNorm1d(width)
        self.fixed, self.head = torch.nn.Linear(width, width).requires_grad_(False), torch.nn.Linear(width, outputs)
        self.register_buffer("scale", torch.tensor(2.0))

    def forward(self, x):
        return self.head(self.scale * self.fixed(torch.relu(self.norm(self.body(x.flatten(1))))))

def make_net(outputs, width=4):
    return Net(outputs, width)
"""
FILE = """\
rounds = 2
cohort = 3
local_steps = 2
batch_size = 8
model_state = "average"

[data]
name = "digits"
partition = {name = "IID", clients = 3}

[model]
name = "mine.py:make_net"
width = 5

[algorithm]
name = "FedAvg"
lr = 0.1
"""


@pytest.fixture
def written(tmp_path, monkeypatch):
    """The directory of an experiment file and of the module that it names."""
    (tmp_path / "mine.py").write_text(MINE)
    (tmp_path / "mine.toml").write_text(FILE)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_an_experiment_file_and_its_state_dict(written, capsys):
    """`fedax run` on a module by its name, then `fedax export --torch`: what PyTorch loads gives the same outputs."""
    assert invoke(["run", "mine.toml", "--out", "run"]) == 0
    assert capsys.readouterr().out.count("Net is exported from PyTorch") == 2  # in training and in evaluation
    assert invoke(["export", "run", "--torch", "new/mine.pt"]) == 0
    assert "net.load_state_dict(torch.load('mine.pt'))" in capsys.readouterr().out
    net = fedax.models.model("mine.py:make_net", outputs=10, width=5)
    net.load_state_dict(torch.load("new/mine.pt"), strict=True)
    experiment = read("mine.toml")
    problem, digits = prepare(experiment)
    rows = digits.client(0, "test")
    expected = problem.outputs(fedax.load("run").model, rows)
    np.testing.assert_allclose(net.eval()(torch.tensor(np.asarray(rows["x"]))).detach(), expected, atol=1e-5)
    assert read_json(written / "run" / "experiment.json")["model"]["outputs"] == 10


def test_a_state_dict_of_a_run_from_python(tmp_path, capsys, monkeypatch):
    net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    options = {**OPTIONS, "rounds": 1, "eval_every": 1, "out": tmp_path / "run"}
    result = fedax.simulate(fedax.Problem(net, loss="cross_entropy"), federation(), fedax.FedAvg(lr=0.1), **options)
    assert invoke(["export", str(tmp_path / "run"), "--torch", str(tmp_path / "net.pt")]) == 0
    assert "strict=False" in capsys.readouterr().out
    net.load_state_dict(torch.load(tmp_path / "net.pt"))
    np.testing.assert_array_equal(net[2].weight.detach(), result.model["2.weight"])
    linear = fedax.Problem(fedax.models.model("linear", outputs=2), loss="cross_entropy")
    fedax.simulate(linear, federation(), fedax.FedAvg(lr=0.1), **{**options, "out": tmp_path / "linear"})
    assert invoke(["export", str(tmp_path / "linear"), "--torch", str(tmp_path / "no.pt")]) == 2
    assert "the model is no PyTorch module" in capsys.readouterr().err
    from fedax.models.torch import refusals

    monkeypatch.setitem(sys.modules, "torch", None)
    refusals.installed.cache_clear()
    try:
        assert invoke(["export", str(tmp_path / "run"), "--torch", str(tmp_path / "no.pt")]) == 2
        assert "needs PyTorch: pip install 'fedax[torch]'" in " ".join(capsys.readouterr().err.split())
    finally:
        refusals.installed.cache_clear()


def test_weights_of_a_file_are_the_same_in_every_process_and_reset_for_each_seed(written):
    """What a network's sites start from, and what a resumed run goes on with."""
    code = "import fedax; print(float(fedax.models.model('mine.py:make_net', outputs=2).fixed.weight.sum()))"
    here = fedax.models.model("mine.py:make_net", outputs=2).fixed.weight.sum().item()
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert float(done.stdout) == pytest.approx(here, abs=1e-6)
    before = torch.random.get_rng_state()
    problem, digits = prepare(read("mine.toml", [("model.init", "reset")]))
    one, two = (problem.init(jax.random.key(seed), digits.client(0)) for seed in (0, 1))
    fixed = {name: a for name, a in parted(problem.whole(two.params))[0].items() if name.startswith("fixed")}
    assert not np.array_equal(one.params["head.weight"], two.params["head.weight"])
    np.testing.assert_allclose(
        fixed["fixed.weight"].sum(),
        fedax.models.model("mine.py:make_net", outputs=2, width=5).fixed.weight.sum().item(),
    )
    assert torch.equal(before, torch.random.get_rng_state())
    with pytest.raises(FedaxError, match="init='reset' is for a PyTorch module"):
        read("mine.toml", [("model", '{name = "mlp", init = "reset"}')])


def test_a_module_over_flower(written):
    """Server and sites make the module by its name, each for itself; the run is the simulated one."""
    pytest.importorskip("flwr", reason="Flower is not installed: pip install 'fedax[flower]'")
    from fedax.flower import client_app
    from fedax.flower.agreement import setting_of
    from fedax.flower.server import serve
    from flower_grid import LocalGrid

    asked = setting_of("mine.toml", {})
    grid = LocalGrid(written, client_app("mine.toml"), asked.clients)
    over_network = serve(grid, asked, written / "run", {"round-timeout": 0.01}, pause=0.0)
    experiment = read("mine.toml")
    simulated = fedax.simulate(*prepare(experiment), experiment.algorithm[0].build(), **vars(config_of(experiment, 0)))
    for name, value in simulated.model.params.items():
        np.testing.assert_allclose(over_network.model.params[name], value, rtol=1e-4, atol=1e-6, err_msg=name)


def test_ten_rounds_of_fedavg_are_pytorchs():
    """Full batches, unequal clients, weighted by rows: parameters equal those of a plain loop in PyTorch."""
    net = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 2))
    clients = [{"x": rows(n), "y": RNG.integers(0, 2, n)} for n in (5, 9, 12)]
    lr, steps, rounds = 0.2, 3, 10
    problem = fedax.Problem(net, loss="cross_entropy")
    found = fedax.simulate(
        problem,
        fedax.Federation.from_clients(clients),
        fedax.FedAvg(lr=lr),
        rounds=rounds,
        local_steps=steps,
        weighted=True,
    )
    shared = {name: t.clone() for name, t in net.state_dict().items()}
    share = [len(client["y"]) / 26 for client in clients]
    for _ in range(rounds):
        uploads = []
        for client in clients:
            own = copy.deepcopy(net)
            own.load_state_dict(shared)
            optimiser = torch.optim.SGD(own.parameters(), lr=lr)
            for _ in range(steps):
                optimiser.zero_grad()
                nn.functional.cross_entropy(own(torch.tensor(client["x"])), torch.tensor(client["y"])).backward()
                optimiser.step()
            uploads.append(own.state_dict())
        shared = {name: sum(p * up[name] for p, up in zip(share, uploads, strict=True)) for name in shared}
    for name, value in shared.items():
        np.testing.assert_allclose(found.model[name], value, atol=1e-5, err_msg=name)
        assert np.abs(found.model[name] - net.state_dict()[name].numpy()).max() > 0.01, name
