def page(runs, result):
    return ""
