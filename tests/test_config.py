"""Settings: where they come from, and what is refused."""

import os
import subprocess
import sys

import dask
import pytest

from dask_slaq import SlaqPlugin
from dask_slaq.adapters.compat import repairs
from dask_slaq.config import DEFAULTS, REPAIRS, ROWS, enabled_repairs, is_strict, settings
from dask_slaq.core.errors import InvalidSetting, SlaqError, UnknownPolicy


def test_defaults_are_those_of_the_file():
    chosen = settings()
    assert chosen.policy == DEFAULTS["slaq"]["policy"]
    assert chosen.epoch == 1.0
    assert chosen.lend is True
    assert chosen.ahead == pytest.approx(0.025)


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


@pytest.mark.parametrize(
    ("value", "names"),
    [(True, REPAIRS), (False, ()), ([], ()), (None, REPAIRS), (["pca", "r2-score"], None)],
)
def test_repairs_are_all_or_none_or_named(value, names):
    with dask.config.set({"slaq.repairs": value}):
        assert enabled_repairs() == frozenset(value if names is None else names)
    if value is not None:
        assert settings(repairs=value).repairs == frozenset(value if names is None else names)


def test_the_repairs_that_can_be_named_are_those_there_are():
    assert {repair.name for repair in repairs.REPAIRS} == set(REPAIRS)


NAN, INF = float("nan"), float("inf")
EPOCH = "a time from 1ms to 1 day, such as 1s or 500ms"


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        *[
            ({"epoch": value}, f"slaq.epoch must be {EPOCH}, not {value!r}")
            for value in (0, "-1s", "soon", NAN, INF, True, 5e-324, "1ns", "", [], [1], "1e400")
        ],
        ({"epoch": "2 days"}, f"slaq.epoch must be {EPOCH}, not '2 days'"),
        ({"epoch": {"s": 1}}, f"slaq.epoch must be {EPOCH}, not {{'s': 1}}"),
        ({"floor": 1.5}, "slaq.floor must be a fraction in [0, 1], not 1.5"),
        ({"floor": "half"}, "slaq.floor must be a fraction in [0, 1], not 'half'"),
        *[
            (
                {"half_life": value},
                "slaq.half-life must be a time from 1 minute to 10 years, such as 7d, or null, "
                f"not {value!r}",
            )
            for value in ("1s", True, "soon", NAN, INF, [])
        ],
        ({"floor": NAN}, "slaq.floor must be a fraction in [0, 1], not nan"),
        ({"other_weight": 0}, "slaq.other-weight must be a number from 1e-6 to 1e6, not 0"),
        ({"other_weight": INF}, "slaq.other-weight must be a number from 1e-6 to 1e6, not inf"),
        ({"reserve": 1}, "slaq.reserve must be a fraction in [0, 1), not 1"),
        ({"ahead": -1}, "slaq.ahead must be a time from 0 to 1 hour, such as 25ms, not -1"),
        ({"history": 0}, "slaq.history must be a whole number from 1 to 1000000, not 0"),
        ({"history": 1.5}, "slaq.history must be a whole number from 1 to 1000000, not 1.5"),
        ({"history": 10**7}, "slaq.history must be a whole number from 1 to 1000000, not 10000000"),
        ({"history": INF}, "slaq.history must be a whole number from 1 to 1000000, not inf"),
        ({"bindings": -1}, "slaq.bindings must be a whole number from 0 to 10000000, not -1"),
        (
            {"repairs": "pca"},
            "slaq.repairs must be true, false or a list of incremental-search, k-means++, "
            "r2-score, pca, text-hashing, not 'pca'",
        ),
        (
            {"repairs": ["pca", []]},
            "slaq.repairs must be true, false or a list of "
            "incremental-search, k-means++, r2-score, pca, text-hashing, not ['pca', []]",
        ),
        (
            {"limits": {"database": 0}},
            "slaq.limits: limits must map labels to numbers of tasks at once, whole and from "
            "1 to 1000000, "
            "not 'database' to 0",
        ),
        (
            {"notify": 3},
            "slaq.notify: notify must be a mapping of owner to what to call, and events",
        ),
        *[
            (
                {"notify": {"ann": given}},
                f"slaq.notify: notify of 'ann' has a {kind}, which is a "
                f"plug-in now: copy examples/sinks/slaq_{kind}.py to where the scheduler "
                f"runs, and write call: {{class: {call}}}",
            )
            for kind, call, given in (
                ("webhook", "slaq_webhook.Webhook, url: ...", {"webhook": "https://a/secret"}),
                (
                    "webhook",
                    "slaq_webhook.Webhook, url: ...",
                    {"webhook": None, "call": "a:secret"},
                ),
                (
                    "command",
                    "slaq_command.Command, words: [...]",
                    {"command": "mail secret", "events": ["done"]},
                ),
            )
        ],
        *[
            (
                {"notify": {"ann": given}},
                "slaq.notify: notify of 'ann' must be a mapping with call, "
                "the class path of a sink, and events if not all but audit are told",
            )
            for given in ({"hook": "http://a/secret"}, "secret", {"call": None, "events": ["done"]})
        ],
        *[
            (
                {"notify": {"ann": {"call": call}}},
                "slaq.notify: call must be the class path of a "
                "sink, such as package.module:Name, and its arguments by keyword",
            )
            for call in ("a:b('secret')", "secret", 3, {"url": "secret"})
        ],
        (
            {"notify": {"ann": {"call": "a:b", "events": ["ended"]}}},
            "slaq.notify: 'ended' is not an event of which 'ann' may be told; events are: "
            "reached, late, converged, stalled, diverged, silent, blocked, budget, done, stopped, "
            "failed, lost, fell back, audit",
        ),
        (
            {"identity": "ssl"},
            "slaq.identity must be tls, the class path of a function that says who a client is, or "
            "null to believe clients, not 'ssl'",
        ),
        ({"limits": 3}, "slaq.limits: limits must be a mapping like {'database': 8}, not 3"),
        ({"lend": 1}, "slaq.lend must be true or false, not 1"),
        ({"lend": "no"}, "slaq.lend must be true or false, not 'no'"),
        *[
            ({"log": value}, f"slaq.log must be the name of a file, or null, not {value!r}")
            for value in ("", True, 3, ["a"], b"a", "a\0b")
        ],
        *[
            (
                {"log_size": value},
                "slaq.log-size must be a size from 10 kB to 1 TB, such as 100 MiB, not " + shown,
            )
            for value, shown in (("big", "'big'"), (10, "10"), ([], "[]"), ("1e400", "'1e400'"))
        ],
        ({"log_files": 1}, "slaq.log-files must be a whole number from 2 to 10000, not 1"),
        ({"normalizer": "max"}, "slaq.normalizer must be one of range, largest-change, not 'max'"),
        ({"normalizer": []}, "slaq.normalizer must be one of range, largest-change, not []"),
    ],
    ids=str,
)
def test_values_that_are_not_allowed_are_refused(given, sentence):
    for make in (settings, SlaqPlugin):
        with pytest.raises(InvalidSetting) as error:
            make(**given)
        assert str(error.value) == sentence


@pytest.mark.parametrize("key", [key for key, row in ROWS.items() if "null" not in row["allowed"]])
def test_null_is_refused_where_it_means_nothing(key):
    with dask.config.set({f"slaq.{key}": None}), pytest.raises((InvalidSetting, UnknownPolicy)):
        settings()


def test_a_long_value_is_shown_in_part():
    with pytest.raises(InvalidSetting) as error:
        settings(epoch="x" * 10_000)
    assert len(str(error.value)) < 200


@pytest.mark.parametrize("value", ["x", 3, True, ["epoch"]])
def test_a_section_that_is_no_mapping_is_refused(value):
    with dask.config.set({"slaq": value}), pytest.raises(InvalidSetting) as error:
        settings()
    words = "slaq must be a mapping of settings, such as {'epoch': '1s'}, not "
    assert str(error.value) == words + repr(value)


def test_a_section_that_the_environment_replaces_is_refused():
    code = "from dask_slaq.config import settings; settings()"
    environment = {**os.environ, "DASK_SLAQ": "x"}
    out = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True
    )
    assert "InvalidSetting: slaq must be a mapping of settings" in out.stderr


def test_an_unknown_policy_is_refused_with_the_allowed():
    with dask.config.set({"slaq.policy": "best"}), pytest.raises(UnknownPolicy) as error:
        settings()
    for word in ("'best'", "none", "fair", "max-total", "max-min"):
        assert word in str(error.value)


def test_an_unknown_key_is_refused_with_the_allowed():
    for make in (settings, SlaqPlugin):
        with pytest.raises(InvalidSetting, match="epochs is not a setting: did you mean ") as e:
            make(epochs=1)
        assert "slaq.epoch? allowed are: " in str(e.value)
        assert "policy, predictor, epoch, lend" in str(e.value)
    with dask.config.set({"slaq.epok": "1s"}), pytest.raises(InvalidSetting, match="epok is not"):
        settings()


def test_a_setting_of_an_earlier_release_is_an_unknown_key():
    removed = "slaq.short-task is not a setting; allowed are: policy, predictor, epoch, lend"
    with dask.config.set({"slaq.short-task": "10ms"}), pytest.raises(InvalidSetting, match=removed):
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
    subprocess.run([sys.executable, "-c", HEAVY], check=True)


FRAMES = """
import dask, pandas, dask.dataframe as dd
from dask_slaq.client import job
with dask.annotate(slaq_job="a"):
    dd.from_pandas(pandas.DataFrame({"x": [1]}), npartitions=1).x.sum()
"""


def test_dataframes_made_in_a_job_do_not_warn_that_annotations_are_ignored():
    done = subprocess.run([sys.executable, "-c", FRAMES], capture_output=True, text=True)
    assert (done.returncode, "annotations" in done.stderr) == (0, False), done.stderr


def test_public_names_are_all_there():
    import dask_slaq

    for name in dask_slaq.__all__:
        assert getattr(dask_slaq, name)
        assert name in dir(dask_slaq)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = dask_slaq.nothing
