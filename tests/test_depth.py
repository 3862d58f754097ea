"""Which block runs at which depth."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kerasbert.depth import BlockSharing, depth_plan, groups_for_separate_layers


@pytest.mark.parametrize("layers", [1, 2, 3, 12, 22, 23, 24, 26, 39, 43, 47, 49])
@pytest.mark.parametrize("groups", [1, 2, 3, None])
def test_depth_plan_is_googles(layers, groups):
    groups = groups or layers
    plan = depth_plan(layers, 2, groups)
    assert [(d.index, d.layer, d.inner) for d in plan] == [
        (2 * layer + inner, layer, inner) for layer in range(layers) for inner in range(2)
    ]
    assert [d.group for d in plan[::2]] == [int(i / layers * groups) for i in range(layers)]


def test_groups_that_the_floats_skip():
    assert len({depth.group for depth in depth_plan(22, 1, 22)}) == 21
    assert [groups_for_separate_layers(n) for n in (1, 6, 12, 24, 48)] == [1, 6, 12, 24, 48]


@given(st.integers(1, 60))
def test_separate_layers_have_separate_groups(layers):
    groups = groups_for_separate_layers(layers)
    assert groups >= layers
    assert len({depth.group for depth in depth_plan(layers, 1, groups)}) == layers
    if groups > layers:
        assert len({depth.group for depth in depth_plan(layers, 1, groups - 1)}) < layers


def test_which_block_serves_which_depth():
    plan = depth_plan(4, 1, 2)
    groups = [f"Transformer-group-{g}-inner-0" for g in (0, 0, 1, 1)]
    alone = [f"Transformer-{i}" for i in range(4)]
    assert list(BlockSharing(plan).names("attention")) == groups
    assert list(BlockSharing(plan, "all").names("attention")) == alone
    part = BlockSharing(plan, "feed_forward", (1, 2))
    assert list(part.names("attention")) == groups
    assert list(part.names("feed_forward")) == [groups[0], *alone[1:3], groups[3]]
    assert BlockSharing(plan, None, (3,)).names("attention")[2:] == (groups[2], alone[3])
    assert set(BlockSharing(depth_plan(5, 1, 1)).names("feed_forward")) == {"Transformer"}
    inner = BlockSharing(depth_plan(2, 2, 1)).names("attention")
    assert inner == tuple(f"Transformer-group-0-inner-{j}" for j in (0, 1, 0, 1))
