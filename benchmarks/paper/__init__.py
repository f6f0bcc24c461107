"""The figures of the SLAQ paper (SoCC 2017) from our own runs: data, pictures and a table.

Each figure is a function from a `Study` to an `xarray.Dataset`, one that draws it, and one that
reads the table's rows from it, so that a NetCDF file holds just what the picture shows.
"""
