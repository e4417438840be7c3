"""A small transformer in PyTorch that twenty clients adapt together by LoRA: only the adapters are trained and sent.

    python examples/lora/adapt.py [--rounds 40] [--pretraining 200]

The texts are drawn from Markov chains over 16 tokens. The transformer is first trained on public texts, all of its
weights, as one client. The clients then have texts of a dialect: their tokens follow another chain. LoRA (Hu et al.
2022) adds B A, of rank 4, to frozen matrices W. How low the perplexity can be is known from the chain.
"""

from __future__ import annotations

import argparse
import copy

import numpy as np
import torch
from torch import nn
from torch.nn import functional

import fedax

TOKENS, LENGTH, WIDTH, HEADS = 16, 16, 32, 4


class Block(nn.Module):
    """Causal self-attention, then two dense layers, each beside a shortcut."""

    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList([nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)])
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.dense = nn.Sequential(nn.Linear(WIDTH, 2 * WIDTH), nn.GELU(), nn.Linear(2 * WIDTH, WIDTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows, length, _ = x.shape
        parts = self.qkv(self.norms[0](x)).reshape(rows, length, 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(parts[0], parts[1], parts[2], is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(rows, length, WIDTH))
        return x + self.dense(self.norms[1](x))


class Transformer(nn.Module):
    """The outputs for the next token at each position."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(TOKENS, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.Sequential(Block(), Block())
        self.head = nn.Linear(WIDTH, TOKENS)

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        return self.head(self.blocks(self.tokens(input_ids) + self.places.weight))


class LoRA(nn.Module):
    """A frozen linear layer W, with B A added to it; B is zero at first."""

    def __init__(self, linear: nn.Linear, rank: int = 4) -> None:
        super().__init__()
        self.linear = linear
        self.a = nn.Parameter(torch.randn(rank, linear.in_features) / linear.in_features**0.5)
        self.b = nn.Parameter(torch.zeros(linear.out_features, rank))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x) + x @ self.a.T @ self.b.T


def with_adapters(net: Transformer) -> Transformer:
    """A copy whose weights are frozen, with adapters on the attention and on the head."""
    made = copy.deepcopy(net).requires_grad_(False)
    for block in made.blocks:
        block.qkv, block.out = LoRA(block.qkv), LoRA(block.out)
    made.head = LoRA(made.head)
    return made


def texts(chain: np.ndarray, rows: int, rng: np.random.Generator) -> list[dict[str, np.ndarray]]:
    """Rows of tokens that follow a chain, in the form of a tokenised dataset."""
    ids = np.zeros((rows, LENGTH), np.int64)
    ids[:, 0] = rng.integers(0, TOKENS, rows)
    steps = np.cumsum(chain, axis=1)
    for t in range(1, LENGTH):
        ids[:, t] = (rng.random(rows)[:, None] > steps[ids[:, t - 1]]).sum(axis=1).clip(max=TOKENS - 1)
    return [{"input_ids": row} for row in ids]


def lowest_perplexity(chain: np.ndarray) -> float:
    """Of the chain itself, in its stationary distribution."""
    share = np.linalg.matrix_power(chain, 1000)[0]
    return float(np.exp(-np.sum(share[:, None] * chain * np.log(chain))))


def main(rounds: int = 40, pretraining: int = 200, clients: int = 20) -> dict[str, float]:
    """Perplexities on the clients' test rows before and after, and the floats that a client sends."""
    rng = np.random.default_rng(0)
    public, dialect = (rng.dirichlet(np.full(TOKENS, 0.15), TOKENS) * 0.99 + 0.01 / TOKENS for _ in range(2))
    torch.manual_seed(0)
    net = Transformer()
    shared = {"local_steps": 10, "batch_size": 32, "eval_on": ["test"]}
    problem = fedax.Problem(net, loss="next_token", metrics=["perplexity"])
    one = fedax.data.from_torch([texts(public, 2000, rng)])
    trained = fedax.simulate(
        problem, one, fedax.FedAvg(lr=0.3), rounds=pretraining, eval_every=max(1, pretraining), **shared
    )
    adapted = with_adapters(trained.to_torch(net))
    federation = fedax.data.from_torch([texts(dialect, 100, rng) for _ in range(clients)])
    result = fedax.simulate(
        fedax.Problem(adapted, loss="next_token", metrics=["perplexity"]),
        federation,
        fedax.FedAvg(lr=0.3),
        rounds=rounds,
        cohort=min(10, clients),
        eval_every=max(1, rounds // 4),
        **shared,
    )
    first, last = result.history[0], result.history[-1]
    found = {
        "public texts": trained.history[-1]["test_perplexity"],
        "the dialect, before": first["test_perplexity"],
        "the dialect, after": last["test_perplexity"],
        "the dialect, lowest possible": lowest_perplexity(dialect),
        "floats that a client sends": last["floats_up"] / (rounds * min(10, clients)),
        "floats of the whole model": sum(p.numel() for p in adapted.parameters()),
    }
    for title, value in found.items():
        print(f"{title:30} {value:,.2f}" if value < 100 else f"{title:30} {value:,.0f}")
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="A transformer that clients adapt by LoRA.")
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--pretraining", type=int, default=200)
    main(**vars(parser.parse_args()))
