"""`DeviceCheck` in a real Trainer: what it finds, when it looks, what it leaves alone."""

from __future__ import annotations

import copy
import gc
import inspect
import logging
import pickle
import re
import subprocess
import sys
import time
import tracemalloc
import warnings
import weakref

import lightning.pytorch
import pytest
import pytorch_lightning as pl
import torch
import torch.nn.functional as F

from lightning_devcheck import DeviceCheck, DeviceCheckWarning, DeviceMismatchError, simulate_cuda
from lightning_devcheck._check import callback as callback_module
from tests.helpers.mistakes import (
    CLEAN,
    KEEPING,
    MISTAKES,
    CpuLoss,
    Lazy,
    LeafAttribute,
    NoPath,
    ParametersInList,
    PartMovedAway,
    RoundTrip,
    StateLeftBehind,
)
from tests.helpers.source import is_marked
from tests.helpers.training import QUIET, Clean, make_loader, make_trainer


def fit(model, check, batches=3, **kwargs):
    """Fit on the second of two simulated devices."""
    with simulate_cuda(devices=2):
        trainer = make_trainer(accelerator="gpu", devices=[1], callbacks=check, **kwargs)
        trainer.fit(model() if isinstance(model, type) else model, make_loader(batches))
    return check.report


@pytest.mark.parametrize("model", MISTAKES, ids=lambda model: model.__name__)
def test_each_mistake_is_named(model):
    """Every model with a mistake gets its rules and names, and no other."""
    report = fit(model, DeviceCheck("ignore"), batches=1)
    assert {(finding.rule, finding.name) for finding in report.findings} == model.expected
    assert not report.ok


@pytest.mark.parametrize("model", MISTAKES, ids=lambda model: model.__name__)
def test_each_mistake_has_its_line(model):
    """The finding points at the line of the mistake, in its origin or its use, where any line is known."""
    findings = fit(model, DeviceCheck("ignore"), batches=1).findings
    places = [place for finding in findings for place in (finding.origin, finding.used) if place is not None]
    assert not places or any(map(is_marked, places))


def test_part_moved_away_is_found_where_no_forward_fails():
    """A part that the loss does not use and that was moved by hand has the line that moved it, and a fix for it."""
    (finding,) = fit(PartMovedAway, DeviceCheck("ignore"), batches=1).findings
    assert finding.origin.line == "self.extra.cpu()  # BUG"
    assert finding.why.startswith("This line moves the module, in place")


def test_optimizer_state_left_behind_stops_the_run_before_the_step():
    """State of an optimizer on the host is named with its parameter, before torch fails in the step."""
    with pytest.raises(DeviceMismatchError) as info:
        fit(StateLeftBehind, DeviceCheck())
    assert {(finding.rule, finding.name) for finding in info.value.report.errors} == StateLeftBehind.expected
    assert "the optimizer state of self.net[0].weight is on cpu, self.net[0].weight is on cuda:1" in str(info.value)


@pytest.mark.parametrize("model", KEEPING, ids=lambda model: model.__name__)
def test_a_kept_graph_is_named(model):
    """A loss kept with its graph is named at the second batch, with the attribute, its line and a fix."""
    findings = fit(model, DeviceCheck("ignore"), batches=4).findings
    assert {(finding.rule, finding.name) for finding in findings} == model.expected
    assert all(is_marked(finding.origin) for finding in findings)
    assert all(model.fix == finding.fix for finding in findings)


@pytest.mark.parametrize("model", CLEAN, ids=lambda model: model.__name__)
def test_clean_models_are_quiet(model):
    """Look-alikes that are right get no finding at all."""
    assert fit(model, DeviceCheck("ignore", every_n_steps=1)).findings == ()


@pytest.mark.parametrize("model", [*CLEAN, Lazy], ids=lambda model: model.__name__)
def test_clean_models_are_quiet_on_the_cpu(model):
    """The same models on a plain CPU run get no finding either."""
    check = DeviceCheck("ignore", every_n_steps=1)
    make_trainer(callbacks=check).fit(model(), make_loader())
    assert check.report.findings == ()


def test_the_report_of_a_silent_cpu_loss():
    """The whole text: what, evidence with the line, why, fix, rule."""
    with pytest.raises(DeviceMismatchError) as info:
        fit(CpuLoss, DeviceCheck())
    text = str(info.value)
    assert text.startswith(
        "the loss is on cpu, the model is on cuda:1 (step 0)\n\n  terms       cpu     float32[]  made  "
    )
    assert "terms = [F.mse_loss(self.net(batch), batch).cpu() for _ in range(2)]  # BUG" in text
    assert "\n  parameters  cuda:1  9 tensors\n" in text
    assert "This line copies it to the CPU: a hidden copy and a wait in every step." in text
    assert "Fix (not tried): terms = [F.mse_loss(self.net(batch), batch) for _ in range(2)]" in text
    assert text.endswith("Rule: loss-device (docs/rules.md#loss-device)")


def test_the_run_stops_before_backward():
    """When the error is raised no gradient has been computed."""
    model = CpuLoss()
    with pytest.raises(DeviceMismatchError):
        fit(model, DeviceCheck())
    assert all(parameter.grad is None for parameter in model.parameters())


def test_unregistered_parameter_says_where_it_is_kept():
    """A parameter in a plain list is named by its place, with the assignment's line and a ParameterList to paste."""
    with pytest.raises(DeviceMismatchError) as info:
        fit(ParametersInList, DeviceCheck())
    finding = info.value.report.findings[0]
    assert finding.origin.line == "self.balance = [nn.Parameter(torch.zeros(()))]  # BUG"
    assert finding.used.line == "return F.mse_loss(self.net(batch), batch) * torch.exp(self.balance[0])"
    assert finding.fix == "self.balance = nn.ParameterList([nn.Parameter(torch.zeros(()))])"


def test_unregistered_parameter_holds_on_the_cpu():
    """The same mistake is a mistake on a CPU-only run."""
    check = DeviceCheck("ignore")
    make_trainer(callbacks=check).fit(ParametersInList(), make_loader())
    assert {(finding.rule, finding.name) for finding in check.report.findings} == ParametersInList.expected


def test_warn_says_it_once_at_the_users_line():
    """Under "warn" training goes on and each finding is one warning at the line of the mistake."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", DeviceCheckWarning)
        fit(CpuLoss, DeviceCheck("warn"), batches=8)
    mine = [warning for warning in caught if warning.category is DeviceCheckWarning]
    assert len(mine) == 1
    assert mine[0].filename.endswith("mistakes.py")
    assert str(mine[0].message).startswith("the loss is on cpu, the model is on cuda:1")


def test_a_warning_does_not_stop_the_run():
    """A rule of severity warning warns under "raise" too, and training goes on."""
    with pytest.warns(DeviceCheckWarning, match="the graph of the loss leaves cuda:1 for cpu and comes back"):
        report = fit(RoundTrip, DeviceCheck())
    assert report.checked["steps"] == 2


def test_allow_by_name_and_device():
    """A place that may be elsewhere is allowed by a pattern of its name or by its device."""
    assert fit(LeafAttribute, DeviceCheck(allow=["temp*"])).ok
    assert fit(LeafAttribute, DeviceCheck(allow=["self.temperature"])).ok
    assert fit(CpuLoss, DeviceCheck(allow=["cpu"])).ok
    assert not fit(LeafAttribute, DeviceCheck("ignore", allow=["teacher.*"])).ok


def test_ignore_a_rule():
    """A rule that is not wanted finds nothing; the others still do."""
    report = fit(NoPath, DeviceCheck("ignore", ignore=["detached-loss"]), batches=1)
    assert {finding.rule for finding in report.findings} == {"loss-device"}


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"on_mismatch": "warning"}, ValueError, "is not a known action; use one of 'raise', 'warn', 'ignore'"),
        ({"every_n_steps": 0}, ValueError, r"DeviceCheck\(every_n_steps=0\): use a positive integer, or None"),
        ({"every_n_steps": 1.5}, ValueError, r"DeviceCheck\(every_n_steps=1.5\): use a positive integer, or None"),
        ({"allow": "cpu"}, TypeError, r"DeviceCheck\(allow='cpu'\): a list of strings is needed"),
        ({"ignore": [3]}, TypeError, r"DeviceCheck\(ignore=\[3\]\): a list of strings is needed"),
        ({"ignore": ["loss"]}, ValueError, "no rule 'loss'; there are loss-device, leaf-device"),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "",
)
def test_arguments_are_validated(arguments, error, message):
    """A wrong argument is refused with its name, its value and the choices."""
    with pytest.raises(error, match=message):
        DeviceCheck(**arguments)


def test_full_checks_are_at_batches_one_two_four_eight():
    """The graph is walked at batches 1, 2, 4, 8, 16 of a fit."""
    assert fit(Clean, DeviceCheck(), batches=20).checked["steps"] == 5


def test_every_n_steps_adds_checks():
    """With every_n_steps=5 batches 5, 10, 15, 20 are walked as well."""
    assert fit(Clean, DeviceCheck(every_n_steps=5), batches=20).checked["steps"] == 9


def test_a_changed_graph_is_checked_at_once():
    """A mistake that appears at batch 6, between scheduled checks, is found at batch 6."""

    class Late(Clean):
        def training_step(self, batch, batch_idx):
            loss = F.mse_loss(self.net(batch), batch)
            return loss.cpu() if batch_idx == 5 else loss

    with pytest.raises(DeviceMismatchError, match=r"the loss is on cpu, the model is on cuda:1 \(step 5\)"):
        fit(Late, DeviceCheck(), batches=20)


@pytest.mark.parametrize("simulated", [False, True], ids=["cpu", "simulated cuda"])
def test_weights_are_the_same_with_and_without(simulated):
    """After 20 steps with dropout the weights are bit for bit the same with and without the callback."""

    def train(callbacks):
        torch.manual_seed(1)
        model = Clean()
        kwargs = {"accelerator": "gpu", "devices": [1]} if simulated else {}
        make_trainer(callbacks=callbacks, **kwargs).fit(model, make_loader(20))
        return [tensor.cpu() for tensor in model.state_dict().values()]

    def both():
        return train([]), train([DeviceCheck(every_n_steps=3)])

    if simulated:
        with simulate_cuda(devices=2):
            without, with_ = both()
    else:
        without, with_ = both()
    assert all(map(torch.equal, without, with_))


def test_loss_and_graph_are_let_go():
    """After the batch nothing keeps the loss or its graph alive."""
    gone = []

    class Watching(Clean):
        def training_step(self, batch, batch_idx):
            hidden = self.net(batch)
            gone.append(weakref.ref(hidden))
            return F.mse_loss(hidden, batch)

        def on_train_batch_start(self, batch, batch_idx):
            gc.collect()
            assert all(reference() is None for reference in gone)

    make_trainer(callbacks=DeviceCheck(every_n_steps=1)).fit(Watching(), make_loader(6))
    assert len(gone) == 6


def test_ten_thousand_checks_grow_nothing():
    """Ten thousand full checks leave no memory behind."""
    from lightning_devcheck import check_devices

    layer, x = torch.nn.Linear(2, 1), torch.ones(3, 2)

    def check(times):
        for _ in range(times):
            assert check_devices(layer(x).mean(), layer).ok

    check(100)
    gc.collect()
    tracemalloc.start()
    check(100)
    before = tracemalloc.get_traced_memory()[0]
    check(10_000)
    gc.collect()
    grown = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert grown < 20_000, f"{grown} bytes more"


def test_anomaly_mode_is_put_back():
    """Source lines are recorded in the first forward only; the user's setting is back before backward."""
    seen = []

    class Watching(Clean):
        def training_step(self, batch, batch_idx):
            seen.append(torch.is_anomaly_enabled())
            return super().training_step(batch, batch_idx)

        def on_before_backward(self, loss):
            seen.append(torch.is_anomaly_enabled())

    make_trainer(callbacks=DeviceCheck()).fit(Watching(), make_loader(3))
    assert seen == [True, False, False, False, False, False]


def broken(*args, **kwargs):
    """A fault of ours."""
    raise ZeroDivisionError("ours")


@pytest.mark.parametrize("part", ["inspect", "parameter_names", "inspect_training", "sequence_number"])
def test_a_fault_of_ours_does_not_stop_training(part, monkeypatch, caplog):
    """An exception inside the check is logged once, with a request to report it, and training goes on."""
    check = DeviceCheck(every_n_steps=1)
    monkeypatch.setattr(callback_module, part, broken)
    with caplog.at_level(logging.WARNING, "lightning_devcheck"):
        trainer = make_trainer(callbacks=check)
        trainer.fit(Clean(), make_loader(8))
    assert trainer.global_step == 8
    assert [record.getMessage() for record in caplog.records] == [
        "DeviceCheck failed and is of no use in this run; please report this."
    ]


@pytest.mark.parametrize("action", ["raise", "warn"])
def test_a_fault_in_telling_does_not_stop_training(action, monkeypatch, caplog):
    """A finding that cannot be put into words is no reason to stop."""
    monkeypatch.setattr(callback_module.Report, "__str__", broken)
    with caplog.at_level(logging.WARNING, "lightning_devcheck"):
        fit(CpuLoss, DeviceCheck(action))
    assert len(caplog.records) == 1
    assert not torch.is_anomaly_enabled()


@pytest.mark.parametrize("namespace", [pl, lightning.pytorch], ids=["pytorch_lightning", "lightning"])
@pytest.mark.parametrize("bare", [True, False], ids=["bare", "in a list"])
def test_both_namespaces(namespace, bare):
    """The callback works in the Trainer of either namespace, bare and in a list."""

    class Model(namespace.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = torch.nn.Linear(4, 4)
            self.balance = [torch.nn.Parameter(torch.zeros(()))]

        def training_step(self, batch, batch_idx):
            return self.net(batch).pow(2).mean() + self.balance[0]

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1)

    check = DeviceCheck()
    assert isinstance(check, namespace.Callback)
    trainer = namespace.Trainer(accelerator="cpu", devices=1, callbacks=check if bare else [check], **QUIET)
    with pytest.raises(DeviceMismatchError, match=r"self.balance\[0\] is an nn.Parameter"):
        trainer.fit(Model(), make_loader())


@pytest.mark.parametrize("cli", ["pytorch_lightning", "lightning.pytorch"])
def test_lightning_cli(tmp_path, cli):
    """Either namespace's LightningCLI builds the callback from a YAML file."""
    (tmp_path / "config.yaml").write_text(
        "trainer:\n  accelerator: cpu\n  max_epochs: 1\n  logger: false\n  enable_checkpointing: false\n"
        "  enable_progress_bar: false\n  enable_model_summary: false\n"
        "  callbacks:\n    - class_path: lightning_devcheck.DeviceCheck\n"
        "      init_args: {on_mismatch: warn, every_n_steps: 2, allow: ['teacher.*'], ignore: [device-round-trip]}\n"
    )
    (tmp_path / "script.py").write_text(
        f"from {cli}.cli import LightningCLI\n"
        f"from {cli}.demos.boring_classes import BoringDataModule, DemoModel\n"
        "import torch\n"
        "class Model(DemoModel):\n"
        "    def training_step(self, batch, batch_idx):\n"
        "        return self(batch).sum()\n"
        "cli = LightningCLI(Model, BoringDataModule, save_config_callback=None)\n"
        "print([c.report.checked['steps'] for c in cli.trainer.callbacks if type(c).__name__ == 'DeviceCheck'])\n"
    )
    command = [sys.executable, "script.py", "fit", "--config", "config.yaml"]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stderr[-2000:]
    assert run.stdout.strip().endswith("[33]")


def test_several_backwards_in_one_batch_are_each_checked():
    """Manual optimization with two optimizers checks each backward of a checked batch."""

    class Gan(Clean):
        automatic_optimization = False

        def __init__(self):
            super().__init__()
            self.automatic_optimization = False
            self.critic = torch.nn.Linear(4, 1)

        def training_step(self, batch, batch_idx):
            generator, critic = self.optimizers()
            self.manual_backward(self.critic(self.net(batch)).mean())
            generator.step()
            self.manual_backward(self.critic(self.net(batch).detach()).mean())
            critic.step()

        def configure_optimizers(self):
            return [torch.optim.SGD(part.parameters(), lr=0.1) for part in (self.net, self.critic)]

    report = fit(Gan, DeviceCheck(), batches=4)
    assert report.ok
    assert report.checked["steps"] == 6


def test_clocks_of_the_program_are_left_alone(monkeypatch):
    """A program that puts a clock of its own in place of time.perf_counter gets no call of ours."""
    calls = []
    monkeypatch.setattr(time, "perf_counter", lambda: calls.append(inspect.currentframe().f_back.f_code) or 0.0)
    assert fit(Clean, DeviceCheck(every_n_steps=1)).checked["steps"] == 3
    assert not [code.co_filename for code in calls if "lightning_devcheck" in code.co_filename]


def test_validation_only_costs_nothing_and_finds_nothing():
    """Without a training step nothing is checked, and the report says so by its counts."""

    class Validated(Clean):
        def validation_step(self, batch, batch_idx):
            self.log("loss", F.mse_loss(self.net(batch), batch))

    check = DeviceCheck()
    make_trainer(callbacks=check).validate(Validated(), make_loader(), verbose=False)
    assert check.report.checked == {}


def test_the_callback_can_be_pickled_after_a_fit():
    """A Trainer and its callbacks may be copied or sent to another process, also after a fit."""
    check = DeviceCheck("ignore")
    make_trainer(callbacks=check).fit(ParametersInList(), make_loader())
    assert pickle.loads(pickle.dumps(check)).report == check.report
    assert copy.deepcopy(check).report == check.report


def test_a_second_fit_starts_its_schedule_anew():
    """Each fit is checked from its own first batch."""
    check = DeviceCheck()
    for _ in range(2):
        make_trainer(callbacks=check).fit(Clean(), make_loader(2))
    assert check.report.checked["steps"] == 4


@pytest.mark.parametrize("accumulate", [1, 4])
def test_gradient_accumulation(accumulate):
    """With accumulated gradients each scheduled micro-batch is checked and the mistake is found."""
    with pytest.raises(DeviceMismatchError, match="the loss is on cpu"):
        fit(CpuLoss, DeviceCheck(), accumulate_grad_batches=accumulate)
    assert fit(Clean, DeviceCheck(), accumulate_grad_batches=accumulate).ok


def test_closure_optimizer():
    """LBFGS calls the hook several times a batch; the schedule counts batches."""

    class Closure(Clean):
        def configure_optimizers(self):
            return torch.optim.LBFGS(self.parameters(), max_iter=3)

    report = fit(Closure, DeviceCheck(), batches=3)
    assert report.ok
    assert report.checked["steps"] >= 2


def test_a_step_without_a_loss():
    """training_step may return None: nothing is checked, nothing is left on."""

    class Skipping(Clean):
        def training_step(self, batch, batch_idx):
            return None if batch_idx == 0 else super().training_step(batch, batch_idx)

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*returned `None`.*")
        assert fit(Skipping, DeviceCheck(), batches=4).ok


@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed", "16-mixed", "bf16-true", "16-true", "64-true"])
def test_precisions(precision):
    """A scaled or cast loss is understood; the mistake is still found."""
    with pytest.raises(DeviceMismatchError, match="the loss is on cpu"):
        fit(CpuLoss, DeviceCheck(), precision=precision)
    assert fit(Clean, DeviceCheck(), precision=precision).ok


def anomaly_after(setting, callbacks):
    """Whether anomaly mode is on in each step where the first one sets it itself."""
    seen = []

    class Setting(Clean):
        def training_step(self, batch, batch_idx):
            if batch_idx == 0:
                setting()
            loss = super().training_step(batch, batch_idx)
            seen.append(torch.is_anomaly_enabled() if batch_idx else None)
            return loss

    try:
        make_trainer(callbacks=callbacks).fit(Setting(), make_loader(4))
        return [*seen, torch.is_anomaly_enabled()]
    finally:
        torch.autograd.set_detect_anomaly(False)


def turn_on_for_a_while():
    with torch.autograd.set_detect_anomaly(True):
        pass


@pytest.mark.parametrize(
    "setting",
    [
        lambda: torch.autograd.set_detect_anomaly(True),
        lambda: torch.autograd.set_detect_anomaly(False),
        turn_on_for_a_while,
    ],
    ids=["on", "off", "for a while"],
)
def test_anomaly_mode_of_the_program_stays(setting):
    """What the program sets during the first batch holds afterwards as it does without the check."""
    assert anomaly_after(setting, [DeviceCheck()]) == anomaly_after(setting, [])


def test_anomaly_mode_around_a_manual_backward():
    """A context manager that is open at the backward leaves nothing of ours behind."""

    class Around(Clean):
        def __init__(self):
            super().__init__()
            self.automatic_optimization = False

        def training_step(self, batch, batch_idx):
            with torch.autograd.set_detect_anomaly(True):
                self.manual_backward(super().training_step(batch, batch_idx))
            seen.append(batch_idx and torch.is_anomaly_enabled())

    seen = []
    make_trainer(callbacks=DeviceCheck()).fit(Around(), make_loader(3))
    assert seen == [0, False, False]
    assert not torch.is_anomaly_enabled()


@pytest.mark.parametrize("value", [None, 3, [1], b"cpu"], ids=repr)
@pytest.mark.parametrize("name", ["allow", "ignore"])
def test_lists_of_texts_are_named(name, value):
    """What is no list of strings is refused with the argument's name and value."""
    with pytest.raises(TypeError, match=re.escape(f"DeviceCheck({name}={value!r}): a list of strings is needed")):
        DeviceCheck(**{name: value})
