"""Training: token store, batches, schedule, loop, checkpoints, gauges. It knows neither teachers nor consensus."""
