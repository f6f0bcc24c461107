"""Adapters that make the training loops of unmodified libraries report their loss.

There is one file per library, which declares its loops and never imports the library; add the
loops of a new file to `LOOPS` in ``fits.py``. ``docs/adapters.md`` lists what each reports.
"""

from typing import TYPE_CHECKING

from dask_slaq.core.lazy import lazy

__all__ = ["end_calls", "instrument", "loop_states", "observe_fits"]
# Modules, which programs call by ``dask_slaq.adapters.NAME``.
__all__ += ["catboost", "dask_glm", "dask_ml", "joblib", "keras", "lightgbm", "lightning", "optuna"]
__all__ += ["sklearn", "skorch", "transformers", "xgboost"]

if TYPE_CHECKING:  # checkers would take any name for one of this module
    from dask_slaq.adapters import catboost, dask_glm, dask_ml, joblib, keras, lightgbm, lightning  # noqa: I001
    from dask_slaq.adapters import optuna, sklearn, skorch, transformers, xgboost
    from dask_slaq.adapters.fits import end_calls, instrument, loop_states, observe_fits
else:
    # Tasks import the file of one library, while another thread of theirs imports all of them.
    __getattr__ = lazy(__name__, {"fits": __all__[:4], **{name: [name] for name in __all__[4:]}})


def __dir__() -> list[str]:
    return sorted(__all__)
