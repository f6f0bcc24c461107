"""Carry what belongs to a process, such as its random generators, with each model that waits.

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
from functools import reduce
from importlib.metadata import entry_points
from time import monotonic
from typing import Any, NamedTuple

import numpy as np
from numpy.random.mtrand import get_bit_generator, set_bit_generator

from dask_slaq.core.errors import InvalidSetting
from dask_slaq.core.safely import safely
from dask_slaq.core.settings import shown

logger = logging.getLogger(__name__)

#: Annotation of the tasks of a search: what its models take along besides, pickled; and the group
#: of entry points by which packages add to it.
CARRIES, GROUP = "slaq_carries", "dask_slaq.carries"

#: Seconds that a model with something of its own waits for a thread in which it is alone.
OWN_SECONDS = 60.0
#: What `warnings.catch_warnings` replaces, and puts back.
WARNINGS = ("filters", "showwarning", "_showwarnmsg_impl")


class Carried(NamedTuple):
    """Part of the process: `save` returns its value, and `restore` sets a value that was saved.

    `renew` seeds a random generator by 32 bytes for the next model, which has a stream of its own.
    """

    what: str
    save: Callable[[], Any]
    restore: Callable[[Any], object]
    renew: Callable[[bytes], object] | None = None


def _save_numpy() -> Any:
    state = np.random.get_state(legacy=False)
    keys = state["state"].get("key")
    if isinstance(keys, np.ndarray):  # of the usual generator, where `pickle` would take longest
        state["state"]["key"] = keys.tobytes()
    return get_bit_generator(), state


def _restore_numpy(saved: Any) -> None:
    generator, state = saved
    if get_bit_generator() is not generator:
        set_bit_generator(generator)
    keys = state["state"].get("key")
    if isinstance(keys, bytes):
        state = {**state, "state": {**state["state"], "key": np.frombuffer(keys, np.uint32)}}
    np.random.set_state(state)


def _renew_numpy(seed: bytes) -> None:
    kind: Any = type(get_bit_generator())
    state = kind(int.from_bytes(seed, "little")).state
    np.random.set_state({**state, "has_gauss": 0, "gauss": 0.0})


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


class _Contents(NamedTuple):
    """A list or dict, which may be changed in place, and what is in it."""

    holder: Any
    items: Any


def _saved(value: Any) -> Any:
    if type(value) is list:
        return _Contents(value, tuple(value))
    return _Contents(value, dict(value)) if type(value) is dict else value


def _restored(saved: Any) -> Any:
    if not isinstance(saved, _Contents):
        return saved
    if isinstance(saved.holder, list):
        saved.holder[:] = saved.items
    else:
        saved.holder.clear()
        saved.holder.update(saved.items)
    return saved.holder


def _save_warnings() -> tuple[Any, ...]:
    return tuple(_saved(getattr(warnings, name, None)) for name in WARNINGS)


def _restore_warnings(found: tuple[Any, ...]) -> None:
    for name, value in zip(WARNINGS, found, strict=True):
        setattr(warnings, name, _restored(value))
    with warnings.catch_warnings():  # which has Python forget what it has cached of them
        pass


def attribute(path: str) -> Carried:
    """Return what takes along an attribute of a module, or of an object there.

    Until the module is imported, there is nothing to take. A list or dict is taken with what is in
    it.
    """
    names = path.split(".")

    def holder() -> Any:
        for n in range(len(names) - 1, 0, -1):
            if (found := sys.modules.get(".".join(names[:n]))) is not None:
                return reduce(getattr, names[n:-1], found)
        return None

    def save() -> Any:
        where = holder()
        return _saved(None if where is None else getattr(where, names[-1]))

    def restore(value: Any) -> None:
        if (where := holder()) is not None:
            setattr(where, names[-1], _restored(value))

    return Carried(path, save, restore)


#: All that models take along, in the order in which it is saved and restored.
CARRIED = (
    Carried(
        "numpy.random",
        _save_numpy,
        _restore_numpy,
        _renew_numpy,
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
    """Carries parts of the process for the models of one worker, while it `is_alone` there.

    `take` and `bring` are called in the thread of the model, `begin` and `end` on the event loop.
    As that may wait for it, a function of somebody else is not called again that takes as many
    seconds as `longest`.
    """

    def __init__(self, is_alone: Callable[[], bool], longest: float = 0.5) -> None:
        self._is_alone, self._longest = is_alone, longest
        self._lock = threading.Lock()
        self._parts = {part.what: part for part in CARRIED}
        self._known: set[Hashable] = set()  # annotations that were read
        self._on: set[Hashable] = set()  # tasks of models that have the process, or are next
        self._apart: set[Hashable] = set()  # those that train at the same time as others
        self._base: dict[str, Any] = {}  # the process without any model
        self._streams: dict[str, Any] = {}  # states of generators as models found them
        self._imported: dict[str, dict[Any, Any]] = {}  # what modules have added as they came
        self._modules = self._renewed = 0
        self._is_own: bool | None = None  # whether the process is the worker's; None: not known
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
            self._is_own = threading.current_thread() is threading.main_thread()
            if not self._on and self._is_free():
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
        """Save the parts of the process for a model that waits, and restore those from before it.

        Random generators are saved once the model has used them. `taken` was returned the last
        time. Returns the values to be given to `bring`.
        """
        with self._lock:
            self._on.discard(key)
            if self._apart or not self._is_free():
                self._apart.discard(key)
                return taken
            had, taken = taken or {}, {}
            self._add_imported()
            for what, part in self._parts.items():
                value = self._call(part, part.save)
                before = self._base.setdefault(what, value)
                value = before if is_same(value, before) else value
                if part.renew is None:
                    taken[what] = value
                    if value is not before:
                        self._call(part, part.restore, before)
                elif what in had or not is_same(value, self._streams.get(what)):
                    taken[what] = value
                    self._renewed += 1
                    seed = hashlib.sha256(b"%d %s" % (self._renewed, pickle.dumps(before)))
                    self._call(part, part.restore, before)
                    self._call(part, part.renew, seed.digest())
                    self._streams[what] = self._call(part, part.save)
            return taken

    @safely
    def bring(self, key: Hashable, taken: Mapping[str, Any] | None, *, apart: bool) -> None:
        """Restore the values that a model has `taken`, unless another one trains meanwhile."""
        with self._lock:
            self._on.add(key)
            if apart and self._owns(taken):
                self._apart.add(key)
                logger.warning(
                    "%s goes on alongside a model that has not reported for long, and they share "
                    "random generators and the like: report more often",
                    key,
                )
            if apart or taken is None or self._apart or not self._is_free():
                return
            self._add_imported()
            for what, value in taken.items():
                part = self._parts[what]
                if what in self._imported and isinstance(value, dict):
                    value = {**self._imported[what], **value}
                if part.renew is not None:
                    self._streams[what] = value
                if not is_same(self._call(part, part.save), value):
                    self._call(part, part.restore, value)

    @safely
    def streams(self, taken: Mapping[str, Any] | None, *, waits: bool) -> dict[str, Any]:
        """Return the random generators that a model has used: what `resume` takes elsewhere."""
        with self._lock:
            had = taken or {}
            found: dict[str, Any] = {}
            if self._apart or not self._is_free():
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
            if not self._apart and self._is_free():
                for what in streams.keys() & self._parts.keys():
                    self._call(self._parts[what], self._parts[what].restore, streams[what])

    @safely
    def has_own(self, taken: Mapping[str, Any] | None) -> bool:
        """Return whether a model has changed anything of its process, or used a generator."""
        with self._lock:
            return self._is_free() and self._owns(taken)

    @safely
    def is_changed(self, taken: Mapping[str, Any] | None) -> bool:
        """Return whether a model has changed what it may put back as it ends."""
        with self._lock:
            return self._owns({w: v for w, v in (taken or {}).items() if not self._parts[w].renew})

    def _owns(self, taken: Mapping[str, Any] | None) -> bool:
        return any(value is not self._base.get(what) for what, value in (taken or {}).items())

    def _is_free(self) -> bool:
        """Return whether nothing but the models of this worker changes the process."""
        return self._is_own is not False and self._is_alone()

    def _add_imported(self) -> None:
        """Let what a module adds as it is imported, such as a variable, hold for all models."""
        if len(sys.modules) != self._modules:
            self._modules = len(sys.modules)
            for what, before in self._base.items():
                if isinstance(before, dict):
                    now = self._call(self._parts[what], self._parts[what].save) or {}
                    if new := {name: now[name] for name in now.keys() - before.keys()}:
                        self._imported.setdefault(what, {}).update(new)
                        self._base[what] = before | new

    def _add(self, load: Callable[[], Any]) -> None:
        try:
            found = load()
            for given in found if isinstance(found, list) else [found]:
                part = as_carried(given)
                self._parts.setdefault(part.what, part)
        except Exception as error:
            logger.error("what models should carry cannot be used: %r", error)

    def _see(self) -> None:
        self._add_imported()
        for what, part in self._parts.items():
            value = self._call(part, part.save)
            if what not in self._base or not is_same(value, self._base[what]):
                self._base[what] = value
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
            seconds = 0.0 if part in CARRIED else monotonic() - begin
            if seconds > self._longest:
                self._slow.add(part.what)
                logger.error("models do not carry %s, which takes %.1g s", part.what, seconds)
