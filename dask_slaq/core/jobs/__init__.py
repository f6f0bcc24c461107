"""Jobs: their settings, arrays, history, and when they end."""
