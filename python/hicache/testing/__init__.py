"""For people who test what they build with HiCache: a conformance kit for stores, and stores that
misbehave."""
