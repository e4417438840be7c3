"""PyTorch's layers in JAX: values, gradients and Hessian-vector products are PyTorch's, for two clients at once."""

from __future__ import annotations

import functools
import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'fedax[torch]'")
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from fedax.models.torch.exporting import export  # noqa: E402
from fedax.models.torch.graph import INPUT  # noqa: E402
from fedax.models.torch.weights import first_names  # noqa: E402

ROWS = 4


class Call(nn.Module):
    """A function as a module."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *args):
        return self.function(*args)


class Each(nn.Module):
    """Several layers, each with its own inputs, in one graph: an export for each would take minutes."""

    def __init__(self, cases):
        super().__init__()
        layers = [case[0] if isinstance(case[0], nn.Module) else Call(case[0]) for case in cases]
        self.layers = nn.ModuleList(layers)
        self.inputs = [[f"x{i}_{j}" for j in range(len(case) - 1)] for i, case in enumerate(cases)]
        # torch.export leaves the rows of a forward(**inputs) closed.
        names = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for names in self.inputs for name in names]
        self.forward = functools.partial(self.called)
        self.forward.__signature__ = inspect.Signature(names)

    def called(self, **x):
        outputs = [layer(*(x[name] for name in names)) for layer, names in zip(self.layers, self.inputs, strict=True)]
        return [leaf for leaf in torch.utils._pytree.tree_leaves(outputs) if leaf is not None]


def real(*shape, rng=None):
    rng = rng or np.random.default_rng(sum(shape))
    return rng.normal(size=(ROWS, *shape))


def whole(high, *shape):
    return np.random.default_rng(high).integers(0, high, (ROWS, *shape))


def torch_derivatives(net, given, weights, along, twice):
    """Outputs, the gradient of a loss of them, and its Hessian's product with `along`, by autograd twice."""
    leaves = {name: torch.tensor(a) for name, a in given.items()}
    asked = {name: leaves[name].requires_grad_() for name in along}
    x = {name.removeprefix(INPUT): leaf for name, leaf in leaves.items() if name.startswith(INPUT)}
    own = {name: leaf for name, leaf in leaves.items() if not name.startswith(INPUT)}
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        outputs = torch.func.functional_call(net, own, (), x)
        smooth = [(o, torch.tensor(w)) for o, w in zip(outputs, weights, strict=True) if o.requires_grad]
        loss = sum((torch.sin(o) * w).sum() for o, w in smooth)
        slopes = torch.autograd.grad(loss, list(asked.values()), create_graph=twice, materialize_grads=True)
        found = [o.detach().numpy() for o in outputs], dict(zip(asked, slopes, strict=True))
        if not twice:
            return found
        inner = sum((g * torch.tensor(along[name])).sum() for name, g in found[1].items())
        second = torch.autograd.grad(inner, list(asked.values()), materialize_grads=True)
    return *found, dict(zip(asked, second, strict=True))


def jax_derivatives(graph, aliases, given, weights, along):
    smooth = {name: given[name] for name in along}

    def outputs(smooth):
        every = {**given, **smooth}
        return graph.run({**every, **{name: every[first] for name, first in aliases.items()}})[0]

    def loss(smooth):
        pairs = zip(outputs(smooth), weights, strict=True)
        return sum(jnp.sum(jnp.sin(o) * w) for o, w in pairs if jnp.issubdtype(o.dtype, jnp.inexact))

    slopes, second = jax.jvp(jax.grad(loss), (smooth,), (along,))
    return outputs(smooth), slopes, second


def check(cases, *, train=False, open_rows=True, twice=True, tolerance=1e-6):
    """Layers against PyTorch's, in double precision, with parameters and inputs of two clients.

    twice: whether to compare Hessian-vector products, which PyTorch does not have of every layer.
    """
    torch.manual_seed(0)
    net = Each(cases).double()
    net.train(train)
    x = {f"x{i}_{j}": np.asarray(a) for i, case in enumerate(cases) for j, a in enumerate(case[1:])}
    with jax.enable_x64(True):
        graph = export(net, x, train)
        assert (graph.batch is not None) == open_rows
        assert graph.drawing is None
        rng = np.random.default_rng(1)
        tensors = {**dict(net.named_parameters()), **dict(net.named_buffers())}
        first = {name: t.detach().numpy() for name, t in tensors.items()} | {INPUT + n: a for n, a in x.items()}
        other = {
            n: a + 0.1 * rng.random(a.shape) if np.issubdtype(a.dtype, np.floating) else a for n, a in first.items()
        }
        buffers = dict(net.named_buffers())
        floats = [n for n, a in first.items() if np.issubdtype(a.dtype, np.floating) and n not in buffers]
        along = {n: rng.normal(size=first[n].shape) for n in floats}
        with torch.no_grad():
            shapes = [
                tuple(o.shape)
                for o in torch.func.functional_call(net, {}, (), {n: torch.tensor(a) for n, a in x.items()})
            ]
        weights = [rng.normal(size=shape) for shape in shapes]
        aliases = first_names(net)
        program = jax.jit(jax.vmap(lambda given: jax_derivatives(graph, aliases, given, weights, along)))
        found = program({name: np.stack([first[name], other[name]]) for name in first})
        for client, given in enumerate((first, other)):
            net.load_state_dict({**net.state_dict(), **{n: torch.tensor(given[n]) for n, _ in net.named_buffers()}})
            expected = torch_derivatives(net, given, weights, along, twice)
            for kind, mine, theirs in zip(("outputs", "gradient", "hvp"), found, expected, strict=False):
                names = range(len(theirs)) if kind == "outputs" else theirs
                for name in names:
                    np.testing.assert_allclose(
                        mine[name][client],
                        np.asarray(theirs[name].detach() if kind != "outputs" else theirs[name]),
                        rtol=tolerance,
                        atol=tolerance,
                        err_msg=f"{kind} of {name}",
                    )


def test_linear():
    check(
        [
            (nn.Linear(3, 4), real(3)),
            (nn.Linear(3, 4, bias=False), real(2, 3)),
            (nn.Bilinear(3, 4, 2), real(3), real(4)),
            (nn.Identity(), real(2)),
            (
                lambda a, b: (a @ b, torch.einsum("nij,njk->nk", a, b), torch.baddbmm(a @ b, a, b)),
                real(3, 4),
                real(4, 2),
            ),
            (lambda a: (torch.inner(a, a), a @ a[0], torch.outer(a[0], a[1]), torch.dot(a[0], a[1])), real(3)),
            (lambda a: torch.linalg.inv(a + 5 * torch.eye(3)), real(3, 3)),
        ]
    )


def test_layers_without_second_derivatives_in_pytorch():
    """Or with wrong ones: those of weight_norm differ from finite differences."""
    check(
        [
            (nn.utils.parametrizations.weight_norm(nn.Linear(3, 2)), real(3)),
            (nn.utils.parametrizations.spectral_norm(nn.Linear(3, 2)), real(3)),
            (nn.Hardsigmoid(), 2 * real(4)),
            (nn.Hardswish(), 2 * real(4)),
            (nn.EmbeddingBag(7, 3, mode="max", padding_idx=1), whole(7, 5)),
            (nn.EmbeddingBag(7, 3, mode="sum"), whole(7, 5)),
            (nn.EmbeddingBag(7, 3, mode="mean", padding_idx=1), whole(7, 5)),
            (
                lambda i, w: F.embedding_bag(i, w, per_sample_weights=w[:, :1] + 0.0 * i, mode="sum"),
                whole(4, 3),
                real(3),
            ),
        ],
        twice=False,
    )


@pytest.mark.parametrize("axes", [1, 2, 3])
def test_convolutions(axes):
    size = [6] * axes if axes < 3 else [4] * axes
    plain, turned = getattr(nn, f"Conv{axes}d"), getattr(nn, f"ConvTranspose{axes}d")
    check(
        [
            (plain(2, 3, 3, padding=1), real(2, *size)),
            (plain(4, 6, 2, stride=2, groups=2, bias=False), real(4, *size)),
            (plain(2, 3, 3, padding="same", dilation=2), real(2, *size)),
            (plain(3, 3, 3, groups=3, padding=1, stride=2), real(3, *size)),
            (plain(2, 3, 3, padding=1, padding_mode="circular"), real(2, *size)),
            (turned(4, 6, 3, stride=2, padding=1, output_padding=1, groups=2), real(4, *size)),
            (turned(2, 3, 2, dilation=2), real(2, *size)),
        ]
    )


@pytest.mark.parametrize("axes", [1, 2, 3])
def test_poolings(axes):
    size = [7] * axes if axes < 3 else [5] * axes
    layer = {name: getattr(nn, f"{name}Pool{axes}d") for name in ("Max", "Avg", "AdaptiveAvg", "AdaptiveMax", "LP")}
    check(
        [
            (layer["Max"](2), real(2, *size)),
            (layer["Max"](3, 2, 1), real(2, *size)),
            (layer["Max"](2, 2, 1, dilation=2, ceil_mode=True), real(2, *size)),
            (layer["Avg"](2), real(2, *size)),
            (layer["Avg"](3, 2, 1, ceil_mode=True), real(2, *size)),
            (layer["Avg"](3, 2, 1, count_include_pad=False), real(2, *size)),
            (layer["AdaptiveAvg"](3), real(2, *size)),
            (layer["AdaptiveAvg"](1), real(2, *size)),
            (layer["AdaptiveMax"](3), real(2, *size)),
            (layer["LP"](2, 2), np.abs(real(2, *size))),
            (nn.Sequential(plain(axes), nn.ReLU(), layer["Max"](2)), real(2, *size)),
        ]
    )


def plain(axes):
    return getattr(nn, f"Conv{axes}d")(2, 2, 3, padding=1)


def test_pooling_with_places():
    check(
        [
            (lambda x: F.max_unpool2d(*F.max_pool2d(x, 2, return_indices=True), 2), real(2, 4, 4)),
            (lambda x: F.max_pool2d(torch.relu(x), 2, return_indices=True), real(2, 4, 4)),
            (nn.Fold((4, 4), 2, stride=2), real(8, 4)),
            (nn.Unfold(2, padding=1, stride=2), real(2, 4, 4)),
        ],
        open_rows=True,
    )


@pytest.mark.parametrize("train", [False, True])
def test_normalisations(train):
    check(
        [
            (nn.BatchNorm1d(3), real(3)),
            (nn.BatchNorm1d(3, affine=False), real(3, 2)),
            (nn.BatchNorm2d(3), real(3, 2, 2)),
            (nn.BatchNorm2d(3, track_running_stats=False), real(3, 2, 2)),
            (nn.BatchNorm3d(2), real(2, 2, 2, 2)),
            (nn.LayerNorm([3, 2]), real(3, 2)),
            (nn.LayerNorm(2, bias=False), real(3, 2)),
            (nn.LayerNorm(2, elementwise_affine=False), real(3, 2)),
            (nn.GroupNorm(2, 4), real(4, 3)),
            (nn.GroupNorm(1, 4, affine=False), real(4, 2, 2)),
            (nn.InstanceNorm1d(3, affine=True), real(3, 4)),
            (nn.InstanceNorm2d(3, track_running_stats=True), real(3, 2, 2)),
            (nn.RMSNorm(4), real(3, 4)),
            (nn.LocalResponseNorm(2), real(4, 3)),
            (lambda x: F.normalize(x), real(3)),
        ],
        train=train,
    )


NAMES = "ELU Hardshrink Hardtanh LeakyReLU LogSigmoid PReLU ReLU ReLU6 RReLU SELU CELU GELU Sigmoid"
NAMES += " SiLU Mish Softplus Softshrink Softsign Tanh Tanhshrink GLU"


def test_activations():
    layers = [(getattr(nn, name)(), 2 * real(4)) for name in NAMES.split()]
    layers += [(getattr(nn, name)(-1), real(4)) for name in ("Softmin", "Softmax", "LogSoftmax")]
    check(
        [
            *layers,
            (nn.PReLU(3), real(3, 2)),
            (nn.Threshold(0.1, 20), real(3)),
            (nn.GELU("tanh"), real(3)),
            (nn.CELU(0.5), real(3)),
            (nn.Softplus(2, 1), real(3)),
            (nn.Softmax2d(), real(3, 2, 2)),
        ]
    )


def test_kinks():
    """At a kink the gradient is the one that PyTorch takes: inputs of exactly 0, 3 and so on are common."""
    x = np.tile([0.0, 1.0, 3.0, -3.0, 6.0, -1.0], (ROWS, 1))
    names = ["ReLU", "ReLU6", "Hardtanh", "LeakyReLU", "Softshrink"]
    functions = [
        torch.abs,
        lambda a: a.clamp(0, 3),
        lambda a: a.clamp(min=-1),
        lambda a: a.norm(dim=-1) + (0 * a).norm(),
    ]
    functions += [lambda a: a.amax(1), lambda a: a.max(1)[0], lambda a: torch.maximum(a, 0 * a), lambda a: a**2]
    check([*((getattr(nn, name)(), x) for name in names), *((f, x) for f in functions)], twice=False)


def test_embeddings():
    check(
        [
            (nn.Embedding(7, 3, padding_idx=2), whole(7, 5)),
            (nn.Embedding(7, 3), whole(7)),
        ],
    )


def test_attention():
    masked = nn.TransformerEncoderLayer(4, 2, 6, 0.0, batch_first=True, dtype=torch.double)
    mask, causal = np.arange(9).reshape(1, 3, 3) % 4 != 1, nn.Transformer.generate_square_subsequent_mask(3).double()
    check(
        [
            (lambda q: F.scaled_dot_product_attention(q, q, q, is_causal=True), real(2, 3, 4)),
            (lambda q: F.scaled_dot_product_attention(q, q, q, torch.tensor(mask), scale=0.3), real(2, 3, 4)),
            (lambda q, k: F.scaled_dot_product_attention(q, k, k, enable_gqa=True), real(4, 3, 2), real(2, 3, 2)),
            (nn.MultiheadAttention(4, 2, batch_first=True), real(3, 4), real(2, 4), real(2, 4)),
            (
                nn.MultiheadAttention(4, 2, batch_first=True, add_bias_kv=True, kdim=3, vdim=3),
                real(2, 4),
                real(3, 3),
                real(3, 3),
            ),
            (nn.TransformerEncoderLayer(4, 2, 6, batch_first=True), real(3, 4)),
            (lambda x: masked(x, causal), real(3, 4)),
            (
                nn.TransformerDecoderLayer(4, 2, 6, batch_first=True, activation="gelu", norm_first=True),
                real(3, 4),
                real(2, 4),
            ),
            (nn.TransformerEncoder(nn.TransformerEncoderLayer(4, 2, 6, batch_first=True), 2), real(3, 4)),
        ]
    )


def test_a_query_whose_keys_are_all_masked_gets_zero():
    seen = np.ones((ROWS, 1, 3, 3), bool)
    seen[:, :, 1] = False
    check([(lambda q, m: F.scaled_dot_product_attention(q, q, q, m), real(2, 3, 4), seen)])


def test_recurrent_layers():
    layers = [(kind(3, 2, 2, batch_first=True, bidirectional=True), real(3, 3)) for kind in (nn.LSTM, nn.GRU)]
    layers += [(kind(3, 2, bias=False, batch_first=True), real(3, 3)) for kind in (nn.RNN, nn.LSTM)]
    layers.append((nn.LSTM(3, 4, proj_size=2, batch_first=True), real(3, 3)))
    layers.append((nn.RNN(3, 2, nonlinearity="relu", batch_first=True), real(3, 3)))
    layers += [(cell(3, 2), real(3)) for cell in (nn.RNNCell, nn.LSTMCell, nn.GRUCell)]
    turned = nn.GRU(3, 2).double()
    layers.append((lambda x, h: turned(x.transpose(0, 1), h[None])[0], real(3, 3), real(2)))
    check(layers)


def test_shapes():
    def views(x):
        parts = [
            x.reshape(-1, 2),
            x.flatten(1),
            x.permute(2, 0, 1),
            x.transpose(0, 1),
            x.mT,
            x.unsqueeze(1),
            x[:, :1].squeeze(1),
        ]
        parts += [
            x.expand(2, *x.shape),
            x.repeat(1, 2, 1),
            x.repeat_interleave(2, dim=1),
            torch.tile(x, (1, 1, 2)),
            x.movedim(0, 1),
        ]
        parts += [
            torch.cat([x, 2 * x], 1),
            torch.stack([x, x], 1),
            *x.chunk(3, 1),
            *x.split(3, 1),
            *x.unbind(2),
            x.narrow(1, 1, 2),
        ]
        parts += [
            x.flip([1, 2]),
            x.roll((1, 2), (1, 2)),
            x.roll(3),
            x.rot90(1, (1, 2)),
            x.select(1, 2),
            x[:, 1:, ::2],
            x[..., 0],
        ]
        parts += [
            x.tril(),
            x.triu(1),
            x.diagonal(dim1=1, dim2=2),
            torch.diag_embed(x),
            x.unfold(1, 2, 1),
            x.unflatten(1, (2, 2)),
        ]
        return parts

    def made(x):
        ones = [
            torch.zeros_like(x),
            torch.full_like(x, 2),
            x.new_zeros(2),
            torch.arange(5),
            torch.linspace(0, 1, 5),
            torch.eye(3),
        ]
        triangles = [
            torch.tril_indices(3, 3),
            torch.triu(torch.ones(3, 3), 1),
            torch.meshgrid(x[0], x[1], indexing="ij")[0],
        ]
        return [
            x + 0 * x.sum(),
            *ones,
            *triangles,
            x.int(),
            x > 0,
            x.to(torch.float32).double(),
            torch.tensor([1.0, 2.0]),
        ]

    def assigned(x):
        y, z = x.clone(), torch.zeros_like(x)
        y[:, 0] = 1.0
        y[:, 1:] += 2
        y[y > 1.5] = 0
        y = (y.relu() * x).add_(1)
        z[:, ::2] = x[:, ::2]
        return y, z.copy_(z + y)

    check([(views, real(4, 4)), (made, real(4)), (assigned, real(4)), (nn.PixelShuffle(2), real(4, 2, 2))])
    check(
        [
            (nn.PixelUnshuffle(2), real(2, 4, 4)),
            (nn.ChannelShuffle(2), real(4, 2, 2)),
            (nn.Flatten(), real(2, 3)),
            (nn.Unflatten(1, (2, 2)), real(4)),
            (lambda x: [F.pad(x, (1, 2)), F.pad(x, (-1, 0)), F.pad(x, (1, 1, 2, 0), value=2.0)], real(4, 4)),
            *(
                (getattr(nn, f"{kind}Pad2d")((1, 2, 0, 1)), real(2, 4, 4))
                for kind in ("Reflection", "Replication", "Zero")
            ),
            (nn.CircularPad2d(2), real(2, 4, 4)),
            (nn.ReflectionPad1d(2), real(2, 4)),
            (nn.ReplicationPad3d(1), real(2, 2, 2, 2)),
            (nn.CircularPad1d((1, 2)), real(2, 4)),
        ]
    )


def test_indexing():
    def chosen(x, i):
        parts = [
            x[i],
            x[:, i],
            x[i, i],
            x.gather(1, i[:, None].expand(4, 2)),
            x.index_select(1, i),
            torch.take_along_dim(x, i[:, None], 1),
        ]
        parts += [
            x.scatter(1, i[:, None], 2.0),
            x.scatter(1, i[:, None], x[:, :1]),
            x.scatter_add(1, i[:, None], x[:, :1]),
            x.index_add(1, i, x),
        ]
        parts += [x.scatter_reduce(1, i[:, None], x[:, :1], kind) for kind in ("sum", "mean")]
        parts += [x.index_fill(1, i, 0.0), x.index_put((i,), x), x.index_put((i,), x, accumulate=True)]
        parts += [*x.sort(1), *x.sort(1, descending=True), *x.topk(2, 1), *x.topk(2, 1, largest=False), x.argsort(1)]
        parts += [F.one_hot(i, 4), x.slice_scatter(x[:, :1], 1, 0, 1), x.select_scatter(x[:, 0], 1, 1)]
        return [part for part in parts if part is not None]

    check([(chosen, real(4), np.array([0, 2, 1, 3]))], open_rows=False)


@pytest.mark.parametrize("axes", [1, 2, 3])
def test_resampling(axes):
    size, smooth = [4] * axes, ("linear", "bilinear", "trilinear")[axes - 1]
    cases = []
    for mode in ("nearest", "nearest-exact", smooth):
        cases += [
            (nn.Upsample(scale_factor=1.7, mode=mode), real(2, *size)),
            (nn.Upsample(size=[3] * axes, mode=mode), real(2, *size)),
        ]
    cases += [(nn.Upsample(scale_factor=2, mode=smooth, align_corners=True), real(2, *size))]
    cases += [(lambda x: F.interpolate(x, size=[3] * axes, mode="area"), real(2, *size))]
    if axes == 2:
        cases += [
            (nn.Upsample(scale_factor=1.5, mode="bicubic", align_corners=a), real(2, *size)) for a in (False, True)
        ]
        cases += [
            (
                lambda x, g, k=k: F.grid_sample(x, 0.4 * g, align_corners=False, padding_mode=k),
                real(2, *size),
                real(3, 3, 2),
            )
            for k in ("zeros", "border")
        ]
        cases += [
            (lambda x, m=m: F.interpolate(x, size=(3, 2), mode=m, antialias=True), real(2, 5, 5))
            for m in ("bilinear", "bicubic")
        ]
    check(cases)


def test_reductions():
    names = "sum mean amax amin prod std var norm logsumexp argmax argmin all any cumsum cumprod logcumsumexp median"
    names += " max min"
    names += " cummax cummin nansum std_mean var_mean count_nonzero"

    def along(x):
        return [getattr(torch, name)(x, dim=1) for name in names.split()]

    def of_all(x):
        parts = [
            x.sum(),
            x.mean(),
            x.max(),
            x.min(),
            x.prod(),
            x.std(),
            x.var(),
            x.norm(),
            x.sum((0, 1)),
            x.any(),
            x.all(),
        ]
        parts += [
            x.norm(p=1, dim=1),
            x.norm(p=3, dim=1),
            x.norm(p=float("inf"), dim=1),
            x.quantile(0.3, dim=1),
            x.diff(dim=1),
        ]
        return [
            *parts,
            x.median(),
            x.kthvalue(2, dim=1)[0],
            x.amax((0, 1), keepdim=True),
            x.softmax(1),
            x.log_softmax(0),
        ]

    check([(along, np.abs(real(4)) + 0.1), (of_all, np.abs(real(4)) + 0.1)])


def test_elementwise():
    unary = "abs acos asin asinh atan atanh ceil cos cosh erf erfc erfinv exp exp2 expm1 floor frac lgamma log log10"
    unary += " log1p log2"
    unary += (
        " logit neg reciprocal round rsqrt sigmoid sign sin sinc sinh sqrt square tan tanh trunc isnan isinf isfinite"
    )
    binary = (
        "add sub mul div maximum minimum fmax fmin pow atan2 hypot logaddexp eq ne lt le gt ge logical_and logical_xor"
    )
    binary += " float_power xlogy remainder fmod"

    def scalars(x):
        parts = [
            x + 1,
            1 - x,
            x * 2,
            2 / x,
            x**2,
            x**0.5,
            x**3,
            2**x,
            x.detach() // 0.3,
            x % 0.3,
            x > 0.5,
            x.clamp(0.2, 0.7),
            x.clamp(max=x / 2),
        ]
        parts += [
            torch.lerp(x, x * 2, 0.3),
            torch.addcmul(x, x, x, value=0.5),
            torch.addcdiv(x, x, x, value=0.5),
            x.round(decimals=1),
        ]
        parts += [
            x.masked_fill(x > 0.5, 0),
            torch.where(x > 0.5, x, 0.0),
            torch.div(x, 0.3, rounding_mode="trunc"),
            x.nan_to_num(),
        ]
        return parts

    x, y = (np.random.default_rng(seed).uniform(0.1, 0.9, (ROWS, 3)) for seed in (0, 1))
    check(
        [
            (lambda x: [getattr(torch, name)(x) for name in unary.split()], x),
            (lambda x, y: [getattr(torch, name)(x, y) for name in binary.split()], x, y),
            (scalars, x),
            (nn.CosineSimilarity(), x, y),
            (nn.PairwiseDistance(), x, y),
            (lambda x, y: F.smooth_l1_loss(x, y) + F.huber_loss(x, y) + F.mse_loss(x, y), x, y),
            (lambda x, y: F.binary_cross_entropy_with_logits(x, y) + F.cross_entropy(x, y), x, y),
        ],
        tolerance=1e-5,  # PyTorch's own second derivatives of some
    )


def test_gradients_stop_where_pytorch_stops_them():
    """PyTorch's decompositions lose `detach` and `no_grad`, which would make gradients wrong without a word."""

    def mixed(x):
        with torch.no_grad():
            scale = x.exp().mean(0)
        with torch.inference_mode():
            shift = x.exp()
        return x * scale + (x.detach() ** 2) * x.sum(), (x - x.detach() + x.detach().round()) ** 2, x * shift.clone()

    check([(mixed, real(3))])
