"""What people are told of a number of workers."""

import numpy as np
import pytest

from dask_slaq.core.scaling import Demand, Worth, in_words
from dask_slaq.core.scaling_terms import IN_HOURS, ScalingTerms

TERMS = ScalingTerms(0.1, maximum=20)


def worth(jobs, terms=TERMS, price_of_time=1.0):
    """Jobs of 3600 core-seconds that can use four threads, two workers there, and six to come."""
    none = np.zeros(jobs)
    demand = Demand(none + 3600.0, none + 4.0, none + 1.0, none + price_of_time)
    arrive = np.array([0.0] * 2 + [30.0] * 6)
    return Worth(demand, arrive, arrive, 1, terms.per_second)


@pytest.mark.parametrize(
    ("found", "text"),
    [
        (in_words(worth(0), 2, 0, None, TERMS), "no work waits: 0 workers"),
        (in_words(worth(0), 2, 1, None, TERMS), "no work waits: 1 worker, for the data in memory"),
        (
            in_words(worth(2), 2, 4, None, TERMS),
            "4 workers: another one would save 12 min of 2 jobs, worth 0.20, and costs 0.00083",
        ),
        (
            in_words(worth(1), 2, 4, None, TERMS),
            "4 workers: another one would save no time",
        ),
        (
            in_words(worth(2), 2, 4, 8, TERMS),
            "8 workers instead of 2: all ends 45 min sooner, for 0.005 more",
        ),
        (
            in_words(worth(2), 2, 4, 1, TERMS),
            "1 worker instead of 2: all ends 60 min later, for the same",
        ),
        (
            in_words(worth(2, IN_HOURS), 2, 4, 8, IN_HOURS),
            "8 workers instead of 2: all ends 45 min sooner, for 0.05 worker-hours more",
        ),
        (
            in_words(worth(2), 2, 4, 0, TERMS),
            "0 workers instead of 2: nothing would end, for 0.20 less",
        ),
    ],
)
def test_it_is_told_in_one_sentence(found, text):
    assert found == text
