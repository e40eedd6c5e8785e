"""`DeviceCheck` and `check_devices`."""
