"""What needs no scheduler of ours, and none loads: simulations, the demo, what to persist."""
