"""``dask slaq demo``: many models, one task each (`search`), or jobs of many tasks (`jobs`).

`local` starts the cluster, runs one of them and shows it in the terminal, `report` on a page.
"""
