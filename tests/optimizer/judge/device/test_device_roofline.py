import pytest

from optimizer.judge.device.roofline import DeviceFacts, bound_seconds

FACTS = DeviceFacts(
    device="cuda",
    name="NVIDIA H200",
    memory_bytes=140 << 30,
    l2_bytes=60 << 20,
    multiprocessors=132,
    capability=(9, 0),
)
NOTHING = {"weights": 0, "copies": 1, "inputs": 0, "outputs": 0, "slots": 1, "multiplied": 0}


def bound(**given: int) -> float:
    return bound_seconds(**(NOTHING | given), facts=FACTS, memory=4e12)


def test_cold_weights_come_from_memory():
    assert bound(weights=32 << 20, copies=6) == pytest.approx((32 << 20) / 4e12)


def test_weights_that_stay_in_the_cache_are_faster():
    assert bound(weights=1 << 20, copies=1) < bound(weights=1 << 20, copies=200)


def test_inputs_beyond_the_cache_count_and_few_do_not():
    assert bound(inputs=8 << 20, slots=64) > bound(inputs=8 << 20, slots=1)


def test_outputs_and_cached_inputs_move_at_the_same_time():
    assert bound(inputs=1 << 20, outputs=1 << 20) == bound(outputs=1 << 20)


def test_products_bound_what_moves_little():
    assert bound(multiplied=10**13) == pytest.approx(10**13 / (132 * 8192 * 2.5e9))


def test_key_names_device_and_architecture():
    assert FACTS.architecture == "90"
    assert FACTS.key.startswith("nvidia-h200-sm90-132sm")
