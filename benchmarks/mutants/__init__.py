"""Small faults that are put into the package, and how many of them the tests catch."""
