"""Adapters that make the training loops of unmodified libraries report their loss.

There is one file per library, which declares its loops and never imports the library; add the
loops of a new file to `LOOPS` in ``fits.py``. ``docs/adapters.md`` lists what each reports.
"""

from dask_slaq.core.lazy import lazy

# Tasks import the file of one library, while another thread of their process imports all of them.
__getattr__ = lazy(__name__, {"fits": ("end_calls", "instrument", "loop_states", "observe_fits")})
