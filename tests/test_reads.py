"""Notes about lines that read from the device, or copy to it."""

from __future__ import annotations

import lightning.pytorch as pl
import pytest
import torch
import torch.nn.functional as F
from torchmetrics import BootStrapper, MeanMetric, MeanSquaredError
from torchmetrics.classification import MulticlassAccuracy

from lightning_devcheck import preflight
from lightning_devcheck._report.records import Origin
from lightning_devcheck._source.naming import name_read
from tests.helpers.source import placed


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("total += loss.item()", "loss"),
        ("self.sums[i] += losses[i].detach().mean().item()", "losses[i]"),
        ("history.append(float(loss))", "loss"),
        ("if loss > best:", "loss"),
        ("if loss.item() > 3:  # too far", "loss"),
        ("if torch.isnan(loss).any():", "loss"),
        ("while not done:", "done"),
        ("assert loss < 10, 'diverged'", "loss"),
        ("elif self.norm(x) > 3:", "self.norm(x)"),
        ('text = f"{loss:.3f}"  # shown', "loss"),
        ('print("loss", loss)', "loss"),
        ("n = int(mask.sum())", "mask"),
        ("self.best = min(self.best, float(loss))", "loss"),
        ("scores = out.argmax(1).cpu().numpy()", "out"),
        ("lr = 1.0 if loss > 1 else 0.1", "loss"),
        ("self.running += losses.detach().cpu()", "self.running"),
        ("self.running[i] += loss.to('cpu')", "self.running"),
        ("x[mask] = 0  # holes", "mask"),
        ("loss = loss + logits[:, label].mean()", "label"),
        ("x = y[x > 0]", "x > 0"),
        ("score = metric(x[rows])", "score = metric(x[rows])"),
        ("return loss.cpu() if self.offload else loss", "loss"),
        ("x = x.to(other.device) if flag else x", "flag"),
        ("text = 'loss {:.3f}'.format(loss)", "loss"),
        ("text = 'loss %.3f' % loss", "loss"),
        ("text = 'loss %.3f of %d' % (loss, n)", "loss"),
        ("text = name.format(loss)", "text = name.format(loss)"),
        ("value = (a,", "value = (a,"),
        ("total += losses['a'].item()", 'losses["a"]'),
        ("self.sums['a'] += loss.cpu()", "self.sums"),
        ("score = metric(x['rows'])", 'score = metric(x["rows"])'),
    ],
)
def test_what_a_line_reads(tmp_path, line, name):
    """A host read is named by the expression that is read, or else by its line."""
    assert name_read(placed(tmp_path, line)) == name


@pytest.mark.parametrize(
    ("head", "name"),
    [
        ("for i, term in enumerate(losses):", "losses"),
        ("for weight, term in zip(weights, losses):", "losses"),
        ("for i, (weight, term) in enumerate(zip(weights, losses)):", "losses"),
        ("for key, term in losses.items():", "losses"),
        ("for term in self.terms(x):", "self.terms(x)"),
        ("for other in losses:", "term"),
    ],
)
def test_what_a_loop_reads(tmp_path, head, name):
    """In a loop it is the container that is read."""
    source = tmp_path / "loop.py"
    source.write_text(f"def step():\n    {head}\n        total += term.item()\n")
    assert name_read(Origin(str(source), 3, "total += term.item()", "step")) == name


class Model(pl.LightningModule):
    """A model whose step does what is asked."""

    def __init__(self, step):
        super().__init__()
        self.net = torch.nn.Linear(8, 1)
        self.register_buffer("table", torch.ones(8))
        self.step = step

    def training_step(self, batch, batch_idx):
        """The loss of what the step makes of a batch."""
        return F.mse_loss(self.net(self.step(self, batch)), torch.zeros(4, 1, device=batch.device))

    def configure_optimizers(self):
        """Plain SGD."""
        return torch.optim.SGD(self.parameters(), lr=0.1)


def copied_in_every_step(model, batch):
    """A table that the host computes and sends."""
    table = torch.linspace(0, 1, 8).to(batch.device)
    return batch + table


def copied_in_place(model, batch):
    """The same, in the middle of an expression."""
    table = torch.linspace(0, 1, 8)
    return batch + table.to(batch.device)


def made_there(model, batch):
    """Everything is made on the device, or is there already."""
    table = torch.linspace(0, 1, 8, device=batch.device) + model.table.to(batch.device)
    return batch + table.type_as(batch)


@pytest.mark.parametrize("step", [copied_in_every_step, copied_in_place])
def test_copy_in_every_step_is_a_note(step):
    """What the CPU makes and sends in every step is a note with its line; the report stays ok."""
    report = preflight(lambda: Model(step), torch.randn(4, 4, 8))
    (note,) = [finding for finding in report.findings if finding.rule == "host-copy"]
    assert (note.severity, note.name, report.ok) == ("note", "table", True)
    assert note.what == "table is copied from the CPU to cuda:1, once per training step"
    assert ".to(batch.device)" in note.used.line


def test_what_lightning_reads_is_not_the_users():
    """GradScaler reads a value in every step, below the line that started the run: no line of the step does."""
    assert not preflight(lambda: Model(made_there), torch.randn(4, 4, 8), precision="16-mixed").findings


def test_batches_and_what_is_there_are_no_copies():
    """The batch that Lightning moves, and a move to where a tensor is, are no notes."""
    assert not preflight(lambda: Model(made_there), torch.randn(4, 4, 8)).findings


class Logging(Model):
    """A model that logs in every way, and keeps metrics."""

    def __init__(self):
        super().__init__(None)
        self.metric = MulticlassAccuracy(2)
        self.mean = MeanMetric()
        self.drawn = BootStrapper(MeanSquaredError(), num_bootstraps=2)

    def training_step(self, batch, batch_idx):
        """Log, update, train."""
        loss = self.net(batch).square().mean()
        self.log("loss", loss, prog_bar=True, on_epoch=True)
        self.log_dict({"rate": 0.1, "size": len(batch), "twice": 2 * loss.detach()})
        self.updated(loss)
        return loss

    def updated(self, loss):
        """Nothing in this class."""


class Measuring(Logging):
    """One that updates its metrics in every step."""

    def updated(self, loss):
        """One metric that looks at its input, and one that is told to."""
        self.metric(loss.detach().expand(4, 2), torch.zeros(4, dtype=torch.long, device=loss.device))
        self.mean.update(loss.detach())
        self.drawn.update(loss.detach().expand(4), loss.detach().expand(4))  # draws indices on the CPU


class ByHand(Logging):
    """One that steps its optimizer itself."""

    def __init__(self):
        super().__init__()
        self.automatic_optimization = False

    def updated(self, loss):
        """A step with clipping."""
        optimizer = self.optimizers()
        optimizer.zero_grad()
        self.manual_backward(loss)
        self.clip_gradients(optimizer, 1.0, "norm")
        optimizer.step()


@pytest.mark.parametrize("precision", ["32-true", "16-mixed"])
@pytest.mark.parametrize("model", [Logging, ByHand])
def test_what_lightning_does_at_a_line_is_not_the_users(model, precision):
    """What logging copies, and what GradScaler reads in optimizer.step(), no line of the user's can spare."""
    assert not preflight(model, torch.randn(4, 4, 8), precision=precision).findings


def test_reads_inside_a_metric_are_notes_with_the_metrics_own_cure():
    """A metric that looks at its input is named with its arguments that spare that; its copies are its own."""
    notes = preflight(Measuring, torch.randn(4, 4, 8)).findings
    assert [(note.rule, note.used.line.split("(")[0]) for note in notes] == [
        ("host-read", "self.metric"),
        ("host-read", "self.mean.update"),
    ]
    assert notes[0].fix.startswith("the metric looks at its input: validate_args=False or nan_strategy=")
