"""chemprop's message passing network."""

from __future__ import annotations

import pytest

from lightning_devcheck import preflight

chemprop = pytest.importorskip("chemprop")
data, models, nn = (pytest.importorskip(f"chemprop.{part}") for part in ("data", "models", "nn"))


@pytest.mark.filterwarnings("ignore")
def test_message_passing_network():
    """A regression on a few molecules trains without an error or a warning."""
    points = [data.MoleculeDatapoint.from_smi(smiles, [1.0]) for smiles in ("CCO", "CCN", "CCC", "c1ccccc1O")]
    loader = data.build_dataloader(data.MoleculeDataset(points), batch_size=2, num_workers=0)

    def build():
        return models.MPNN(nn.BondMessagePassing(d_h=8), nn.MeanAggregation(), nn.RegressionFFN(input_dim=8))

    assert not [found for found in preflight(build, loader).findings if found.severity != "note"]
