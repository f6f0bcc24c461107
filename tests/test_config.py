"""Settings: where they come from, and what is refused."""

import dask
import pytest
from commands import python

from dask_slaq import SlaqPlugin
from dask_slaq.config import DEFAULTS, ROWS, is_strict, settings
from dask_slaq.core.errors import InvalidSetting, SlaqError, UnknownPolicy


def test_defaults_are_those_of_the_file():
    chosen = settings()
    assert chosen.policy == DEFAULTS["slaq"]["policy"]
    assert chosen.epoch == 1.0
    assert chosen.lend is True
    assert chosen.prefetch == pytest.approx(0.025)


def test_arguments_go_before_the_configuration_and_it_before_the_defaults():
    with dask.config.set({"slaq.epoch": "3s", "slaq.policy": "fair", "slaq.other-weight": 2}):
        chosen = settings(policy="max-min", floor=None)
    assert (chosen.policy, chosen.epoch, chosen.other_weight) == ("max-min", 3.0, 2.0)
    assert chosen.floor == DEFAULTS["slaq"]["floor"]


def test_a_section_that_names_some_settings_keeps_the_defaults_of_others():
    with dask.config.set({"slaq": {"policy": "fair"}}):
        chosen = settings()
    assert (chosen.policy, chosen.epoch) == ("fair", 1.0)
    with dask.config.set({"slaq": None}):
        assert settings().epoch == 1.0


def test_there_is_no_log_unless_told():
    assert (settings().log, settings().log_size) == (None, 100 * 2**20)
    with dask.config.set({"slaq.log": "slaq.jsonl", "slaq.log-size": "1 MB"}):
        assert (settings().log, settings().log_size) == ("slaq.jsonl", 1_000_000)


def test_underscores_and_hyphens_are_the_same():
    with dask.config.set({"slaq.other_weight": 2}):
        assert settings().other_weight == 2
    with dask.config.set({"slaq.other-weight": 3}):
        assert settings().other_weight == 3


@pytest.mark.parametrize(
    ("value", "seconds"), [("2s", 2), ("500ms", 0.5), ("1 minute", 60), (3, 3), (0.25, 0.25)]
)
def test_times_are_given_as_dask_takes_them(value, seconds):
    assert settings(epoch=value).epoch == seconds


def test_the_plugin_takes_the_same_settings():
    plugin = SlaqPlugin("fair", "2s", lend=False, reserve=0.5, history=7)
    assert plugin.settings == settings(policy="fair", epoch=2, lend=False, reserve=0.5, history=7)


NAN, INF = float("nan"), float("inf")
WRONG = {
    "epoch": [0, "-1s", "soon", NAN, INF, True, 5e-324, "1ns", "", [], [1], "1e400", "2 days", {}],
    "floor": [1.5, "half", NAN],
    "half_life": ["1s", True, "soon", NAN, INF, []],
    "other_weight": [0, INF],
    "reserve": [1],
    "prefetch": [-1],
    "history": [0, 1.5, 10**7, INF],
    "bindings": [-1],
    "repairs": ["pca", ["pca"]],
    "identity": ["ssl"],
    "lend": [1, "no"],
    "log": ["", True, 3, ["a"], b"a", "a\0b"],
    "log_size": ["big", 10, [], "1e400"],
    "log_files": [1],
    "normalizer": ["max", []],
    "limits": [3],
}


@pytest.mark.parametrize(
    ("name", "value"), [(name, value) for name, values in WRONG.items() for value in values]
)
def test_values_that_are_not_allowed_are_refused(name, value):
    key = name.replace("_", "-")
    for make in (settings, SlaqPlugin):
        with pytest.raises(InvalidSetting) as error:
            make(**{name: value})
        said = str(error.value)
        assert said.startswith(f"slaq.{key}") and said.endswith(f", not {value!r}")
        assert " must be " in said


@pytest.mark.parametrize(
    ("given", "words"),
    [({"limits": {"database": 0}}, "whole and from 1 to 1000000, not 'database' to 0")],
    ids=str,
)
def test_limits_and_alerts_that_are_not_allowed_are_refused(given, words):
    for make in (settings, SlaqPlugin):
        with pytest.raises(InvalidSetting) as error:
            make(**given)
        assert words in str(error.value) and "secret" not in str(error.value)


@pytest.mark.parametrize("key", [key for key, row in ROWS.items() if "null" not in row["allowed"]])
def test_null_is_refused_where_it_means_nothing(key):
    with dask.config.set({f"slaq.{key}": None}), pytest.raises((InvalidSetting, UnknownPolicy)):
        settings()


@pytest.mark.parametrize("value", ["x", 3, True, ["epoch"]])
def test_a_section_that_is_no_mapping_is_refused(value):
    with dask.config.set({"slaq": value}), pytest.raises(InvalidSetting) as error:
        settings()
    words = "slaq must be a mapping of settings, such as {'epoch': '1s'}, not "
    assert str(error.value) == words + repr(value)


def test_a_section_that_the_environment_replaces_is_refused():
    code = "from dask_slaq.config import settings; settings()"
    out = python(code, ends=1, DASK_SLAQ="x")
    assert "InvalidSetting: slaq must be a mapping of settings" in out.stderr


def test_an_unknown_key_is_refused_with_the_allowed():
    for make in (settings, SlaqPlugin):
        with pytest.raises(InvalidSetting, match="epochs is not a setting: did you mean ") as e:
            make(epochs=1)
        assert "slaq.epoch? allowed are: " in str(e.value)
        assert "policy, predictor, epoch, lend" in str(e.value)
    with dask.config.set({"slaq.epok": "1s"}), pytest.raises(InvalidSetting, match="epok is not"):
        settings()


def test_an_invalid_value_is_named_with_its_key():
    for key, value in (("policy", "best"), ("owners", {"ann": {"wait": 1}})):
        with dask.config.set({f"slaq.{key}": value}), pytest.raises(SlaqError) as error:
            settings()
        assert str(error.value).startswith(f"slaq.{key}: ")


@pytest.mark.parametrize("value", [True, "please", 1])
def test_an_invalid_value_of_strict_means_yes(value):
    with dask.config.set({"slaq.strict": value}):
        assert is_strict() and not is_strict(False)
    with dask.config.set({"slaq": {"policy": "fair"}}):
        assert not is_strict() and is_strict(True)
    with dask.config.set({"slaq": "x"}):
        assert not is_strict()


def test_the_environment_configures():
    variables = {"DASK_SLAQ__EPOCH": "2s", "DASK_SLAQ__POLICY": "fair", "DASK_SLAQ__LEND": "False"}
    with dask.config.set(dask.config.collect(paths=[], env=variables)):
        chosen = settings()
    assert (chosen.epoch, chosen.policy, chosen.lend) == (2.0, "fair", False)


HEAVY = """
import sys
def check(*more):
    heavy = {"dask_ml", "dask_glm", "sklearn", "xarray", "pandas", "numba", "bokeh", "rich", *more}
    assert heavy.isdisjoint(sys.modules), heavy & sys.modules.keys()
import dask_slaq
check("distributed", "dask", "numpy", "scipy")
dask_slaq.SlaqPlugin(policy="fair")
dask_slaq.job, dask_slaq.report, dask_slaq.dask_setup
check()
"""


def test_imports_stay_light():
    python(HEAVY)


FRAMES = """
import dask, pandas, dask.dataframe as dd
from dask_slaq.client import job
with dask.annotate(slaq_job="a"):
    dd.from_pandas(pandas.DataFrame({"x": [1]}), npartitions=1).x.sum()
"""


@pytest.mark.slow
def test_dataframes_made_in_a_job_do_not_warn_that_annotations_are_ignored():
    assert "annotations" not in python(FRAMES).stderr


def test_public_names_are_all_there():
    import dask_slaq

    for name in dask_slaq.__all__:
        assert getattr(dask_slaq, name)
        assert name in dir(dask_slaq)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = dask_slaq.nothing
