"""Hugging Face's models from their configurations, LoRA by PEFT, and its datasets. Nothing is downloaded."""

from __future__ import annotations

import copy
import warnings

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'fedax[torch]'")

import fedax  # noqa: E402

RNG = np.random.default_rng(0)
TOKENS, LENGTH = 20, 6
OPTIONS = {"rounds": 3, "cohort": 2, "local_steps": 2, "batch_size": 4, "eval_on": ["train"]}


@pytest.fixture(scope="module")
def transformers():
    return pytest.importorskip("transformers", reason="Hugging Face transformers is not installed")


@pytest.fixture(scope="module")
def classifier(transformers):
    config = transformers.DistilBertConfig(
        vocab_size=TOKENS, dim=8, n_layers=1, n_heads=2, hidden_dim=16, max_position_embeddings=LENGTH, num_labels=2
    )
    torch.manual_seed(0)
    return transformers.DistilBertForSequenceClassification(config)


@pytest.fixture(scope="module")
def generator(transformers):
    words = {"bos_token_id": 0, "eos_token_id": 0, "pad_token_id": 0}
    drops = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
    config = transformers.GPT2Config(
        vocab_size=TOKENS, n_embd=8, n_layer=1, n_head=2, n_positions=LENGTH, **words, **drops
    )
    torch.manual_seed(0)
    return transformers.GPT2LMHeadModel(config)


def texts(rows=12):
    ids = RNG.integers(1, TOKENS, (rows, LENGTH))
    mask = np.ones_like(ids)
    mask[::2, 4:] = 0
    return {"input_ids": ids * mask, "attention_mask": mask}


def tensors(arrays):
    return {name: torch.tensor(array) for name, array in arrays.items()}


def test_sequence_classification(classifier):
    clients = [{"x": texts(), "y": np.arange(12) % 4 // 3} for _ in range(2)]
    problem = fedax.Problem(classifier, loss="cross_entropy", metrics=["perplexity"])
    result = fedax.simulate(problem, fedax.Federation.from_clients(clients), fedax.FedAvg(lr=0.5), **OPTIONS)
    assert result.history[-1]["train_loss"] < result.history[0]["train_loss"]
    trained, batch = result.to_torch(classifier).eval(), clients[0]
    expected = trained(**tensors(batch["x"])).logits.detach()
    np.testing.assert_allclose(problem.outputs(result.model, batch), expected, atol=1e-5)


def test_next_token_training(generator, tmp_path):
    """The loss is the model's own, padding left out; the perplexity is that of all tokens together."""
    federation = fedax.data.from_torch([rows_of(texts()) for _ in range(2)], split=None)
    problem = fedax.Problem(generator, loss="next_token", metrics=["perplexity"])
    result = fedax.simulate(problem, federation, fedax.FedAvg(lr=0.5), out=tmp_path / "run", **OPTIONS)
    assert generator.config.use_cache
    first, last = result.history[0], result.history[-1]
    assert last["train_perplexity"] < first["train_perplexity"]
    both = [federation.client(i) for i in range(2)]
    x = {name: torch.tensor(np.concatenate([one["x"][name] for one in both])) for name in both[0]["x"]}
    labels = torch.tensor(np.concatenate([one["y"] for one in both])).long()
    with torch.no_grad():
        assert first["train_perplexity"] == pytest.approx(float(generator(**x, labels=labels).loss.exp()), rel=1e-5)
        after = result.to_torch(generator)(**x, labels=labels).loss
    assert last["train_perplexity"] == pytest.approx(float(after.exp()), rel=1e-4)


def test_lora_by_peft_trains_and_sends_the_adapters_alone(generator):
    peft = pytest.importorskip("peft", reason="PEFT is not installed")
    config = peft.LoraConfig(r=2, target_modules=["c_attn"], fan_in_fan_out=True, task_type="CAUSAL_LM")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PEFT asks transformers for what is deprecated there
        net = peft.get_peft_model(copy.deepcopy(generator), config)
    federation = fedax.data.from_torch([rows_of(texts()) for _ in range(2)], split=None)
    problem = fedax.Problem(net, loss="next_token")
    result = fedax.simulate(problem, federation, fedax.FedAvg(lr=1.0), **OPTIONS)
    adapters = sum(p.numel() for p in net.parameters() if p.requires_grad)
    assert result.history[-1]["floats_up"] == OPTIONS["rounds"] * OPTIONS["cohort"] * adapters
    for name, p in net.named_parameters():
        assert np.array_equal(p.detach(), result.model[name]) != p.requires_grad, name
    batch = federation.client(0)
    expected = result.to_torch(net).eval()(**tensors({k: np.asarray(a) for k, a in batch["x"].items()})).logits.detach()
    np.testing.assert_allclose(problem.outputs(result.model, batch), expected, atol=1e-5)


def rows_of(columns):
    return [{name: column[i] for name, column in columns.items()} for i in range(len(columns["input_ids"]))]


class Columns:
    """What a `datasets.Dataset` has that a federation is made of."""

    def __init__(self, columns):
        self.columns, self.column_names = columns, list(columns)

    def __len__(self):
        return len(next(iter(self.columns.values())))

    def __getitem__(self, which):
        return {name: column[which] for name, column in self.columns.items()}


@pytest.fixture(params=["datasets", "a stand-in"])
def dataset(request):
    if request.param == "a stand-in":
        return Columns
    return pytest.importorskip("datasets", reason="Hugging Face datasets is not installed").Dataset.from_dict


def test_datasets_as_federations(dataset):
    columns = {name: array.tolist() for name, array in texts().items()}
    made = fedax.data.from_torch(dataset({**columns, "label": [0, 1] * 6}), partition=fedax.data.IID(3), split=None)
    assert (made.clients, made.rows) == (3, 12)
    batch = made.client(0)
    assert set(batch["x"]) == {"input_ids", "attention_mask"}
    assert batch["x"]["input_ids"].shape == (4, LENGTH)
    tokens = fedax.data.from_torch([dataset(columns)], split=None).client(0)
    np.testing.assert_array_equal(tokens["y"] == -100, tokens["x"]["attention_mask"] == 0)
    with pytest.raises(fedax.FedaxError, match="the dataset has 'text' with 'a': leave out what is no number"):
        fedax.data.from_torch(dataset({**columns, "text": ["a"] * 12}), partition=fedax.data.IID(3))
    columns["input_ids"][0] = [1, 2]
    with pytest.raises(fedax.FedaxError, match=r"rows of shapes \(2,\), \(6,\) in 'input_ids': make them equal"):
        fedax.data.from_torch([dataset(columns)])
