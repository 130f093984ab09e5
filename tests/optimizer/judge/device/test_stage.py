from optimizer.judge.device.stage import untouched_behind

POISONED = [(0, 512), (4096, 8192)]


def test_bytes_behind_an_output_that_nobody_was_given():
    assert untouched_behind(4096, 100, POISONED, [(4096, 100)]) == (4196, 4196 + 4096)


def test_look_ends_where_the_next_tensor_begins():
    assert untouched_behind(4096, 100, POISONED, [(4096, 100), (4608, 64)]) == (4196, 4608)


def test_look_ends_with_the_poisoned_span():
    start, stop = untouched_behind(12000, 100, POISONED, [(12000, 100)])
    assert (start, stop) == (12100, 4096 + 8192)


def test_nothing_is_told_where_an_earlier_tensor_lay():
    start, stop = untouched_behind(4096, 100, POISONED, [(4096, 500), (4096, 100)])
    assert stop <= start


def test_nothing_is_told_of_memory_that_was_not_poisoned():
    start, stop = untouched_behind(20000, 100, POISONED, [(20000, 100)])
    assert stop <= start


def test_nothing_is_told_of_memory_never_seen_given():
    start, stop = untouched_behind(4096, 100, POISONED, [])
    assert stop <= start
