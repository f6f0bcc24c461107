"""Parts that others add: named in a setting by class path, or by an entry point of their package.

``slaq.policy: my_package.policies:Lottery`` and ``{class: my_package.policies.Lottery, seed: 3}``
are the same as on a command line ``my_package.policies:Lottery(seed=3)``. A package that declares
``[project.entry-points."dask_slaq.policies"] lottery = "my_package.policies:Lottery"`` adds a name.
"""

from __future__ import annotations

import ast
import inspect
import logging
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import lru_cache, partial
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from time import monotonic
from typing import TYPE_CHECKING, Any, NamedTuple

from dask_slaq.core.errors import BROKEN, InvalidSetting, UnknownPolicy
from dask_slaq.core.forecast import GuardedPredictor, LossPredictor, predictor_named
from dask_slaq.core.policies import POLICIES, GuardedPolicy, Policy, add_policy
from dask_slaq.core.policies import policy as own_policy
from dask_slaq.core.search_settings import GOALS, Goal, GuardedGoal, add_goal

if TYPE_CHECKING:
    from dask_slaq.core.forecast import Predictor
    from dask_slaq.core.run_history import PastRuns
    from dask_slaq.core.scaling import ScalingRule

logger = logging.getLogger(__name__)

#: Groups of entry points, by what they add.
GROUPS = {
    "policy": "dask_slaq.policies",
    "predictor": "dask_slaq.predictors",
    "goal": "dask_slaq.goals",
    "scaling": "dask_slaq.scaling_rules",
    "owner": "dask_slaq.owners",
}
#: Policy in the place of one that cannot be loaded, or breaks a rule.
INSTEAD = "first-to-target"
#: Seconds that a call may take, and how many calls one after the other may take longer.
SLOW_SECONDS, SLOW_CALLS = 0.5, 3
_PATH = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*[:.][^\W\d]\w*")


class Reference(NamedTuple):
    """Class path, or name of an entry point, and the arguments for what is there."""

    where: str
    arguments: dict[str, Any]


def canonical(kind: str, value: object) -> str:
    """Return what a setting names as one text, without loading it. Raises `InvalidSetting`."""
    if isinstance(value, Mapping):
        given = {str(key): argument for key, argument in value.items()}
        where = given.pop("class", None)
        text = f"{where}({', '.join(f'{key}={item!r}' for key, item in given.items())})"
        value = text.removesuffix("()")
    if not isinstance(value, str):
        raise InvalidSetting(f"{value!r} is no class path, such as package.module:Name")
    where = _parse(value).where
    if where not in _entries(kind) and not _PATH.fullmatch(where):
        raise InvalidSetting(f"{where!r} is no class path, such as package.module:Name")
    return value


def is_class_path(kind: str, text: str) -> bool:
    """Return whether a text names code by its path, and not by a name that a package gave it."""
    return _parse(text).where not in _entries(kind)


def load(kind: str, text: str) -> Any:
    """Return what `canonical` text names: an object of a class, or a function.

    Raises `InvalidSetting` with what went wrong, whatever it was.
    """
    try:
        where, arguments = _parse(text)
        if (entry := _entries(kind).get(where)) is not None:
            found = entry.load()
        else:
            module, _, name = where.replace(":", ".").rpartition(".")
            found = getattr(import_module(module), name)
        if inspect.isclass(found):
            return found(**arguments)
        return partial(found, **arguments) if arguments else found
    except BROKEN as error:
        raise InvalidSetting(
            f"{text} cannot be used: {type(error).__name__}: {str(error) or 'no reason given'}"
        ) from error


def added_names(kind: str) -> list[str]:
    """Return the names that installed packages add."""
    return sorted(_entries(kind))


def add_policies(names: Iterable[str] = ()) -> None:
    """Let names that installed packages add, and class paths, be used where a policy is named."""
    paths = [name for name in names if _PATH.match(name) and name not in POLICIES]
    for name in (*added_names("policy"), *paths):
        add_policy(name, partial(policy_of, name))


def add_goals() -> None:
    """Let searches have the goals that installed packages add."""
    for name in added_names("goal"):
        if name not in GOALS:
            add_goal(name, partial(_goal_of, name))


def _goal_of(text: str) -> Goal:
    """Return a new goal by its name. One that is broken is told, and orders as best."""
    made = _made("goal", text, "goal of a search", "best", "models")
    return GuardedGoal(made and Timely(made), partial(_tell_broken, "goals", text, "best"))


def scaling_rule_of(text: str) -> ScalingRule | None:
    """Return a new rule of scaling by its name or class path. One that is broken is told."""
    from dask_slaq.core.scaling import GuardedRule

    setting, instead = "scaling.rule", "the default"
    made = _made("scaling", text, f"slaq.{setting}", instead, "a Value")
    tell = partial(_tell_broken, setting, text, instead)
    return None if made is None else GuardedRule(Timely(made), tell)


def _made(
    kind: str, text: str, setting: str, instead: str, what: str, methods: Iterable[str] = ()
) -> Any:
    """Return what can be called with `what`, or has the `methods`; None, which is told, if not."""
    try:
        made = load(kind, text)
        if not methods and not callable(made):
            raise InvalidSetting(f"{text} cannot be used: it cannot be called with {what}")
        for method in methods:
            if not callable(getattr(made, method, None)):
                raise InvalidSetting(f"{text} cannot be used: it has no method {method}")
    except InvalidSetting as error:
        logger.error("%s: %s; %s is used instead", setting, error, instead)
        return None
    return made


class Timely:
    """Code of somebody else that is broken if it keeps the scheduler waiting again and again.

    `made` is called, or its `methods` are: the scheduler does nothing else meanwhile.
    """

    def __init__(self, made: Any, methods: Collection[str] = ()) -> None:
        self._made, self._methods = made, methods
        self._slow = 0  # calls one after the other

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.__dict__["_made"], name)
        return partial(self._timed, found) if name in self.__dict__["_methods"] else found

    def __call__(self, *args: Any, **named: Any) -> Any:
        """Return what `made` returns. Raises TimeoutError if it was slow `SLOW_CALLS` times."""
        return self._timed(self._made, *args, **named)

    def _timed(self, call: Callable[..., Any], *args: Any, **named: Any) -> Any:
        begin = monotonic()
        found = call(*args, **named)
        seconds = monotonic() - begin
        self._slow = self._slow + 1 if seconds > SLOW_SECONDS else 0
        if self._slow >= SLOW_CALLS:
            raise TimeoutError(
                f"it took {seconds:.2g} s, and more than {SLOW_SECONDS:g} s {SLOW_CALLS} times: "
                "the scheduler does nothing else meanwhile"
            )
        return found


def check_policy_name(value: object) -> str:
    """Return the name or class path of a policy as one text, or raise `UnknownPolicy`."""
    if value in POLICIES:
        return str(value)
    try:
        return canonical("policy", value)
    except InvalidSetting as error:
        known = ", ".join([*POLICIES, *added_names("policy")])
        looks_like_one = isinstance(value, Mapping) or any(c in str(value) for c in ".:(")
        raise UnknownPolicy(
            str(error)
            if looks_like_one
            else f"no policy is called {value!r}; choose from {known}, or name a class as "
            "package.module:Name"
        ) from None


def policy_of(text: str, *, timely: bool = False) -> Policy:
    """Return a new policy by its name or class path. One that is broken is told, and replaced."""
    text = check_policy_name(text)
    instead = own_policy(INSTEAD)
    if text in POLICIES:
        return own_policy(text)
    made = _made("policy", text, "slaq.policy", INSTEAD, "a snapshot")
    if made is None:
        return instead
    made = Timely(made) if timely else made
    return GuardedPolicy(text, made, instead, partial(_tell_broken, "policy", text, INSTEAD))


def predictor_of(text: str, past_runs: PastRuns | None) -> Predictor:
    """Return a new predictor, or the default with the `past_runs` where it is broken."""
    if text == "paper":
        return predictor_named(text, past_runs)
    instead, default = LossPredictor(past_runs), "the default"
    methods = ("add", "remove", "report", "fit", "forecast")
    made = _made("predictor", text, "slaq.predictor", default, "", methods)
    if made is None:
        return instead
    made = Timely(made, ("fit", "forecast"))
    return GuardedPredictor(made, instead, partial(_tell_broken, "predictor", text, default))


def _tell_broken(setting: str, text: str, instead: str, why: str) -> None:
    logger.error("slaq.%s: %s broke: %s; %s is used instead", setting, text, why, instead)


@lru_cache
def _entries(kind: str) -> dict[str, EntryPoint]:
    return {entry.name: entry for entry in entry_points(group=GROUPS[kind])}


def _parse(text: str) -> Reference:
    """Return a class path or name, and its arguments: literals by keyword."""
    where, bracket, rest = text.partition("(")
    arguments: dict[str, Any] = {}
    if bracket:
        try:
            call = ast.parse(f"f({rest}", mode="eval").body
            if not isinstance(call, ast.Call) or call.args:
                raise ValueError
            arguments = {str(each.arg): ast.literal_eval(each.value) for each in call.keywords}
        except (SyntaxError, ValueError) as error:
            raise InvalidSetting(
                f"{text!r} must have arguments by keyword, such as package.module:Name(seed=3)"
            ) from error
    return Reference(where.strip(), arguments)
