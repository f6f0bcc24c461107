"""Jobs on the scheduler: admitted, decided on, and what hinders them."""
