"""Contract checker: resolves every upstream name the package reads, from syntax trees alone.

The package uses the standard library only and imports neither SGLang nor torch, so it judges a tree that this machine
could not run.
Data flows one way::

    tree.py -> extract.py -> facts.py -> store.py     source text to cached facts of one module
    names.py -> inherit.py -> construct.py -> members.py   facts to what an attribute of a runtime class is
    rows.py -> judge.py -> report.py                  what we read, what the tree says, what that means for a model
    diff.py, lint.py, startup.py                      two trees; our own sources; the plugin's start-up
"""
