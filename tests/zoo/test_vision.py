"""Models of torchvision and timm."""

from __future__ import annotations

import pytest
import torch

from tests.zoo._train import images, square, train


@pytest.mark.parametrize("name", ["resnet18", "mobilenet_v3_small", "swin_t", "vit_b_16"])
@pytest.mark.filterwarnings("ignore")
def test_torchvision_classifiers(name):
    """Convolutional networks and transformers train without a finding."""
    models = pytest.importorskip("torchvision.models")
    options = {"image_size": 32} if name == "vit_b_16" else {}
    assert train(lambda: getattr(models, name)(num_classes=3, **options), square, images()).findings == ()


@pytest.mark.filterwarnings("ignore")
def test_torchvision_segmentation():
    """A network whose output is a mapping trains without a finding."""
    segmentation = pytest.importorskip("torchvision.models.segmentation")
    build = segmentation.lraspp_mobilenet_v3_large
    report = train(
        lambda: build(num_classes=3, weights_backbone=None), lambda net, b: net(b)["out"].square().mean(), images(64)
    )
    assert report.findings == ()


def detect(net, batch):
    """The losses of a detector, for one box an image."""
    box = torch.tensor([[1.0, 1.0, 20.0, 20.0]], device=batch.device)
    targets = [{"boxes": box, "labels": torch.ones(1, dtype=torch.long, device=batch.device)} for _ in batch]
    return sum(net(list(batch), targets).values())


@pytest.mark.filterwarnings("ignore")
def test_torchvision_detection():
    """A detector trains; the report's notes are about what it reads and copies, and what it keeps in lists."""
    detection = pytest.importorskip("torchvision.models.detection")
    options = {"num_classes": 3, "weights": None, "weights_backbone": None, "min_size": 64, "max_size": 64}
    report = train(lambda: detection.fasterrcnn_mobilenet_v3_large_320_fpn(**options), detect, images(64))
    assert {finding.severity for finding in report.findings} == {"note"}


@pytest.mark.parametrize("name", ["convnext_atto", "efficientnet_lite0", "vit_tiny_patch16_224", "resnet10t"])
@pytest.mark.filterwarnings("ignore")
def test_timm(name):
    """Models of timm train with its losses, without a finding."""
    timm = pytest.importorskip("timm")
    losses = pytest.importorskip("timm.loss")
    options = {"img_size": 32} if name.startswith("vit") else {}

    def smoothed(net, batch):
        return losses.LabelSmoothingCrossEntropy()(
            net(batch), torch.zeros(len(batch), dtype=torch.long, device=batch.device)
        )

    assert train(lambda: timm.create_model(name, num_classes=3, **options), smoothed, images()).findings == ()
