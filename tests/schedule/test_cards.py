"""Every cluster card makes a policy with the options it lists, and every policy has a card."""

from pathlib import Path

import pytest
import yaml

from eiffel.schedule import POLICIES, policy

CARDS = Path(__file__).resolve().parents[2] / "strategies"
CLUSTER = sorted(p.stem for p in CARDS.glob("*.yaml") if "kind: cluster" in p.read_text())


@pytest.mark.parametrize("name", CLUSTER)
def test_a_card_makes_its_policy(name: str) -> None:
    text = (CARDS / f"{name}.yaml").read_text()
    card = yaml.safe_load(text)
    assert card["name"] == name
    assert text.startswith("# ")  # says where it comes from
    assert hasattr(policy(**card["policy"]), "decide")


def test_no_policy_is_without_a_card() -> None:
    kinds = {yaml.safe_load((CARDS / f"{name}.yaml").read_text())["policy"]["kind"] for name in CLUSTER}
    assert kinds == set(POLICIES)
