"""What belongs to a process, such as its random generators: a model takes it along as it waits.

On a worker of one thread, models take turns in one process. Each finds what it has set where it
goes on, and a model that begins finds what the process had before. Law: a worker of several
threads, or beside others in its process, is left as it is.
"""

from __future__ import annotations

import hashlib
import logging
import os
import pickle
import random
import sys
import threading
import warnings
from array import array
from collections.abc import Callable, Hashable, Mapping
from contextlib import suppress
from importlib.metadata import entry_points
from time import monotonic
from typing import Any, NamedTuple

import numpy as np

from dask_slaq.core.errors import InvalidSetting
from dask_slaq.core.safely import safely
from dask_slaq.core.settings import shown

logger = logging.getLogger(__name__)

#: Annotation of the tasks of a search: what its models take along besides, pickled; and the group
#: of entry points by which packages add to it.
CARRIES, GROUP = "slaq_carries", "dask_slaq.carries"

#: Seconds that a function of somebody else may take: the event loop may wait for it.
SLOW = 0.5
#: What `warnings.catch_warnings` replaces, and puts back.
WARNINGS = ("filters", "showwarning", "_showwarnmsg_impl")


class Carried(NamedTuple):
    """Something of the process: `save` returns it, and `restore` takes what that returned.

    `renew` seeds a random generator by 32 bytes for the next model, which has a stream of its own.
    """

    what: str
    save: Callable[[], Any]
    restore: Callable[[Any], object]
    renew: Callable[[bytes], object] | None = None


def _save_numpy() -> Any:
    found = np.random.get_state()
    if isinstance(found, dict):  # of another generator than the usual one
        return pickle.dumps(found)
    name, keys, *rest = found
    return name, keys.tobytes(), *rest


def _restore_numpy(state: Any) -> None:
    if isinstance(state, bytes):
        np.random.set_state(pickle.loads(state))
    else:
        name, keys, *rest = state
        np.random.set_state((name, np.frombuffer(keys, np.uint32), *rest))


def _save_random() -> Any:
    version, words, gauss = random.getstate()
    return version, array("I", words).tobytes(), gauss


def _restore_random(state: Any) -> None:
    version, words, gauss = state
    random.setstate((version, tuple(array("I", words)), gauss))


def _torch() -> Any:
    """Return torch once it has been imported, or None."""
    torch = sys.modules.get("torch")
    return torch if hasattr(torch, "default_generator") else None


def _cuda() -> Any:
    torch = _torch()
    return torch.cuda if torch is not None and torch.cuda.is_initialized() else None


def _tensor(state: bytes) -> Any:
    return _torch().frombuffer(bytearray(state), dtype=_torch().uint8)


def _save_torch() -> bytes | None:
    return None if (torch := _torch()) is None else torch.get_rng_state().numpy().tobytes()


def _restore_torch(state: bytes | None) -> None:
    if state is not None:
        _torch().set_rng_state(_tensor(state))


def _renew_torch(seed: bytes) -> None:
    if (torch := _torch()) is not None:
        torch.default_generator.manual_seed(int.from_bytes(seed[:7], "little"))


def _save_cuda() -> tuple[bytes, ...]:
    cuda = _cuda()
    return () if cuda is None else tuple(s.numpy().tobytes() for s in cuda.get_rng_state_all())


def _restore_cuda(states: tuple[bytes, ...]) -> None:
    if states:
        _cuda().set_rng_state_all([_tensor(state) for state in states])


def _renew_cuda(seed: bytes) -> None:
    if (cuda := _cuda()) is not None:
        cuda.manual_seed_all(int.from_bytes(seed[:7], "little"))


def _restore_environment(variables: Mapping[str, str]) -> None:
    for name in os.environ.keys() - variables.keys():
        del os.environ[name]
    for name, value in variables.items():
        if os.environ.get(name) != value:
            os.environ[name] = value


def _save_warnings() -> tuple[Any, ...]:
    return tuple(getattr(warnings, name, None) for name in WARNINGS)


def _restore_warnings(found: tuple[Any, ...]) -> None:
    for name, value in zip(WARNINGS, found, strict=True):
        setattr(warnings, name, value)
    with warnings.catch_warnings():  # which has Python forget what it has cached of them
        pass


def attribute(path: str) -> Carried:
    """Return what takes along an attribute of a module, once that is imported."""
    module, _, name = path.rpartition(".")

    def save() -> Any:
        return getattr(sys.modules.get(module), name, None)

    def restore(value: Any) -> None:
        if module in sys.modules:
            setattr(sys.modules[module], name, value)

    return Carried(path, save, restore)


#: All that models take along, in the order in which it is saved and restored.
CARRIED = (
    Carried(
        "numpy.random",
        _save_numpy,
        _restore_numpy,
        lambda seed: np.random.seed(np.frombuffer(seed, np.uint32)),
    ),
    Carried("random", _save_random, _restore_random, random.seed),
    Carried("torch", _save_torch, _restore_torch, _renew_torch),
    Carried("torch.cuda", _save_cuda, _restore_cuda, _renew_cuda),
    attribute("sys.stdout"),
    attribute("sys.stderr"),
    attribute("sys.argv"),
    Carried("working folder", os.getcwd, os.chdir),
    Carried("environment", lambda: dict(os.environ), _restore_environment),
    Carried("warnings", _save_warnings, _restore_warnings),
)


def as_carried(given: object) -> Carried:
    """Return what a user has models take along, or raise `InvalidSetting`.

    That is the path of a module's attribute, or a name with a function that returns it and one that
    sets it.
    """
    if isinstance(given, Carried):
        return given
    if isinstance(given, str) and given.count(".") and all(map(str.isidentifier, given.split("."))):
        return attribute(given)
    if isinstance(given, tuple | list) and len(given) == 3:
        what, save, restore = given
        if isinstance(what, str) and callable(save) and callable(restore):
            return Carried(what, save, restore)
    raise InvalidSetting(
        "carries must hold paths of attributes of modules, such as 'package.module.name', or "
        "tuples of a name, a function that returns what is saved and one that restores it, not "
        f"{shown(given)}"
    )


def is_same(one: Any, other: Any) -> bool:
    """Return whether two saved values are the same, as far as that is cheap to tell."""
    with suppress(Exception):  # values of others
        return _is_same(one, other)
    return False


def _is_same(one: Any, other: Any) -> bool:
    if isinstance(one, tuple) and isinstance(other, tuple):
        return len(one) == len(other) and all(map(_is_same, one, other))
    if type(one) is type(other) and isinstance(one, bytes | str | int | float | dict):
        return bool(one == other)
    return one is other


class Carrier:
    """What models on one worker take along; `is_alone` says whether it has its process to itself.

    `take` and `bring` are called in the thread of the model, `begin` and `end` on the event loop.
    """

    def __init__(self, is_alone: Callable[[], bool]) -> None:
        self._is_alone = is_alone
        self._lock = threading.Lock()
        self._parts = {part.what: part for part in CARRIED}
        self._known: set[Hashable] = set()  # annotations that were read
        self._on: set[Hashable] = set()  # tasks of models that have the process, or are next
        self._apart: set[Hashable] = set()  # those that train at the same time as others
        self._base: dict[str, Any] = {}  # the process without any model
        self._streams: dict[str, Any] = {}  # states of generators as models found them
        self._modules = self._renewed = 0
        self._failed: set[str] = set()
        self._slow: set[str] = set()
        self.broken: Exception | None = None
        for entry in entry_points(group=GROUP):
            self._add(entry.load)
        self._see()

    def fail(self, error: Exception) -> None:
        """Carry nothing any more: models go on, and what they share is mixed."""
        self.broken = error
        logger.error("models on this worker share random generators from now on", exc_info=error)

    @safely
    def begin(self, key: Hashable, carries: Any) -> None:
        """See the process before a task of a search begins, and what its models take along."""
        with self._lock:
            if isinstance(carries, bytes) and carries not in self._known:
                self._known.add(carries)
                self._add(lambda: pickle.loads(carries))
            if not self._on and self._is_alone():
                self._see()
            for what in self._parts.keys() - self._base.keys():
                self._base[what] = self._call(self._parts[what], self._parts[what].save)
            self._on.add(key)

    @safely
    def end(self, key: Hashable) -> None:
        """Forget a task that has ended."""
        with self._lock:
            self._on.discard(key)
            self._apart.discard(key)

    @safely
    def take(self, key: Hashable, taken: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
        """Take along what is of a model that waits, and leave the process as it was before.

        Of random generators that is nothing until it has used them. `taken` is what it took the
        last time. Returns what is to be given to `bring`.
        """
        with self._lock:
            self._on.discard(key)
            if self._apart or not self._is_alone():
                self._apart.discard(key)
                return taken
            had, taken = taken or {}, {}
            imports, self._modules = len(sys.modules) != self._modules, len(sys.modules)
            for what, part in self._parts.items():
                value = self._call(part, part.save)
                before = self._base.setdefault(what, value)
                value = before if is_same(value, before) else value
                if part.renew is None:
                    taken[what] = value
                    if imports and isinstance(value, dict):
                        # What a module sets that is imported first holds for all models.
                        before = self._base[what] = {**value, **before}
                    if value is not before:
                        self._call(part, part.restore, before)
                elif what in had or not is_same(value, self._streams.get(what)):
                    taken[what] = value
                    self._renewed += 1
                    seed = hashlib.sha256(b"%d %s" % (self._renewed, pickle.dumps(before)))
                    self._call(part, part.renew, seed.digest())
                    self._streams[what] = self._call(part, part.save)
            return taken

    @safely
    def bring(self, key: Hashable, taken: Mapping[str, Any] | None, *, apart: bool) -> None:
        """Bring back what a model that goes on has taken along, unless others train meanwhile."""
        with self._lock:
            self._on.add(key)
            if apart:
                self._apart.add(key)
            if taken is None or self._apart or not self._is_alone():
                return
            for what, value in taken.items():
                part = self._parts[what]
                if part.renew is not None:
                    self._streams[what] = value
                if not is_same(self._call(part, part.save), value):
                    self._call(part, part.restore, value)

    @safely
    def streams(self, taken: Mapping[str, Any] | None, *, waits: bool) -> dict[str, Any]:
        """Return the random generators that a model has used: what `resume` takes elsewhere."""
        with self._lock:
            had, found = taken or {}, {}
            if self._apart or not self._is_alone():
                return found
            for what, part in self._parts.items():
                if part.renew is not None:
                    value = had.get(what) if waits else self._call(part, part.save)
                    if what in had or not (waits or is_same(value, self._streams.get(what))):
                        found[what] = value
            return found

    @safely
    def resume(self, streams: Mapping[str, Any]) -> None:
        """Let the model of this thread go on with the generators of where it was before."""
        with self._lock:
            if not self._apart and self._is_alone():
                for what in streams.keys() & self._parts.keys():
                    self._call(self._parts[what], self._parts[what].restore, streams[what])

    @safely
    def is_changed(self, taken: Mapping[str, Any] | None) -> bool:
        """Return whether a model has changed what it may put back as it ends."""
        some = (taken or {}).items()
        return any(self._parts[w].renew is None and v is not self._base[w] for w, v in some)

    def _add(self, load: Callable[[], Any]) -> None:
        try:
            found = load()
            for given in found if isinstance(found, list) else [found]:
                part = as_carried(given)
                self._parts.setdefault(part.what, part)
        except Exception as error:
            logger.error("what models should carry cannot be used: %r", error)

    def _see(self) -> None:
        self._base = {what: self._call(part, part.save) for what, part in self._parts.items()}
        self._streams = dict(self._base)
        self._modules = len(sys.modules)

    def _call(self, part: Carried, call: Callable[..., Any], *args: Any) -> Any:
        """Call a function of a part; a model never fails because of one."""
        if part.what in self._slow:
            return None
        begin = monotonic()
        try:
            return call(*args)
        except Exception as error:
            if part.what not in self._failed:
                self._failed.add(part.what)
                logger.error("models that wait cannot carry %s: %r", part.what, error)
            return None
        finally:
            if part not in CARRIED and (seconds := monotonic() - begin) > SLOW:
                self._slow.add(part.what)
                logger.error("models do not carry %s, which takes %.1g s", part.what, seconds)
