"""Models that callbacks or `steps` watch keep their state, and go on on other workers."""

import os
import signal
import time
from typing import Any

import numpy as np
import pytest
from adapters.libraries import Lightgbm, Xgboost
from distributed import Client, LocalCluster
from distributed.core import Status
from distributed.utils_test import poll_for
from driving import PATIENCE, inside, until, with_plugin

import dask_slaq as slaq
from dask_slaq.core.errors import InvalidSetting

ROUNDS = 24
#: Rate of a model, and round of each of its computations, in the order in which they were made.
MADE: list[tuple[float, int]] = []


def rows() -> tuple[Any, Any]:
    random = np.random.default_rng(0)
    x = random.normal(size=(200, 4)).astype("f4")
    return x, (x[:, 0] + random.normal(size=200) > 0).astype(int)


def made(rate: float, step: int, seconds: float = 0.02) -> None:
    time.sleep(seconds)
    MADE.append((rate, step))


def by_xgboost(rate: float, note: Any = made) -> Any:
    xgboost = Xgboost()
    ours = xgboost.library.callback

    class Note(ours.TrainingCallback):
        def before_iteration(self, model, epoch, evals_log):
            if note and "update" not in vars(model):
                note(rate, epoch)
            return False

    callbacks = xgboost.module.SlaqReport(), Note(), ours.EarlyStopping(ROUNDS)
    booster = xgboost.train(rows(), *callbacks, rate=rate, rounds=ROUNDS)
    return booster.save_raw("ubj"), xgboost.history, booster.best_iteration


def by_lightgbm(rate: float, note: Any = made) -> Any:
    lightgbm = Lightgbm()
    report = lightgbm.module.SlaqReport()

    def tell(env):
        if note:
            note(rate, env.iteration)

    booster = lightgbm.train(rows(), report, tell, rate=rate, **report.go_on(ROUNDS))
    assert booster.num_trees() == ROUNDS
    return np.round(booster.predict(rows()[0]), 6)


def by_skorch(rate: float, note: Any = made) -> Any:
    torch = pytest.importorskip("torch")
    skorch = pytest.importorskip("skorch")
    from dask_slaq.adapters.skorch import SlaqReport

    class Note(skorch.callbacks.Callback):
        def on_epoch_begin(self, net, **kwargs):
            if note:
                note(rate, len(net.history) - 1)

    x, y = rows()
    linear = torch.nn.Linear(4, 1)
    torch.nn.init.constant_(linear.weight, 0.1)
    torch.nn.init.constant_(linear.bias, 0.0)
    net = skorch.NeuralNetRegressor(
        linear,
        max_epochs=ROUNDS,
        lr=rate / 10,
        optimizer=torch.optim.SGD,
        optimizer__momentum=0.9,
        train_split=None,
        verbose=0,
        callbacks=[SlaqReport(), Note()],
    ).fit(x, y[:, None].astype("f4"))
    assert len(net.history) == ROUNDS and net.max_epochs == ROUNDS
    return net.predict(x)


def by_lightning(rate: float, note: Any = made) -> Any:
    torch = pytest.importorskip("torch")
    lightning = pytest.importorskip("lightning.pytorch")
    from dask_slaq.adapters.lightning import SlaqReport

    class Line(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.line = torch.nn.Linear(4, 1)
            torch.nn.init.constant_(self.line.weight, 0.1)
            torch.nn.init.constant_(self.line.bias, 0.0)

        def training_step(self, batch, index):
            return torch.nn.functional.mse_loss(self.line(batch[0]), batch[1])

        def on_train_epoch_start(self):
            if note:
                note(rate, self.current_epoch)

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=rate / 10, momentum=0.9)

    x, y = map(torch.from_numpy, rows())
    data = torch.utils.data.TensorDataset(x, y[:, None].float())
    report, module = SlaqReport(), Line()
    trainer = lightning.Trainer(
        max_epochs=ROUNDS,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[report],
    )
    loader = torch.utils.data.DataLoader(data, batch_size=50)
    trainer.fit(module, loader, ckpt_path=report.checkpoint())
    assert trainer.current_epoch == ROUNDS
    return module.line.weight.detach().numpy()


def by_partial_fit(rate: float, note: Any = made) -> Any:
    from sklearn.linear_model import SGDRegressor

    x, y = rows()
    model = SGDRegressor(learning_rate="constant", eta0=rate / 100, random_state=0)
    random = np.random.default_rng(0)
    for step in slaq.steps(ROUNDS, model, random):
        if note:
            note(rate, step)
        some = random.permutation(len(x))[:50]
        model.partial_fit(x[some], y[some])
        slaq.report(float(np.mean((model.predict(x) - y) ** 2))) if note else None
    return model.coef_


def by_torch(rate: float, note: Any = made) -> Any:
    torch = pytest.importorskip("torch")
    x, y = map(torch.from_numpy, rows())
    model = torch.nn.Linear(4, 1)
    torch.nn.init.constant_(model.weight, 0.1)
    torch.nn.init.constant_(model.bias, 0.0)
    optimizer = torch.optim.Adam(model.parameters(), lr=rate / 10)
    for step in slaq.steps(ROUNDS, model, optimizer):
        if note:
            note(rate, step)
        loss = torch.nn.functional.mse_loss(model(x)[:, 0], y.float())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        slaq.report(loss) if note else None
    return model.weight.detach().numpy()


LIBRARIES = [by_xgboost, by_lightgbm, by_skorch, by_lightning, by_partial_fit, by_torch]
RATES = [0.05 * (k + 1) for k in range(6)]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("train", LIBRARIES)
def test_models_go_on_on_another_worker(train):
    expected = [train(rate, note=None) for rate in RATES]

    @with_plugin([1, 1])
    async def run(c, s, plugin, a, b):
        MADE.clear()
        async with slaq.search("models", client=c, steps=ROUNDS) as search:
            futures = c.map(train, RATES, pure=False)
        trials = inside(plugin).trials("models")
        await until(lambda: sum(t.checkpoint.reports > 3 for t in trials.alive.values()) >= 2)
        a.status = Status.paused
        results = await c.gather(futures)
        assert {t["iteration"] for t in await search.trials()} == {ROUNDS}
        for found, wanted in zip(results, expected, strict=True):
            np.testing.assert_equal(found, wanted)
        for rate in RATES:
            assert [step for r, step in MADE if r == rate] == list(range(ROUNDS))

    run()


def train_and_mark(library: str, rate: float, marks: str) -> None:
    """Train a model, and note each step in a file: what a killed process has written stays."""

    def note(rate: float, step: int) -> None:
        time.sleep(0.1)  # so that a state per second is one per ten steps
        with open(f"{marks}/{rate}", "a") as file:
            file.write(f"{step}\n")

    (by_xgboost if library == "xgboost" else by_partial_fit)(rate, note)


@pytest.mark.slow
@pytest.mark.parametrize("library", ["xgboost", "partial_fit"])
def test_a_killed_process_costs_at_most_two_steps_per_model(library, tmp_path):
    if library == "xgboost":
        pytest.importorskip("xgboost")
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        client.register_plugin(slaq.SlaqPlugin())
        rates = [0.05 * (k + 1) for k in range(8)]
        with slaq.search("models", steps=ROUNDS) as search:
            futures = client.map(train_and_mark, [library] * 8, rates, marks=str(tmp_path))
        poll_for(lambda: sum(t["iteration"] for t in search.trials()) >= 4 * ROUNDS, PATIENCE)
        os.kill(next(iter(client.run(os.getpid).values())), signal.SIGKILL)
        client.gather(futures)
    again = []
    for rate in rates:
        done = [int(line) for line in (tmp_path / str(rate)).read_text().splitlines()]
        assert set(done) == set(range(ROUNDS))
        again.append(len(done) - ROUNDS)
    print("steps made again:", again)
    assert sum(again) <= 2 * len(rates)


@with_plugin([1, 1])
async def test_the_loop_has_a_last_step_when_its_result_is_lost(c, s, plugin, a, b):
    async with slaq.search("models", client=c, steps=ROUNDS):
        futures = c.map(last_loss, range(4), pure=False)
    losses = await c.gather(futures)
    await b.close()  # and results with it
    assert await c.gather(futures) == losses


def last_loss(offset: int) -> float:
    for step in slaq.steps(ROUNDS):
        loss = offset + 1 / (step + 1)
        slaq.report(loss)
    return loss


@pytest.mark.parametrize("part", [3, "model", (1, 2), None])
def test_parts_that_cannot_be_put_back_are_refused(part):
    with pytest.raises(InvalidSetting, match=r"slaq.resume\(\)"):
        slaq.steps(3, part)


def test_steps_are_a_range_elsewhere():
    assert list(slaq.steps(3, [])) == [0, 1, 2]
    with pytest.raises(InvalidSetting, match=">= 0"):
        slaq.steps(-1)


def two_models(offset: float) -> list[int]:
    counts = []
    for _ in range(2):
        counts.append([])
        for step in slaq.steps(6, counts[-1]):
            counts[-1].append(step)
            made(offset, step)
            slaq.report(offset + 1 / (step + 1))
    return counts


@with_plugin([1])
async def test_only_the_first_training_of_a_task_is_kept(c, s, plugin, a):
    async with slaq.search("models", client=c):
        for counts in await c.gather(c.map(two_models, range(4), pure=False)):
            assert counts == [list(range(6))] * 2


def own_state(rate: float) -> Any:
    assert slaq.resume() is None  # the states of the callback are not for it
    return len(by_xgboost(rate, note=None)[0])


@with_plugin([1, 1])
async def test_a_function_that_asks_for_its_state_keeps_its_own(c, s, plugin, a, b):
    pytest.importorskip("xgboost")
    async with slaq.search("models", client=c, steps=ROUNDS):
        await c.gather(c.map(own_state, RATES, pure=False))


def drawn(rate: float) -> Any:
    return by_xgboost(rate + float(np.random.default_rng().uniform(0, 0.01)))[1]


@pytest.mark.filterwarnings("ignore")
@with_plugin([1, 1])
async def test_a_training_that_is_configured_otherwise_begins_anew(c, s, plugin, a, b):
    pytest.importorskip("xgboost")
    async with slaq.search("models", client=c, steps=ROUNDS):
        futures = c.map(drawn, RATES, pure=False)
    trials = inside(plugin).trials("models")
    await until(lambda: sum(t.checkpoint.reports > 3 for t in trials.alive.values()) >= 2)
    a.status = Status.paused
    for history in await c.gather(futures):
        assert len(history["valid"]["logloss"]) == ROUNDS


def of_optuna(trial: Any) -> tuple[float, list[int]]:
    rate = trial.suggest_float("rate", 0.05, 0.3)
    numbers: list[int] = []
    for step in slaq.steps(ROUNDS, numbers):
        made(trial.number, step)
        numbers.append(step)
        trial.report(rate + 1 / (step + 1), step)
        if trial.should_prune():
            break
    return rate, numbers


@with_plugin([1, 1])
async def test_optunas_trials_move_if_they_were_asked_for_where_they_are_submitted(
    c, s, plugin, a, b
):
    optuna = pytest.importorskip("optuna")
    MADE.clear()
    study = optuna.create_study(pruner=slaq.optuna.Pruner())
    async with slaq.search("study", client=c, steps=ROUNDS):
        futures = c.map(of_optuna, [study.ask() for _ in RATES], pure=False)
    trials = inside(plugin).trials("study")
    await until(lambda: sum(t.checkpoint.reports > 3 for t in trials.alive.values()) >= 2)
    a.status = Status.paused
    for number, (_, numbers) in enumerate(await c.gather(futures)):
        assert numbers == list(range(ROUNDS))
        assert [step for n, step in MADE if n == number] == numbers
