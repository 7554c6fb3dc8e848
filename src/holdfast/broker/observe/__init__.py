"""What can be seen of a running broker: counts at one moment, metrics, forecasts, who is stuck."""
