"""``dask slaq demo``: many models, one task each (`search`), or jobs of many tasks (`jobs`).

`local` starts the cluster, and runs one of them; `digits` is what they train; `live` shows it in
the terminal, `report` on a page.
"""
