"""Shapes and types: propagated through the graph, and folded where exporters compute them."""
