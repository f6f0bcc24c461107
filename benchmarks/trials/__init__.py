"""Many models, one task each: a search's models with and without the plugin, and under Optuna."""
