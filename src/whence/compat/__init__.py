"""The vocabularies of the systems that whence learned from, as adapters to its own graph: Hexagon
NN's prepare, NNVM's fusion, luci-profile's origins.

For people who know those systems, and for code and documents written in their terms. Nothing in
whence imports them.
"""
