"""Block counts against counting in the dense matrix."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from erlangen.relations import Causal, Neighborhoods, Window
from erlangen.show.density import block_areas, block_counts

masks = st.integers(1, 9).flatmap(
    lambda width: st.lists(st.tuples(*[st.booleans()] * width), min_size=1, max_size=9)
)


@given(masks, st.integers(1, 5), st.integers(1, 5))
def test_counts_and_areas_are_those_of_the_dense_matrix(mask, height, width):
    dense = np.array(mask)
    bound = Neighborhoods.from_dense(dense)
    rows, columns = range(0, dense.shape[0], height), range(0, dense.shape[1], width)
    blocks = [[dense[r : r + height, c : c + width] for c in columns] for r in rows]
    assert block_counts(bound, height, width).tolist() == [[int(b.sum()) for b in row] for row in blocks]
    assert block_areas(bound, height, width).tolist() == [[b.size for b in row] for row in blocks]


def test_a_million_positions_count_exactly():
    n, back = 1_000_000, 256
    counts = block_counts(Window(lookback=back).on(n), 10_000, 10_000)
    assert counts.sum() == n * (back + 1) - back * (back + 1) // 2
    assert (np.triu(counts, 1) == 0).all()
    full = block_counts(Causal().on(n), 10_000, 10_000)
    assert full[5, 3] == 10_000**2
