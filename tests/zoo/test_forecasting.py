"""Models of pytorch-forecasting."""

from __future__ import annotations

import pytest

from lightning_devcheck import preflight

forecasting = pytest.importorskip("pytorch_forecasting")
pandas = pytest.importorskip("pandas")


def series():
    """Two short time series."""
    rows = [{"time": t, "value": float(t % 5 + group), "group": str(group)} for group in range(2) for t in range(20)]
    return forecasting.TimeSeriesDataSet(
        pandas.DataFrame(rows),
        time_idx="time",
        target="value",
        group_ids=["group"],
        max_encoder_length=6,
        max_prediction_length=2,
        time_varying_unknown_reals=["value"],
    )


@pytest.mark.parametrize("name", ["TemporalFusionTransformer", "DeepAR"])
@pytest.mark.filterwarnings("ignore")
def test_forecasts(name):
    """A forecast of two series trains without an error or a warning."""
    dataset = series()
    loader = dataset.to_dataloader(train=True, batch_size=4, num_workers=0)

    def build():
        return getattr(forecasting, name).from_dataset(dataset, hidden_size=8, log_interval=-1)

    assert not [found for found in preflight(build, loader).findings if found.severity != "note"]
