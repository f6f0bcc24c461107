"""The figures of the SLAQ paper (SoCC 2017) from this project's runs: data, pictures and a table.

Each figure has three functions: one computes an `xarray.Dataset` from a `Study`, one draws it, and
one reads rows of the table from it. So a NetCDF file holds exactly what the picture shows.
"""
