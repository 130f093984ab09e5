"""A patched live model: generate, revert, copies, hooks, stock fallbacks counted."""

import copy
import inspect
import pickle
from typing import Any

import pytest
import torch
from transformers import StaticCache

from extractor.cache_argument import NAMES, as_cache_argument
from extractor.errors import KernelgraftError
from extractor.families import Family
from integrator.patch import MAX_CAPTURES, AlreadyPatched, PatchedForward, PatchHandle
from tests.integrator.toy import down, find_toy_seams, gate_up, toy_model

IDS = torch.arange(1, 8).unsqueeze(0)


def patched(model: Any, *kernels: Any) -> PatchHandle:
    return PatchHandle(model, kernels or (down(), gate_up()), find_toy_seams(model))


def generate(model: Any, ids: torch.Tensor = IDS, new: int = 9, **options: Any) -> torch.Tensor:
    result: torch.Tensor = model.generate(
        ids, max_new_tokens=new, do_sample=False, cache_implementation="static", pad_token_id=0, **options
    )
    return result


def test_generate_with_exact_kernels_equals_stock_and_is_engaged(model: Any) -> None:
    expected = generate(model)
    with patched(model) as handle:
        assert torch.equal(generate(model), expected)
        found = handle.engagement
    steps = 9 - 1  # the first new token comes from the prefill
    assert found.patched_steps == steps
    assert found.stock_calls == {"prefill": 1}
    assert found.launches == {"down": 2 * steps, "gate_up": 2 * steps}


def test_generate_really_runs_the_kernels(model: Any) -> None:
    expected = generate(model)
    with patched(model, down(spoil=lambda v: -4 * v)):
        assert not torch.equal(generate(model), expected)
    assert torch.equal(generate(model), expected)


def test_a_padded_batch_equals_stock(model: Any) -> None:
    ids = torch.randint(1, 97, (2, 6), generator=torch.Generator().manual_seed(0))
    ids[0, :3] = 0
    mask = (ids != 0).long()
    expected = generate(model, ids, attention_mask=mask)
    with patched(model) as handle:
        assert torch.equal(generate(model, ids, attention_mask=mask), expected)
        assert handle.engagement.patched_steps == 8


def test_a_padded_batch_without_a_mask_equals_stock(model: Any) -> None:
    # `generate` derives mask and positions from the padding, if the forward declares that it takes them.
    ids = torch.randint(1, 97, (2, 6), generator=torch.Generator().manual_seed(0))
    ids[0, :3] = 0
    expected = generate(model, ids)
    with patched(model) as handle:
        assert torch.equal(generate(model, ids), expected)
        assert handle.engagement.patched_steps == 8


def test_the_patched_forward_declares_what_stock_declares(model: Any) -> None:
    expected = inspect.signature(model.forward)
    with patched(model):
        assert inspect.signature(model.forward) == expected


def test_generate_hands_a_patched_model_what_it_hands_a_stock_one(
    model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def names() -> list[list[str]]:
        seen: list[list[str]] = []
        with monkeypatch.context() as patching:
            stock = type(model).__call__
            spy = lambda self, *args, **kwargs: (seen.append(sorted(kwargs)), stock(self, *args, **kwargs))[1]  # noqa: E731
            patching.setattr(type(model), "__call__", spy)
            generate(model, new=3)
        return seen

    expected = names()
    assert len(expected) == 3
    with patched(model):
        assert names() == expected


@pytest.mark.filterwarnings("ignore:`past_key_values` is deprecated:FutureWarning")
@pytest.mark.parametrize("name", NAMES)
def test_a_decode_step_is_patched_under_either_name_of_its_cache(model: Any, name: str) -> None:
    if name not in inspect.signature(model.forward).parameters and name == "cache":
        pytest.skip("this transformers release does not know the name")
    with torch.no_grad(), patched(model) as handle:
        cache = StaticCache(config=model.config, max_cache_len=16)
        model(IDS, **{name: cache})
        model(IDS[:, :1], **{name: cache})
        assert handle.engagement.launches["down"] == 2


def test_generating_again_uses_the_same_capture(model: Any) -> None:
    with patched(model) as handle:
        generate(model)
        generate(model, IDS + 1)
        assert len(handle._patch.captures) == 1


def test_revert_is_exact_and_harmless_twice(model: Any) -> None:
    generate(model)  # transformers keeps notes of its own on the model
    attributes = dict(vars(model))
    state = {name: (value.clone(), value.data_ptr()) for name, value in model.state_dict().items()}
    handle = patched(model)
    generate(model)
    handle.revert()
    handle.revert()
    assert vars(model).keys() == attributes.keys()
    assert model.forward.__func__ is type(model).forward
    for name, value in model.state_dict().items():
        assert torch.equal(value, state[name][0])
        assert value.data_ptr() == state[name][1]
    assert handle.engagement.launches["down"] == 16


def test_revert_undoes_packing(model: Any) -> None:
    gate, up = (getattr(model.model.layers[0].mlp, name).weight for name in ("gate_proj", "up_proj"))
    with patched(model, gate_up(packs_weights=True)):
        generate(model)
        assert gate.untyped_storage().data_ptr() == up.untyped_storage().data_ptr()
    assert gate.untyped_storage().data_ptr() != up.untyped_storage().data_ptr()


def test_patching_twice_is_refused(model: Any) -> None:
    with patched(model), pytest.raises(AlreadyPatched, match="already patched"):
        patched(model)
    with patched(model):
        pass


def test_other_instances_and_deep_copies_stay_stock(model: Any) -> None:
    other = toy_model(dtype=torch.bfloat16)
    expected = generate(other)
    kernel = down(spoil=lambda v: -4 * v)
    with patched(model, kernel) as handle:
        twin = copy.deepcopy(model)
        assert torch.equal(generate(other), expected)
        assert torch.equal(generate(twin), expected)
        assert twin.forward.__self__ is twin
        assert handle.engagement.patched_steps == 0


def test_a_pickled_model_comes_back_stock(model: Any) -> None:
    expected = generate(model)
    with patched(model, down(spoil=lambda v: -4 * v)):
        twin = pickle.loads(pickle.dumps(model))
    assert not isinstance(twin.forward, PatchedForward)
    assert torch.equal(generate(twin), expected)


def test_what_runs_stock_is_counted_with_its_reason(model: Any) -> None:
    with torch.no_grad(), patched(model, down(batches=(1,))) as handle:
        model(IDS)
        model.generate(IDS, max_new_tokens=3, do_sample=False)
        model(IDS[:, :1], **as_cache_argument(model, StaticCache(config=model.config, max_cache_len=8)))
        model(inputs_embeds=torch.zeros(1, 1, 32, dtype=torch.bfloat16))
        generate(model, torch.cat([IDS, IDS]), new=3)
        assert dict(handle.engagement.stock_calls) == {
            "prefill": 3,
            "no static cache": 2,
            "empty cache": 1,
            "unusual arguments": 1,
            "no kernel for batch 2": 2,
        }
        assert handle.engagement.patched_steps == 0


def test_shapes_beyond_the_limit_run_stock(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("integrator.patch.MAX_CAPTURES", 1)
    assert MAX_CAPTURES > 1
    with patched(model) as handle:
        generate(model, new=3)
        generate(model, new=5)
        assert handle.engagement.stock_calls["too many decode shapes"] == 4


def test_a_hooked_model_is_patched_behind_its_hook(model: Any) -> None:
    # What accelerate.hooks.add_hook_to_module leaves on a module.
    seen: list[int] = []
    model._hf_hook, model._old_forward = object(), model.forward

    def hooked(*args: Any, **kwargs: Any) -> Any:
        seen.append(1)
        return model._old_forward(*args, **kwargs)

    model.forward = hooked
    expected = generate(model)
    before = model._old_forward
    with patched(model) as handle:
        assert model.forward is hooked
        assert torch.equal(generate(model), expected)
        assert handle.engagement.patched_steps == 8
    assert len(seen) == 2 * 9
    assert model._old_forward is before


def test_an_outer_compile_does_not_lose_the_grafts(model: Any) -> None:
    kernel = down()
    with torch.no_grad(), patched(model, kernel) as handle:
        cache = StaticCache(config=model.config, max_cache_len=16)
        given = as_cache_argument(model, cache)
        model(IDS, **given)
        outer = torch.compile(model.__call__, backend="eager")
        outer(IDS[:, :1], **given)
        assert handle.engagement.launches["down"] == 2


class Declined(KernelgraftError):
    template = "declines inputs of this shape"


def test_a_kernel_that_declines_a_new_shape_is_taken_out_and_the_tokens_are_right(model: Any) -> None:
    def decline(value: torch.Tensor) -> torch.Tensor:
        raise Declined

    expected = generate(model)
    with patched(model, down(), gate_up(spoil=decline)) as handle:
        assert torch.equal(generate(model), expected)
        found = handle.engagement
    assert found.launches == {"down": 16, "gate_up": 0}
    assert [(row.family, row.sites) for row in found.unserved] == [(Family.FFN_GATE_UP, 2)]
    assert "declines inputs" in found.unserved[0].why


def test_switching_grafts_on_a_live_model(model: Any) -> None:
    expected = generate(model)
    with patched(model, down(spoil=lambda v: -4 * v)) as handle:
        handle.set_active([])
        assert torch.equal(generate(model), expected)
        handle.set_active(["down"])
        assert not torch.equal(generate(model), expected)
