"""Engines that walk the request path.

For: the reference engine, a small real one to read and to test against; each further engine is a module here.
Assumes: nothing of the cache but its verbs.
Refuses to know: how a tier keeps its bytes.
On error: see each engine.
"""
