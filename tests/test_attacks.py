"""Clients that attack: what they send, who they are, and which aggregation holds against what."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import fedax
from fedax.algorithms.attacks import Attack
from fedax.data import Federation
from fedax.errors import FedaxError

#: ten clients whose minimisers are nearly the same: an honest mean is near 1 in every coordinate
CENTRES = 1 + 0.01 * np.random.default_rng(0).normal(size=(10, 3))
CLIENTS = Federation.from_clients([{"x": np.tile(c, (2, 1)).astype(np.float32)} for c in CENTRES])
MEAN = fedax.Problem(loss=lambda w, b: jnp.mean(jnp.sum((b["x"] - w) ** 2, -1)) / 2, init=lambda key: jnp.zeros(3))


def after_one_round(method: Any = None, attack: Attack | None = None, **options: Any) -> np.ndarray:
    """With the rate 1 an honest client sends its own minimiser: what the server has is what it made of these."""
    method = fedax.FedAvg(lr=1.0) if method is None else method
    result = fedax.simulate(MEAN, CLIENTS, method, rounds=1, attack=attack, eval_every=1, **options)
    return np.asarray(result.model)


@pytest.mark.parametrize("executor", ["batched", "looped", "debug"])
@pytest.mark.parametrize(("kind", "factor"), [("flip", -2.0), ("scale", 2.0)])
def test_the_mean_is_that_of_honest_and_changed_uploads(kind: str, factor: float, executor: str) -> None:
    attack = Attack(kind, share=0.3, strength=2.0)
    who = attack.who(0, 10)
    assert len(set(who.tolist())) == 3
    sent = CENTRES.copy()
    sent[who] *= factor
    np.testing.assert_allclose(after_one_round(attack=attack, executor=executor), sent.mean(0), rtol=1e-5)


def test_noise_has_the_norm_that_its_strength_says_and_no_direction() -> None:
    made = []
    for seed in range(40):
        attack = Attack("noise", share=0.1, strength=50.0)
        who = attack.who(seed, 10)
        honest = np.delete(CENTRES, who, axis=0).sum(0)
        made.append(10 * after_one_round(attack=attack, seed=seed) - honest)
    norms = np.linalg.norm(made, axis=1) / (50.0 * np.sqrt(3))  # ||u|| is near sqrt(3)
    assert 0.7 < np.sqrt(np.mean(norms**2)) < 1.3
    assert np.abs(np.mean(made, axis=0)).max() < 5 * 50.0 / np.sqrt(40)


def test_a_method_that_sends_nothing_has_nothing_to_attack_or_to_clip() -> None:
    """LocalOnly, which a comparison runs beside personal methods."""
    alone = fedax.LocalOnly(lr=0.1)
    attacked = fedax.simulate(MEAN, CLIENTS, alone, rounds=2, attack=Attack("noise", share=0.3))
    plain = fedax.simulate(MEAN, CLIENTS, alone, rounds=2)
    np.testing.assert_array_equal(attacked.personal(0), plain.personal(0))
    with pytest.raises(FedaxError, match=r"LocalOnly.* sends nothing"):
        fedax.Private(alone, clip=1.0)


def test_an_attack_by_nobody_changes_nothing() -> None:
    np.testing.assert_array_equal(after_one_round(attack=Attack("scale", share=0.0)), after_one_round())


def test_what_attackers_send_is_clipped_too() -> None:
    """As a server over a network does: of uploads of norm sqrt(3), 1000 times as long or not, all come to norm 1."""
    private = fedax.Private(fedax.FedAvg(lr=1.0), clip=1.0)
    clipped = CENTRES / np.linalg.norm(CENTRES, axis=1, keepdims=True)
    found = after_one_round(private, Attack("scale", share=0.3, strength=1000.0))
    np.testing.assert_allclose(found, clipped.mean(0), rtol=1e-5)


def test_who_attacks_depends_on_the_seed_alone() -> None:
    a, b = Attack("flip", share=0.3), Attack("scale", share=0.3)
    assert a.who(1, 50).tolist() == b.who(1, 50).tolist() != a.who(2, 50).tolist()


def robust(rule: str, **options: Any) -> Any:
    return fedax.algorithms.Robust(fedax.FedAvg(lr=1.0), rule=rule, **options)


@pytest.mark.parametrize(
    "rule", [("median", {}), ("trimmed_mean", {"trim": 0.3}), ("geometric_median", {}), ("krum", {"attackers": 3})]
)
@pytest.mark.parametrize("kind", ["flip", "scale", "noise"])
def test_a_robust_rule_stays_within_the_honest_uploads(rule: tuple[str, dict[str, Any]], kind: str) -> None:
    """Three of ten are wrong by a factor of 1,000: the mean is far off, a robust rule is not."""
    attack = Attack(kind, share=0.3, strength=1000.0)
    far = np.abs(after_one_round(attack=attack) - 1).max()
    near = np.abs(after_one_round(robust(rule[0], **rule[1]), attack) - 1).max()
    assert far > 50
    assert near < 0.06


def test_relabelling_changes_the_training_rows_of_attackers_alone() -> None:
    clients = [{"x": np.ones((6, 1), np.float32), "y": np.arange(6) % 3} for _ in range(4)]
    data = Federation.from_clients(clients, split=(0.5, 0.0, 0.5))
    attack = Attack("relabel", share=0.5)
    who = set(attack.who(7, 4).tolist())
    from fedax.engine.prepare import relabelled

    changed = relabelled(data, attack, 7)
    for i in range(4):
        before, after = data.client(i)["y"], changed.client(i)["y"]
        np.testing.assert_array_equal(after, 2 - before if i in who else before)
        np.testing.assert_array_equal(changed.client(i, "test")["y"], data.client(i, "test")["y"])
        np.testing.assert_array_equal(changed.client(i)["x"], data.client(i)["x"])


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"kind": "no", "share": 0.1}, "unknown kind"),
        ({"kind": "flip", "share": 1.0}, r"share must be a number in \[0, 1\)"),
        ({"kind": "flip", "share": 0.1, "strength": 0}, "strength must be a number above 0"),
        ({"kind": "relabel", "share": 0.1, "strength": 2.0}, "relabel has none"),
    ],
)
def test_a_wrong_attack_is_one_sentence(given: dict[str, Any], words: str) -> None:
    with pytest.raises(FedaxError, match=words):
        Attack(**given)


def test_relabelling_needs_classes_and_rows_of_ones_own() -> None:
    with pytest.raises(FedaxError, match="needs classes"):
        after_one_round(attack=Attack("relabel", share=0.5))


def test_an_attacked_run_goes_on_to_the_same_bits(tmp_path: Any) -> None:
    class Stop(Exception):
        pass

    def stop(rounds: int) -> None:
        if rounds >= 3:
            raise Stop

    how = {"rounds": 6, "attack": Attack("noise", share=0.3), "cohort": 5, "seed": 3}
    whole = fedax.simulate(MEAN, CLIENTS, fedax.SCAFFOLD(lr=0.1), **how)
    kept = {**how, "out": tmp_path / "run", "checkpoint_every": 0}
    with pytest.raises(Stop):
        fedax.simulate(MEAN, CLIENTS, fedax.SCAFFOLD(lr=0.1), **kept, on_progress=stop)
    again = fedax.simulate(MEAN, CLIENTS, fedax.SCAFFOLD(lr=0.1), **kept, resume=True)
    np.testing.assert_array_equal(np.asarray(whole.model), np.asarray(again.model))
